//! A fork's copies may be dropped, and the parent's stay as they were.

use crate::by_hand::loopback;
use crate::ways::soon;
use weightcast_transport::Way::{Direct, Shared, Tcp};
use weightcast_transport::*;

/// Ends a child that hangs. The parent only sees that it did.
const HANG_SECONDS: u32 = 30;

#[test]
fn a_forks_copies_are_dropped_without_harm() {
    let server = DataServer::bind(loopback(), Auth::default()).unwrap();
    let memory = Region::allocate_shared(3).unwrap();
    memory.write_at(0, b"abc").unwrap();
    let export = server.exports().expose(1, vec![memory]);
    let exports = std::sync::Arc::clone(server.exports());
    let peers = [Direct, Tcp, Shared].map(|way| {
        let peer = Peer::connect_by(way, server.addr(), &Auth::default(), soon()).unwrap();
        assert_eq!(peer.note(export, 1, soon()).unwrap(), None);
        peer
    });
    // SAFETY: the child drops values, which takes no lock that another thread may have held, and
    // ends without running anything else of this process.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: it has no precondition.
        unsafe { libc::alarm(HANG_SECONDS) };
        drop(server);
        drop(exports);
        drop(peers);
        // SAFETY: as above.
        unsafe { libc::_exit(0) };
    }
    assert!(child > 0, "fork");
    let mut status = -1;
    // SAFETY: our own child, not waited for before; the status is ours.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "it hung or died: {status}");

    for peer in &peers {
        assert_eq!(peer.note(export, 1, soon()).unwrap(), None, "connected as before");
        let to = [Region::allocate(3).unwrap()];
        let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, 3)];
        read(
            &[SourceJob { peer, export, generation: 1, copies }],
            &to,
            &TransferOptions::default(),
        )
        .expect("served as before");
        assert_eq!(to[0].to_vec(), b"abc");
    }
    // One to the port for each, and one on which the process said where the export lies. What was closed, the server
    // may notice later.
    let patience = soon();
    while server.connections() > 5 && std::time::Instant::now() < patience {
        std::thread::yield_now();
    }
    assert_eq!(server.connections(), 5, "no connection was lost and opened again");
    Peer::connect_by(Tcp, server.addr(), &Auth::default(), soon()).expect("the port is open");
}
