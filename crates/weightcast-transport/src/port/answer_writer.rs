//! The server's side of sending: many ranges of memory, few system calls, a fence between them.

use crate::base::limits::{IDLE_BYTES, MAX_RANGES, MIN_FRAME_RATE, SEND_BYTES, SEND_STALL};
use crate::export::served::Export;
use crate::memory::sys::{self, Ranges};
use crate::port::seats::ConnectionSeat;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// What a fenced export's bytes are replaced with, so that the frame still ends where it said.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Collects ranges and sends them in batches. Small bytes (headers) wait for the next batch.
#[derive(Default)]
pub(crate) struct AnswerWriter {
    /// Headers to be sent before the next ranges.
    pub(crate) pending: Vec<u8>,
    ranges: Ranges,
    batch: Ranges,
    /// Bytes that are made to be sent; those in use are among the ranges.
    made: Vec<u8>,
    made_len: usize,
}

impl AnswerWriter {
    /// Sends what is pending.
    pub(crate) fn flush(&mut self, seat: &ConnectionSeat) -> io::Result<()> {
        self.send_batch(seat, None)
    }

    /// Lets go of what a connection without work has no use for. Nothing is pending.
    pub(crate) fn rest(&mut self) {
        if self.pending.capacity() > IDLE_BYTES {
            self.pending = Vec::new();
        }
        self.made = Vec::new();
    }

    /// Sends what is pending, and then `bytes`.
    pub(crate) fn send(&mut self, seat: &ConnectionSeat, bytes: &[u8]) -> io::Result<()> {
        self.ranges.push(bytes.as_ptr().expose_provenance() as u64, bytes.len());
        self.send_batch(seat, None)
    }

    /// Appends a range of a served export, and sends once enough is together.
    ///
    /// # Safety
    /// Every range added since the last flush stays readable until the next returns.
    pub(crate) unsafe fn add(
        &mut self,
        seat: &ConnectionSeat,
        export: &Export,
        mut address: u64,
        mut len: usize,
    ) -> io::Result<()> {
        while len > 0 {
            let step = len.min(SEND_BYTES - self.ranges.bytes());
            self.ranges.push(address, step);
            (address, len) = (address + step as u64, len - step);
            if self.ranges.bytes() == SEND_BYTES || self.ranges.count() == MAX_RANGES - 1 {
                self.send_batch(seat, Some(export))?;
            }
        }
        Ok(())
    }

    /// Appends bytes that `make` writes, told how far into them it is; sends once enough is
    /// together, so that no more than [`SEND_BYTES`] of them exist at a time.
    pub(crate) fn make(
        &mut self,
        seat: &ConnectionSeat,
        export: &Export,
        len: usize,
        mut make: impl FnMut(usize, &mut [u8]),
    ) -> io::Result<()> {
        if self.made.is_empty() {
            self.made = vec![0; SEND_BYTES];
        }
        let mut done = 0;
        while done < len {
            // What is made is among the ranges, so there is room; and the range is added whole.
            let step = (len - done).min(SEND_BYTES - self.ranges.bytes());
            let bytes = &mut self.made[self.made_len..self.made_len + step];
            // What is not served any more is sent as zeros: nobody needs it made.
            if export.is_served() {
                make(done, bytes);
            }
            let address = bytes.as_ptr().expose_provenance() as u64;
            self.made_len += step;
            // SAFETY: the vector is not resized, and its bytes in use are not written, before the
            // batch that sends them.
            unsafe { self.add(seat, export, address, step) }?;
            done += step;
        }
        Ok(())
    }

    /// Sends the rest of an export's ranges.
    ///
    /// # Safety
    /// As [`AnswerWriter::add`].
    pub(crate) unsafe fn finish(
        &mut self,
        seat: &ConnectionSeat,
        export: &Export,
    ) -> io::Result<()> {
        if self.ranges.bytes() > 0 { self.send_batch(seat, Some(export)) } else { Ok(()) }
    }

    fn send_batch(&mut self, seat: &ConnectionSeat, export: Option<&Export>) -> io::Result<()> {
        if export.is_some_and(|export| !export.is_served()) {
            self.blank();
        }
        self.batch.clear();
        self.batch.push(self.pending.as_ptr().expose_provenance() as u64, self.pending.len());
        self.batch.append(&mut self.ranges);
        let mut pace = SendPace::new(Instant::now());
        while self.batch.bytes() > 0 {
            // SAFETY: pending bytes are ours and untouched; the ranges are borrowed through this
            // call, or the caller's promise.
            match unsafe { sys::send(seat.socket.as_fd(), &self.batch) } {
                Ok(count) => {
                    self.batch.advance(count);
                    seat.moved(count);
                    pace.moved(count, Instant::now());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if pace.stalls(Instant::now()) {
                        return Err(ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error),
            }
            if pace.is_too_slow(Instant::now()) {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        self.pending.clear();
        self.made_len = 0;
        Ok(())
    }

    /// Replaces the collected ranges with as many zeros.
    fn blank(&mut self) {
        let mut left = self.ranges.bytes();
        self.ranges.clear();
        while left > 0 {
            let step = left.min(ZEROS.len());
            self.ranges.push(ZEROS.as_ptr().expose_provenance() as u64, step);
            left -= step;
        }
    }
}

/// How a batch gets on: it is given up if nothing moves, or too little for the time it has had.
struct SendPace {
    begun: Instant,
    progress: Instant,
    sent: u64,
}

impl SendPace {
    fn new(now: Instant) -> Self {
        Self { begun: now, progress: now, sent: 0 }
    }

    fn moved(&mut self, bytes: usize, now: Instant) {
        self.progress = now;
        self.sent += bytes as u64;
    }

    fn stalls(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.progress) > SEND_STALL
    }

    fn is_too_slow(&self, now: Instant) -> bool {
        let allowed = SEND_STALL + Duration::from_secs(self.sent / MIN_FRAME_RATE);
        now.saturating_duration_since(self.begun) > allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::ExportId;
    use crate::memory::region::Region;
    use crate::port::holder::Holder;
    use crate::port::seats::Seats;
    use crate::wire::socket::Socket;
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::thread;

    /// A connection, its other end, and an export of some memory.
    struct Sending {
        output: AnswerWriter,
        seat: Arc<ConnectionSeat>,
        there: UnixStream,
        export: Export,
    }

    const MEMORY: usize = 3 * SEND_BYTES;

    impl Sending {
        fn new() -> Self {
            let (here, there) = UnixStream::pair().unwrap();
            let socket = Arc::new(Socket::Local(here));
            let seat = Seats::new(1).enter(&socket, Holder::Process(1), Instant::now()).unwrap().1;
            let memory: Vec<u8> = (0..MEMORY).map(|i| (i % 251) as u8 + 1).collect();
            let regions = vec![Region::from_bytes(&memory).unwrap()];
            let export = Export::new(ExportId::random(), 1, regions);
            Self { output: AnswerWriter::default(), seat, there, export }
        }

        fn memory(&self) -> Vec<u8> {
            self.export.regions()[0].to_vec()
        }

        /// Adds a range of the memory.
        fn add(&mut self, at: usize, len: usize) {
            let address = self.export.regions()[0].address() + at as u64;
            // SAFETY: the memory lives as long as this does.
            unsafe { self.output.add(&self.seat, &self.export, address, len) }.unwrap();
        }

        fn finish(&mut self) {
            // SAFETY: as above.
            unsafe { self.output.finish(&self.seat, &self.export) }.unwrap();
        }

        /// What was sent so far, if it fits into the socket.
        fn sent(&mut self) -> Vec<u8> {
            self.there.set_nonblocking(true).unwrap();
            let mut bytes = Vec::new();
            let error = self.there.read_to_end(&mut bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            bytes
        }

        /// What is sent until the connection ends.
        fn all(mut self, act: impl FnOnce(&mut Self)) -> Vec<u8> {
            let mut there = self.there.try_clone().unwrap();
            let taken = thread::spawn(move || {
                let mut bytes = Vec::new();
                there.read_to_end(&mut bytes).unwrap();
                bytes
            });
            act(&mut self);
            self.seat.socket.shut_down();
            taken.join().unwrap()
        }
    }

    #[test]
    fn headers_wait_for_bytes_and_bytes_for_more() {
        let mut sending = Sending::new();
        sending.output.pending.extend(b"header");
        sending.finish();
        assert_eq!(sending.sent(), b"", "nothing is there that could not wait");
        sending.add(0, 0);
        sending.add(10, 5);
        sending.add(100, 5);
        assert_eq!(sending.sent(), b"");
        let memory = sending.memory();
        sending.finish();
        let expected = [b"header", &memory[10..15], &memory[100..105]].concat();
        assert_eq!(sending.sent(), expected);
        sending.finish();
        sending.output.flush(&sending.seat).unwrap();
        assert_eq!(sending.sent(), b"", "once");
        sending.output.pending.extend(b"end");
        sending.output.flush(&sending.seat).unwrap();
        assert_eq!(sending.sent(), b"end");
        sending.output.pending.extend(b"noted");
        sending.output.send(&sending.seat, b" is this").unwrap();
        assert_eq!(sending.sent(), b"noted is this");
        assert!(sending.output.pending.is_empty() && sending.output.ranges.bytes() == 0);
    }

    /// In both counts: bytes, and ranges of which one is kept for the headers.
    #[test]
    fn enough_is_sent_and_what_is_less_waits() {
        for (bytes, waits) in
            [(SEND_BYTES - 1, SEND_BYTES - 1), (SEND_BYTES, 0), (SEND_BYTES + 1, 1)]
        {
            let sent = Sending::new().all(|sending| {
                sending.output.pending.push(0);
                sending.add(0, 1);
                sending.add(7, bytes - 1);
                assert_eq!(sending.output.ranges.bytes(), waits, "of {bytes}");
                sending.finish();
                assert_eq!(sending.output.ranges.bytes(), 0);
            });
            assert_eq!(sent.len(), 1 + bytes);
        }
        let most = MAX_RANGES - 1;
        for (count, waits) in [(most - 1, most - 1), (most, 0), (most + 1, 1)] {
            let mut sending = Sending::new();
            (0..count).for_each(|n| sending.add(2 * n, 1));
            assert_eq!(sending.output.ranges.count(), waits, "of {count}");
            sending.finish();
            let expected: Vec<u8> = sending.memory().into_iter().step_by(2).take(count).collect();
            assert_eq!(sending.sent(), expected);
        }
    }

    #[test]
    fn made_and_held_bytes_go_out_in_order() {
        let lens = [1, SEND_BYTES - 2, 3, 0, 2 * SEND_BYTES, 70_000, SEND_BYTES - 70_000, 5];
        let (mut expected, mut made) = (Vec::new(), Vec::new());
        let memory = Sending::new().memory();
        for (number, len) in lens.into_iter().enumerate() {
            let at = 3 * number;
            expected.extend_from_slice(b"head");
            expected.extend((0..len).map(|i| (i % 241) as u8 + 1));
            expected.extend_from_slice(&memory[at..at + len.min(1_000)]);
        }
        let sent = Sending::new().all(|sending| {
            for (number, len) in lens.into_iter().enumerate() {
                sending.finish();
                sending.output.pending.extend(b"head");
                let Sending { output, seat, export, .. } = sending;
                let mut next = 0;
                let make = |from: usize, bytes: &mut [u8]| {
                    assert_eq!(from, next, "from where it was");
                    next += bytes.len();
                    made.push(bytes.len());
                    (from..).zip(bytes).for_each(|(i, byte)| *byte = (i % 241) as u8 + 1);
                };
                output.make(seat, export, len, make).unwrap();
                assert_eq!(next, len);
                sending.add(3 * number, len.min(1_000));
            }
            sending.finish();
        });
        assert!(sent == expected);
        assert!(made.iter().all(|len| (1..=SEND_BYTES).contains(len)));
    }

    /// As many zeros as there would have been bytes, whatever was sent before; and nothing is made.
    #[test]
    fn what_is_fenced_is_sent_as_zeros() {
        const ROOM: usize = ZEROS.len();
        for len in [1, ROOM - 1, ROOM, ROOM + 1, 2 * ROOM, 5 * ROOM + 7, SEND_BYTES - 1] {
            let sent = Sending::new().all(|sending| {
                sending.output.pending.extend(b"head");
                sending.add(0, 10);
                sending.finish();
                sending.output.pending.extend(b"head");
                sending.add(5, len);
                sending.export.fence();
                sending.finish();
                let Sending { output, seat, export, .. } = sending;
                output.make(seat, export, 9, |_, _| panic!("nobody gets it")).unwrap();
                sending.finish();
            });
            let memory = Sending::new().memory();
            let expected = [b"head", &memory[..10], b"head", &vec![0; len + 9]].concat();
            assert!(sent == expected, "{len}");
            let mut fenced = Sending::new();
            fenced.add(5, len);
            fenced.output.blank();
            let ranges = &fenced.output.ranges;
            assert_eq!((ranges.bytes(), ranges.count()), (len, len.div_ceil(ROOM)));
        }
    }

    #[test]
    fn who_takes_gulps_is_not_stalled_until_long_after_the_last() {
        let begun = Instant::now();
        let mut pace = SendPace::new(begun);
        assert!(!pace.stalls(begun + SEND_STALL));
        let gulp = begun + SEND_STALL / 2;
        pace.moved(1, gulp);
        assert!(!pace.stalls(gulp + SEND_STALL));
        assert!(pace.stalls(gulp + SEND_STALL + Duration::from_nanos(1)));
    }

    #[test]
    fn who_sips_has_time_for_what_it_took() {
        let begun = Instant::now();
        let late = |seconds| begun + SEND_STALL + Duration::from_secs(seconds);
        let mut pace = SendPace::new(begun);
        assert!(!pace.is_too_slow(late(0)) && pace.is_too_slow(late(1)));
        pace.moved(MIN_FRAME_RATE as usize, late(0));
        pace.moved(2 * MIN_FRAME_RATE as usize, late(1));
        assert!(!pace.is_too_slow(late(3)) && pace.is_too_slow(late(4)));
    }

    #[test]
    fn who_rests_keeps_no_large_buffer() {
        let pending = Vec::with_capacity(IDLE_BYTES + 1);
        let mut output =
            AnswerWriter { pending, made: vec![0; SEND_BYTES], ..AnswerWriter::default() };
        output.rest();
        assert_eq!((output.pending.capacity(), output.made.capacity()), (0, 0));
        output.pending.reserve_exact(IDLE_BYTES);
        output.made = vec![0; SEND_BYTES];
        output.rest();
        assert_eq!(output.pending.capacity(), IDLE_BYTES, "what every transfer needs stays");
        assert_eq!(output.made.capacity(), 0);
        output.pending.reserve_exact(IDLE_BYTES + 1);
        output.rest();
        assert_eq!(output.pending.capacity(), 0, "whatever was made");
    }

    /// A full batch goes out in the midst of a range: its bytes are looked at as the last ones are.
    #[test]
    fn what_is_fenced_in_the_midst_of_a_range_is_sent_as_zeros_too() {
        let sent = Sending::new().all(|sending| {
            sending.add(0, 10);
            sending.export.fence();
            sending.add(10, SEND_BYTES + 7);
            sending.finish();
        });
        assert!(sent == vec![0; 10 + SEND_BYTES + 7]);
    }
}
