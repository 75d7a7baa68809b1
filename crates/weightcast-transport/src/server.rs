//! The data port of a process: accepts readers, one thread each.

use crate::exports::{ExportTable, lock};
use crate::handshake::{self, Channel};
use crate::limits::{CONNECTION_STACK_BYTES, MAX_CONNECTIONS, RESERVED_DESCRIPTORS};
use crate::listener::Listener;
use crate::seats::{Seat, Seats};
use crate::secret::{Auth, MacKey};
use crate::serve::{Connection, Desk, admit};
use crate::slices::Turns;
use crate::socket::Socket;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use thiserror::Error;

/// How long a closing server waits for its connections to notice.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// How long the acceptor rests when the system has no descriptors or threads left.
const EXHAUSTED_REST: Duration = Duration::from_millis(50);

/// Sends may block this long before the connection looks at its deadline.
const SEND_TICK: Duration = Duration::from_secs(1);

/// Why a data port did not open.
#[derive(Debug, Error)]
pub enum BindError {
    /// The address is reachable from other hosts and nothing protects it.
    #[error(
        "refusing to serve weights on {addr} without a token: set a token, bind loopback, or say \
         that the network is trusted (insecure)"
    )]
    Exposed {
        /// The address.
        addr: SocketAddr,
    },
    /// The system refused.
    #[error("cannot serve on {addr}: {error}")]
    System {
        /// The address.
        addr: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
}

/// A data port. Dropping it fences all exports, closes all connections and the port.
///
/// A fork's copy of it has no threads and shares the parent's sockets: it serves nothing, and
/// dropping it leaves the parent's as they are.
pub struct DataServer {
    addr: SocketAddr,
    listener: Arc<Listener>,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
    /// The process that its threads run in.
    process: u32,
}

/// What the threads of a data port share.
struct Shared {
    desk: Desk,
    key: MacKey,
    /// Of its TCP listener.
    port: u16,
    seats: Mutex<Seats>,
    ended: Condvar,
}

impl DataServer {
    /// Opens a data port; port 0 lets the system choose.
    ///
    /// # Errors
    /// [`BindError::Exposed`] beyond loopback with neither a token nor `insecure`;
    /// [`BindError::System`] if the address is not to be had.
    pub fn bind(addr: SocketAddr, auth: Auth) -> Result<Self, BindError> {
        Self::bind_for(addr, auth, MAX_CONNECTIONS)
    }

    /// The same for `connections` readers at once, one at least. Beyond them a connection that is
    /// idle or sips is closed for a newcomer, which is turned away only if all are busy.
    ///
    /// # Errors
    /// As [`DataServer::bind`].
    pub fn bind_for(addr: SocketAddr, auth: Auth, connections: usize) -> Result<Self, BindError> {
        let open = auth.token.is_none() && !addr.ip().to_canonical().is_loopback();
        if open && !auth.insecure {
            return Err(BindError::Exposed { addr });
        }
        let system = |error| BindError::System { addr, error };
        let listener = Listener::bind(addr).map_err(system)?;
        let addr = listener.addr().map_err(system)?;
        if open {
            tracing::warn!(%addr, "INSECURE data port: everybody who reaches it can read weights");
        }
        let listener = Arc::new(listener);
        let shared = Arc::new(Shared {
            desk: Desk { exports: Arc::default(), name: listener.name(), turns: Turns::new() },
            key: auth.mac_key(),
            port: addr.port(),
            seats: Mutex::new(Seats::new(connections)),
            ended: Condvar::new(),
        });
        let acceptor = thread::Builder::new().name("weightcast-accept".into()).spawn({
            let (listener, shared) = (Arc::clone(&listener), Arc::clone(&shared));
            move || accept(&listener, &shared)
        });
        let acceptor = Some(acceptor.map_err(system)?);
        Ok(Self { addr, listener, shared, acceptor, process: std::process::id() })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What it serves.
    pub fn exports(&self) -> &Arc<ExportTable> {
        &self.shared.desk.exports
    }

    /// Open connections.
    pub fn connections(&self) -> usize {
        lock(&self.shared.seats).taken()
    }
}

impl Drop for DataServer {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // A handle would be joined or detached, a socket shut down for the parent too, and a
            // lock may have been held for ever when the fork came.
            std::mem::forget(self.acceptor.take());
            return;
        }
        self.shared.desk.exports.fence_all();
        lock(&self.shared.seats).closing = true;
        // Wakes the acceptor out of its blocking call.
        self.listener.close();
        if let Some(acceptor) = self.acceptor.take() {
            let _panicked = acceptor.join();
        }
        let seats = lock(&self.shared.seats);
        seats.close();
        let waited = self.shared.ended.wait_timeout_while(seats, CLOSE_GRACE, |s| !s.is_empty());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// Accepts until the server closes.
fn accept(listener: &Listener, shared: &Arc<Shared>) {
    loop {
        let accepted = listener.accept();
        if lock(&shared.seats).closing {
            return;
        }
        let started = accepted
            .and_then(|sockets| sockets.into_iter().try_for_each(|socket| start(socket, shared)));
        if let Err(error) = started {
            // The process may need descriptors as much as the port does.
            let gave_way = lock(&shared.seats).give_way(Instant::now());
            tracing::warn!(%error, gave_way, "data port could not take a connection");
            thread::sleep(EXHAUSTED_REST);
        }
    }
}

/// Gives a connection its thread, or turns it away when all others are busy.
fn start(socket: Socket, shared: &Arc<Shared>) -> io::Result<()> {
    let holder = socket.holder()?;
    socket.set_write_timeout(Some(SEND_TICK))?;
    let socket = Arc::new(socket);
    let place = match spare_descriptors(&socket, &shared.seats) {
        true => lock(&shared.seats).enter(&socket, holder, Instant::now()),
        false => None,
    };
    let Some((number, seat)) = place else {
        // A fresh socket takes so few bytes without blocking.
        return (&*socket).write_all(&handshake::full());
    };
    let worker = Arc::clone(shared);
    let thread = thread::Builder::new()
        .name("weightcast-serve".into())
        .stack_size(CONNECTION_STACK_BYTES)
        .spawn(move || {
            let _leave = Leave { shared: &worker, number };
            if let Err(error) = converse(&seat, number, &worker) {
                tracing::debug!(%error, "data connection closed");
            }
        });
    if let Err(error) = thread {
        lock(&shared.seats).leave(number);
        return Err(error);
    }
    Ok(())
}

/// Whether a new connection leaves descriptors to the process. The kernel gives out the lowest
/// number that is free, so a high one says that few are left: then others give way, and if none
/// may, the newcomer is not let in.
fn spare_descriptors(socket: &Socket, seats: &Mutex<Seats>) -> bool {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let Some(limit) = limit else { return true };
    let reserved = RESERVED_DESCRIPTORS.min(limit / 4);
    let left = limit.saturating_sub(1 + socket.as_fd().as_raw_fd() as u64);
    let missing = reserved.saturating_sub(left);
    if missing == 0 {
        return true;
    }
    let mut seats = lock(seats);
    let gave_way = (0..missing).take_while(|_| seats.give_way(Instant::now())).count();
    tracing::warn!(left, gave_way, "few descriptors are left: data connections make room");
    gave_way > 0
}

fn converse(seat: &Seat, number: u64, shared: &Shared) -> io::Result<()> {
    seat.socket.prepare()?;
    let channel = match seat.socket.is_local() {
        true => Channel::Local { pid: std::process::id() as i32, port: shared.port },
        false => Channel::Tcp,
    };
    let has_room = || lock(&shared.seats).admit(number, Instant::now());
    admit(&seat.socket, &shared.key, channel, has_room)?;
    Connection::new(seat, &shared.desk).run()
}

/// Takes a connection off the list however its thread ends.
struct Leave<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        lock(&self.shared.seats).leave(self.number);
        self.shared.ended.notify_all();
    }
}
