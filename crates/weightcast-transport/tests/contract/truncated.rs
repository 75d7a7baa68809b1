//! A source's memory that somebody took away: a mapping of a file that was made shorter. Whoever
//! touches it gets SIGBUS; serving it must leave that to the kernel, which does not.

use crate::by_hand::loopback;
use crate::ways::soon;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::ptr::null_mut;
use std::sync::Arc;
use weightcast_transport::Way::{Direct, Tcp};
use weightcast_transport::*;

const LEN: usize = 1 << 20;

#[test]
fn serving_a_truncated_file_costs_the_read_and_not_the_process() {
    let file = memfd_create("weights", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, LEN as u64).unwrap();
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing; it stays.
    let memory = unsafe { mmap(null_mut(), LEN, protection, flags, &file, 0) }.unwrap();
    // SAFETY: mapped for ever; nobody touches it from here on but the kernel.
    let region = unsafe { Region::from_raw(memory.cast(), LEN, false, Arc::new(())) };
    let server = DataServer::bind(loopback(), Auth::default()).unwrap();
    let export = server.exports().expose(1, vec![region]);
    let peers = [Direct, Tcp]
        .map(|way| Peer::connect_by(way, server.addr(), &Auth::default(), soon()).unwrap());
    let read_from = |peer| {
        let to = [Region::allocate(LEN).unwrap()];
        let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, LEN as u64)];
        let jobs = [SourceJob { peer, export, generation: 1, copies }];
        read(&jobs, &to, &TransferOptions { deadline: Some(soon()), ..TransferOptions::default() })
    };
    peers.iter().for_each(|peer| drop(read_from(peer).expect("it is there")));
    ftruncate(&file, LEN as u64 / 2).unwrap();
    for peer in &peers {
        let error = read_from(peer).unwrap_err();
        assert_eq!(error.advice(), Advice::RetryElsewhere, "{:?}: {error}", peer.way());
    }
    let other = server.exports().expose(1, vec![Region::from_bytes(b"abc").unwrap()]);
    assert_eq!(peers[1].note(other, 1, soon()).unwrap(), None, "the port serves on");
}
