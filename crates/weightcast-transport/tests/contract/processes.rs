//! Sources in processes of their own: read, killed, stopped.

use crate::ways::{arrived, noise, soon, token};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use weightcast_transport::Way::{Direct, Shared, Tcp};
use weightcast_transport::*;

const ROLE: &str = "WEIGHTCAST_TEST_SOURCE";
const LEN: usize = 8 << 20;

/// Not a test of its own: the process that the others read from. It serves until its standard
/// input ends.
#[test]
fn source_process() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let server = DataServer::bind("127.0.0.1:0".parse().unwrap(), token()).unwrap();
    let bytes = noise(LEN, 9);
    let region = Region::from_bytes(&bytes).unwrap();
    let export = server.exports().expose(1, vec![region.clone()]);
    let shared = Region::allocate_shared(LEN).unwrap();
    shared.write_at(0, &bytes).unwrap();
    let mixed = server.exports().expose(1, vec![shared.clone(), region]);
    let shared = server.exports().expose(1, vec![shared]);
    println!("\nserving {} {} {} {}", server.addr(), export.0, shared.0, mixed.0);
    let _ended = std::io::stdin().read(&mut [0]);
}

struct Source {
    child: Child,
    addr: SocketAddr,
    export: ExportId,
    /// Of the same bytes in shared memory, and of both.
    shared: ExportId,
    mixed: ExportId,
}

impl Source {
    fn spawn() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["processes::source_process", "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.map_while(Result::ok).find(|line| line.starts_with("serving "));
        let line = line.expect("the source says where it serves");
        let mut words = line.split(' ').skip(1);
        let addr = words.next().unwrap().parse().unwrap();
        let [export, shared, mixed] =
            [(); 3].map(|()| ExportId(words.next().unwrap().parse().unwrap()));
        Self { child, addr, export, shared, mixed }
    }

    fn connect(&self, way: Way) -> Peer {
        Peer::connect_by(way, self.addr, &token(), soon()).unwrap()
    }

    /// What is read by a way.
    fn export_for(&self, way: Way) -> ExportId {
        if way == Shared { self.shared } else { self.export }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// A read of the same bytes again and again: it does not end by itself in a test's time.
    fn endless<'a>(&self, peer: &'a Peer) -> [SourceJob<'a>; 1] {
        let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, LEN as u64); 10_000];
        [SourceJob { peer, export: self.export_for(peer.way()), generation: 1, copies }]
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let _already_dead = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Runs `then` once bytes flow.
fn once_it_moves(options: &TransferOptions, then: impl FnOnce()) {
    let patience = soon();
    while arrived(options) == 0 && Instant::now() < patience {
        thread::yield_now();
    }
    then();
}

#[test]
fn another_process_is_read_all_ways() {
    let source = Source::spawn();
    let auto = Peer::connect(source.addr, &token(), soon()).unwrap();
    assert_eq!(auto.way(), Direct, "same host, same user");
    let bytes = noise(LEN, 9);
    for (way, export) in [(Direct, source.export), (Direct, source.shared), (Tcp, source.shared)]
        .into_iter()
        .chain([(Shared, source.shared), (Tcp, source.export)])
    {
        let peer = source.connect(way);
        let to = [Region::allocate(LEN).unwrap()];
        let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, LEN as u64)];
        let jobs = [SourceJob { peer: &peer, export, generation: 1, copies }];
        let digests = read(&jobs, &to, &TransferOptions::default()).unwrap();
        assert!(to[0].to_vec() == bytes);
        assert_eq!(digests, [digest_at(0, &bytes)]);
        assert_eq!(peer.way_to(export, 1), way);
    }
}

/// By the same peer, whose user learns why.
#[test]
fn what_is_not_shared_is_read_directly() {
    let source = Source::spawn();
    let peer = Peer::connect(source.addr, &token(), soon()).unwrap();
    let table = [
        (source.export, Direct, "this host and user; not in shared memory"),
        (
            source.mixed,
            Direct,
            "1 of its regions are not in shared memory, the first of them is number 1",
        ),
        (source.shared, Shared, "memory that a process of this host shares"),
    ];
    for (export, way, why) in table {
        let to = [Region::allocate(LEN).unwrap()];
        let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, LEN as u64)];
        let jobs = [SourceJob { peer: &peer, export, generation: 1, copies }];
        let digests = read(&jobs, &to, &TransferOptions::default()).unwrap();
        assert_eq!(digests, [digest_at(0, &noise(LEN, 9))]);
        let said = peer.why(export, 1);
        assert_eq!(peer.way_to(export, 1), way);
        assert!(said.contains(why), "{said}");
    }
    let over_tcp = source.connect(Tcp);
    let to = [Region::allocate(1).unwrap()];
    let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, 1)];
    let jobs = [SourceJob { peer: &over_tcp, export: source.shared, generation: 1, copies }];
    read(&jobs, &to, &TransferOptions::default()).unwrap();
    assert_eq!(over_tcp.why(source.shared, 1), over_tcp.why_first());
}

#[test]
fn a_source_killed_in_mid_transfer_is_gone() {
    for way in [Direct, Tcp, Shared] {
        let source = Source::spawn();
        let peer = source.connect(way);
        let to = [Region::allocate(LEN).unwrap()];
        let options = TransferOptions { deadline: Some(soon()), ..TransferOptions::default() };
        let outcome = thread::scope(|scope| {
            scope.spawn(|| {
                once_it_moves(&options, || source.signal(rustix::process::Signal::KILL));
            });
            read(&source.endless(&peer), &to, &options)
        });
        let error = outcome.unwrap_err();
        assert!(matches!(error.kind, TransportError::SourceGone { .. }), "{way:?}: {error}");
        assert_eq!(error.advice(), Advice::RetryElsewhere);
    }
}

#[test]
fn a_stopped_source_runs_into_the_deadline() {
    let source = Source::spawn();
    let peer = source.connect(Tcp);
    let to = [Region::allocate(LEN).unwrap()];
    let deadline = Some(Instant::now() + Duration::from_millis(400));
    let options = TransferOptions { deadline, ..TransferOptions::default() };
    let outcome = thread::scope(|scope| {
        scope.spawn(|| once_it_moves(&options, || source.signal(rustix::process::Signal::STOP)));
        read(&source.endless(&peer), &to, &options)
    });
    let error = outcome.unwrap_err();
    assert!(matches!(error.kind, TransportError::Timeout { .. }), "{error}");
}

#[test]
fn a_read_from_a_stopped_source_can_be_cancelled() {
    let source = Source::spawn();
    let peer = source.connect(Tcp);
    source.signal(rustix::process::Signal::STOP);
    let to = [Region::allocate(LEN).unwrap()];
    let options = TransferOptions::default();
    let cancel = Arc::clone(&options.cancel);
    let error = thread::scope(|scope| {
        let reading = scope.spawn(|| read(&source.endless(&peer), &to, &options));
        cancel.store(true, Ordering::Relaxed);
        reading.join().unwrap().unwrap_err()
    });
    assert_eq!(error.kind, TransportError::Cancelled);
}

/// Reads of memory need nothing of the source's threads: a stopped process can still be read.
#[test]
fn a_stopped_source_is_still_read_directly() {
    for way in [Direct, Shared] {
        let source = Source::spawn();
        let peer = source.connect(way);
        let to = [Region::allocate(LEN).unwrap()];
        let job = || {
            let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, LEN as u64)];
            [SourceJob { peer: &peer, export: source.export_for(way), generation: 1, copies }]
        };
        read(&job(), &to, &TransferOptions::default()).unwrap();
        source.signal(rustix::process::Signal::STOP);
        read(&job(), &to, &TransferOptions::default()).unwrap();
    }
}

/// Whose number may be another process's by now: even after the last piece it is looked at.
#[test]
fn a_source_killed_at_any_point_of_a_read_of_its_memory_is_gone() {
    use rustix::process::{Pid, WaitId, WaitIdOptions, kill_process, waitid};
    let points = [HoldPoint::Asking, HoldPoint::Taking, HoldPoint::Judging, HoldPoint::Telling];
    let last = LEN / limits::PIECE_BYTES - 1;
    let cases = points.into_iter().flat_map(|point| [(point, 0), (point, last)]);
    for (way, (point, piece)) in
        [Direct, Shared].into_iter().flat_map(|way| cases.clone().map(move |case| (way, case)))
    {
        let source = Source::spawn();
        let peer = source.connect(way);
        let pid = Pid::from_child(&source.child);
        let passed = AtomicUsize::new(0);
        let holds = Holds::new(move |here| {
            if here == point && passed.fetch_add(1, Ordering::SeqCst) == piece {
                kill_process(pid, rustix::process::Signal::KILL).unwrap();
                waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
            }
        });
        let to = [Region::allocate(LEN).unwrap()];
        let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, LEN as u64)];
        let export = source.export_for(way);
        let jobs = [SourceJob { peer: &peer, export, generation: 1, copies }];
        let options = TransferOptions { threads: 1, holds, ..TransferOptions::default() };
        let error = read(&jobs, &to, &options).unwrap_err();
        let gone = matches!(error.kind, TransportError::SourceGone { .. });
        assert!(gone, "{way:?}, {point:?} of piece {piece}: {error}");
    }
}
