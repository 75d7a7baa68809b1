//! Connects back to a caller, so that the caller learns whether its data port can be reached from here.
//!
//! A server that dials what it is told to is a tool against its own network, so little can be told. The address is
//! the caller's own, as the connection shows it, and never loopback: a tunnel's end on this host would have the
//! services of this host for its own. The caller names a port alone, no privileged one. What is sent there is
//! [`proof`], which the caller cannot choose, and nothing is read. A connection has one dial at a time, the server
//! [`DIALS`].

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tonic::Status;

use crate::limits::{DIAL, DIALS};
use crate::wire::{DialBackReply, DialBackRequest, Reach};

/// The least port that is dialled: what listens below belongs to the system.
const FIRST_PORT: u16 = 1_024;

/// What a caller proves a dial by: drawn anew for each.
pub(crate) type DialNonce = [u8; 16];

/// What the server sends on a connection that it makes for a caller.
pub(crate) fn proof(nonce: &DialNonce) -> [u8; 32] {
    blake3::derive_key("weightcast 2026 a server dials back", nonce)
}

/// Where one connection comes from, as far as it may be dialled.
#[derive(Clone)]
pub(super) struct CallerAddress {
    /// None over a Unix socket.
    address: Option<SocketAddr>,
    turn: Arc<Semaphore>,
}

impl CallerAddress {
    pub(super) fn new(address: Option<SocketAddr>) -> Self {
        Self { address, turn: Arc::new(Semaphore::new(1)) }
    }

    /// The caller's address with a port of its choice.
    ///
    /// # Errors
    /// Nothing is dialled there.
    fn at(&self, port: u32) -> Result<SocketAddr, Status> {
        let Some(mut address) = self.address else {
            return Err(Status::failed_precondition("the caller came over a Unix socket"));
        };
        if let mapped @ IpAddr::V4(_) = address.ip().to_canonical() {
            address.set_ip(mapped);
        }
        if address.ip().is_loopback() {
            let problem = "the caller came over loopback, where nothing is dialled";
            return Err(Status::failed_precondition(problem));
        }
        match u16::try_from(port) {
            Ok(port) if port >= FIRST_PORT => {
                address.set_port(port);
                Ok(address)
            }
            _ => Err(Status::invalid_argument(format!(
                "port {port} is not dialled: it must be {FIRST_PORT} to {}",
                u16::MAX
            ))),
        }
    }
}

/// All dials of one server.
pub(super) struct DialBack(Semaphore);

impl DialBack {
    pub(super) fn new() -> Self {
        Self(Semaphore::new(DIALS))
    }

    /// Does what the caller asks for.
    ///
    /// # Errors
    /// It may not be done, or there are too many at this moment.
    pub(super) async fn dial(
        &self,
        caller: &CallerAddress,
        request: DialBackRequest,
    ) -> Result<DialBackReply, Status> {
        let address = caller.at(request.port)?;
        let nonce = DialNonce::try_from(&*request.nonce)
            .map_err(|_| Status::invalid_argument("a nonce is 16 bytes"))?;
        let busy = |_| Status::resource_exhausted("the server connects to others: try again");
        let _own = caller.turn.try_acquire().map_err(busy)?;
        let _of_all = self.0.try_acquire().map_err(busy)?;
        let reach = reach(address, &nonce).await.into();
        Ok(DialBackReply { reach, address: address.to_string() })
    }
}

/// Connects and sends the proof.
async fn reach(address: SocketAddr, nonce: &DialNonce) -> Reach {
    let sent = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(&proof(nonce)).await?;
        stream.shutdown().await
    };
    match tokio::time::timeout(DIAL, sent).await {
        Ok(Ok(())) => Reach::Reached,
        Ok(Err(_)) => Reach::Refused,
        Err(_) => Reach::TimedOut,
    }
}

#[cfg(test)]
mod tests;
