//! Who gets as far as HTTP/2: peers that send its preface in time, so many of them at once.
//!
//! Garbage and slow drips end here, before they cost more than a socket.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;

/// The first bytes of every HTTP/2 connection (RFC 9113, 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Time a peer has to send them.
const DEADLINE: Duration = Duration::from_secs(5);
/// Connections that have not sent them yet.
const WAITING: usize = 256;
/// How often a half-sent preface is looked at again.
const LOOK: Duration = Duration::from_millis(20);

/// The connections that were let in.
pub(super) fn admitted(listener: TcpListener) -> ReceiverStream<std::io::Result<TcpStream>> {
    let (sender, receiver) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        let places = Arc::new(Semaphore::new(WAITING));
        loop {
            let Ok((stream, peer)) = listener.accept().await else {
                // Out of file descriptors: let some close.
                tokio::time::sleep(LOOK).await;
                continue;
            };
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                tracing::warn!(%peer, "too many unauthenticated connections; dropped one");
                continue;
            };
            let sender = sender.clone();
            tokio::spawn(async move {
                match tokio::time::timeout(DEADLINE, has_preface(&stream)).await {
                    Ok(true) => {
                        let _ = stream.set_nodelay(true);
                        let _ = sender.send(Ok(stream)).await;
                    }
                    Ok(false) => tracing::warn!(%peer, "not an HTTP/2 peer; closed"),
                    Err(_) => tracing::warn!(%peer, "no HTTP/2 preface in time; closed"),
                }
                drop(place);
            });
        }
    });
    ReceiverStream::new(receiver)
}

async fn has_preface(stream: &TcpStream) -> bool {
    let mut seen = [0; PREFACE.len()];
    loop {
        match stream.peek(&mut seen).await {
            Ok(0) | Err(_) => return false,
            Ok(n) if seen[..n] != PREFACE[..n] => return false,
            Ok(n) if n == PREFACE.len() => return true,
            Ok(_) => tokio::time::sleep(LOOK).await,
        }
    }
}
