//! What a route does that no whole read shows without waiting.

use super::*;
use crate::holds::HoldPoint;
use crate::{Auth, DataServer, Peer, Way};
use std::net::SocketAddr;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

/// Whoever finds a port full leaves the pieces to the lane that is open: it does not wait for a place
/// until the source counts as full, while the other worker is busy with a long piece.
#[test]
fn a_second_worker_does_not_wait_for_a_place_where_the_first_has_one() {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = DataServer::bind_for(loopback, Auth::default(), 1).unwrap();
    let len = 3 * PIECE_BYTES;
    let export = server.exports().expose(1, vec![Region::allocate(len).unwrap()]);
    let soon = Instant::now() + Duration::from_secs(60);
    let peer = Peer::connect_by(Way::Tcp, server.addr(), &Auth::default(), soon).unwrap();
    let copies = vec![Copy::contiguous(0, 0, 0, 0, len as u64)];
    let job = SourceJob { peer: &peer, export, generation: 1, copies };
    let targets = [Region::allocate(len).unwrap()];
    let options = ReadOptions { deadline: Some(soon), ..ReadOptions::default() };
    let mut route = Route::check(0, &job, &targets, &options).unwrap();
    route.pieces = Pieces::cut(&job.copies, PIECE_BYTES);
    let (arrived, is_there) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let held = move |point| {
        if point == HoldPoint::Taking {
            arrived.send(()).unwrap();
            let _ = released.lock().unwrap().recv();
        }
    };
    server.exports().hold(export, Holds::new(held));
    thread::scope(|scope| {
        scope.spawn(|| {
            let first = route.open(&targets, &options.holds, options.patience());
            let mut first = first.unwrap().expect("nobody has drawn a piece");
            first.submit(route.pieces.draw().unwrap());
            assert!(first.poll().unwrap().is_some());
        });
        is_there.recv().unwrap();
        let second = route.open(&targets, &options.holds, options.patience());
        drop(release);
        assert!(second.expect("the first reads it all").is_none());
    });
}
