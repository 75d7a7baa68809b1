//! The data port against peers that are wrong, hostile or silent.

use crate::by_hand::{loopback, shake_as_reader, wait_closed};
use crate::ways::{soon, token};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use weightcast_transport::Way::{Auto, Tcp};
use weightcast_transport::*;

fn server() -> DataServer {
    DataServer::bind(loopback(), token()).unwrap()
}

#[test]
fn beyond_loopback_only_with_a_token_or_on_demand() {
    let any: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let table = [
        (loopback(), Auth::default(), true),
        ("[::ffff:127.0.0.1]:0".parse().unwrap(), Auth::default(), true),
        (any, Auth::default(), false),
        (any, token(), true),
        (any, Auth { token: None, insecure: true }, true),
    ];
    for (addr, auth, allowed) in table {
        let bound = DataServer::bind(addr, auth.clone());
        assert_eq!(bound.is_ok(), allowed, "{addr} {auth:?}");
        if let Err(error) = bound {
            assert!(matches!(error, BindError::Exposed { .. }), "{error}");
        }
    }
}

#[test]
fn a_wrong_token_is_told_apart_from_a_dead_port() {
    let server = server();
    for auth in [Auth::default(), Auth::with_token(Secret::new("another"))] {
        let error = Peer::connect(server.addr(), &auth, soon()).unwrap_err();
        assert_eq!(error, TransportError::Unauthorized { addr: server.addr() });
        assert_eq!(error.advice(), Advice::Fatal);
    }
    let addr = server.addr();
    drop(server);
    let error = Peer::connect(addr, &token(), soon()).unwrap_err();
    assert!(matches!(error, TransportError::Unreachable { .. }), "{error}");
}

#[test]
fn this_very_process_is_read_over_tcp_unless_demanded() {
    let server = server();
    let peer = Peer::connect_by(Auto, server.addr(), &token(), soon()).unwrap();
    assert_eq!(peer.way(), Tcp);
    assert_eq!(peer.why(ExportId(1), 1), "it is this very process");
    let direct = weightcast_transport::Way::Direct;
    let peer = Peer::connect_by(direct, server.addr(), &token(), soon()).unwrap();
    assert_eq!(peer.way(), direct);
}

#[test]
fn garbage_closes_its_own_connection_only() {
    let server = DataServer::bind(loopback(), Auth::default()).unwrap();
    let export = server.exports().expose(1, vec![Region::from_bytes(b"abc").unwrap()]);
    let peer = Peer::connect_by(Tcp, server.addr(), &Auth::default(), soon()).unwrap();
    let mut before = TcpStream::connect(server.addr()).unwrap();
    before.write_all(&[0xAB; 1000]).unwrap();
    wait_closed(before);
    let good = [b"WCD1", &[3, 0, 0, 0][..], &[0; 8]].concat();
    for place in 0..16 {
        let mut frame = good.clone();
        frame[place] ^= 0xFF;
        let mut after = shake_as_reader(server.addr());
        after.write_all(&frame).unwrap();
        after.shutdown(std::net::Shutdown::Write).unwrap();
        wait_closed(after);
    }
    let extents = [PlacedExtent {
        extent: Extent { region: 0, offset: 0, row_bytes: 3, rows: 1, pitch: 3 },
        position: 0,
        position_pitch: 0,
    }];
    let digests = peer.digests(export, 1, &extents, soon()).unwrap();
    assert_eq!(digests, [digest_at(0, b"abc")], "others are unharmed");
}

#[test]
fn a_peer_that_drips_inside_a_frame_is_dropped() {
    let server = DataServer::bind(loopback(), Auth::default()).unwrap();
    let mut idle = shake_as_reader(server.addr());
    let mut dripping = shake_as_reader(server.addr());
    dripping.write_all(b"W").unwrap();
    wait_closed(dripping);
    // An idle connection outlived it and still works.
    idle.write_all(&[b"WCD1", &[1, 0, 0, 0][..], &[0; 8]].concat()).unwrap();
    let mut header = [0; 16];
    idle.read_exact(&mut header).unwrap();
    assert_eq!(&header[..5], b"WCD1\x81");
}

#[test]
fn strangers_are_few_and_the_oldest_makes_room() {
    let server = server();
    let limit = limits::MAX_UNAUTHENTICATED;
    let mut silent: VecDeque<TcpStream> = (0..limit)
        .map(|_| {
            let mut socket = TcpStream::connect(server.addr()).unwrap();
            socket.read_exact(&mut [0; 40]).expect("within the limit: the hello comes");
            socket
        })
        .collect();
    Peer::connect(server.addr(), &token(), soon()).expect("a flood keeps nobody out");
    wait_closed(silent.pop_front().expect("the oldest was cut off"));
    let mut newest = silent.pop_back().unwrap();
    newest.set_nonblocking(true).unwrap();
    let kept = newest.read(&mut [0]).unwrap_err();
    assert_eq!(kept.kind(), std::io::ErrorKind::WouldBlock, "the others are as they were");
}

#[test]
fn a_silent_port_is_given_up_at_the_deadline() {
    let listener = TcpListener::bind(loopback()).unwrap();
    let deadline = Instant::now() + Duration::from_millis(120);
    let error = Peer::connect(listener.local_addr().unwrap(), &token(), deadline).unwrap_err();
    assert!(matches!(error, TransportError::Timeout { .. }), "{error}");
}

#[test]
fn a_port_of_another_protocol_is_told_apart() {
    let listener = TcpListener::bind(loopback()).unwrap();
    let addr = listener.local_addr().unwrap();
    let other = std::thread::spawn(move || {
        let mut socket = listener.accept().unwrap().0;
        socket.write_all(&[b"SSH-2.0-OpenSSH_9.6\r\n", &[b'x'; 40][..]].concat()).unwrap();
        wait_closed(socket);
    });
    let error = Peer::connect(addr, &token(), soon()).unwrap_err();
    assert!(matches!(error, TransportError::Protocol { .. }), "{error}");
    other.join().unwrap();
}

#[test]
fn digests_at_the_source_find_the_place() {
    let server = server();
    let bytes: Vec<u8> = (0..=255).cycle().take(9_000).collect();
    let export = server.exports().expose(4, vec![Region::from_bytes(&bytes).unwrap()]);
    let peer = Peer::connect(server.addr(), &token(), soon()).unwrap();
    let placed = |offset, row_bytes, rows, pitch, position| PlacedExtent {
        extent: Extent { region: 0, offset, row_bytes, rows, pitch },
        position,
        position_pitch: pitch,
    };
    let asked = [placed(0, 9_000, 1, 0, 0), placed(10, 3, 2, 100, 10), placed(9_000, 0, 9, 1, 0)];
    let digests = peer.digests(export, 4, &asked, soon()).unwrap();
    let strided = digest_at(10, &bytes[10..13]) + digest_at(110, &bytes[110..113]);
    assert_eq!(digests, [digest_at(0, &bytes), strided, Digest::ZERO]);
    let refused = |placed| peer.digests(export, 4, &[placed], soon()).unwrap_err();
    assert_eq!(refused(placed(8_999, 2, 1, 0, 0)), RequestRefusal::OutOfRange.into());
    assert_eq!(refused(placed(0, 2, 2, 1, u64::MAX - 1)), RequestRefusal::OutOfRange.into());
    assert_eq!(refused(placed(0, 9_000, 1 << 40, 0, 0)), RequestRefusal::TooMuch.into());
}

#[test]
fn closing_a_server_ends_its_connections_and_fences_its_exports() {
    let server = server();
    let export = server.exports().expose(1, vec![Region::from_bytes(b"abc").unwrap()]);
    let to = [Region::allocate(3).unwrap()];
    let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, 3)];
    for way in [weightcast_transport::Way::Direct, Tcp] {
        let peer = Peer::connect_by(way, server.addr(), &token(), soon()).unwrap();
        let job = SourceJob { peer: &peer, export, generation: 1, copies: copies.clone() };
        read(&[job], &to, &TransferOptions::default()).unwrap();
    }
    let peer = Peer::connect_by(Tcp, server.addr(), &token(), soon()).unwrap();
    drop(server);
    let job = SourceJob { peer: &peer, export, generation: 1, copies };
    let error = read(&[job], &to, &TransferOptions::default()).unwrap_err();
    assert!(matches!(error.kind, TransportError::SourceGone { .. }), "{error}");
}
