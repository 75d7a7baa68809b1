//! A connection's questions and answers, byte by byte.

use super::*;
use crate::base::limits::MIN_UNIT_BYTES;
use crate::base::lock::lock;
use crate::memory::computed::Compute;
use crate::port::holder::Holder;
use crate::port::seats::Seats;
use crate::{StridedCopy, digest_at};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

struct Counting;

impl Compute for Counting {
    fn fill(&self, offset: usize, bytes: &mut [u8]) {
        (offset..).zip(bytes).for_each(|(at, byte)| *byte = (at % 249) as u8);
    }
}

fn desk() -> Desk {
    let name = Some(LocalName([7; 16]));
    Desk::new(name, crate::Auth::default().word_key())
}

fn seat_of(socket: Socket) -> Arc<ConnectionSeat> {
    let (socket, now) = (Arc::new(socket), Instant::now());
    Seats::new(1).enter(&socket, Holder::Process(1), now).unwrap().1
}

/// What a connection answers to requests that come all at once, and whether it ends well when its peer
/// leaves, who has so many bytes then.
fn answers(
    desk: &Desk,
    (socket, there): (Socket, Socket),
    requests: &[u8],
    until: usize,
) -> (Vec<u8>, bool) {
    let seat = seat_of(socket);
    thread::scope(|scope| {
        let served = scope.spawn(|| {
            let ended = Connection::new(&seat, desk, Nonces::NONE).run();
            seat.socket.shut_down();
            ended.is_ok()
        });
        let there = &there;
        let asked = scope.spawn(move || {
            let mut to = there;
            to.write_all(requests).unwrap();
        });
        let (mut from, mut bytes) = (there, vec![0; until]);
        from.read_exact(&mut bytes).unwrap();
        asked.join().unwrap();
        let _closed = match there {
            Socket::Tcp(socket) => socket.shutdown(Shutdown::Write),
            Socket::Local(socket) => socket.shutdown(Shutdown::Write),
        };
        let _reset = from.read_to_end(&mut bytes);
        (bytes, served.join().unwrap())
    })
}

fn near(desk: &Desk, requests: &[u8], until: usize) -> (Vec<u8>, bool) {
    let (here, there) = UnixStream::pair().unwrap();
    answers(desk, (Socket::Local(here), Socket::Local(there)), requests, until)
}

fn far(desk: &Desk, requests: &[u8], until: usize) -> (Vec<u8>, bool) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let here = listener.accept().unwrap().0;
    answers(desk, (Socket::Tcp(here), Socket::Tcp(there)), requests, until)
}

fn frame(kind: FrameKind, body: &[u8]) -> Vec<u8> {
    [&Header::new(kind, body.len()).encode()[..], body].concat()
}

fn numbers(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn refusal(refusal: RequestRefusal) -> Vec<u8> {
    Header::refusal(refusal).encode().to_vec()
}

/// Every kind of question on one connection, of one export that is served and one that is not.
#[test]
fn each_question_has_its_answer_in_order() {
    let desk = desk();
    let bytes: Vec<u8> = (0..=255).collect();
    let regions =
        vec![Region::from_bytes(&bytes).unwrap(), Region::computed(500, Arc::new(Counting))];
    let made: Vec<u8> = (0..500).map(|at| (at % 249) as u8).collect();
    let place = regions[0].address();
    let held = desk.exports.expose(4, vec![regions[0].clone()]);
    let id = desk.exports.expose(4, regions);
    let bare = desk.exports.expose(4, Vec::new());
    let fenced = desk.exports.expose(4, Vec::new());
    desk.exports.fence(fenced);
    desk.exports.annotate(id, b"a note").unwrap();
    let word = desk.exports.get(held).unwrap().word_address();
    let asks = |kind, export: ExportId, generation, rest: &[u64]| {
        frame(kind, &numbers(&[&[export.0, generation], rest].concat()))
    };
    let read = [0, 10, 3, 2, 100, 1, 248, 5, 1, 0, 0, 255, 1, 1, 9];
    let data = [&bytes[10..13], &bytes[110..113], &made[248..253], &bytes[255..]].concat();
    let digested = [0, 10, 3, 2, 100, 40, 7, 1, 248, 5, 1, 0, 9, 9];
    let digests = [
        digest_at(40, &bytes[10..13]) + digest_at(47, &bytes[110..113]),
        digest_at(9, &made[248..253]),
    ];
    let digests: Vec<u8> = digests.iter().flat_map(|digest| digest.to_bytes()).collect();
    let end = Header::end(true).encode().to_vec();
    let stale = || refusal(RequestRefusal::StaleGeneration);
    let unknown_codec = || refusal(RequestRefusal::UnknownCodec { codec: 5 });
    let coded = |mut request: Vec<u8>| {
        request[5] = 5;
        request
    };
    let described = [&[0][..], &numbers(&[2, 256]), &[1], &numbers(&[500]), &[2]].concat();
    let held_described = [&[0][..], &numbers(&[1, 256]), &[1]].concat();
    let addresses = numbers(&[2, 16, word, place]);
    for local in [true, false] {
        let addresses = if local { &addresses[..] } else { &[] };
        let table = [
            (frame(FrameKind::Identify, &[]), frame(FrameKind::Identity, &[7; 16])),
            (asks(FrameKind::Describe, id, 4, &[]), frame(FrameKind::Description, &described)),
            (
                asks(FrameKind::Describe, held, 4, &[]),
                frame(FrameKind::Description, &[&held_described[..], addresses].concat()),
            ),
            (asks(FrameKind::Note, id, 4, &[]), frame(FrameKind::Noted, b"\x01a note")),
            (asks(FrameKind::Note, bare, 4, &[]), frame(FrameKind::Noted, b"\0")),
            (asks(FrameKind::EarlyNote, id, 4, &[0]), frame(FrameKind::Noted, b"\x01a note")),
            (asks(FrameKind::EarlyNote, bare, 4, &[0]), frame(FrameKind::Noted, b"\0")),
            (asks(FrameKind::EarlyNote, fenced, 4, &[u64::MAX]), stale()),
            (coded(asks(FrameKind::Read, id, 4, &read)), unknown_codec()),
            (coded(asks(FrameKind::Read, fenced, 4, &[])), unknown_codec()),
            (
                asks(FrameKind::Read, id, 4, &read),
                [frame(FrameKind::Data, &data), end.clone()].concat(),
            ),
            (
                asks(FrameKind::Read, bare, 4, &[]),
                [frame(FrameKind::Data, &[]), end.clone()].concat(),
            ),
            (asks(FrameKind::Digest, id, 4, &digested), frame(FrameKind::Digests, &digests)),
            (asks(FrameKind::Await, id, 4, &read), frame(FrameKind::Progress, &[])),
            (asks(FrameKind::Describe, id, 5, &[]), stale()),
            (asks(FrameKind::Describe, fenced, 4, &[]), stale()),
            (asks(FrameKind::Note, fenced, 4, &[]), stale()),
            (asks(FrameKind::Read, fenced, 4, &[]), stale()),
            (asks(FrameKind::Digest, id, 3, &[]), stale()),
            (asks(FrameKind::Await, fenced, 4, &[]), stale()),
            (
                asks(FrameKind::Note, ExportId(id.0 ^ 1), 4, &[]),
                refusal(RequestRefusal::UnknownExport),
            ),
            (asks(FrameKind::Read, id, 4, &[0, 255, 2, 1, 0]), refusal(RequestRefusal::OutOfRange)),
            (asks(FrameKind::Await, id, 4, &[2, 0, 1, 1, 0]), refusal(RequestRefusal::OutOfRange)),
            (
                asks(FrameKind::Digest, id, 4, &[0, 0, 1, u64::MAX, 0, 0, 0]),
                refusal(RequestRefusal::TooMuch),
            ),
            (frame(FrameKind::Identify, &[]), frame(FrameKind::Identity, &[7; 16])),
        ];
        let requests: Vec<u8> = table.iter().flat_map(|(request, _)| request.clone()).collect();
        let until = table.iter().map(|(_, answer)| answer.len()).sum();
        let by = if local { near } else { far };
        let (mut found, ended) = by(&desk, &requests, until);
        assert!(ended);
        for (number, (_, expected)) in table.iter().enumerate() {
            let rest = found.split_off(found.len().min(expected.len()));
            assert_eq!(found, *expected, "answer {number}, local: {local}");
            found = rest;
        }
        assert_eq!(found, b"");
        // Each alone, too.
        for (request, expected) in table {
            assert_eq!(by(&desk, &request, expected.len()).0.len(), expected.len());
        }
    }
    let nameless = Desk { name: None, ..desk };
    let (found, _) = near(&nameless, &frame(FrameKind::Identify, &[]), 0);
    assert_eq!(found, frame(FrameKind::Identity, &[]));
}

#[test]
fn what_is_no_question_ends_the_connection_after_the_answers_before() {
    let desk = desk();
    let good = frame(FrameKind::Identify, &[]);
    let bad = [
        frame(FrameKind::Identify, &[0]),
        frame(FrameKind::Describe, &[0; 15]),
        frame(FrameKind::Note, &[0; 17]),
        frame(FrameKind::EarlyNote, &[0; 16]),
        frame(FrameKind::Read, &[0; 17]),
        frame(FrameKind::Digest, &[0; 16 + 40]),
        frame(FrameKind::Await, &[0; 16 + 56]),
        frame(FrameKind::News, &[0; 16]),
        frame(FrameKind::End, &[]),
        b"GET / HTTP/1.1\r\n".to_vec(),
    ];
    for bad in bad {
        let (found, ended) = near(&desk, &[good.clone(), bad.clone(), good.clone()].concat(), 0);
        assert!(!ended, "{bad:?}");
        // Nothing is answered behind it.
        assert!(found.is_empty() || found == frame(FrameKind::Identity, &[7; 16]), "{bad:?}");
    }
    assert_eq!(near(&desk, &[], 0), (Vec::new(), true));
}

/// Answers wait for more as long as nothing else is waited for.
#[test]
fn what_was_answered_goes_out_before_a_wait() {
    const UNIT: u64 = MIN_UNIT_BYTES;
    let desk = desk();
    let memory = vec![Region::allocate(3 * UNIT as usize).unwrap()];
    let (filling, id) = (Arc::new(Filling::new(&memory)), ExportId::random());
    filling.begin([&[StridedCopy::contiguous(0, 0, 0, 0, 3 * UNIT)][..]].into_iter());
    filling.arrived(0, UNIT, UNIT);
    desk.exports.expose_filling(id, 1, memory, filling);
    let export = desk.exports.get(id).unwrap();
    let (here, there) = UnixStream::pair().unwrap();
    let seat = seat_of(Socket::Local(here));
    let mut connection = Connection::new(&seat, &desk, Nonces::NONE);
    let extent = |offset, rows| Extent { region: 0, offset, row_bytes: 10, rows, pitch: UNIT };
    let mut wait = |extents: &[Extent]| {
        connection.output.pending = b"before".to_vec();
        let waited = connection.wait_final(&export, extents);
        (waited.map_err(|error| error.kind()), connection.output.pending.len())
    };
    assert_eq!(wait(&[extent(UNIT, 1)]), (Ok(Ok(())), 6), "nothing to wait for");
    assert_eq!(wait(&[extent(2 * UNIT - 10, 1), extent(0, 0)]), (Ok(Ok(())), 6));
    there.shutdown(Shutdown::Write).unwrap();
    let gone = Err(ErrorKind::ConnectionAborted);
    assert_eq!(wait(&[extent(UNIT, 2)]), (gone, 0), "its second row is not there");
    assert_eq!(wait(&[extent(UNIT, 1), extent(0, 1)]), (gone, 0));
    desk.exports.fence(id);
    assert_eq!(wait(&[extent(UNIT - 9, 1)]), (Ok(Err(RequestRefusal::StaleGeneration)), 0));
    let whole = Export::new(id, 1, Vec::new());
    connection.output.pending = b"before".to_vec();
    assert_eq!(connection.wait_final(&whole, &[extent(0, 1)]).unwrap(), Ok(()));
    assert_eq!(connection.output.pending.len(), 6, "it stands");
}

#[test]
fn news_are_waited_for_until_there_are_any_or_all_is_there() {
    const UNIT: u64 = MIN_UNIT_BYTES;
    let desk = desk();
    let memory = vec![Region::allocate(3 * UNIT as usize).unwrap()];
    let (filling, id) = (Arc::new(Filling::new(&memory)), ExportId::random());
    filling.begin([&[StridedCopy::contiguous(0, 0, 0, 0, 3 * UNIT)][..]].into_iter());
    desk.exports.expose_filling(id, 1, memory, Arc::clone(&filling));
    let (here, there) = UnixStream::pair().unwrap();
    let seat = seat_of(Socket::Local(here));
    let mut connection = Connection::new(&seat, &desk, Nonces::NONE);
    let mut news = |id, known| {
        let opened = connection.open_news(id, 1, known);
        opened.map(|opened| opened.map(drop)).map_err(|error| error.kind())
    };
    filling.arrived(0, UNIT, UNIT);
    assert_eq!(news(id, 0), Ok(Ok(())));
    thread::scope(|scope| {
        scope.spawn(|| filling.arrived(0, 0, UNIT));
        assert_eq!(news(id, 1), Ok(Ok(())));
    });
    there.shutdown(Shutdown::Write).unwrap();
    assert_eq!(news(id, 2), Err(ErrorKind::ConnectionAborted));
    filling.arrived(0, 2 * UNIT, UNIT);
    assert_eq!((news(id, 3), news(id, u64::MAX)), (Ok(Ok(())), Ok(Ok(()))));
    let whole = desk.exports.expose(1, vec![Region::allocate(1).unwrap()]);
    assert_eq!(news(whole, 0), Ok(Ok(())));
    assert_eq!(news(ExportId(7), 0), Ok(Err(RequestRefusal::UnknownExport)));
    desk.exports.fence(id);
    assert_eq!(news(id, 0), Ok(Err(RequestRefusal::StaleGeneration)));
}

/// Bits say what is final when they are asked for.
#[test]
fn whoever_waits_is_told_of_all_units() {
    const UNIT: u64 = MIN_UNIT_BYTES;
    let desk = desk();
    let memory = vec![Region::allocate(11 * UNIT as usize).unwrap()];
    let (filling, id) = (Arc::new(Filling::new(&memory)), ExportId::random());
    filling.begin([&[StridedCopy::contiguous(0, 0, 0, 0, 11 * UNIT)][..]].into_iter());
    [1, 3, 10].into_iter().for_each(|unit| filling.arrived(0, unit * UNIT, UNIT));
    desk.exports.expose_filling(id, 1, memory, filling);
    let asks = |kind, rest: &[u64]| frame(kind, &numbers(&[&[id.0, 1], rest].concat()));
    let requests = [
        asks(FrameKind::Await, &[0, 3 * UNIT, UNIT, 1, 0]),
        asks(FrameKind::Await, &[]),
        asks(FrameKind::News, &[2]),
        asks(FrameKind::Read, &[0, UNIT + 5, 2, 1, 0]),
    ];
    let (found, ended) = near(&desk, &requests.concat(), 0);
    let bits = frame(FrameKind::Progress, &[0b1010, 0b100]);
    let end = Header::end(true).encode().to_vec();
    let expected =
        [bits.clone(), bits.clone(), bits, frame(FrameKind::Data, &[0; 2]), end].concat();
    assert_eq!((found, ended), (expected, true));
    let word = desk.exports.get(id).unwrap();
    let described = near(&desk, &asks(FrameKind::Describe, &[]), 0).0;
    let (place, len) = (word.regions()[0].address(), 11 * UNIT);
    let addresses = numbers(&[2, 16, word.word_address(), place]);
    assert_eq!(described[16..], [&[1][..], &numbers(&[1, len]), &[1], &addresses].concat());
}

/// Says, whenever its bytes are made, whether whoever withdraws the export would wait.
struct Watched {
    export: Mutex<Option<Arc<Export>>>,
    waited_for: Mutex<Vec<bool>>,
}

impl Compute for Watched {
    fn fill(&self, _: usize, bytes: &mut [u8]) {
        let idle = lock(&self.export).as_ref().is_none_or(|e| e.wait_idle(Duration::ZERO));
        lock(&self.waited_for).push(!idle);
        bytes.fill(3);
    }
}

/// A withdrawal waits for everybody who takes bytes, and for nobody else.
#[test]
fn a_withdrawal_waits_for_whoever_takes_bytes() {
    let desk = desk();
    let watched = Watched { export: Mutex::default(), waited_for: Mutex::default() };
    let watched = Arc::new(watched);
    let made = Region::computed(500, Arc::clone(&watched) as Arc<dyn Compute>);
    let id = desk.exports.expose(4, vec![made]);
    let export = desk.exports.get(id).unwrap();
    *lock(&watched.export) = Some(Arc::clone(&export));
    let asks = |kind, rest: &[u64]| frame(kind, &numbers(&[&[id.0, 4], rest].concat()));
    let takes = [
        (asks(FrameKind::Read, &[0, 5, 2, 3, 100]), true),
        (asks(FrameKind::Digest, &[0, 5, 2, 3, 100, 0, 7]), true),
        (asks(FrameKind::Describe, &[]), false),
        (asks(FrameKind::Note, &[]), false),
        (asks(FrameKind::Await, &[0, 5, 2, 3, 100]), false),
    ];
    for (number, (request, takes)) in takes.iter().enumerate() {
        let (_, ended) = near(&desk, request, 1);
        let seen = std::mem::take(&mut *lock(&watched.waited_for));
        assert_eq!((ended, !seen.is_empty()), (true, *takes), "{number}");
        assert!(seen.iter().all(|waited_for| *waited_for), "{number}: {seen:?}");
        assert!(export.wait_idle(Duration::ZERO), "{number} is over");
    }
    // It holds the region, which holds it.
    *lock(&watched.export) = None;
}

/// Who is let in, and what the others are told; places are looked for after the token only.
#[test]
fn who_is_let_in_has_the_token_and_a_place() {
    use crate::base::secret::{Auth, Secret};
    use crate::wire::handshake::{Failed, HELLO_BYTES, ReaderSide, VERDICT_BYTES};
    let [key, other] = ["a", "b"].map(|token| Auth::with_token(Secret::new(token)).mac_key());
    let table = [
        (&key, true, Ok(()), Ok(()), true),
        (&key, false, Err(Failed::Full), Err(ErrorKind::QuotaExceeded), true),
        (&other, true, Err(Failed::Unauthorized), Err(ErrorKind::PermissionDenied), false),
        (&other, false, Err(Failed::Unauthorized), Err(ErrorKind::PermissionDenied), false),
    ];
    for (theirs, room, told, ended, asked) in table {
        let (here, there) = UnixStream::pair().unwrap();
        let reader = thread::spawn({
            let theirs = theirs.clone();
            move || {
                let (mut hello, mut verdict) = ([0; HELLO_BYTES], [0; VERDICT_BYTES]);
                (&there).read_exact(&mut hello).unwrap();
                let side = ReaderSide::new(Channel::Tcp, &hello).unwrap();
                // Two parts are one message.
                let proof = side.proof(&theirs);
                (&there).write_all(&proof[..50]).unwrap();
                (&there).write_all(&proof[50..]).unwrap();
                (&there).read_exact(&mut verdict).unwrap();
                (side.check(&theirs, &verdict), side.nonces())
            }
        });
        let mut looked = false;
        let has_room = || {
            looked = true;
            room
        };
        let admitted = admit(&Socket::Local(here), &key, Channel::Tcp, has_room);
        let (heard, nonces) = reader.join().unwrap();
        assert_eq!(admitted.map_err(|error| error.kind()), ended.map(|()| nonces));
        assert_eq!((heard, looked), (told, asked));
    }
    let (here, there) = UnixStream::pair().unwrap();
    (&there).write_all(&[1; PROOF_BYTES - 1]).unwrap();
    there.shutdown(Shutdown::Write).unwrap();
    let left = admit(&Socket::Local(here), &key, Channel::Tcp, || unreachable!());
    assert_eq!(left.unwrap_err().kind(), ErrorKind::UnexpectedEof);
}
