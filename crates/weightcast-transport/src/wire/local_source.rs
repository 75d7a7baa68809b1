//! A source on this host: which process it is, and that it still is that process.
//!
//! Whose memory is read is the kernel's word. The TCP port only names a Unix socket; the process
//! that listens there is the one that `SO_PEERCRED` names, every byte from there must have been
//! sent by that process (`SCM_CREDENTIALS`), and the addresses that come over such a connection are
//! used against that process alone. The order is what makes a pid safe to use: first a pidfd of it,
//! then a handshake with a fresh nonce whose answer it sends, then a look whether the pidfd's
//! process still lives. If it does, the number was its all the while, so it is the sender; and as
//! long as it lives, no other process gets the number. (`SO_PEERPIDFD` would name the listener's
//! process even if it had died, which is of no use here.)
//!
//! The handshake's sums cover the sender's pid and its TCP port. So a process cannot pass on what
//! another one answers, whose port is not the one that was dialled, nor one in another pid
//! namespace, whose number for itself is not ours.

use crate::base::error::TransportError;
use crate::base::id::ExportId;
use crate::base::limits::HANDSHAKE_DEADLINE;
use crate::base::lock::lock;
use crate::base::patience::Patience;
use crate::wire::bodies::{LentPlace, decode_identity, decode_lent};
use crate::wire::description::{ExportDescription, decode_description};
use crate::wire::frames::{self, FrameKind};
use crate::wire::local_name::LocalName;
use crate::wire::mac::{Channel, MacKey};
use crate::wire::poll::{Ready, poll};
use crate::wire::pool::Pool;
use crate::wire::socket::Socket;
use crate::wire::stream::DataStream;
use crate::wire::{credentials, local};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::time::Instant;

/// A process of this host that serves exports, held by its pidfd.
pub(crate) struct LocalSource {
    addr: SocketAddr,
    name: LocalName,
    key: MacKey,
    pid: i32,
    /// As long as it lives, the pid is its.
    pidfd: OwnedFd,
    /// The connection of the last question.
    resting: Mutex<Option<DataStream>>,
}

impl LocalSource {
    /// Asks a data port for its Unix socket, connects there, and finds out which process listens. `own`
    /// permits this very process.
    ///
    /// # Errors
    /// [`TransportError::NoDirect`], which says why not; or what ended the patience.
    pub(crate) fn reach(
        port: &Pool,
        own: bool,
        patience: &Patience<'_>,
    ) -> Result<Self, TransportError> {
        let mut request = Vec::new();
        frames::begin(&mut request, FrameKind::Identify);
        let name = port.ask(&request, FrameKind::Identity, patience, decode_identity)?;
        Self::meet(port.addr(), name, port.key(), own, patience)
    }

    fn meet(
        addr: SocketAddr,
        name: Option<LocalName>,
        key: &MacKey,
        own: bool,
        patience: &Patience<'_>,
    ) -> Result<Self, TransportError> {
        let no = |what: String| TransportError::NoDirect { addr, what };
        let name = name.ok_or_else(|| no("it has no Unix socket".to_owned()))?;
        let socket = local::connect(name, patience)?.map_err(|error| {
            no(format!("no Unix socket of it here, so it is on another host or network: {error}"))
        })?;
        let pid = listener(&socket, own).map_err(no)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty())
            .map_err(|error| no(format!("no hold on its process: {error}")))?;
        let pid = pid.as_raw_nonzero().get();
        let process = Self { addr, name, key: key.clone(), pid, pidfd, resting: Mutex::default() };
        match process.converse(socket, patience).and_then(|_| process.verify()) {
            Ok(()) => {}
            Err(error) => {
                patience.check("shaking hands")?;
                let error = match error {
                    TransportError::Unauthorized { .. } => {
                        "of another process, port, pid namespace or token".to_owned()
                    }
                    error => error.to_string(),
                };
                return Err(no(format!("its Unix socket is not its own: {error}")));
            }
        }
        Ok(process)
    }

    /// Describes an export, by the word of the process that lends it.
    ///
    /// # Errors
    /// What a question may end with, and [`TransportError::SourceGone`] if another process answers.
    pub(crate) fn describe(
        &self,
        export: ExportId,
        generation: u64,
        patience: &Patience<'_>,
    ) -> Result<ExportDescription, TransportError> {
        let request = frames::named(FrameKind::Describe, export, generation);
        self.ask(patience, |stream| {
            let body = stream.ask(&request, FrameKind::Description, patience)?;
            stream.decoded(decode_description(&body))
        })
    }

    /// Asks for the memory of an export, to be mapped: where in which file each region lies, and the files.
    ///
    /// # Errors
    /// As of [`LocalSource::describe`].
    pub(crate) fn borrow(
        &self,
        export: ExportId,
        generation: u64,
        patience: &Patience<'_>,
    ) -> Result<(Vec<LentPlace>, Vec<OwnedFd>), TransportError> {
        let request = frames::named(FrameKind::Lend, export, generation);
        self.ask(patience, |stream| {
            let (body, files) = stream.ask_for_files(&request, FrameKind::Lent, patience)?;
            Ok((stream.decoded(decode_lent(&body))?, files))
        })
    }

    /// One question, over the connection that rests since the last one if there is one.
    fn ask<T>(
        &self,
        patience: &Patience<'_>,
        question: impl Fn(&mut DataStream) -> Result<T, TransportError>,
    ) -> Result<T, TransportError> {
        if let Some(mut stream) = self.rested() {
            match question(&mut stream) {
                // A port closes what rests when it needs the place: then a new connection tells.
                Err(TransportError::SourceGone { .. }) => {}
                answer => return self.answered(stream, answer),
            }
        }
        let mut stream = self.connect(patience)?;
        let answer = question(&mut stream);
        self.answered(stream, answer)
    }

    /// Lays a connection to rest on which nothing is under way. Its answer counts if it came from the process that
    /// is held.
    fn answered<T>(
        &self,
        mut stream: DataStream,
        answer: Result<T, TransportError>,
    ) -> Result<T, TransportError> {
        if let Ok(_) | Err(TransportError::Refused(_)) = &answer {
            stream.rest(Instant::now());
            *lock(&self.resting) = Some(stream);
        }
        let answer = answer?;
        self.verify()?;
        Ok(answer)
    }

    fn rested(&self) -> Option<DataStream> {
        let stream = lock(&self.resting).take()?;
        stream.is_fresh(Instant::now()).then_some(stream)
    }

    /// A connection to the process, and to no other.
    fn connect(&self, patience: &Patience<'_>) -> Result<DataStream, TransportError> {
        let socket = local::connect(self.name, patience)?.map_err(|error| self.gone(error))?;
        let who = credentials::of_peer(socket.as_fd()).map_err(|error| self.gone(error))?;
        if who.pid != self.pid {
            return Err(self.gone("another process listens in its place"));
        }
        self.converse(socket, patience)
    }

    /// Shakes hands over a connection on which only the process may speak.
    fn converse(
        &self,
        socket: std::os::unix::net::UnixStream,
        patience: &Patience<'_>,
    ) -> Result<DataStream, TransportError> {
        let channel = Channel::Local { pid: self.pid, port: self.addr.port() };
        let patience = patience.at_most(HANDSHAKE_DEADLINE);
        DataStream::shaken(self.addr, &self.key, Socket::Local(socket), channel, &patience)
    }

    /// # Errors
    /// [`TransportError::SourceGone`] unless the process of the first connection still lives: its
    /// pid may have been given to another.
    pub(crate) fn verify(&self) -> Result<(), TransportError> {
        match poll(self.pidfd.as_fd(), Ready::Readable, 0) {
            Ok(false) => Ok(()),
            _ => Err(self.gone("its process has ended")),
        }
    }

    /// Its data port.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    pub(crate) fn gone(&self, what: impl ToString) -> TransportError {
        TransportError::SourceGone { addr: self.addr, what: what.to_string() }
    }
}

/// The process that listens at the other end, if it is one whose memory should be read.
pub(crate) fn listener(socket: &std::os::unix::net::UnixStream, own: bool) -> Result<Pid, String> {
    let who = credentials::of_peer(socket.as_fd()).map_err(|e: io::Error| e.to_string())?;
    let pid = Pid::from_raw(who.pid).ok_or("it runs in another pid namespace")?;
    if who.uid != rustix::process::geteuid().as_raw() {
        return Err(format!("it belongs to another user ({})", who.uid));
    }
    if who.pid as u32 == std::process::id() && !own {
        return Err("it is this very process".to_owned());
    }
    Ok(pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::RequestRefusal;
    use crate::base::limits::STREAM_REST;
    use crate::{Auth, DataServer};
    use std::os::unix::net::UnixListener;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    /// A process that has ended, held on to.
    fn ended() -> OwnedFd {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::from_raw(child.id() as i32).unwrap();
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        child.wait().unwrap();
        pidfd
    }

    /// Addresses are those of the process of the first connection, as long as it lives.
    #[test]
    fn an_export_is_described_by_the_process_that_was_reached() {
        let server = DataServer::bind(([127, 0, 0, 1], 0).into(), Auth::default()).unwrap();
        let export = server.exports().expose(1, Vec::new());
        let (key, patience) = (Auth::default().mac_key(), Patience::default());
        let mut stream = DataStream::open(server.addr(), &key, &patience, || true).unwrap();
        let mut request = Vec::new();
        frames::begin(&mut request, FrameKind::Identify);
        let name = stream.ask(&request, FrameKind::Identity, &patience).unwrap();
        let name = decode_identity(&name).unwrap();
        let meet = |name, own| LocalSource::meet(server.addr(), name, &key, own, &patience);
        let why = |found: Result<LocalSource, TransportError>| found.err().unwrap().to_string();
        assert!(why(meet(None, true)).contains("it has no Unix socket"));
        assert!(why(meet(name, false)).contains("it is this very process"));
        let mut process = meet(name, true).unwrap();
        assert_eq!(process.pid(), std::process::id() as i32);
        assert!(process.describe(export, 1, &patience).is_ok());
        let own = std::mem::replace(&mut process.pidfd, ended());
        let gone = process.describe(export, 1, &patience).unwrap_err();
        assert_eq!(gone, process.gone("its process has ended"));
        process.pidfd = own;
        assert!(process.describe(export, 1, &patience).is_ok());
        // The port has closed what rested: a new connection tells, and none over TCP does.
        let close = |process: &LocalSource| {
            lock(&process.resting).as_ref().expect("rests after an answer").shut_down();
        };
        close(&process);
        assert!(process.describe(export, 1, &patience).is_ok());
        // Nor is one asked that has rested too long, or that belongs to the parent of a forked process.
        let long_ago = Instant::now() - STREAM_REST - Duration::from_secs(1);
        lock(&process.resting).as_mut().expect("rests").rest(long_ago);
        assert!(process.rested().is_none());
        let refused = process.describe(export, 2, &patience).unwrap_err();
        assert_eq!(refused, RequestRefusal::StaleGeneration.into());
        close(&process);
        process.pid += 1;
        let other = process.describe(export, 1, &patience).unwrap_err();
        assert_eq!(other, process.gone("another process listens in its place"));
        assert!(lock(&process.resting).is_none());
    }

    /// It says nothing of the way: the call itself was given up.
    #[test]
    fn whoever_is_given_up_in_a_handshake_was_not_refused_the_way() {
        let name = LocalName::draw();
        let silent = UnixListener::bind_addr(&name.address().unwrap()).unwrap();
        let (key, cancel) = (Auth::default().mac_key(), AtomicBool::new(false));
        let patience = Patience { cancel: Some(&cancel), ..Patience::default() };
        let addr = ([127, 0, 0, 1], 1).into();
        std::thread::scope(|scope| {
            let cancel = &cancel;
            scope.spawn(move || {
                let reader = silent.accept().unwrap();
                cancel.store(true, Ordering::Release);
                // It hears nothing, and sees no end, until it has given up.
                let _closed = io::Read::read(&mut &reader.0, &mut [0]);
            });
            let found = LocalSource::meet(addr, Some(name), &key, true, &patience).err();
            assert_eq!(found, Some(TransportError::Cancelled));
        });
    }
}
