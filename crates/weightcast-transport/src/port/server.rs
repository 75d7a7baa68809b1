//! The data port of a process: accepts readers, one thread each.

use crate::base::limits::{CONNECTION_STACK_BYTES, MAX_CONNECTIONS};
use crate::base::lock::lock;
use crate::base::secret::Auth;
use crate::export::table::ExportTable;
use crate::port::door::AcceptError;
use crate::port::holder::Holder;
use crate::port::listener::Listener;
use crate::port::seats::{ConnectionSeat, Seats};
use crate::port::serve::{Connection, Desk, admit};
use crate::wire::handshake;
use crate::wire::mac::{Channel, MacKey};
use crate::wire::socket::Socket;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use thiserror::Error;

/// How long a closing server waits for its connections to notice.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// How long the acceptor rests when the system has no descriptors or threads left, or waits for those
/// that are being given back.
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
    shared: Arc<PortState>,
    acceptor: Option<JoinHandle<()>>,
    /// The process that its threads run in.
    process: u32,
    /// How long it waits for its connections when it is dropped.
    grace: Duration,
}

/// What the threads of a data port share.
struct PortState {
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
    /// idle or sips is closed for a newcomer, or one of whoever has most.
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
        let shared = Arc::new(PortState {
            desk: Desk::new(listener.name(), auth.word_key()),
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
        let (process, grace) = (std::process::id(), CLOSE_GRACE);
        Ok(Self { addr, listener, shared, acceptor, process, grace })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What it serves.
    pub fn exports(&self) -> &Arc<ExportTable> {
        &self.shared.desk.exports
    }

    /// Has every word that comes here taken by `listens`: at once, since the speaker waits for it. False if a word is not
    /// taken. Words come from holders of the token; twice, late and in any order.
    pub fn listen(&self, listens: impl Fn(&[u8]) -> bool + Send + Sync + 'static) {
        self.shared.desk.ear.set(Some(Arc::new(listens)));
    }

    /// Takes no word any more.
    pub fn stop_listening(&self) {
        self.shared.desk.ear.set(None);
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
        let mut seats = lock(&self.shared.seats);
        seats.closing = true;
        // Before grants end: a write under way is cut off, not answered as if it had never been granted.
        seats.close();
        drop(seats);
        self.shared.desk.exports.fence_all();
        // Wakes the acceptor out of its blocking call.
        self.listener.close();
        if let Some(acceptor) = self.acceptor.take() {
            let _panicked = acceptor.join();
        }
        let seats = lock(&self.shared.seats);
        let waited = self.shared.ended.wait_timeout_while(seats, self.grace, |s| !s.is_empty());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// Accepts until the server closes.
fn accept(listener: &Listener, shared: &Arc<PortState>) {
    loop {
        let come = listener.accept();
        if lock(&shared.seats).closing {
            return;
        }
        for newcomer in come {
            if let Err(error) = newcomer.and_then(|(socket, holder)| start(socket, holder, shared))
            {
                rest(&error, shared);
            }
        }
    }
}

/// The process may need what the system has no more of as much as the port does. What is one
/// connection's own trouble does not lead here.
fn rest(error: &io::Error, shared: &PortState) {
    let gave_way = is_exhausted(error) && lock(&shared.seats).give_way(Instant::now());
    tracing::warn!(%error, gave_way, "data port could not take a connection");
    thread::sleep(EXHAUSTED_REST);
}

/// Whether the system has no more of what a connection takes: descriptors, memory, and threads, which
/// are to be had again later.
fn is_exhausted(error: &io::Error) -> bool {
    let no_thread = error.kind() == io::ErrorKind::WouldBlock;
    no_thread || AcceptError::of(error) == AcceptError::Exhausted
}

/// Gives a connection its thread, or turns it away when there is no place.
///
/// # Errors
/// There is no thread to be had.
fn start(socket: Socket, holder: Holder, shared: &Arc<PortState>) -> io::Result<()> {
    let socket = Arc::new(socket);
    let Some((number, seat)) = enter(&socket, holder, shared) else {
        // A fresh socket takes so few bytes without blocking, if anybody is there.
        let _gone = (&*socket).write_all(&handshake::full());
        return Ok(());
    };
    // Dropped with the closure where there is no thread to run it.
    let leave = Leave { shared: Arc::clone(shared), number };
    let thread = thread::Builder::new()
        .name("weightcast-serve".into())
        .stack_size(CONNECTION_STACK_BYTES)
        .spawn(move || {
            let leave = leave;
            // Gone before the place is, so that nobody else's descriptor is taken for it.
            let seat = seat;
            if let Err(error) = converse(&seat, number, &leave.shared) {
                tracing::debug!(%error, "data connection closed");
            }
        });
    thread.map(drop)
}

fn enter(
    socket: &Arc<Socket>,
    holder: Holder,
    shared: &PortState,
) -> Option<(u64, Arc<ConnectionSeat>)> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let mut seats = lock(&shared.seats);
    if let Some(limit) = limit {
        let newest = socket.as_fd().as_raw_fd() as u64;
        seats.look(limit, newest, Instant::now());
    }
    let is_short = |seats: &mut Seats| seats.is_short();
    let waited = shared.ended.wait_timeout_while(seats, EXHAUSTED_REST, is_short);
    let mut seats = waited.unwrap_or_else(PoisonError::into_inner).0;
    seats.enter(socket, holder, Instant::now())
}

fn converse(seat: &ConnectionSeat, number: u64, shared: &PortState) -> io::Result<()> {
    seat.socket.prepare()?;
    seat.socket.set_write_timeout(Some(SEND_TICK))?;
    let channel = match seat.socket.is_local() {
        true => Channel::Local { pid: std::process::id() as i32, port: shared.port },
        false => Channel::Tcp,
    };
    let has_room = || lock(&shared.seats).admit(number, Instant::now());
    let nonces = admit(&seat.socket, &shared.key, channel, has_room)?;
    Connection::new(seat, &shared.desk, nonces).run()
}

/// Takes a connection off the list however its thread ends, or if it never begins.
struct Leave {
    shared: Arc<PortState>,
    number: u64,
}

impl Drop for Leave {
    fn drop(&mut self) {
        lock(&self.shared.seats).leave(self.number);
        self.shared.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_later_is_waited_for() {
        let is = |number| is_exhausted(&io::Error::from_raw_os_error(number));
        for number in [libc::EAGAIN, libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS] {
            assert!(is(number), "{number}");
        }
        for number in [libc::EINVAL, libc::EBADF, libc::ECONNABORTED, libc::EINTR] {
            assert!(!is(number), "{number}");
        }
    }

    /// A place is free again as soon as whoever had it lets go of it, and who waits is woken.
    #[test]
    fn whoever_leaves_frees_the_place() {
        let server = DataServer::bind(([127, 0, 0, 1], 0).into(), Auth::default()).unwrap();
        let shared = &server.shared;
        let (here, _there) = std::os::unix::net::UnixStream::pair().unwrap();
        let socket = Arc::new(Socket::Local(here));
        let (number, _seat) = enter(&socket, Holder::Process(1), shared).expect("room");
        assert_eq!(server.connections(), 1);
        thread::scope(|scope| {
            let seats = lock(&shared.seats);
            let leave = Leave { shared: Arc::clone(shared), number };
            scope.spawn(move || drop(leave));
            let long = Duration::from_secs(60);
            let left = shared.ended.wait_timeout_while(seats, long, |seats| !seats.is_empty());
            assert!(!left.unwrap().1.timed_out());
        });
        assert_eq!(server.connections(), 0);
    }

    /// Whatever still holds its exports.
    #[test]
    fn a_closed_port_serves_nothing() {
        let server = DataServer::bind(([127, 0, 0, 1], 0).into(), Auth::default()).unwrap();
        let exports = Arc::clone(server.exports());
        let export = exports.get(exports.expose(1, Vec::new())).unwrap();
        drop(server);
        assert!(!export.is_served());
    }

    /// A trouble that no place given up would cure costs nobody a place.
    #[test]
    fn places_are_given_up_for_what_comes_back_only() {
        let server = DataServer::bind(([127, 0, 0, 1], 0).into(), Auth::default()).unwrap();
        let (here, _there) = std::os::unix::net::UnixStream::pair().unwrap();
        let socket = Arc::new(Socket::Local(here));
        let (number, _seat) = enter(&socket, Holder::Process(1), &server.shared).expect("room");
        for (trouble, places) in [(libc::EINVAL, 1), (libc::EBADF, 1), (libc::EMFILE, 0)] {
            rest(&io::Error::from_raw_os_error(trouble), &server.shared);
            assert_eq!(server.connections(), places, "{trouble}");
        }
        lock(&server.shared.seats).leave(number);
    }

    #[test]
    fn whoever_is_turned_away_hears_why() {
        let server = DataServer::bind(([127, 0, 0, 1], 0).into(), Auth::default()).unwrap();
        let (here, mut there) = std::os::unix::net::UnixStream::pair().unwrap();
        lock(&server.shared.seats).closing = true;
        start(Socket::Local(here), Holder::Process(1), &server.shared).unwrap();
        let mut said = Vec::new();
        std::io::Read::read_to_end(&mut there, &mut said).unwrap();
        assert_eq!(said, handshake::full());
    }

    /// What a connection's socket must be like before its peer is asked for anything.
    #[test]
    fn a_connection_is_prepared_before_it_speaks() {
        use std::io::Read;
        let server = DataServer::bind(([127, 0, 0, 1], 0).into(), Auth::default()).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut there = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = Arc::new(Socket::Tcp(listener.accept().unwrap().0));
        let (number, seat) = enter(&socket, Holder::Process(1), &server.shared).expect("room");
        thread::scope(|scope| {
            let served = scope.spawn(|| converse(&seat, number, &server.shared));
            there.read_exact(&mut [0]).unwrap();
            let Socket::Tcp(here) = &*socket else { unreachable!() };
            let options = (here.nodelay().unwrap(), here.write_timeout().unwrap());
            socket.shut_down();
            assert!(served.join().unwrap().is_err());
            assert_eq!(options, (true, Some(SEND_TICK)));
        });
        lock(&server.shared.seats).leave(number);
    }

    /// A connection that still holds an export's memory has let go of it once the port is closed. The
    /// connection lets go when the closing thread sleeps until connections end, or does not wait at all.
    #[test]
    fn a_port_is_closed_once_its_connections_have_ended() {
        use crate::base::holds::{HoldPoint, Holds};
        use crate::base::lock::{own_thread, sleeps_on};
        use crate::{Peer, Region, SourceJob, StridedCopy, TransferOptions, Way, read};
        use std::sync::atomic::{AtomicBool, Ordering};
        const LONG: Duration = Duration::from_secs(120);
        let mut server = DataServer::bind(([127, 0, 0, 1], 0).into(), Auth::default()).unwrap();
        server.grace = LONG;
        let soon = Instant::now() + LONG;
        let peer = Peer::connect_by(Way::Tcp, server.addr(), &Auth::default(), soon).unwrap();
        let id = server.exports().expose(1, vec![Region::allocate(1).unwrap()]);
        let (takes, taking) = std::sync::mpsc::channel();
        let [closed, let_go] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        // Weak: the port holds its exports, and these what is done at their points.
        let (port, closing_thread) = (Arc::downgrade(&server.shared), own_thread());
        let (returned, gone) = (Arc::clone(&closed), Arc::clone(&let_go));
        server.exports().hold(
            id,
            Holds::new(move |point| {
                if point == HoldPoint::Taking {
                    takes.send(()).unwrap();
                    let port = port.upgrade().expect("its connection lives");
                    while !sleeps_on(&closing_thread, &port.ended)
                        && !returned.load(Ordering::Acquire)
                    {
                        assert!(Instant::now() < soon, "the port is not being closed");
                        thread::yield_now();
                    }
                    gone.store(true, Ordering::Release);
                }
            }),
        );
        thread::scope(|scope| {
            scope.spawn(|| {
                let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, 1)];
                let job = SourceJob { peer: &peer, export: id, generation: 1, copies };
                let options =
                    TransferOptions { deadline: Some(soon), ..TransferOptions::default() };
                assert!(read(&[job], &[Region::allocate(1).unwrap()], &options).is_err());
            });
            taking.recv().unwrap();
            drop(server);
            let let_go_by_then = let_go.load(Ordering::Acquire);
            closed.store(true, Ordering::Release);
            assert!(let_go_by_then);
        });
    }
}
