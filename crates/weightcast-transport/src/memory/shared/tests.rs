use super::*;
use rustix::fs::{FallocateFlags, fallocate, fcntl_get_seals, fcntl_getfl};
use std::fs::File;
use std::os::unix::fs::FileExt;

fn made(len: usize) -> SharedAllocation {
    SharedAllocation::new(len).unwrap()
}

fn mapped(file: BorrowedFd<'_>, protection: ProtFlags) -> rustix::io::Result<()> {
    // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
    let mapping = unsafe { mmap(null_mut(), PAGE, protection, MapFlags::SHARED, file, 0) }?;
    // SAFETY: mapped above, unmapped once.
    unsafe { munmap(mapping, PAGE) }
}

#[test]
fn memory_is_whole_pages_aligned_and_zero() {
    for (len, pages, align) in [(0, 1, PAGE), (1, 1, PAGE), (PAGE + 1, 2, PAGE)]
        .into_iter()
        .chain([(HUGE_PAGE, 512, HUGE_PAGE), (HUGE_PAGE + 1, 513, HUGE_PAGE)])
    {
        let memory = made(len);
        assert_eq!((memory.len(), memory.address().addr() % align), (pages * PAGE, 0), "{len}");
        // SAFETY: our own memory, which nobody else has.
        let bytes = unsafe { std::slice::from_raw_parts_mut(memory.address(), memory.len()) };
        assert!(bytes.iter().all(|byte| *byte == 0));
        bytes.fill(1);
    }
    assert!(SharedAllocation::new(usize::MAX).is_err());
    assert!(SharedAllocation::new(isize::MAX as usize).is_err());
}

/// Whoever has the descriptor reads the bytes, and can do nothing else.
#[test]
fn the_descriptor_gives_leave_to_read_alone() {
    let memory = made(PAGE);
    assert_eq!(fcntl_get_seals(memory.file()).unwrap() & SEALS, SEALS);
    let mode = fcntl_getfl(memory.file()).unwrap() & OFlags::RWMODE;
    assert_eq!(mode, OFlags::RDONLY);
    assert!(mapped(memory.file(), ProtFlags::READ).is_ok());
    assert!(mapped(memory.file(), ProtFlags::READ | ProtFlags::WRITE).is_err());
    // Opened anew for writing, which its user may: the seals hold all the same.
    let path = format!("/proc/self/fd/{}", memory.file().as_raw_fd());
    let again = File::options().read(true).write(true).open(path).unwrap();
    let writable = mapped(again.as_fd(), ProtFlags::READ | ProtFlags::WRITE);
    assert_eq!(writable, Err(Errno::PERM));
    assert!(again.write_at(&[1], 0).is_err());
    assert!(again.set_len(0).is_err() && again.set_len(2 * PAGE as u64).is_err());
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert!(fallocate(&again, hole, 0, PAGE as u64).is_err());
    assert_eq!(fcntl_add_seals(&again, SealFlags::WRITE), Err(Errno::PERM), "the last word");
    // SAFETY: our own memory, which nobody has a reference to.
    unsafe { memory.address().write(9) };
    let mut byte = [0];
    again.read_exact_at(&mut byte, 0).unwrap();
    assert_eq!(byte, [9], "the owner writes on");
}

#[test]
fn ranges_are_found_in_the_allocation_that_holds_all_of_them() {
    let [one, other] = [PAGE, 3 * PAGE].map(|len| made(len).listed());
    let unlisted = made(PAGE);
    let place = |address: *mut u8, len: usize| {
        let found = find([(address.addr() as u64, len)].into_iter()).pop().unwrap();
        found.map(|(memory, offset)| (memory.address().addr(), offset))
    };
    for memory in [&one, &other] {
        let (base, len) = (memory.address(), memory.len());
        let own = |offset| Some((base.addr(), offset));
        assert!(
            is_shared(base.addr() as u64 + 1, len - 1) && !is_shared(base.addr() as u64, len + 1)
        );
        assert_eq!(place(base, len), own(0));
        assert_eq!(place(base.wrapping_add(5), len - 5), own(5));
        assert_eq!(place(base.wrapping_add(len), 0), own(len));
        assert_eq!(place(base, len + 1), None);
        assert_eq!(place(base.wrapping_add(5), len - 4), None);
        assert_eq!(place(base.wrapping_add(5), usize::MAX), None);
        assert_ne!(place(base.wrapping_sub(1), 1), own(0));
    }
    assert_eq!(place(unlisted.address(), 1), None);
    assert_eq!(place(null_mut(), 0), None);
    let gone = one.address();
    drop(one);
    assert_eq!(place(gone, 1), None);
}

#[test]
fn weights_are_left_out_of_core_dumps() {
    let memory = made(PAGE);
    let at = format!("{:x}-", memory.address().addr());
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let own = maps.split_once(&*at).expect("its mapping").1;
    let flags = own.lines().find(|line| line.starts_with("VmFlags:")).unwrap();
    assert!(["rd", "wr", "sh", "dd"].iter().all(|flag| flags.contains(flag)), "{flags}");
}

/// To its last page: all of these together have no room in the address space, which has 2^47 bytes.
#[test]
fn whoever_drops_shared_memory_gives_all_of_it_back() {
    for round in 0..16 {
        assert!(SharedAllocation::new(1 << 44).is_ok(), "round {round}");
    }
}

/// Of the mapping that begins at an address: its line in `numa_maps`.
fn numa_line(address: *mut u8) -> String {
    let maps = std::fs::read_to_string("/proc/self/numa_maps").unwrap();
    let start = format!("{:x} ", address.addr());
    maps.lines().find(|line| line.starts_with(&start)).expect("its mapping").to_owned()
}

#[test]
fn pages_come_from_the_node_that_is_asked_for() {
    assert!(numa_line(made(PAGE).address()).contains(" default "), "of no node by itself");
    for len in [1, 3 * PAGE, HUGE_PAGE + 1] {
        let memory = SharedAllocation::on_node(len, 0).unwrap();
        assert!(numa_line(memory.address()).contains(" bind:0 "), "{len}");
        // SAFETY: our own memory, which nobody else has.
        unsafe { memory.address().write_bytes(7, len) };
        assert!(numa_line(memory.address()).contains(" N0="), "{len}");
        assert_eq!(fcntl_get_seals(memory.file()).unwrap() & SEALS, SEALS);
    }
}

/// The kernel keeps the node with the file: another mapping of it is bound as well.
#[test]
fn a_node_holds_for_whoever_maps_the_memory() {
    let memory = SharedAllocation::on_node(PAGE, 0).unwrap();
    let (read, shared) = (ProtFlags::READ, MapFlags::SHARED);
    // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
    let other = unsafe { mmap(null_mut(), PAGE, read, shared, memory.file(), 0) }.unwrap();
    assert!(numa_line(other.cast()).contains(" bind:0 "));
    // SAFETY: mapped above, unmapped once.
    unsafe { munmap(other, PAGE) }.unwrap();
}

#[test]
fn a_node_that_is_not_there_is_named_beside_those_that_are() {
    let there = std::fs::read_to_string("/sys/devices/system/node/has_memory").unwrap();
    for node in [1023, u32::MAX] {
        let error = SharedAllocation::on_node(PAGE, node).err().expect("no such node").to_string();
        let expected = format!("NUMA node {node}: nodes with memory are {};", there.trim());
        assert!(error.contains(&expected), "{error}");
    }
    // Where the kernel's list cannot be read, the kernel refuses.
    let memory = made(PAGE);
    for node in [1023, 1024, u32::MAX] {
        let refused = numa::bind(memory.address(), PAGE, node).unwrap_err();
        assert!(
            matches!(&refused, NumaError::NotBound { node: of, .. } if *of == node),
            "{refused}"
        );
        assert!(refused.to_string().contains("Mems_allowed_list"), "{refused}");
    }
}
