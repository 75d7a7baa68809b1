//! A reader's connection to a data port: blocking calls that wake up to look at their patience.

use crate::base::error::{RequestRefusal, TransportError};
use crate::base::limits::{FULL_PATIENCE, HANDSHAKE_DEADLINE, STREAM_REST, TICK};
use crate::base::patience::Patience;
use crate::memory::sys::{self, Ranges};
use crate::wire::credentials::{self, Credentials};
use crate::wire::dial::dial;
use crate::wire::frames::{FrameKind, HEADER_BYTES, Header, Malformed};
use crate::wire::handshake::{Failed, HELLO_BYTES, ReaderSide, VERDICT_BYTES};
use crate::wire::mac::{Channel, GrantKey, MacKey, Nonces};
use crate::wire::socket::Socket;
use crate::wire::write_frame::WriteClaim;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

/// An authenticated connection. After an error it must be dropped.
pub(crate) struct DataStream {
    pub(crate) addr: SocketAddr,
    key: MacKey,
    socket: Socket,
    channel: Channel,
    nonces: Nonces,
    /// Writes that were sent over it.
    writes: u64,
    /// What connecting took: one way there and back, with only kernels involved.
    round_trip: Duration,
    /// When it was opened or last laid to rest, until an answer begins.
    rested: Option<Instant>,
    /// The process that opened it. A forked child must not speak into its parent's connections.
    process: u32,
}

impl DataStream {
    /// Connects and shakes hands. Where the port is full it is tried again for a while, as long as
    /// the connection is wanted.
    pub(crate) fn open(
        addr: SocketAddr,
        key: &MacKey,
        patience: &Patience<'_>,
        wanted: impl Fn() -> bool,
    ) -> Result<Self, TransportError> {
        let until = Instant::now() + FULL_PATIENCE;
        let mut was_full = false;
        loop {
            match Self::open_now(addr, key, patience) {
                Err(TransportError::Full { .. }) if wanted() && Instant::now() < until => {
                    was_full = true;
                    thread::sleep(patience.tick());
                }
                // That is what the time went by with.
                Err(TransportError::Timeout { .. }) if was_full => {
                    return Err(TransportError::Full { addr });
                }
                opened => return opened,
            }
        }
    }

    fn open_now(
        addr: SocketAddr,
        key: &MacKey,
        patience: &Patience<'_>,
    ) -> Result<Self, TransportError> {
        let started = Instant::now();
        let socket = Socket::Tcp(dial(addr, patience)?);
        let round_trip = started.elapsed();
        let patience = patience.at_most(HANDSHAKE_DEADLINE);
        let stream = Self::shaken(addr, key, socket, Channel::Tcp, &patience)?;
        Ok(Self { round_trip, rested: Some(Instant::now()), ..stream })
    }

    /// Shakes hands over a connection. Over a local one, only the process that it names may speak.
    pub(crate) fn shaken(
        addr: SocketAddr,
        key: &MacKey,
        socket: Socket,
        channel: Channel,
        patience: &Patience<'_>,
    ) -> Result<Self, TransportError> {
        let unreachable = |e: io::Error| TransportError::Unreachable { addr, what: e.to_string() };
        socket.prepare().map_err(unreachable)?;
        socket.set_read_timeout(Some(TICK)).map_err(unreachable)?;
        socket.set_write_timeout(Some(TICK)).map_err(unreachable)?;
        let (key, process, round_trip) = (key.clone(), std::process::id(), Duration::ZERO);
        let (nonces, writes, rested) = (Nonces::NONE, 0, None);
        let mut stream =
            Self { addr, key, socket, channel, nonces, writes, round_trip, rested, process };
        stream.nonces = stream.shake_hands(patience)?;
        Ok(stream)
    }

    /// [`DataStream::open`] for a port that was reached before: if it no longer is, the source is gone.
    pub(crate) fn reopen(
        addr: SocketAddr,
        key: &MacKey,
        patience: &Patience<'_>,
        wanted: impl Fn() -> bool,
    ) -> Result<Self, TransportError> {
        Self::open(addr, key, patience, wanted).map_err(|error| match error {
            TransportError::Unreachable { addr, what } => TransportError::SourceGone { addr, what },
            other => other,
        })
    }

    /// Lays it to rest: nothing is under way.
    pub(crate) fn rest(&mut self, now: Instant) {
        self.rested = Some(now);
    }

    /// True unless it rested too long or belongs to the parent of a forked process.
    pub(crate) fn is_fresh(&self, now: Instant) -> bool {
        let rested =
            self.rested.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        rested <= STREAM_REST && self.process == std::process::id()
    }

    fn shake_hands(&mut self, patience: &Patience<'_>) -> Result<Nonces, TransportError> {
        let addr = self.addr;
        let failed = |failed| match failed {
            Failed::Unauthorized => TransportError::Unauthorized { addr },
            Failed::NotTheProtocol => TransportError::Protocol { addr, what: "handshake" },
            Failed::Full => TransportError::Full { addr },
        };
        let mut hello = [0; HELLO_BYTES];
        self.receive(&mut hello, patience)?;
        let side = ReaderSide::new(self.channel, &hello).map_err(failed)?;
        self.send(&side.proof(&self.key), patience)?;
        let mut verdict = [0; VERDICT_BYTES];
        self.receive(&mut verdict, patience)?;
        side.check(&self.key, &verdict).map_err(failed)?;
        Ok(side.nonces())
    }

    /// Appends a write to what is sent over this stream next: all but its bytes, which follow.
    pub(crate) fn put_write(&mut self, out: &mut Vec<u8>, write: &WriteClaim, key: &GrantKey) {
        write.put(out, |claimed| key.mac(&self.nonces, self.writes, claimed));
        self.writes += 1;
    }

    /// Whether the source may have closed it: nothing was answered since it rested.
    pub(crate) fn is_resting(&self) -> bool {
        self.rested.is_some()
    }

    /// How long one way there and back takes.
    pub(crate) fn round_trip(&self) -> Duration {
        self.round_trip
    }

    pub(crate) fn send(
        &mut self,
        mut bytes: &[u8],
        patience: &Patience<'_>,
    ) -> Result<(), TransportError> {
        while !bytes.is_empty() {
            patience.check("sending a request")?;
            match (&self.socket).write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) => self.tolerate(error)?,
            }
        }
        Ok(())
    }

    pub(crate) fn receive(
        &mut self,
        mut bytes: &mut [u8],
        patience: &Patience<'_>,
    ) -> Result<(), TransportError> {
        while !bytes.is_empty() {
            patience.check("waiting for an answer")?;
            match self.read(bytes) {
                Ok(0) => return Err(self.gone("connection closed")),
                Ok(count) => {
                    bytes = &mut bytes[count..];
                    self.rested = None;
                }
                Err(error) => self.tolerate(error)?,
            }
        }
        Ok(())
    }

    /// Bytes from the process that may speak here.
    fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        let Channel::Local { .. } = self.channel else { return (&self.socket).read(bytes) };
        match credentials::receive(self.socket.as_fd(), bytes)? {
            (0, _) => Ok(0),
            (count, sender) => self.speaks(sender).map(|()| count),
        }
    }

    /// Whether bytes of this sender may come over the connection.
    fn speaks(&self, sender: Option<Credentials>) -> io::Result<()> {
        match (self.channel, sender) {
            (Channel::Local { pid, .. }, Some(sender)) if sender.pid == pid => Ok(()),
            _ => Err(io::Error::new(ErrorKind::PermissionDenied, "another process has answered")),
        }
    }

    /// Fills the ranges. For TCP connections only: the sender of the bytes is not checked here.
    ///
    /// # Safety
    /// They are writable, and nobody relies on their content until the call returns.
    pub(crate) unsafe fn receive_into(
        &mut self,
        ranges: &mut Ranges,
        patience: &Patience<'_>,
    ) -> Result<(), TransportError> {
        while ranges.bytes() > 0 {
            patience.check("waiting for bytes")?;
            // SAFETY: the caller's promise.
            match unsafe { sys::receive(self.socket.as_fd(), ranges) } {
                Ok(0) => return Err(self.gone("connection closed")),
                Ok(count) => ranges.advance(count),
                // The kernel has the bytes but nowhere to put them.
                Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {
                    // SAFETY: the ranges are ours to write until the call returns.
                    let address = unsafe { ranges.unwritable() };
                    let address = address.unwrap_or_else(|| ranges.address());
                    return Err(TransportError::UnwritableTarget { address });
                }
                Err(error) => self.tolerate(error)?,
            }
        }
        Ok(())
    }

    /// Sends the ranges.
    ///
    /// # Safety
    /// They are readable until the call returns.
    pub(crate) unsafe fn send_from(
        &mut self,
        ranges: &mut Ranges,
        patience: &Patience<'_>,
    ) -> Result<(), TransportError> {
        while ranges.bytes() > 0 {
            patience.check("sending bytes")?;
            // SAFETY: the caller's promise.
            match unsafe { sys::send(self.socket.as_fd(), ranges) } {
                Ok(count) => ranges.advance(count),
                Err(error) => self.tolerate(error)?,
            }
        }
        Ok(())
    }

    /// The next header, whatever it is.
    pub(crate) fn header(&mut self, patience: &Patience<'_>) -> Result<Header, TransportError> {
        let mut bytes = [0; HEADER_BYTES];
        self.receive(&mut bytes, patience)?;
        self.decoded(Header::decode(&bytes))
    }

    /// Sends requests and takes the header of the first answer. A source closes connections that
    /// rest, or were not asked anything yet, when it needs their places: then the requests are sent
    /// once more on a new one. Not so a local one, in whose place no connection over TCP may answer.
    pub(crate) fn begin(
        &mut self,
        requests: &[u8],
        patience: &Patience<'_>,
    ) -> Result<Header, TransportError> {
        match self.exchange(requests, patience) {
            Err(TransportError::SourceGone { .. }) if self.rested.is_some() && self.is_tcp() => {
                self.open_again(patience)?;
                self.exchange(requests, patience)
            }
            outcome => outcome,
        }
    }

    fn is_tcp(&self) -> bool {
        matches!(self.channel, Channel::Tcp)
    }

    /// Becomes a new connection to the same port.
    pub(crate) fn open_again(&mut self, patience: &Patience<'_>) -> Result<(), TransportError> {
        *self = Self::reopen(self.addr, &self.key, patience, || true)?;
        Ok(())
    }

    fn exchange(
        &mut self,
        requests: &[u8],
        patience: &Patience<'_>,
    ) -> Result<Header, TransportError> {
        self.send(requests, patience)?;
        self.header(patience)
    }

    /// Sends a request and takes its answer, which must be of the given kind and in one frame.
    pub(crate) fn ask(
        &mut self,
        request: &[u8],
        kind: FrameKind,
        patience: &Patience<'_>,
    ) -> Result<Vec<u8>, TransportError> {
        let header = self.begin(request, patience)?;
        self.expect(header, kind)?;
        let mut body = vec![0; header.body];
        self.receive(&mut body, patience)?;
        Ok(body)
    }

    /// The same over a local connection, of an answer whose first bytes may bring files along.
    pub(crate) fn ask_for_files(
        &mut self,
        request: &[u8],
        kind: FrameKind,
        patience: &Patience<'_>,
    ) -> Result<(Vec<u8>, Vec<OwnedFd>), TransportError> {
        self.send(request, patience)?;
        let (mut header, mut filled, mut files) = ([0; HEADER_BYTES], 0, Vec::new());
        while filled < HEADER_BYTES {
            patience.check("waiting for an answer")?;
            match credentials::receive_files(self.socket.as_fd(), &mut header[filled..]) {
                Ok((0, ..)) => return Err(self.gone("connection closed")),
                Ok((count, sender, came)) => {
                    self.speaks(sender).map_err(|error| self.gone(error))?;
                    filled += count;
                    files.extend(came);
                }
                Err(error) => self.tolerate(error)?,
            }
        }
        let header = self.decoded(Header::decode(&header))?;
        self.expect(header, kind)?;
        let mut body = vec![0; header.body];
        self.receive(&mut body, patience)?;
        Ok((body, files))
    }

    /// Checks the kind of an answer; a refusal becomes its error.
    pub(crate) fn expect(&self, header: Header, kind: FrameKind) -> Result<(), TransportError> {
        if header.kind == kind {
            return Ok(());
        }
        if header.kind == FrameKind::Refused
            && let Some(refusal) = RequestRefusal::from_code(header.status)
        {
            return Err(refusal.into());
        }
        Err(self.protocol("an answer to another question"))
    }

    pub(crate) fn decoded<T>(&self, decoded: Result<T, Malformed>) -> Result<T, TransportError> {
        decoded.map_err(|malformed| self.protocol(malformed.0))
    }

    pub(crate) fn protocol(&self, what: &'static str) -> TransportError {
        TransportError::Protocol { addr: self.addr, what }
    }

    fn gone(&self, what: impl ToString) -> TransportError {
        TransportError::SourceGone { addr: self.addr, what: what.to_string() }
    }

    /// Timeouts are only ticks; anything else means that the connection is lost.
    fn tolerate(&self, error: io::Error) -> Result<(), TransportError> {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(()),
            _ => Err(self.gone(error)),
        }
    }
}

#[cfg(test)]
impl DataStream {
    /// Ends the connection, as a source does that needs its place.
    pub(crate) fn shut_down(&self) {
        self.socket.shut_down();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::secret::Auth;
    use crate::port::server::DataServer;

    fn stream(server: &DataServer) -> DataStream {
        let key = Auth::default().mac_key();
        DataStream::open(server.addr(), &key, &Patience::default(), || true).unwrap()
    }

    /// A signal, or a tick of the own timeout, is no loss.
    #[test]
    fn what_interrupts_a_call_does_not_end_the_stream() {
        let server = DataServer::bind("127.0.0.1:0".parse().unwrap(), Auth::default()).unwrap();
        let stream = stream(&server);
        for kind in [ErrorKind::Interrupted, ErrorKind::WouldBlock, ErrorKind::TimedOut] {
            assert_eq!(stream.tolerate(kind.into()), Ok(()), "{kind}");
        }
        let lost = stream.tolerate(ErrorKind::ConnectionReset.into());
        assert!(matches!(lost, Err(TransportError::SourceGone { .. })));
    }

    #[test]
    fn a_fork_does_not_speak_into_its_parents_connections() {
        let server = DataServer::bind("127.0.0.1:0".parse().unwrap(), Auth::default()).unwrap();
        let mut stream = stream(&server);
        stream.rest(Instant::now());
        assert!(stream.is_fresh(Instant::now()));
        stream.process += 1;
        assert!(!stream.is_fresh(Instant::now()));
    }

    #[test]
    fn a_stream_rests_for_so_long_and_no_longer() {
        let server = DataServer::bind("127.0.0.1:0".parse().unwrap(), Auth::default()).unwrap();
        let mut stream = stream(&server);
        assert!(stream.rested.is_some(), "a source may close one that was not asked anything yet");
        let now = Instant::now();
        stream.rest(now);
        assert!(stream.is_fresh(now) && stream.is_fresh(now + STREAM_REST));
        assert!(!stream.is_fresh(now + STREAM_REST + Duration::from_nanos(1)));
        let mut request = Vec::new();
        crate::wire::begin(&mut request, FrameKind::Identify);
        stream.ask(&request, FrameKind::Identity, &Patience::default()).unwrap();
        assert!(stream.rested.is_none(), "an answer has begun");
        assert!(stream.is_fresh(now + 2 * STREAM_REST));
    }

    #[test]
    fn an_answer_is_what_was_asked_for_or_says_why_not() {
        let server = DataServer::bind("127.0.0.1:0".parse().unwrap(), Auth::default()).unwrap();
        let stream = stream(&server);
        let addr = server.addr();
        let other = TransportError::Protocol { addr, what: "an answer to another question" };
        let refused = RequestRefusal::OutOfRange;
        assert_eq!(stream.expect(Header::new(FrameKind::Data, 9), FrameKind::Data), Ok(()));
        assert_eq!(
            stream.expect(Header::new(FrameKind::Noted, 9), FrameKind::Data),
            Err(other.clone())
        );
        assert_eq!(stream.expect(Header::refusal(refused), FrameKind::Data), Err(refused.into()));
        let nameless = Header { status: 99, ..Header::refusal(refused) };
        assert_eq!(stream.expect(nameless, FrameKind::Data), Err(other.clone()));
        let status = Header { status: refused.code(), ..Header::new(FrameKind::Noted, 0) };
        assert_eq!(stream.expect(status, FrameKind::Data), Err(other), "only a refusal has one");
        assert_eq!(stream.decoded(Ok(7)), Ok(7));
        let wrong = TransportError::Protocol { addr, what: "wrong" };
        assert_eq!(stream.decoded::<()>(Err(Malformed("wrong"))), Err(wrong));
    }

    #[test]
    fn a_port_that_was_reached_before_and_is_no_more_is_gone() {
        use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
        // A port that is taken, and at which nobody listens.
        let taken = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&taken, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let addr: SocketAddr = getsockname(&taken).unwrap().try_into().unwrap();
        let (key, patience) = (Auth::default().mac_key(), Patience::default());
        let first = DataStream::open(addr, &key, &patience, || true).err();
        assert!(matches!(first, Some(TransportError::Unreachable { addr: a, .. }) if a == addr));
        let again = DataStream::reopen(addr, &key, &patience, || true).err();
        assert!(matches!(again, Some(TransportError::SourceGone { addr: a, .. }) if a == addr));
    }

    /// A source that takes nothing, or says nothing, is looked at with patience each tick.
    #[test]
    fn every_call_wakes_to_look_and_looks_before_it_blocks() {
        let server = DataServer::bind("127.0.0.1:0".parse().unwrap(), Auth::default()).unwrap();
        let mut stream = stream(&server);
        let Socket::Tcp(socket) = &stream.socket else { unreachable!() };
        let ticks = [socket.read_timeout(), socket.write_timeout()].map(|t| t.unwrap().unwrap());
        assert!(ticks.into_iter().all(|tick| (TICK..2 * TICK).contains(&tick)), "{ticks:?}");
        let raised = std::sync::atomic::AtomicBool::new(true);
        let patience = Patience { cancel: Some(&raised), ..Patience::default() };
        let cancelled = Err(TransportError::Cancelled);
        assert_eq!(stream.send(b"x", &patience), cancelled);
        assert_eq!(stream.receive(&mut [0], &patience), cancelled);
        let (mut byte, mut ranges) = (0_u8, Ranges::default());
        ranges.push((&raw mut byte).expose_provenance() as u64, 1);
        // SAFETY: the byte is ours.
        assert_eq!(unsafe { stream.receive_into(&mut ranges, &patience) }, cancelled);
    }
}
