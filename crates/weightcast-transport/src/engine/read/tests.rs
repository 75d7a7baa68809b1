//! What a route does that no whole read shows without waiting.

use super::*;
use crate::base::error::TransportError;
use crate::base::holds::{HoldPoint, Holds};
use crate::engine::gauge::Gauge;
use crate::lane::{Endpoint, LaneTask, OpenLane};
use crate::piece::filling::Filling;
use crate::wire::description::ExportDescription;
use crate::{Auth, DataServer, ExportId, Peer, Way};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

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
    let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, len as u64)];
    let job = SourceJob { peer: &peer, export, generation: 1, copies };
    let targets = [Region::allocate(len).unwrap()];
    let options = TransferOptions { deadline: Some(soon), ..TransferOptions::default() };
    let route = CheckedJob::read(0, &job, &job.copies, &targets, &options).unwrap();
    let stock = Stock::new(Pieces::cut(&job.copies, PIECE_BYTES), 1);
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
            let first = route.open(&stock, &targets, &options, options.patience());
            let mut first = first.unwrap().expect("nobody has drawn a piece");
            first.submit(stock.pieces.draw().unwrap());
            assert!(first.poll().unwrap().is_some());
        });
        is_there.recv().unwrap();
        let second = route.open(&stock, &targets, &options, options.patience());
        drop(release);
        assert!(second.expect("the first reads it all").is_none());
    });
    assert_eq!(stock.lanes.load(Ordering::Acquire), 1, "of the one that is open");
}

fn reading(way: Way) -> (DataServer, Peer) {
    let server = DataServer::bind(([127, 0, 0, 1], 0).into(), Auth::default()).unwrap();
    let soon = Instant::now() + Duration::from_secs(60);
    let peer = match way {
        Way::Reference => Peer::connect_within(&server, &Auth::default(), soon),
        way => Peer::connect_by(way, server.addr(), &Auth::default(), soon),
    };
    (server, peer.unwrap())
}

/// Even where nothing is to be read, and nobody to be asked.
#[test]
fn a_read_that_was_given_up_before_ends_so() {
    let (server, peer) = reading(Way::Reference);
    let export = server.exports().expose(1, Vec::new());
    let job = || [SourceJob { peer: &peer, export, generation: 1, copies: Vec::new() }];
    let options = TransferOptions::default();
    assert!(read(&job(), &[], &options).is_ok());
    options.cancel.store(true, Ordering::Release);
    assert_eq!(read(&job(), &[], &options).unwrap_err().kind, TransportError::Cancelled);
}

/// Kept bytes have arrived and are not waited for.
#[test]
fn each_try_counts_anew() {
    let (server, peer) = reading(Way::Reference);
    let len = 3 * PIECE_BYTES;
    let export = server.exports().expose(1, vec![Region::allocate(len).unwrap()]);
    let targets = [Region::allocate(len).unwrap()];
    let filling = Arc::new(Filling::new(&targets));
    for try_number in 0..2 {
        let gauge = Arc::new(Gauge::default());
        let options = TransferOptions {
            filling: Some(Arc::clone(&filling)),
            gauge: Arc::clone(&gauge),
            ..TransferOptions::default()
        };
        let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, len as u64)];
        read(&[SourceJob { peer: &peer, export, generation: 1, copies }], &targets, &options)
            .unwrap();
        let reading = gauge.look().unwrap();
        assert_eq!((reading.arrived, reading.left), (len as u64, 0), "try {try_number}");
    }
}

/// And a lane that read all there was leaves its stream to the next read.
#[test]
fn nobody_opens_a_lane_for_nothing() {
    let (server, peer) = reading(Way::Tcp);
    let export = server.exports().expose(1, vec![Region::from_bytes(b"weights").unwrap()]);
    let targets = [Region::allocate(7).unwrap()];
    let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, 7)];
    let job = SourceJob { peer: &peer, export, generation: 1, copies };
    let options = TransferOptions { threads: 1, ..TransferOptions::default() };
    let route = CheckedJob::read(0, &job, &job.copies, &targets, &options).unwrap();
    let stock = Stock::new(Pieces::cut(&[], PIECE_BYTES), 1);
    let none = route.open(&stock, &targets, &options, options.patience()).unwrap();
    assert!(none.is_none() && stock.lanes.load(Ordering::Acquire) == 0);
    drop(none);
    read(std::slice::from_ref(&job), &targets, &options).unwrap();
    assert_eq!(peer.port().count(), 1);
}

/// Regions one behind the other, as units count them, whoever has which.
#[test]
fn memory_is_filled_region_by_region() {
    use crate::base::limits::MIN_UNIT_BYTES;
    let (server, peer) = reading(Way::Reference);
    let len = 4 * MIN_UNIT_BYTES;
    let export = server.exports().expose(1, vec![Region::allocate(len as usize).unwrap()]);
    let targets = [(); 2].map(|()| Region::allocate(len as usize).unwrap());
    let filling = Arc::new(Filling::new(&targets));
    let (told, seen) = (Arc::new(Mutex::new(Vec::new())), Arc::clone(&filling));
    let tell = Arc::clone(&told);
    let holds = Holds::new(move |point| {
        if point == HoldPoint::Telling {
            tell.lock().unwrap().push(seen.bits()[0]);
        }
    });
    let jobs = [1, 0].map(|region| {
        let copies = vec![StridedCopy::contiguous(0, 0, region, 0, len)];
        SourceJob { peer: &peer, export, generation: 1, copies }
    });
    let filling = Some(filling);
    let options = TransferOptions { threads: 1, filling, holds, ..TransferOptions::default() };
    read(&jobs, &targets, &options).unwrap();
    assert_eq!(*told.lock().unwrap(), [0, 1, 3, 7, 15, 31, 63, 127]);
}

/// While memory is being filled as well.
#[test]
fn whoever_fails_in_filling_is_named_by_its_job() {
    use crate::base::limits::MIN_UNIT_BYTES;
    for bad in [0, 1] {
        let (server, peer) = reading(Way::Reference);
        let len = 4 * MIN_UNIT_BYTES;
        let memory = Region::allocate(len as usize).unwrap();
        let exports = [(); 2].map(|()| server.exports().expose(1, vec![memory.clone()]));
        let targets = [(); 2].map(|()| Region::allocate(len as usize).unwrap());
        let jobs = [0, 1].map(|number| {
            let copies = vec![StridedCopy::contiguous(0, 0, number, 0, len)];
            SourceJob { peer: &peer, export: exports[number as usize], generation: 1, copies }
        });
        let table = Arc::clone(server.exports());
        let holds = Holds::new(move |point| {
            if point == HoldPoint::Telling {
                table.fence(exports[bad]);
            }
        });
        let filling = Some(Arc::new(Filling::new(&targets)));
        let options = TransferOptions { threads: 1, filling, holds, ..TransferOptions::default() };
        let error = read(&jobs, &targets, &options).unwrap_err();
        let fenced = TransportError::Fenced { export: exports[bad] };
        assert_eq!((error.source, error.kind), (bad, fenced));
    }
}

/// A way to a source that has died since it was looked at.
struct Dead(SocketAddr);

impl Endpoint for Dead {
    fn way(&self) -> Way {
        Way::Direct
    }

    fn why(&self) -> &'static str {
        "it was looked at"
    }

    fn carries(&self, _: ExportId, _: &ExportDescription) -> bool {
        true
    }

    fn verify(&self) -> Result<(), TransportError> {
        Err(TransportError::SourceGone { addr: self.0, what: "dead".to_owned() })
    }

    fn open<'a>(&'a self, _: LaneTask<'a>) -> Result<Option<OpenLane<'a>>, TransportError> {
        self.verify().map(|()| None)
    }
}

/// What came from it in time is worth nothing all the same: nobody vouches for its last look.
#[test]
fn whoever_has_died_by_the_end_is_named_by_its_job() {
    let (server, peer) = reading(Way::Reference);
    let export = server.exports().expose(1, Vec::new());
    let dead = Dead(server.addr());
    let options = TransferOptions::default();
    let job = || SourceJob { peer: &peer, export, generation: 1, copies: Vec::new() };
    let jobs = [job(), job(), job()];
    for bad in 0..3 {
        let routes = jobs.iter().enumerate().map(|(source, job)| {
            let mut route = CheckedJob::read(source, job, &[], &[], &options).unwrap();
            if source == bad {
                route.read_over(&dead);
            }
            route
        });
        let stocks = jobs.iter().map(|_| Stock::new(Pieces::cut(&[], PIECE_BYTES), 1)).collect();
        let run = RunningTransfer::new(routes.collect(), stocks, &[], &options);
        let error = run.execute().unwrap_err();
        assert_eq!((error.0, Err(error.1)), (bad, dead.verify()));
    }
}

/// Whoever waits for a source that will never go on is stopped by another's failure.
#[test]
fn a_failure_stops_whoever_waits() {
    let (server, peer) = reading(Way::Tcp);
    let len = PIECE_BYTES;
    let memory = vec![Region::allocate(len).unwrap()];
    let (forever, bad) = (crate::ExportId::random(), server.exports().expose(1, memory.clone()));
    let filling = Arc::new(Filling::new(&memory));
    server.exports().expose_filling(forever, 1, memory, filling);
    // Weak: the table holds what the exports do at these points.
    let table = Arc::downgrade(server.exports());
    // It fails once the other waits.
    let holds = Holds::new(move |point| {
        if point == HoldPoint::Waiting {
            table.upgrade().expect("served").fence(bad);
        }
    });
    server.exports().hold(forever, holds);
    let table = Arc::downgrade(server.exports());
    server.exports().hold(
        bad,
        Holds::new(move |point| {
            if point == HoldPoint::Judging {
                let table = table.upgrade().expect("served");
                while table.get(bad).is_ok_and(|export| export.is_served()) {
                    thread::yield_now();
                }
            }
        }),
    );
    let targets = [(); 2].map(|()| Region::allocate(len).unwrap());
    let jobs = [(forever, 0), (bad, 1)].map(|(export, target)| {
        let copies = vec![StridedCopy::contiguous(0, 0, target, 0, len as u64)];
        SourceJob { peer: &peer, export, generation: 1, copies }
    });
    let deadline = Some(Instant::now() + Duration::from_secs(60));
    let options = TransferOptions { deadline, ..TransferOptions::default() };
    let error = read(&jobs, &targets, &options).unwrap_err();
    assert_eq!((error.source, error.kind), (1, TransportError::Fenced { export: bad }));
}

/// Sources of the same bytes, each with a data port of its own, and memory to read into.
struct Striped {
    servers: Vec<(DataServer, Peer, ExportId)>,
    bytes: Vec<u8>,
    targets: [Region; 1],
}

impl Striped {
    fn new(way: Way, sources: usize, pieces: usize) -> Self {
        let bytes: Vec<u8> = (0..pieces * PIECE_BYTES).map(|i| (i / 7 % 251) as u8).collect();
        let source = |_| {
            let (server, peer) = reading(way);
            let memory = Region::from_bytes(&bytes).unwrap();
            let export = server.exports().expose(1, vec![memory]);
            (server, peer, export)
        };
        let servers = (0..sources).map(source).collect();
        let targets = [Region::allocate(bytes.len()).unwrap()];
        Self { servers, bytes, targets }
    }

    /// One job with the copies, and one without for each further source.
    fn jobs(&self) -> Vec<SourceJob<'_>> {
        let whole = StridedCopy::contiguous(0, 0, 0, 0, self.bytes.len() as u64);
        let jobs = self.servers.iter().enumerate().map(|(at, (_, peer, export))| SourceJob {
            peer,
            export: *export,
            generation: 1,
            copies: if at == 0 { vec![whole] } else { Vec::new() },
        });
        jobs.collect()
    }

    fn options(&self) -> TransferOptions {
        let deadline = Some(Instant::now() + Duration::from_secs(20));
        let stripes = self.servers.len();
        TransferOptions { stripes, threads: 1, deadline, ..TransferOptions::default() }
    }

    /// Reads, and returns what each source has given.
    fn read(&self, options: &TransferOptions) -> Vec<u64> {
        let digests = read(&self.jobs(), &self.targets, options).unwrap();
        assert!(self.targets[0].to_vec() == self.bytes);
        assert_eq!(digests, [self.targets[0].digest(0, self.bytes.len(), 0).unwrap()]);
        options.gauge.given()
    }
}

/// No piece is read twice, and none is left, by any way and with any number of threads.
#[test]
fn several_sources_give_each_byte_once() {
    for way in [Way::Tcp, Way::Direct, Way::Reference] {
        for threads in [1, 2, 5] {
            let striped = Striped::new(way, 3, 9);
            let given = striped.read(&TransferOptions { threads, ..striped.options() });
            assert_eq!(given.iter().sum::<u64>(), striped.bytes.len() as u64, "{way:?} {threads}");
        }
    }
}

/// Its place is taken by those that go on; what it was asked for is asked of them.
#[test]
fn a_source_that_stands_still_is_read_around() {
    for (stands, pieces) in [(0, 12), (1, 12), (2, 12), (0, 3), (1, 3)] {
        let striped = Striped::new(Way::Tcp, 3, pieces);
        let (release, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        let held = move |point| {
            if point == HoldPoint::Taking {
                let _ = released.lock().unwrap().recv();
            }
        };
        let (server, _, export) = &striped.servers[stands];
        server.exports().hold(*export, Holds::new(held));
        let given = striped.read(&striped.options());
        assert_eq!(given[stands], 0, "source {stands} stood still");
        drop(release);
        assert_eq!(given.iter().sum::<u64>(), striped.bytes.len() as u64);
    }
}

/// A relay advertises what has come, whoever gave it, and keeps it when another source goes on.
#[test]
fn memory_that_is_filled_by_several_is_final_as_it_comes() {
    for way in [Way::Tcp, Way::Direct] {
        let striped = Striped::new(way, 2, 6);
        let filling = Arc::new(Filling::new(&striped.targets));
        let options = TransferOptions { filling: Some(Arc::clone(&filling)), ..striped.options() };
        let given = striped.read(&options);
        assert_eq!(given.iter().sum::<u64>(), striped.bytes.len() as u64);
        let (done, all) = filling.progress();
        assert_eq!(done, all);
        // All of it is kept: nothing is read again.
        let again = TransferOptions { gauge: Arc::default(), ..options };
        read(&striped.jobs(), &striped.targets, &again).unwrap();
        assert_eq!(again.gauge.given(), [0, 0], "{way:?}");
    }
}

/// Also where its memory is too small for copies that are another job's.
#[test]
fn a_source_that_fails_is_named_though_others_could_give_its_pieces() {
    for way in [Way::Tcp, Way::Direct, Way::Reference] {
        let mut striped = Striped::new(way, 2, 4);
        let small = vec![Region::allocate(striped.bytes.len() - 1).unwrap()];
        let good = striped.servers[1].2;
        striped.servers[1].2 = striped.servers[1].0.exports().expose(1, small);
        let error = read(&striped.jobs(), &striped.targets, &striped.options()).unwrap_err();
        assert_eq!(error.source, 1, "{way:?}: {}", error.kind);
        striped.servers[1].2 = good;
        striped.servers[1].0.exports().fence(good);
        let error = read(&striped.jobs(), &striped.targets, &striped.options()).unwrap_err();
        assert_eq!(error.source, 1, "{way:?}: {}", error.kind);
    }
}
