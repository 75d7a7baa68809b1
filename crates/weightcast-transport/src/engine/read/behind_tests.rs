//! Readers of a source that is being filled, in another order than that of its memory.

use super::*;
use crate::base::holds::{HoldPoint, Holds};
use crate::base::limits::{MIN_UNIT_BYTES, TICK};
use crate::piece::filling::Filling;
use crate::{Auth, DataServer, ExportId, Peer, Way};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const UNITS: usize = 32;
const BYTES: u64 = UNITS as u64 * MIN_UNIT_BYTES;

/// A reader has what its source has, whichever that is, and stands still for nothing that is not there.
#[test]
fn what_a_relay_has_is_read_before_what_it_has_not() {
    for way in [Way::Tcp, Way::Direct, Way::Shared] {
        let server = DataServer::bind(([127, 0, 0, 1], 0).into(), Auth::default()).unwrap();
        let [source, target] = [(); 2].map(|()| Region::allocate_shared(BYTES as usize).unwrap());
        source.write_at(0, &(0..BYTES).map(|at| (at % 251) as u8).collect::<Vec<_>>()).unwrap();
        let [coming, arriving] =
            [(); 2].map(|()| Arc::new(Filling::new(std::slice::from_ref(&source))));
        let whole = [StridedCopy::contiguous(0, 0, 0, 0, BYTES)];
        coming.begin([&whole[..]].into_iter());
        let export = ExportId::random();
        server.exports().expose_filling(export, 1, vec![source.clone()], Arc::clone(&coming));
        let (waits, waiting) = mpsc::channel();
        let holds = Holds::new(move |point| {
            if point == HoldPoint::Waiting {
                waits.send(()).unwrap_or_default();
            }
        });
        server.exports().hold(export, holds);
        let deadline = Instant::now() + Duration::from_secs(60);
        let peer = Peer::connect_by(way, server.addr(), &Auth::default(), deadline).unwrap();
        let options = TransferOptions {
            deadline: Some(deadline),
            filling: Some(Arc::clone(&arriving)),
            ..TransferOptions::default()
        };
        let job = SourceJob { peer: &peer, export, generation: 1, copies: whole.to_vec() };
        thread::scope(|scope| {
            let reader = scope.spawn(|| read(&[job], std::slice::from_ref(&target), &options));
            // It asks once, and not again and again.
            waiting.recv_timeout(Duration::from_secs(60)).expect("the source makes it wait");
            for unit in (0..UNITS).rev() {
                coming.arrived(0, unit as u64 * MIN_UNIT_BYTES, MIN_UNIT_BYTES);
                while !arriving.is_final(unit..unit + 1) {
                    arriving.wait(unit..unit + 1, TICK);
                    assert!(Instant::now() < deadline, "{unit} by {way:?}");
                }
                assert_eq!(arriving.progress().0, UNITS - unit);
            }
            let digests = reader.join().unwrap().unwrap();
            assert_eq!(digests, [source.digest(0, BYTES as usize, 0).unwrap()]);
        });
        assert!(target.to_vec() == source.to_vec());
    }
}
