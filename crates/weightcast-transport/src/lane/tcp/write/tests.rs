use super::*;
use crate::base::holds::Holds;
use crate::base::limits::{MAX_PIECE_ROWS, MAX_RANGES, WRITE_PIECE_BYTES};
use crate::base::patience::Patience;
use crate::export::grant::{GrantTerms, WriteGrant};
use crate::memory::region::Region;
use crate::piece::copy::StridedCopy;
use crate::piece::pieces::Pieces;
use crate::wire::mac::GrantKey;
use crate::wire::{HEADER_BYTES, Header};
use crate::{Auth, DataServer, Filling, Peer, TargetJob, TransferOptions, Way, write};
use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A target of some bytes, and what it takes to write pieces into it.
struct Writing {
    server: RefCell<Option<DataServer>>,
    peer: Peer,
    memory: Region,
    sources: [Region; 1],
    grant: WriteGrant,
    key: GrantKey,
    pieces: Pieces,
    lanes: AtomicUsize,
    holds: Holds,
}

impl Writing {
    /// A byte to a piece.
    fn new(pieces: usize) -> Self {
        let server = DataServer::bind(([127, 0, 0, 1], 0).into(), Auth::default()).unwrap();
        let soon = Instant::now() + Duration::from_secs(20);
        let peer = Peer::connect_by(Way::Tcp, server.addr(), &Auth::default(), soon).unwrap();
        let bytes: Vec<u8> = (0..pieces).map(|i| (i % 250) as u8 + 1).collect();
        let memory = Region::allocate(pieces).unwrap();
        let (regions, valid_for) = (vec![memory.clone()], Duration::from_secs(60));
        let terms = GrantTerms { generation: 1, regions, writer: None, valid_for };
        let grant = server.exports().open_grant(terms).unwrap();
        let (key, sources) = (GrantKey::new(&grant.secret), [Region::from_bytes(&bytes).unwrap()]);
        let pieces = Pieces::cut(&[StridedCopy::contiguous(0, 0, 0, 0, pieces as u64)], 1);
        let (lanes, holds) = (AtomicUsize::new(0), Holds::default());
        let server = RefCell::new(Some(server));
        Self { server, peer, memory, sources, grant, key, pieces, lanes, holds }
    }

    fn lane(&self) -> TcpWriteLane<'_> {
        let task = WriteTask {
            grant: &self.grant,
            key: &self.key,
            pieces: &self.pieces,
            sources: &self.sources,
            lanes: &self.lanes,
            patience: Patience::default(),
            holds: &self.holds,
        };
        let stream = self.peer.port().take(&task.patience, || true).unwrap();
        TcpWriteLane::new(self.peer.port(), task, stream)
    }

    fn close_port(&self) {
        drop(self.server.take());
    }

    fn submit<'a>(&'a self, lane: &mut TcpWriteLane<'a>, count: usize) {
        (0..count).for_each(|_| lane.submit(self.pieces.draw().expect("more")));
    }

    /// Whether the first bytes were written, so many, and no other.
    fn has(&self, count: usize) -> bool {
        let (found, all) = (self.memory.to_vec(), self.sources[0].to_vec());
        found[..count] == all[..count] && found[count..].iter().all(|byte| *byte == 0)
    }
}

#[test]
fn a_window_of_writes_is_under_way() {
    let writing = Writing::new(20);
    let mut lane = writing.lane();
    assert!(lane.poll().unwrap().is_none(), "nothing is under way");
    for count in 0..WRITE_WINDOW {
        assert!(lane.has_room(), "{count}");
        writing.submit(&mut lane, 1);
    }
    assert!(!lane.has_room() && writing.has(0), "nothing is sent before it is waited for");
    for left in (0..WRITE_WINDOW).rev() {
        assert!(lane.poll().unwrap().is_some());
        assert_eq!((lane.asked.len(), lane.sent), (left, left));
    }
    assert!(lane.has_room() && lane.poll().unwrap().is_none() && writing.has(WRITE_WINDOW));
    Box::new(lane).close();
    assert_eq!(writing.peer.port().count(), 1, "kept for the next");
    let mut lane = writing.lane();
    writing.submit(&mut lane, 2);
    lane.poll().unwrap();
    Box::new(lane).close();
    assert_eq!(writing.peer.port().count(), 0, "an answer is under way");
}

/// Its number of writes goes on with the stream: a second transfer is as good as the first.
#[test]
fn a_stream_that_is_used_again_is_believed() {
    let writing = Writing::new(9);
    for round in 1..=3 {
        let mut lane = writing.lane();
        writing.submit(&mut lane, 3);
        (0..3).for_each(|_| assert!(lane.poll().unwrap().is_some()));
        Box::new(lane).close();
        assert!(writing.has(3 * round));
    }
    assert_eq!(writing.server.borrow().as_ref().unwrap().connections(), 1);
}

/// What the last connection proved is worth nothing on the next, so all is proved anew.
#[test]
fn a_connection_that_was_closed_between_two_writes_is_replaced() {
    let writing = Writing::new(9);
    let mut lane = writing.lane();
    // It rests: nothing was answered over it since it was opened.
    lane.stream.shut_down();
    writing.submit(&mut lane, 3);
    assert!(lane.poll().unwrap().is_some());
    // It was answered, and two more are under way.
    lane.stream.shut_down();
    writing.submit(&mut lane, 1);
    (0..3).for_each(|_| assert!(lane.poll().unwrap().is_some()));
    assert!(writing.has(4) && lane.poll().unwrap().is_none());
}

/// Writes under way while the port closes are cut off. Often, since an answer "not granted" would be a race.
#[test]
fn a_target_that_is_gone_is_no_more_asked() {
    for _ in 0..50 {
        let writing = Writing::new(9);
        let mut lane = writing.lane();
        writing.submit(&mut lane, 3);
        lane.poll().unwrap();
        writing.submit(&mut lane, 1);
        writing.close_port();
        let gone = loop {
            match lane.poll() {
                // What the port had answered before.
                Ok(Some(_)) => {}
                gone => break gone,
            }
        };
        assert!(matches!(gone, Err(TransportError::SourceGone { .. })), "{gone:?}");
    }
}

/// Whatever a target says, only an answer to a write is one.
#[test]
fn a_target_that_lies_is_not_believed() {
    let header = |kind, body| Header::new(kind, body).encode().to_vec();
    let protocol = |addr, what| Err(TransportError::Protocol { addr, what });
    for (answer, what) in [
        (header(FrameKind::End, 0), "an answer to another question"),
        (header(FrameKind::Written, 1), "length of an answer"),
        (header(FrameKind::Read, 0), "an answer to another question"),
        (vec![0; HEADER_BYTES], "not a frame"),
    ] {
        let (addr, _) = crate::lane::tcp::liars::liar(answer);
        let soon = Instant::now() + Duration::from_secs(20);
        let peer = Peer::connect_by(Way::Tcp, addr, &Auth::default(), soon).unwrap();
        let mut writing = Writing::new(2);
        writing.peer = peer;
        let mut lane = writing.lane();
        writing.submit(&mut lane, 1);
        assert_eq!(lane.poll().map(drop), protocol(addr, what));
    }
}

/// The whole entry: whoever closes is named as a target, not as a source.
#[test]
fn a_target_that_closes_is_gone() {
    let (addr, asked) = crate::lane::tcp::liars::liar(Vec::new());
    let soon = Instant::now() + Duration::from_secs(20);
    let peer = Peer::connect_by(Way::Tcp, addr, &Auth::default(), soon).unwrap();
    let writing = Writing::new(2);
    let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, 2)];
    let jobs = [TargetJob { peer: &peer, grant: &writing.grant, copies }];
    let failed = write(&jobs, &writing.sources, &TransferOptions::default()).unwrap_err();
    assert!(matches!(failed.kind, TransportError::TargetGone { addr: a, .. } if a == addr));
    assert_eq!(asked.load(Ordering::Relaxed), 2, "once more on a new connection");
}

/// Whoever reads from the writer is told of nothing: its own memory does not change.
#[test]
fn a_write_fills_nothing_here() {
    let writing = Writing::new(9);
    let filling = Arc::new(Filling::new(&writing.sources));
    let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, 9)];
    filling.begin([&copies[..]].into_iter());
    let filling = Some(filling);
    let options = TransferOptions { filling, ..TransferOptions::default() };
    let jobs = [TargetJob { peer: &writing.peer, grant: &writing.grant, copies }];
    write(&jobs, &writing.sources, &options).unwrap();
    assert!(writing.has(9));
    assert_eq!(options.filling.unwrap().bits(), [0]);
}

/// The kernel takes so many ranges: those of the largest piece, and its head.
#[test]
fn the_ranges_of_a_piece_fit_into_a_call() {
    const { assert!(MAX_PIECE_ROWS < MAX_RANGES) };
    const { assert!(WRITE_PIECE_BYTES * WRITE_WINDOW <= 1 << 20) };
}
