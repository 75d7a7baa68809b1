//! Accepts connections and gives each its place.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use weightcast_transport::door::host_of;

use super::actor::sleep_until;
use super::admission::Admission;
use super::dial_back::CallerAddress;
use super::queue::ClientOrigin;
use super::visitor::{Visitor, VisitorSocket};

/// How long to rest when no connection can be accepted: the system does not say when that changes.
const PAUSE: Duration = Duration::from_millis(20);

/// Where connections come from.
pub(super) enum Door {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A connection that has come, from where, and from which address if it has one.
type Come = (Box<dyn VisitorSocket>, ClientOrigin, Option<SocketAddr>);

impl Door {
    async fn accept(&self) -> std::io::Result<Come> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                let _ = stream.set_nodelay(true);
                Ok((Box::new(stream), ClientOrigin::Host(host_of(peer.ip())), Some(peer)))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                // Processes of another pid namespace have no number here: all of them are one
                // origin.
                let process = stream.peer_cred().ok().and_then(|peer| peer.pid());
                Ok((Box::new(stream), ClientOrigin::Process(process.unwrap_or_default()), None))
            }
        }
    }
}

/// The connections that come through the door, each with its place in the book.
pub(super) fn incoming(
    door: Door,
    admission: Admission,
) -> ReceiverStream<std::io::Result<Visitor>> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                accepted = door.accept() => match accepted {
                    Ok((socket, origin, address)) => {
                        let place = admission.enter(origin, Instant::now());
                        let visitor = Visitor::new(socket, CallerAddress::new(address), place);
                        if sender.send(Ok(visitor)).await.is_err() {
                            return;
                        }
                    }
                    Err(error) => {
                        if admission.not_accepted(&error, Instant::now()) {
                            tokio::time::sleep(PAUSE).await;
                        }
                    }
                },
                () = sleep_until(admission.next_deadline()) => {
                    admission.close_late(Instant::now());
                }
            }
            // Connections inside get a turn after each newcomer: a client shows its token long
            // before a flood could push it out.
            tokio::task::yield_now().await;
        }
    });
    ReceiverStream::new(receiver)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{SocketAddr, TcpStream};

    use tokio::io::AsyncReadExt;
    use tokio_stream::StreamExt;

    use super::*;

    const RESETS: usize = 100;

    fn stranger(address: SocketAddr) -> TcpStream {
        let mut stranger = TcpStream::connect(address).unwrap();
        stranger.write_all(b"a").unwrap();
        stranger
    }

    fn reset(address: SocketAddr) {
        let socket = TcpStream::connect(address).unwrap();
        rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO)).unwrap();
    }

    #[tokio::test]
    async fn connections_that_are_reset_cost_no_stranger_its_place() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut strangers: Vec<_> = (0..4).map(|_| stranger(address)).collect();
        (0..RESETS).for_each(|_| reset(address));
        // Who comes last is let in last.
        strangers.push(stranger(address));
        let mut come = incoming(Door::Tcp(listener), Admission::new());
        let mut visitors = Vec::new();
        while visitors.len() < strangers.len() {
            let mut visitor = come.next().await.unwrap().unwrap();
            if visitor.read_u8().await.is_ok() {
                visitors.push(visitor);
            }
        }
        for (stranger, visitor) in strangers.iter_mut().zip(&mut visitors) {
            stranger.write_all(b"b").unwrap();
            assert_eq!(visitor.read_u8().await.expect("it has its place"), b'b');
        }
    }
}
