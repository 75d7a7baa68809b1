//! Target memory that cannot be written is the reader's own fault, and no source is blamed for it.

use crate::by_hand::loopback;
use crate::ways::{noise, soon};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use weightcast_transport::Way::{Direct, Shared, Tcp};
use weightcast_transport::*;

const PAGE: usize = 4096;
const PAGES: usize = 300;

/// A mapping of which one page, or none, is read-only.
struct Mapping(*mut c_void);

// SAFETY: the mapping is only touched through regions.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn region(read_only: Option<usize>) -> Region {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe { mmap_anonymous(null_mut(), PAGES * PAGE, prot, flags) }.unwrap();
        if let Some(page) = read_only {
            let page = base.wrapping_byte_add(page * PAGE);
            // SAFETY: a page of the mapping, to which nobody has a reference.
            unsafe { mprotect(page, PAGE, MprotectFlags::READ) }.unwrap();
        }
        let owner = Arc::new(Self(base));
        // SAFETY: mapped and readable as long as the owner lives. That it is writable is a lie:
        // the lie under test, and only the kernel finds it out.
        unsafe { Region::from_raw(base.cast(), PAGES * PAGE, true, owner) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `region`, unmapped once.
        unsafe { munmap(self.0, PAGES * PAGE) }.unwrap();
    }
}

#[test]
fn unwritable_target_memory_is_named_and_fatal() {
    let server = DataServer::bind(loopback(), Auth::default()).unwrap();
    let bytes = noise(PAGES * PAGE, 7);
    let memory = Region::allocate_shared(bytes.len()).unwrap();
    memory.write_at(0, &bytes).unwrap();
    let export = server.exports().expose(1, vec![memory]);
    let (len, offset) = (bytes.len() as u64 - 9, 9);
    let whole = vec![StridedCopy::contiguous(0, 0, 0, offset, len)];
    // Rows with gaps between them, one of them over the end of a page.
    let rows = StridedCopy { source_pitch: 1_500, target_pitch: 1_500, rows: 800, ..whole[0] };
    let rows = vec![StridedCopy { row_bytes: 1_000, ..rows }];
    for way in [Direct, Tcp, Shared] {
        let peer = Peer::connect_by(way, server.addr(), &Auth::default(), soon()).unwrap();
        let attempt = |to: &Region, copies: &[StridedCopy]| {
            let jobs = [SourceJob { peer: &peer, export, generation: 1, copies: copies.to_vec() }];
            let options = TransferOptions { deadline: Some(soon()), ..Default::default() };
            read(&jobs, std::slice::from_ref(to), &options)
        };
        for (copies, page) in [(&whole, 0), (&whole, 1), (&whole, 200), (&rows, 0), (&rows, 7)] {
            let to = Mapping::region(Some(page));
            let error = attempt(&to, copies).unwrap_err();
            let TransportError::UnwritableTarget { address } = error.kind else {
                panic!("{way:?}, page {page}: {error}")
            };
            assert_eq!((address - to.address()) / PAGE as u64, page as u64, "{way:?}");
            assert_eq!(error.advice(), Advice::Fatal);
        }
        let good = Mapping::region(None);
        attempt(&good, &whole).expect("the source was never at fault");
        assert!(good.to_vec()[9..] == bytes[..len as usize], "{way:?}");
    }
}

#[test]
fn a_fenced_source_of_a_good_target_is_still_what_is_blamed() {
    let server = DataServer::bind(loopback(), Auth::default()).unwrap();
    let export = server.exports().expose(1, vec![Region::from_bytes(b"abc").unwrap()]);
    let peer = Peer::connect_by(Direct, server.addr(), &Auth::default(), soon()).unwrap();
    let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, 3)];
    let jobs = [SourceJob { peer: &peer, export, generation: 1, copies }];
    let to = [Mapping::region(None)];
    read(&jobs, &to, &TransferOptions::default()).unwrap();
    server.exports().fence(export);
    let error = read(&jobs, &to, &TransferOptions::default()).unwrap_err();
    assert_eq!(error.kind, TransportError::Fenced { export });
}
