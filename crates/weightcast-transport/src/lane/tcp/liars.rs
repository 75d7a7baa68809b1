//! Sources that say of a read what no source says, and one that is slow to be filled.

use crate::base::holds::{HoldPoint, Holds};
use crate::base::limits::PIECE_BYTES;
use crate::memory::kind::MemoryKind;
use crate::memory::region::Region;
use crate::wire::handshake::{PROOF_BYTES, SourceSide};
use crate::wire::mac::Channel;
use crate::wire::{self, FrameKind, HEADER_BYTES, Header};
use crate::{
    Auth, DataServer, ExportId, Filling, Peer, SourceJob, StridedCopy, TransferOptions,
    TransportError, Way, read,
};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// An export of which a liar says nothing at all.
const UNTOLD: ExportId = ExportId(8);

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// A source whose answer to every read is this, if it has any: without one it closes. Counts those
/// who have asked.
pub(super) fn liar(answer: Vec<u8>) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    thread::spawn(move || {
        while let Ok((socket, _)) = listener.accept() {
            let (answer, count) = (answer.clone(), Arc::clone(&count));
            thread::spawn(move || serve(socket, &answer, &count));
        }
    });
    (addr, asked)
}

fn serve(mut socket: TcpStream, answer: &[u8], asked: &AtomicUsize) -> io::Result<()> {
    let side = SourceSide::new(Channel::Tcp);
    socket.write_all(&side.hello())?;
    let mut proof = [0; PROOF_BYTES];
    socket.read_exact(&mut proof)?;
    socket.write_all(&side.judge(&Auth::default().mac_key(), &proof).0)?;
    loop {
        let mut header = [0; HEADER_BYTES];
        socket.read_exact(&mut header)?;
        let header = Header::decode(&header).expect("a request");
        let mut body = vec![0; header.body];
        socket.read_exact(&mut body)?;
        if header.kind == FrameKind::Describe {
            if body.first() == Some(&(UNTOLD.0 as u8)) {
                continue;
            }
            let mut description = Vec::new();
            let start = wire::begin(&mut description, FrameKind::Description);
            // A region of four bytes, and addresses as if over a Unix socket.
            description.push(0);
            wire::put(&mut description, &[1, 4]);
            description.push(MemoryKind::Host.code());
            wire::put(&mut description, &[2, 16, 4_096, 8_192]);
            wire::finish(&mut description, start);
            socket.write_all(&description)?;
            continue;
        }
        if header.kind == FrameKind::Identify {
            socket.write_all(&Header::new(FrameKind::Identity, 0).encode())?;
            continue;
        }
        asked.fetch_add(1, Ordering::SeqCst);
        if answer.is_empty() {
            return Ok(());
        }
        socket.write_all(answer)?;
    }
}

fn read_four(addr: SocketAddr) -> TransportError {
    let peer = Peer::connect_by(Way::Tcp, addr, &Auth::default(), soon()).unwrap();
    let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, 4)];
    let job = SourceJob { peer: &peer, export: ExportId(7), generation: 1, copies };
    let options =
        TransferOptions { threads: 1, deadline: Some(soon()), ..TransferOptions::default() };
    read(&[job], &[Region::allocate(4).unwrap()], &options).unwrap_err().kind
}

#[test]
fn what_is_no_answer_to_a_read_is_told_apart() {
    let data =
        |len: usize| [&Header::new(FrameKind::Data, len).encode()[..], &vec![1; len]].concat();
    let end = Header::end(true).encode();
    let noted = Header::new(FrameKind::Noted, 0).encode();
    let another = "an answer to another question";
    let table = [
        ([data(5), end.to_vec()].concat(), "length of an answer"),
        ([data(3), end.to_vec()].concat(), "length of an answer"),
        ([data(4), noted.to_vec()].concat(), another),
        ([data(4), Header::new(FrameKind::Data, 4).encode().to_vec()].concat(), another),
        ([noted.to_vec(), end.to_vec()].concat(), another),
    ];
    for (answer, what) in table {
        let (addr, _) = liar(answer);
        assert_eq!(read_four(addr), TransportError::Protocol { addr, what });
    }
    let coded = Header { status: 5, ..Header::new(FrameKind::Data, 4) }.encode();
    let (addr, _) = liar([&coded[..], &[1; 4], &end].concat());
    assert_eq!(read_four(addr), TransportError::UnknownCodec { addr, codec: 5 });
    let (addr, _) = liar([data(4), Header::end(false).encode().to_vec()].concat());
    assert_eq!(read_four(addr), TransportError::Fenced { export: ExportId(7) });
}

/// The source gives all in its place. Where it is the source itself, there is nobody to do without.
#[test]
fn a_helper_that_does_not_say_what_it_serves_is_left_out() {
    let answer =
        [&Header::new(FrameKind::Data, 4).encode()[..], &[1; 4], &Header::end(true).encode()];
    let (addr, _) = liar(answer.concat());
    let peer = Peer::connect_by(Way::Tcp, addr, &Auth::default(), soon()).unwrap();
    let job = |export, bytes| {
        let copies =
            if bytes > 0 { vec![StridedCopy::contiguous(0, 0, 0, 0, bytes)] } else { Vec::new() };
        SourceJob { peer: &peer, export, generation: 1, copies }
    };
    let target = [Region::allocate(4).unwrap()];
    let options = |deadline| TransferOptions { stripes: 2, deadline, ..TransferOptions::default() };
    let patient = options(Some(soon()));
    read(&[job(ExportId(7), 4), job(UNTOLD, 0)], &target, &patient).unwrap();
    assert_eq!((target[0].to_vec(), patient.gauge.given()), (vec![1; 4], vec![4, 0]));
    let short = options(Some(Instant::now() + Duration::from_millis(100)));
    let error = read(&[job(UNTOLD, 4), job(ExportId(7), 0)], &target, &short).unwrap_err();
    assert_eq!(error.source, 0);
    assert!(matches!(error.kind, TransportError::Timeout { .. }), "{}", error.kind);
}

/// Once more on a new connection, as for any question, and then it is gone.
#[test]
fn a_source_that_never_answers_is_asked_twice() {
    let (addr, asked) = liar(Vec::new());
    let gone = read_four(addr);
    assert!(matches!(gone, TransportError::SourceGone { .. }), "{gone}");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

/// Nobody vouches for them.
#[test]
fn addresses_that_come_over_tcp_are_not_used() {
    let (addr, _) = liar(Vec::new());
    for way in [Way::Tcp, Way::Auto] {
        let peer = Peer::connect_by(way, addr, &Auth::default(), soon()).unwrap();
        let description =
            peer.describe(ExportId(7), 1, &crate::base::patience::Patience::default()).unwrap();
        assert_eq!(description.regions[0].len, 4);
        assert!(peer.process().is_none());
        assert_eq!(peer.endpoint(ExportId(1), &description).way(), Way::Tcp);
        assert_eq!(peer.way_to(ExportId(7), 1), Way::Tcp);
    }
}

/// The next piece comes only once the reader has told of the first one.
#[test]
fn a_piece_is_told_of_while_the_source_waits_for_the_next() {
    let server = DataServer::bind(([127, 0, 0, 1], 0).into(), Auth::default()).unwrap();
    let piece = PIECE_BYTES as u64;
    let memory = vec![Region::allocate(2 * PIECE_BYTES).unwrap()];
    let filling = Arc::new(Filling::new(&memory));
    let whole = [StridedCopy::contiguous(0, 0, 0, 0, 2 * piece)];
    filling.begin([&whole[..]].into_iter());
    filling.arrived(0, 0, piece);
    let export = ExportId::random();
    server.exports().expose_filling(export, 1, memory, Arc::clone(&filling));
    let told = AtomicUsize::new(0);
    let holds = Holds::new(move |point| {
        if point == HoldPoint::Telling && told.fetch_add(1, Ordering::SeqCst) == 0 {
            filling.arrived(0, piece, piece);
        }
    });
    let peer = Peer::connect_by(Way::Tcp, server.addr(), &Auth::default(), soon()).unwrap();
    let job = SourceJob { peer: &peer, export, generation: 1, copies: whole.to_vec() };
    let deadline = Some(soon());
    let options = TransferOptions { threads: 1, deadline, holds, ..TransferOptions::default() };
    read(&[job], &[Region::allocate(2 * PIECE_BYTES).unwrap()], &options).unwrap();
}
