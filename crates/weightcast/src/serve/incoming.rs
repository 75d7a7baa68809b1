//! Accepts connections and gives each its place.

use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;

use super::actor::sleep_until;
use super::admission::Admission;
use super::lane::ClientOrigin;
use super::visitor::{Socket, Visitor};

/// How long to wait for a file descriptor when there is none for a new connection.
const PAUSE: Duration = Duration::from_millis(20);

/// Where connections come from.
pub(super) enum Door {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Door {
    async fn accept(&self) -> std::io::Result<(Box<dyn Socket>, ClientOrigin)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                let _ = stream.set_nodelay(true);
                Ok((Box::new(stream), ClientOrigin::Host(peer.ip().to_canonical())))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                // The kernel does not know those of another pid namespace: they are one.
                let process = stream.peer_cred().ok().and_then(|peer| peer.pid());
                Ok((Box::new(stream), ClientOrigin::Process(process.unwrap_or_default())))
            }
        }
    }
}

/// The connections that come through the door.
pub(super) fn incoming(door: Door) -> ReceiverStream<std::io::Result<Visitor>> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let admission = Admission::new();
        loop {
            tokio::select! {
                accepted = door.accept() => match accepted {
                    Ok((socket, origin)) => {
                        let place = admission.enter(origin, Instant::now());
                        let visitor = Visitor::new(socket, place);
                        if sender.send(Ok(visitor)).await.is_err() {
                            return;
                        }
                    }
                    Err(_) => {
                        admission.make_room(Instant::now());
                        tokio::time::sleep(PAUSE).await;
                    }
                },
                () = sleep_until(admission.next_deadline()) => {
                    admission.close_late(Instant::now());
                }
            }
            // In a flood, those who are inside get their turn after each that comes: one with a
            // token has shown it long before the flood could push it out.
            tokio::task::yield_now().await;
        }
    });
    ReceiverStream::new(receiver)
}
