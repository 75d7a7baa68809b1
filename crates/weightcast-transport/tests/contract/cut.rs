//! Connections that are cut after so many bytes of the answers: within a header, within a piece,
//! between a piece and its verdict.

use crate::by_hand::loopback;
use crate::ways::{arrived, noise, soon, token};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use weightcast_transport::Way::Tcp;
use weightcast_transport::limits::PIECE_BYTES;
use weightcast_transport::*;

const PIECES: usize = 5;
/// What the source says before its first answer: hello and verdict, then one description.
const BEFORE: usize = 40 + 40 + 16 + 18;

/// Passes connections on to `source`, and cuts the first after so many bytes from there.
fn cutting(source: SocketAddr, after: usize) -> SocketAddr {
    let listener = TcpListener::bind(loopback()).unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for (number, reader) in listener.incoming().flatten().enumerate() {
            let Ok(source) = TcpStream::connect(source) else { return };
            let limit = if number == 0 { after } else { usize::MAX };
            let ends = (reader.try_clone().unwrap(), source.try_clone().unwrap());
            thread::spawn(move || pass(ends.0, ends.1, usize::MAX));
            thread::spawn(move || pass(source, reader, limit));
        }
    });
    addr
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut left: usize) {
    let mut bytes = vec![0; 64 << 10];
    while left > 0 {
        let most = left.min(bytes.len());
        let Ok(count @ 1..) = from.read(&mut bytes[..most]) else { break };
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
        left -= count;
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// What arrived before the cut is neither lost nor counted twice. Until the first piece is there, and
/// the next answer has begun, the source is gone.
#[test]
fn a_read_goes_on_over_a_new_connection_wherever_the_last_was_cut() {
    let server = DataServer::bind(loopback(), token()).unwrap();
    let bytes = noise(PIECES * PIECE_BYTES, 1);
    let export = server.exports().expose(1, vec![Region::from_bytes(&bytes).unwrap()]);
    let answer = 16 + PIECE_BYTES + 16;
    let places = [0, 9, 16, 17, 70_001, answer - 17, answer - 16, answer - 15, answer - 1];
    let mut went_on = 0;
    for (piece, place) in (0..PIECES).flat_map(|piece| places.map(|place| (piece, place))) {
        let addr = cutting(server.addr(), BEFORE + piece * answer + place);
        let deadline = Some(soon());
        let peer = Peer::connect_by(Tcp, addr, &token(), soon()).unwrap();
        let options = TransferOptions { threads: 1, deadline, ..Default::default() };
        let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, bytes.len() as u64)];
        let jobs = [SourceJob { peer: &peer, export, generation: 1, copies }];
        let to = [Region::allocate(bytes.len()).unwrap()];
        match read(&jobs, &to, &options) {
            Ok(digests) => {
                assert!(to[0].to_vec() == bytes, "cut in piece {piece} at {place}");
                assert_eq!(digests, [digest_at(0, &bytes)], "cut in piece {piece} at {place}");
                assert_eq!(arrived(&options), bytes.len() as u64);
                went_on += 1;
            }
            Err(error) => {
                let gone = matches!(error.kind, TransportError::SourceGone { .. });
                let early = piece * answer + place < answer + 16;
                assert!(gone && early, "cut in piece {piece} at {place}: {error}");
            }
        }
    }
    assert!(went_on >= (PIECES - 1) * places.len() - 2, "{went_on}");
}
