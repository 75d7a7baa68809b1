//! The server's side of a connection's bytes: whole frames out of a stream that may be hostile.

use crate::limits::{FRAME_GRACE, IDLE_BYTES, MIN_FRAME_RATE};
use crate::socket::Socket;
use crate::wire::{HEADER_BYTES, Header};
use std::io::{self, ErrorKind, Read};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Bytes read at once. The buffer grows by this much only as bytes arrive.
const STEP: usize = 64 << 10;

/// Reads frames. Between frames it waits as long as it must; inside one the peer must keep up.
pub(crate) struct Input {
    buffer: Vec<u8>,
    /// The bytes of the buffer that are not consumed yet.
    unread: Range<usize>,
    timed: bool,
}

impl Input {
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
        let begun = Instant::now();
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
            let earned = Duration::from_secs(self.unread.len() as u64 / MIN_FRAME_RATE);
            if begun.elapsed() > FRAME_GRACE + earned {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MAX_REQUEST_BYTES;
    use crate::wire::Kind;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_large_request_leaves_nothing_behind() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let (socket, mut input) = (Socket::Local(here), Input::new());
        let frame = |len: usize| {
            let header = Header::new(Kind::Read, len).encode();
            [&header[..], &vec![7; len]].concat()
        };
        let sent = std::thread::spawn(move || {
            there.write_all(&frame(MAX_REQUEST_BYTES)).unwrap();
            there.write_all(&frame(5)).unwrap();
        });
        assert!(input.wait(&socket).unwrap());
        assert_eq!(input.frame(&socket).unwrap().1.len(), MAX_REQUEST_BYTES);
        assert!(input.buffer.capacity() > IDLE_BYTES);
        if !input.has_more() {
            input.wait(&socket).unwrap();
        }
        assert_eq!(input.frame(&socket).unwrap().1, [7; 5]);
        assert!(!input.wait(&socket).unwrap(), "closed");
        assert!(input.buffer.capacity() <= IDLE_BYTES, "{}", input.buffer.capacity());
        sent.join().unwrap();
    }
}
