//! Where readers come in: the TCP port, and beside it a Unix socket for those of this host.

use crate::port::door::AcceptError;
use crate::port::holder::Holder;
use crate::wire::local_name::LocalName;
use crate::wire::socket::Socket;
use crate::wire::{credentials, poll};
use rustix::net::Shutdown;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;

/// The listening sockets of one data port.
pub(crate) struct Listener {
    tcp: TcpListener,
    local: Option<(LocalName, UnixListener)>,
}

impl Listener {
    /// Opens both. Without the local one readers of this host come over TCP.
    pub(crate) fn bind(addr: SocketAddr) -> io::Result<Self> {
        let tcp = TcpListener::bind(addr)?;
        tcp.set_nonblocking(true)?;
        let local = bind_local().inspect_err(|error| {
            tracing::warn!(%error, "no Unix socket beside the data port: all readers use TCP");
        });
        Ok(Self { tcp, local: local.ok() })
    }

    pub(crate) fn addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// What readers of this host connect to.
    pub(crate) fn name(&self) -> Option<LocalName> {
        self.local.as_ref().map(|(name, _)| *name)
    }

    /// Waits for newcomers: one of each kind at most, so that neither keeps the other out. Each comes
    /// with its address, which a connection that was reset meanwhile would not tell any more.
    ///
    /// # Errors
    /// Each on its own: what the system said, if that is not the newcomer's trouble alone.
    pub(crate) fn accept(&self) -> Vec<io::Result<(Socket, Holder)>> {
        let local = self.local.as_ref().map(|(_, listener)| listener);
        if let Err(error) = poll::wait_any(&[Some(self.tcp.as_fd()), local.map(AsFd::as_fd)]) {
            return vec![Err(error)];
        }
        let tcp = ready(self.tcp.accept()).map(|come| {
            come.map(|(socket, from)| (Socket::Tcp(socket), Holder::of_address(from.ip())))
        });
        let local = local.map_or(Ok(None), |listener| ready(listener.accept()));
        let local = local.map(|come| {
            let socket = Socket::Local(come?.0);
            own_process(&socket).map(|holder| (socket, holder))
        });
        [tcp, local].into_iter().filter_map(Result::transpose).collect()
    }

    /// Lets nobody in any more, and wakes whoever waits.
    pub(crate) fn close(&self) {
        let _already_down = rustix::net::shutdown(&self.tcp, Shutdown::Both);
        if let Some((_, local)) = &self.local {
            let _already_down = rustix::net::shutdown(local, Shutdown::Both);
        }
    }
}

fn bind_local() -> io::Result<(LocalName, UnixListener)> {
    let name = LocalName::draw();
    let listener = UnixListener::bind_addr(&name.address()?)?;
    listener.set_nonblocking(true)?;
    Ok((name, listener))
}

fn ready<T>(accepted: io::Result<T>) -> io::Result<Option<T>> {
    match accepted {
        Ok(accepted) => Ok(Some(accepted)),
        Err(error) if AcceptError::of(&error) == AcceptError::Passing => Ok(None),
        Err(error) => Err(error),
    }
}

/// Only processes of the same user may ask for addresses: others could not use them.
fn own_process(socket: &Socket) -> Option<Holder> {
    let peer = credentials::of_peer(socket.as_fd()).ok()?;
    let own = rustix::process::geteuid().as_raw();
    (peer.uid == own).then_some(Holder::Process(peer.pid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::patience::Patience;
    use crate::wire::local;
    use std::net::{IpAddr, Ipv4Addr, TcpStream};
    use std::os::unix::net::UnixStream;

    fn listener() -> Listener {
        Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap()
    }

    fn come_near(listener: &Listener) -> UnixStream {
        local::connect(listener.name().unwrap(), &Patience::default()).unwrap().unwrap()
    }

    /// Who came, and whether over the Unix socket.
    fn came(listener: &Listener) -> Vec<(bool, Holder)> {
        let come = listener.accept().into_iter().map(Result::unwrap);
        come.map(|(socket, holder)| (socket.is_local(), holder)).collect()
    }

    const HOST: Holder = Holder::Address(IpAddr::V4(Ipv4Addr::LOCALHOST));

    #[test]
    fn one_of_each_kind_is_let_in_at_a_time() {
        let listener = listener();
        let addr = listener.addr().unwrap();
        let own = Holder::Process(std::process::id() as i32);
        let _far = [(); 2].map(|()| TcpStream::connect(addr).unwrap());
        assert_eq!(came(&listener), [(false, HOST)]);
        let _near = [come_near(&listener), come_near(&listener)];
        assert_eq!(came(&listener), [(false, HOST), (true, own)]);
        assert_eq!(came(&listener), [(true, own)]);
    }

    /// It rests until then: nobody goes round and round without work.
    #[test]
    fn newcomers_are_waited_for() {
        let listener = listener();
        let addr = listener.addr().unwrap();
        for round in 0..20 {
            std::thread::scope(|scope| {
                let far = scope
                    .spawn(move || (round % 2 == 0).then(|| TcpStream::connect(addr).unwrap()));
                let near = scope.spawn(|| (round % 2 == 1).then(|| come_near(&listener)));
                assert_eq!(came(&listener).len(), 1, "round {round}");
                let _came = (far.join().unwrap(), near.join().unwrap());
            });
        }
    }

    #[test]
    fn a_closed_listener_lets_nobody_in_and_keeps_nobody_waiting() {
        let listener = listener();
        listener.close();
        let come = listener.accept();
        assert!(come.iter().all(Result::is_err), "{come:?}");
    }

    /// Neither socket takes anybody's connection any more.
    #[test]
    fn a_closed_listener_can_be_reached_neither_way() {
        let listener = listener();
        let (addr, name) = (listener.addr().unwrap(), listener.name().unwrap());
        listener.close();
        assert!(TcpStream::connect(addr).is_err());
        assert!(local::connect(name, &Patience::default()).unwrap().is_err());
    }
}
