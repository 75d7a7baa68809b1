//! Requests that name more work than bytes: refused, or done in a moment, and never for nobody.

use crate::by_hand::{frame, loopback, shake_as_reader, take_frame};
use crate::ways::soon;
use std::io::Write;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use weightcast_transport::*;

const READ: u8 = 3;
const DIGEST: u8 = 4;
const AWAIT: u8 = 6;
const REFUSED: u8 = 134;

fn request(kind: u8, export: ExportId, extent: [u64; 5]) -> Vec<u8> {
    let place: &[u64] = if kind == DIGEST { &[0, 0] } else { &[] };
    let numbers = [&[export.0, 1], &extent[..], place].concat();
    frame(kind, &numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>())
}

/// The answer's kind and the size of its body.
fn ask(server: &DataServer, request: &[u8]) -> (u8, usize) {
    let mut socket = shake_as_reader(server.addr());
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket.write_all(request).unwrap();
    let (kind, body) = take_frame(&mut socket);
    (kind, body.len())
}

#[test]
fn rows_without_bytes_are_no_work() {
    let server = DataServer::bind(loopback(), Auth::default()).unwrap();
    let memory = vec![Region::allocate(1 << 20).unwrap()];
    let (filling, export) = (Arc::new(Filling::new(&memory)), ExportId::random());
    server.exports().expose_filling(export, 1, memory, filling);
    let empty = |offset, pitch| [0, offset, 0, u64::MAX, pitch];
    for extent in [empty(0, 0), empty(1 << 20, 1), empty(7, u64::MAX)] {
        assert_eq!(ask(&server, &request(AWAIT, export, extent)), (136, 2));
        assert_eq!(ask(&server, &request(READ, export, extent)), (131, 0));
        assert_eq!(ask(&server, &request(DIGEST, export, extent)), (132, 16));
    }
    assert!(server.exports().withdraw(export, Duration::from_secs(10)));
}

#[test]
fn more_rows_than_a_request_may_have_are_refused() {
    let server = DataServer::bind(loopback(), Auth::default()).unwrap();
    let export = server.exports().expose(1, vec![Region::allocate(1 << 20).unwrap()]);
    let rows = [(READ, limits::MAX_READ_ROWS), (DIGEST, limits::MAX_DIGEST_ROWS)];
    for (kind, most) in [rows[0], rows[1], (AWAIT, limits::MAX_READ_ROWS)] {
        let too_many = request(kind, export, [0, 0, 1, most + 1, 0]);
        assert_eq!(ask(&server, &too_many), (REFUSED, 0), "kind {kind}");
        let as_many = request(kind, export, [0, 0, 1, most, 0]);
        assert_eq!(ask(&server, &as_many).0, kind + 128 + u8::from(kind == AWAIT) * 2);
    }
    let thin = request(DIGEST, export, [0, 0, 1, 1 << 30, 0]);
    assert_eq!(ask(&server, &thin), (REFUSED, 0), "a gigabyte of one-byte rows");
}

/// Hours of digests, asked for at once by somebody who leaves.
#[test]
fn nobody_works_for_a_reader_that_has_left() {
    let server = DataServer::bind(loopback(), Auth::default()).unwrap();
    let export = server.exports().expose(1, vec![Region::allocate(1 << 20).unwrap()]);
    let whole = request(DIGEST, export, [0, 0, 1 << 20, 1 << 10, 0]);
    let mut socket = shake_as_reader(server.addr());
    socket.write_all(&whole.repeat(700)).unwrap();
    take_frame(&mut socket);
    drop(socket);
    let patience = soon();
    while server.connections() > 0 {
        assert!(Instant::now() < patience, "it digests for nobody");
        thread::yield_now();
    }
}

#[test]
fn a_fence_ends_a_digest_that_is_under_way() {
    let server = DataServer::bind(loopback(), Auth::default()).unwrap();
    let export = server.exports().expose(1, vec![Region::allocate(1 << 20).unwrap()]);
    let whole = request(DIGEST, export, [0, 0, 1 << 20, 1 << 10, 0]);
    let mut socket = shake_as_reader(server.addr());
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket.write_all(&whole.repeat(700)).unwrap();
    take_frame(&mut socket);
    server.exports().fence(export);
    let kinds: Vec<u8> = (1..700).map(|_| take_frame(&mut socket).0).collect();
    assert_eq!(kinds.last(), Some(&REFUSED));
    assert!(server.exports().withdraw(export, Duration::from_secs(10)));
}
