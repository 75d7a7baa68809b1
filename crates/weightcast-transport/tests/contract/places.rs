//! The places of a data port: idle connections make room, busy ones do not, and a reader whose
//! connection made room does not notice.

use crate::by_hand::{frame, loopback, shake_as_reader, shake_as_source, shake_from, take_frame};
use crate::ways::{noise, soon};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};
use weightcast_transport::Way::Tcp;
use weightcast_transport::*;

const PLACES: usize = 4;

fn server() -> DataServer {
    DataServer::bind_for(loopback(), Auth::default(), PLACES).unwrap()
}

fn connect(addr: SocketAddr) -> Result<Peer, TransportError> {
    Peer::connect_by(Tcp, addr, &Auth::default(), soon())
}

/// A read in several requests, checked.
fn read_all(peer: &Peer, export: ExportId, bytes: &[u8]) -> Result<(), ReadError> {
    read_on(1, peer, export, bytes)
}

fn read_on(threads: usize, peer: &Peer, export: ExportId, bytes: &[u8]) -> Result<(), ReadError> {
    let to = [Region::allocate(bytes.len()).unwrap()];
    let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, bytes.len() as u64)];
    let jobs = [SourceJob { peer, export, generation: 1, copies }];
    let options = TransferOptions { threads, deadline: Some(soon()), ..Default::default() };
    read(&jobs, &to, &options)?;
    assert!(to[0].to_vec() == bytes);
    Ok(())
}

fn digest_of_abc(peer: &Peer, export: ExportId) -> Result<Vec<Digest>, TransportError> {
    let extent = Extent { region: 0, offset: 0, row_bytes: 3, rows: 1, pitch: 3 };
    let placed = PlacedExtent { extent, position: 0, position_pitch: 3 };
    peer.digests(export, 1, &[placed], soon())
}

#[test]
fn idle_readers_make_room_and_read_on_when_they_return() {
    let server = server();
    let bytes = noise(2_000_000, 3);
    let export = server.exports().expose(1, vec![Region::from_bytes(&bytes).unwrap()]);
    let peers: Vec<Peer> = (0..PLACES + 5)
        .map(|_| {
            let peer = connect(server.addr()).expect("idle readers make room");
            read_all(&peer, export, &bytes).unwrap();
            assert!(server.connections() <= PLACES);
            peer
        })
        .collect();
    for peer in peers.iter().chain(&peers) {
        read_all(peer, export, &bytes).expect("a place that was lost while idle is no failure");
    }
    for peer in &peers {
        digest_of_abc(peer, export).expect("nor is it to a question");
    }
}

#[test]
fn silent_strangers_make_room_too() {
    let server = server();
    let export = server.exports().expose(1, vec![Region::from_bytes(b"abc").unwrap()]);
    let _silent: Vec<TcpStream> = (0..PLACES)
        .map(|_| {
            let mut socket = TcpStream::connect(server.addr()).unwrap();
            socket.read_exact(&mut [0; 40]).expect("the hello");
            socket
        })
        .collect();
    let peer = connect(server.addr()).expect("strangers keep nobody out");
    read_all(&peer, export, b"abc").unwrap();
}

#[test]
fn busy_readers_keep_their_places() {
    let server = server();
    let len = limits::MAX_READ_BYTES;
    let export = server.exports().expose(1, vec![Region::allocate(len as usize).unwrap()]);
    let numbers = [export.0, 1, 0, 0, len, 1, len];
    let request = frame(3, &numbers.map(u64::to_le_bytes).concat());
    let mut busy: Vec<TcpStream> = (0..PLACES)
        .map(|_| {
            let mut socket = shake_as_reader(server.addr());
            socket.write_all(&request).unwrap();
            socket.read_exact(&mut [0; 16]).expect("the answer has begun");
            socket
        })
        .collect();
    let in_haste = Instant::now() + Duration::from_millis(200);
    let error = Peer::connect_by(Tcp, server.addr(), &Auth::default(), in_haste).unwrap_err();
    assert_eq!(error, TransportError::Full { addr: server.addr() });
    assert_eq!(error.advice(), Advice::RetrySame);
    // Once one of them has its answer, it makes room.
    let mut answer = std::io::Read::by_ref(&mut busy[1]).take(len + 16);
    assert_eq!(std::io::copy(&mut answer, &mut std::io::sink()).unwrap(), len + 16);
    connect(server.addr()).expect("a place comes free while a reader waits for it");
}

#[test]
fn the_connections_of_one_reader_do_not_drive_each_other_out() {
    let bytes = noise(8_000_000, 5);
    for places in [1, 2] {
        let server = DataServer::bind_for(loopback(), Auth::default(), places).unwrap();
        let export = server.exports().expose(1, vec![Region::from_bytes(&bytes).unwrap()]);
        for _ in 0..20 {
            let peer = connect(server.addr()).unwrap();
            read_on(8, &peer, export, &bytes).expect("there is a place for one at least");
        }
    }
}

#[test]
fn a_host_without_a_place_gets_one_of_whoever_has_most() {
    let server = server();
    let len = limits::MAX_READ_BYTES;
    let large = server.exports().expose(1, vec![Region::allocate(len as usize).unwrap()]);
    let small = server.exports().expose(1, vec![Region::from_bytes(b"abc").unwrap()]);
    let numbers = [large.0, 1, 0, 0, len, 1, len];
    let request = frame(3, &numbers.map(u64::to_le_bytes).concat());
    let _busy: Vec<TcpStream> = (0..PLACES)
        .map(|_| {
            let mut socket = shake_from([127, 0, 0, 2], server.addr());
            socket.write_all(&request).unwrap();
            socket.read_exact(&mut [0; 16]).expect("the answer has begun");
            socket
        })
        .collect();
    let peer = connect(server.addr()).expect("one host does not keep all others out");
    read_all(&peer, small, b"abc").unwrap();
}

/// A source that follows a script, connection by connection.
fn scripted<const N: usize>(script: [fn(TcpStream); N]) -> (Peer, thread::JoinHandle<()>) {
    let listener = TcpListener::bind(loopback()).unwrap();
    let addr = listener.local_addr().unwrap();
    let source = thread::spawn(move || {
        script.into_iter().for_each(|act| act(shake_as_source(&listener)));
    });
    (connect(addr).unwrap(), source)
}

/// Takes the request and leaves.
fn leave(mut socket: TcpStream) {
    take_frame(&mut socket);
}

fn answer(mut socket: TcpStream) {
    take_frame(&mut socket);
    socket.write_all(&frame(132, &digest_at(0, b"abc").to_bytes())).unwrap();
}

/// Begins to answer, and leaves.
fn stammer(mut socket: TcpStream) {
    take_frame(&mut socket);
    socket.write_all(&frame(132, &[0; 16])[..1]).unwrap();
}

#[test]
fn a_question_without_answer_is_asked_once_more_on_a_new_connection() {
    let (peer, source) = scripted([leave, answer]);
    assert_eq!(digest_of_abc(&peer, ExportId(1)).unwrap(), [digest_at(0, b"abc")]);
    source.join().unwrap();
    let gone = digest_of_abc(&peer, ExportId(1)).unwrap_err();
    assert!(matches!(gone, TransportError::SourceGone { .. }), "nobody listens: {gone}");
}

#[test]
fn a_source_that_leaves_twice_or_in_mid_answer_is_gone() {
    let scripts: [[fn(TcpStream); 2]; 3] = [[leave, leave], [drop, leave], [leave, stammer]];
    for script in scripts {
        let (peer, source) = scripted(script);
        let gone = digest_of_abc(&peer, ExportId(1)).unwrap_err();
        assert!(matches!(gone, TransportError::SourceGone { .. }), "{gone}");
        source.join().unwrap();
    }
    // It would answer a second question, but is not asked.
    let (peer, _source) = scripted([stammer, answer]);
    let gone = digest_of_abc(&peer, ExportId(1)).unwrap_err();
    assert!(matches!(gone, TransportError::SourceGone { .. }), "{gone}");
}

/// Answers with two digests, whatever was asked for.
fn answer_two(mut socket: TcpStream) {
    take_frame(&mut socket);
    socket.write_all(&frame(132, &[7; 32])).unwrap();
}

/// Answers with none.
fn answer_none(mut socket: TcpStream) {
    take_frame(&mut socket);
    socket.write_all(&frame(132, &[])).unwrap();
}

#[test]
fn digests_are_as_many_as_were_asked_for() {
    let scripts: [fn(TcpStream); 2] = [answer_two, answer_none];
    for script in scripts {
        let (peer, source) = scripted([script]);
        let wrong = digest_of_abc(&peer, ExportId(1)).unwrap_err();
        let what = "number of digests";
        assert_eq!(wrong, TransportError::Protocol { addr: peer.addr(), what });
        source.join().unwrap();
    }
}
