//! What happens to an export while a question about it is being answered.

use super::*;
use crate::base::limits::{MAX_NOTE_BYTES, MAX_READ_ROWS, SLICE_COST};
use crate::memory::computed::Compute;
use crate::port::holder::Holder;
use crate::port::seats::Seats;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{OnceLock, Weak};
use std::thread;
use std::time::Duration;

/// Fences its own export when its bytes are first made, and counts them.
#[derive(Default)]
struct Fencing {
    /// Weak: the export holds the region that is made here.
    export: OnceLock<Weak<Export>>,
    made: AtomicU64,
}

impl Compute for Fencing {
    fn fill(&self, _: usize, bytes: &mut [u8]) {
        self.made.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if let Some(export) = self.export.get().and_then(Weak::upgrade) {
            export.fence();
        }
    }
}

fn desk() -> Desk {
    Desk::new(None, crate::Auth::default().word_key())
}

fn request(kind: FrameKind, numbers: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    let start = wire::begin(&mut out, kind);
    wire::put(&mut out, numbers);
    wire::finish(&mut out, start);
    out
}

/// Runs a connection of the desk beside `ask`, which has the other end.
fn asked<T>(desk: &Desk, ask: impl FnOnce(&UnixStream) -> T) -> T {
    let (here, there) = UnixStream::pair().unwrap();
    let socket = Arc::new(Socket::Local(here));
    let seat = Seats::new(1).enter(&socket, Holder::Process(1), Instant::now()).unwrap().1;
    thread::scope(|scope| {
        scope.spawn(|| drop(Connection::new(&seat, desk, Nonces::NONE).run()));
        let answer = ask(&there);
        let _gone = there.shutdown(Shutdown::Both);
        answer
    })
}

fn answer(mut there: &UnixStream, request: &[u8]) -> Header {
    there.write_all(request).unwrap();
    let mut header = [0; wire::HEADER_BYTES];
    there.read_exact(&mut header).unwrap();
    Header::decode(&header).unwrap()
}

/// Digests of memory that its owner may change by now are worth nothing, and nobody goes on with them.
#[test]
fn a_fence_ends_a_digest_and_what_was_digested_is_not_answered() {
    for (len, made) in [(10, 10), (SLICE_COST, SLICE_COST), (3 * SLICE_COST, SLICE_COST)] {
        let (desk, bytes) = (desk(), Arc::new(Fencing::default()));
        let region = Region::computed(len as usize, Arc::clone(&bytes) as Arc<dyn Compute>);
        let id = desk.exports.expose(1, vec![region]);
        assert!(bytes.export.set(Arc::downgrade(&desk.exports.get(id).unwrap())).is_ok());
        let digest = request(FrameKind::Digest, &[id.0, 1, 0, 0, len, 1, 0, 0, 0]);
        let refused = asked(&desk, |there| answer(there, &digest));
        assert_eq!(refused, Header::refusal(RequestRefusal::StaleGeneration), "{len}");
        assert_eq!(bytes.made.load(Ordering::Relaxed), made, "{len}");
    }
}

#[test]
fn digests_have_bounds_of_their_own() {
    let desk = desk();
    let id = desk.exports.expose(1, vec![Region::allocate(1).unwrap()]);
    for rows in [1, MAX_READ_ROWS, MAX_READ_ROWS + 1] {
        let digest = request(FrameKind::Digest, &[id.0, 1, 0, 0, 1, rows, 0, 0, 0]);
        let header = asked(&desk, |there| answer(there, &digest));
        assert_eq!(header, Header::new(FrameKind::Digests, 16), "{rows}");
    }
}

/// The owner gets its memory back while the note still goes out.
#[test]
fn whoever_takes_a_note_slowly_holds_no_memory() {
    let (desk, bytes) = (desk(), Arc::new(Fencing::default()));
    let region = Region::computed(1, Arc::clone(&bytes) as Arc<dyn Compute>);
    let id = desk.exports.expose(1, vec![region]);
    desk.exports.annotate(id, &vec![1; MAX_NOTE_BYTES]).unwrap();
    asked(&desk, |there| {
        let header = answer(there, &request(FrameKind::Note, &[id.0, 1]));
        assert_eq!(header, Header::new(FrameKind::Noted, 1 + MAX_NOTE_BYTES));
        assert!(desk.exports.withdraw(id, Duration::ZERO));
        assert_eq!(Arc::strong_count(&bytes), 1);
    });
}

/// A reader that has sent the beginning of the next question gets a large answer all the same.
#[test]
fn large_answers_do_not_wait_for_the_next_question() {
    let desk = desk();
    let region = Region::allocate(1).unwrap();
    let id = desk.exports.expose(1, vec![region; SEND_BYTES / 16]);
    let asks = [request(FrameKind::Describe, &[id.0, 1]), vec![0; 5]].concat();
    asked(&desk, |mut there| {
        let header = answer(there, &asks);
        let mut body = vec![0; header.body];
        there.read_exact(&mut body).unwrap();
        assert!(header.body > SEND_BYTES);
    });
}

/// Between two questions a connection is idle: then whoever needs its place may have that.
#[test]
fn a_connection_that_was_answered_rests_again() {
    let (desk, mut seats) = (desk(), Seats::new(1));
    let (here, there) = UnixStream::pair().unwrap();
    let (socket, begun) = (Arc::new(Socket::Local(here)), Instant::now());
    let (number, seat) = seats.enter(&socket, Holder::Process(1), begun).unwrap();
    assert!(seats.admit(number, begun));
    let gave_way = thread::scope(|scope| {
        scope.spawn(|| drop(Connection::new(&seat, &desk, Nonces::NONE).run()));
        for _ in 0..2 {
            let unknown = answer(&there, &request(FrameKind::Describe, &[7, 1]));
            assert_eq!(unknown.kind, FrameKind::Refused);
        }
        // So that nobody takes it for slow. Resting comes after the answer.
        seat.moved(1 << 40);
        let mut gave_way = false;
        while !gave_way && begun.elapsed().as_secs() < 30 {
            gave_way = seats.give_way(Instant::now());
            thread::yield_now();
        }
        let _gone = there.shutdown(Shutdown::Both);
        gave_way
    });
    assert!(gave_way, "it counts as busy");
}
