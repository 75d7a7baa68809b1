//! The server's side of a connection's bytes: whole frames out of a stream that may be hostile.

use crate::base::limits::{FRAME_GRACE, IDLE_BYTES, MIN_FRAME_RATE};
use crate::wire::socket::Socket;
use crate::wire::{HEADER_BYTES, Header};
use std::io::{self, ErrorKind, Read};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Bytes read at once. The buffer grows by this much only as bytes arrive.
const STEP: usize = 64 << 10;

/// Reads frames. Between frames it waits as long as it must; inside one the peer must keep up.
pub(crate) struct RequestReader {
    buffer: Vec<u8>,
    /// The bytes of the buffer that are not consumed yet.
    unread: Range<usize>,
    timed: bool,
}

impl RequestReader {
    pub(crate) fn new() -> Self {
        Self { buffer: Vec::new(), unread: 0..0, timed: true }
    }

    /// Waits for the first bytes of a frame, with no more room than that takes. False when the peer has
    /// closed between frames.
    ///
    /// # Errors
    /// Whatever means that the connection must be closed.
    pub(crate) fn wait(&mut self, socket: &Socket) -> io::Result<bool> {
        self.set_timed(socket, false)?;
        if self.buffer.capacity() > IDLE_BYTES {
            (self.buffer, self.unread) = (Vec::new(), 0..0);
        }
        Ok(self.read(socket)? > 0)
    }

    /// The frame whose first bytes are there.
    ///
    /// # Errors
    /// Whatever means that the connection must be closed.
    pub(crate) fn frame(&mut self, socket: &Socket) -> io::Result<(Header, &[u8])> {
        self.frame_since(socket, Instant::now())
    }

    /// The same of a frame whose first bytes came at a known time.
    fn frame_since(&mut self, socket: &Socket, begun: Instant) -> io::Result<(Header, &[u8])> {
        self.at_least(socket, HEADER_BYTES, begun)?;
        let header = self.buffer[self.unread.clone()].first_chunk().expect("a header's bytes");
        let header = Header::decode(header)
            .map_err(|malformed| io::Error::new(ErrorKind::InvalidData, malformed.0))?;
        if !header.kind.is_request() {
            return Err(io::Error::new(ErrorKind::InvalidData, "not a request"));
        }
        self.at_least(socket, HEADER_BYTES + header.body, begun)?;
        let body = self.unread.start + HEADER_BYTES..self.unread.start + HEADER_BYTES + header.body;
        self.unread.start = body.end;
        Ok((header, &self.buffer[body]))
    }

    /// True if the bytes of another request have already arrived.
    pub(crate) fn has_more(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Reads until `count` unread bytes are there.
    fn at_least(&mut self, socket: &Socket, count: usize, begun: Instant) -> io::Result<()> {
        while self.unread.len() < count {
            self.set_timed(socket, true)?;
            match self.read(socket) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if begun.elapsed() > may_take(self.unread.len()) {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// Reads once, behind the unread bytes.
    fn read(&mut self, mut socket: &Socket) -> io::Result<usize> {
        if self.unread.start > 0 {
            self.buffer.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
        self.buffer.resize(self.unread.end + STEP, 0);
        loop {
            match socket.read(&mut self.buffer[self.unread.end..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(count) => {
                    self.unread.end += count;
                    return Ok(count);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn set_timed(&mut self, socket: &Socket, timed: bool) -> io::Result<()> {
        if self.timed != timed {
            socket.set_read_timeout(timed.then_some(FRAME_GRACE))?;
            self.timed = timed;
        }
        Ok(())
    }
}

/// How long so many bytes of a frame may take.
fn may_take(bytes: usize) -> Duration {
    FRAME_GRACE + Duration::from_secs(bytes as u64 / MIN_FRAME_RATE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::limits::MAX_REQUEST_BYTES;
    use crate::wire::FrameKind;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn pair() -> (Socket, UnixStream) {
        let (here, there) = UnixStream::pair().unwrap();
        (Socket::Local(here), there)
    }

    fn frame(kind: FrameKind, body: &[u8]) -> Vec<u8> {
        [&Header::new(kind, body.len()).encode()[..], body].concat()
    }

    #[test]
    fn a_large_request_leaves_nothing_behind() {
        let ((socket, mut there), mut input) = (pair(), RequestReader::new());
        let large = frame(FrameKind::Read, &vec![7; MAX_REQUEST_BYTES]);
        let sent = std::thread::spawn(move || {
            there.write_all(&large).unwrap();
            there
        });
        assert!(input.wait(&socket).unwrap());
        assert!(input.frame(&socket).unwrap().1 == vec![7; MAX_REQUEST_BYTES]);
        let mut there = sent.join().unwrap();
        assert!(input.buffer.capacity() > IDLE_BYTES && !input.has_more());
        // What comes next begins at the beginning.
        there.write_all(&frame(FrameKind::Note, &[5; 9])).unwrap();
        assert!(input.wait(&socket).unwrap() && input.has_more());
        assert!(input.buffer.capacity() <= IDLE_BYTES, "{}", input.buffer.capacity());
        let (header, body) = input.frame(&socket).unwrap();
        assert_eq!((header, body), (Header::new(FrameKind::Note, 9), &[5; 9][..]));
        drop(there);
        assert!(!input.wait(&socket).unwrap(), "closed");
    }

    #[test]
    fn frames_come_whole_and_in_order_however_they_are_cut() {
        let (socket, mut there) = pair();
        let lens = [0, 1, 15, 16, 17, STEP - 17, STEP - 16, STEP - 15, STEP, 3 * STEP + 5, 2, 0];
        let body = |number: usize| vec![number as u8 + 1; lens[number]];
        let all: Vec<u8> =
            (0..lens.len()).flat_map(|n| frame(FrameKind::Digest, &body(n))).collect();
        let sent = std::thread::spawn(move || {
            let mut left = &all[..];
            for cut in [1, 14, 1, 16, 3, 30_000, 1, 100_000, 7].into_iter().cycle() {
                let (now, later) = left.split_at(left.len().min(cut));
                there.write_all(now).unwrap();
                left = later;
                if left.is_empty() {
                    return;
                }
            }
        });
        let mut input = RequestReader::new();
        for (number, len) in lens.into_iter().enumerate() {
            if !input.has_more() {
                assert!(input.wait(&socket).unwrap());
            }
            let (header, found) = input.frame(&socket).unwrap();
            assert_eq!(header, Header::new(FrameKind::Digest, len), "frame {number}");
            assert!(found == body(number), "frame {number}");
        }
        sent.join().unwrap();
        assert!(!input.has_more() && !input.wait(&socket).unwrap());
    }

    #[test]
    fn what_is_no_whole_request_closes_the_connection() {
        let request = frame(FrameKind::Read, &[1; 8]);
        let mut garbage = request.clone();
        garbage[0] ^= 1;
        let table = [
            (&request[..1], ErrorKind::UnexpectedEof),
            (&request[..HEADER_BYTES - 1], ErrorKind::UnexpectedEof),
            (&request[..HEADER_BYTES], ErrorKind::UnexpectedEof),
            (&request[..HEADER_BYTES + 7], ErrorKind::UnexpectedEof),
            (&garbage, ErrorKind::InvalidData),
            (&frame(FrameKind::Data, &[1; 8]), ErrorKind::InvalidData),
        ];
        for (bytes, kind) in table {
            let ((socket, mut there), mut input) = (pair(), RequestReader::new());
            there.write_all(bytes).unwrap();
            drop(there);
            assert!(input.wait(&socket).unwrap());
            assert_eq!(input.frame(&socket).unwrap_err().kind(), kind, "{bytes:?}");
        }
    }

    /// Between frames for as long as it likes; within one it must keep up.
    #[test]
    fn only_a_frame_that_has_begun_is_timed() {
        let ((socket, mut there), mut input) = (pair(), RequestReader::new());
        let Socket::Local(here) = &socket else { unreachable!() };
        let bytes = frame(FrameKind::Read, &[1; 8]);
        there.write_all(&bytes[..5]).unwrap();
        assert!(input.wait(&socket).unwrap());
        assert_eq!(here.read_timeout().unwrap(), None);
        there.write_all(&bytes[5..]).unwrap();
        input.frame(&socket).unwrap();
        assert_eq!(here.read_timeout().unwrap(), Some(FRAME_GRACE));
        there.write_all(&bytes).unwrap();
        assert!(input.wait(&socket).unwrap());
        assert_eq!(here.read_timeout().unwrap(), None);
        input.frame(&socket).unwrap();
        assert_eq!(here.read_timeout().unwrap(), None, "it was there already");
        let second = Duration::from_secs(1);
        let rate = MIN_FRAME_RATE as usize;
        assert_eq!([0, rate - 1].map(may_take), [FRAME_GRACE; 2]);
        assert_eq!(
            [rate, 10 * rate].map(may_take),
            [1, 10].map(|more| FRAME_GRACE + more * second)
        );
    }

    /// By the bytes that have come, whatever the header says is still to come. The clocks are set, so
    /// nothing here takes its time: what is too late is late by a nanosecond, what is not by a minute.
    #[test]
    fn a_frame_has_as_long_as_its_bytes_that_have_come_may_take() {
        let rate = MIN_FRAME_RATE as usize;
        let minute = Duration::from_secs(60);
        let announced = HEADER_BYTES + MAX_REQUEST_BYTES;
        for came in [1, HEADER_BYTES, rate - 1, rate, 10 * rate, 61 * rate, STEP - 1, STEP] {
            let outcome = |may_take: Duration, count: usize| {
                let ((socket, mut there), mut input) = (pair(), RequestReader::new());
                there.write_all(&vec![7; came]).unwrap();
                drop(there);
                let begun = Instant::now() - may_take;
                input.at_least(&socket, count, begun).map_err(|error| error.kind())
            };
            let most = FRAME_GRACE + Duration::from_secs((came / rate) as u64);
            let moment = Duration::from_nanos(1);
            for count in [came, came + 1, came + rate, 2 * came, announced] {
                let late = outcome(most + moment, count);
                assert_eq!(late, Err(ErrorKind::TimedOut), "{came} of {count} bytes");
            }
            if most > minute {
                let closed = Err(ErrorKind::UnexpectedEof);
                assert_eq!(outcome(most - minute, came), Ok(()), "{came} bytes");
                assert_eq!(outcome(most - minute, announced), closed, "{came} bytes");
            }
        }
    }

    /// A handshake leaves its own limit on the socket.
    #[test]
    fn a_fresh_connection_waits_without_limit() {
        let ((socket, mut there), mut input) = (pair(), RequestReader::new());
        let Socket::Local(here) = &socket else { unreachable!() };
        socket.set_read_timeout(Some(FRAME_GRACE)).unwrap();
        there.write_all(&[1]).unwrap();
        assert!(input.wait(&socket).unwrap());
        assert_eq!(here.read_timeout().unwrap(), None);
    }

    /// A header that comes late leaves the body no more time.
    #[test]
    fn the_time_of_a_frame_is_that_of_header_and_body() {
        let long_ago = Instant::now() - FRAME_GRACE - Duration::from_secs(1);
        let bytes = frame(FrameKind::Read, &[1; 8]);
        for (came, expected) in [
            (HEADER_BYTES, Err(ErrorKind::TimedOut)),
            (HEADER_BYTES + 7, Err(ErrorKind::TimedOut)),
            (HEADER_BYTES + 8, Ok(8)),
        ] {
            let ((socket, mut there), mut input) = (pair(), RequestReader::new());
            there.write_all(&bytes[..came]).unwrap();
            assert!(input.wait(&socket).unwrap());
            there.write_all(&bytes[came..]).unwrap();
            let found = input.frame_since(&socket, long_ago);
            let found = found.map(|(header, _)| header.body).map_err(|error| error.kind());
            assert_eq!(found, expected, "{came} bytes were there in time");
        }
    }

    /// However few there are: a connection on which a frame has begun does not rest.
    #[test]
    fn bytes_of_another_frame_are_more() {
        for more in [0, 1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 1] {
            let ((socket, mut there), mut input) = (pair(), RequestReader::new());
            let whole = frame(FrameKind::Read, &[1; 8]);
            there.write_all(&[&whole, &whole[..more]].concat()).unwrap();
            assert!(input.wait(&socket).unwrap() && input.has_more());
            input.frame(&socket).unwrap();
            assert_eq!(input.has_more(), more > 0, "{more} bytes");
        }
    }

    /// A read that found nothing in its time is no loss: the frame's own time decides.
    #[test]
    fn a_read_that_finds_nothing_only_looks_at_the_time() {
        let ((socket, _there), mut input) = (pair(), RequestReader::new());
        let Socket::Local(here) = &socket else { unreachable!() };
        here.set_nonblocking(true).unwrap();
        let long_ago = Instant::now() - FRAME_GRACE - Duration::from_secs(1);
        let outcome = input.at_least(&socket, 1, long_ago).map_err(|error| error.kind());
        assert_eq!(outcome, Err(ErrorKind::TimedOut));
    }
}
