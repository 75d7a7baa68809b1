//! The name of a data port's Unix socket: abstract, so that nothing is left of it however its
//! process ends, and random, so that nobody holds it before. The name protects nothing: the
//! kernel says which process listens there, and the handshake shows whether that process has the token.

use crate::base::id::random;
use rustix::net::SocketAddrUnix;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;

/// The part that a source draws. The rest is fixed, so that a name sent by a peer cannot lead a reader
/// to the socket of another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocalName(pub(crate) [u8; 16]);

impl LocalName {
    pub(crate) fn draw() -> Self {
        Self(random())
    }

    fn whole(self) -> String {
        let drawn: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("weightcast-data-{drawn}")
    }

    /// To listen at.
    pub(crate) fn address(self) -> std::io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(self.whole())
    }

    /// To connect to.
    pub(crate) fn peer(self) -> rustix::io::Result<SocketAddrUnix> {
        SocketAddrUnix::new_abstract_name(self.whole().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_mean_one_socket() {
        let name = LocalName(std::array::from_fn(|i| 17 * i as u8));
        let whole = b"weightcast-data-00112233445566778899aabbccddeeff";
        assert_eq!(name.address().unwrap().as_abstract_name(), Some(&whole[..]));
        assert_eq!(name.peer().unwrap().abstract_name(), Some(&whole[..]));
        assert_ne!(LocalName::draw(), LocalName::draw());
    }
}
