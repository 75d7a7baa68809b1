//! What the two ends of a handshake prove to each other: keyed sums over nonces, party and channel.

use crate::base::secret::Auth;
use std::sync::atomic::{Ordering, compiler_fence};

/// What a handshake happens over. Neither side's sums are of use on another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    /// The data port.
    Tcp,
    /// The Unix socket of the source with this pid, as itself and the kernel name it, and this TCP
    /// port.
    Local { pid: i32, port: u16 },
}

/// Who computes a MAC: neither side's can be played back as the other's.
#[derive(Clone, Copy)]
pub(crate) enum Party {
    Reader,
    Source,
}

/// The key of the handshake's MACs.
#[derive(Clone)]
pub(crate) struct MacKey([u8; 32]);

impl MacKey {
    /// The MAC over both nonces, the party and the channel. Comparing two `Hash`es takes constant
    /// time.
    pub(crate) fn mac(
        &self,
        party: Party,
        channel: Channel,
        source: &[u8; 32],
        reader: &[u8; 32],
    ) -> blake3::Hash {
        let party: &[u8] = match party {
            Party::Reader => b"reader",
            Party::Source => b"source",
        };
        let mut message = [source.as_slice(), reader.as_slice(), party].concat();
        if let Channel::Local { pid, port } = channel {
            message.extend_from_slice(b" of this host");
            message.extend_from_slice(&pid.to_le_bytes());
            message.extend_from_slice(&port.to_le_bytes());
        }
        blake3::keyed_hash(&self.0, &message)
    }
}

impl Drop for MacKey {
    fn drop(&mut self) {
        for byte in &mut self.0 {
            // SAFETY: a valid exclusive reference; volatile, so that the store is not elided.
            unsafe { std::ptr::write_volatile(byte, 0) };
        }
        compiler_fence(Ordering::SeqCst);
    }
}

impl Auth {
    /// The key of the handshake's MACs: derived from the token, or zeros without one.
    pub(crate) fn mac_key(&self) -> MacKey {
        MacKey(match &self.token {
            Some(token) => {
                blake3::derive_key("weightcast 2025 data port handshake", token.expose())
            }
            None => [0; 32],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::secret::Secret;

    #[test]
    fn macs_depend_on_token_party_and_nonces() {
        let key = Auth::with_token(Secret::new("a")).mac_key();
        let other = Auth::with_token(Secret::new("b")).mac_key();
        let (one, two) = ([1; 32], [2; 32]);
        let tcp = Channel::Tcp;
        let mac = key.mac(Party::Reader, tcp, &one, &two);
        assert_eq!(mac, key.mac(Party::Reader, tcp, &one, &two));
        assert_ne!(mac, key.mac(Party::Source, tcp, &one, &two));
        assert_ne!(mac, key.mac(Party::Reader, tcp, &two, &one));
        assert_ne!(mac, other.mac(Party::Reader, tcp, &one, &two));
    }

    /// To be open beyond loopback is one thing, the token another.
    #[test]
    fn a_token_is_the_key_wherever_the_port_is() {
        let of = |auth: Auth| auth.mac_key().0;
        let token = || Some(Secret::new("a"));
        let key = of(Auth::with_token(Secret::new("a")));
        assert_eq!(of(Auth { token: token(), insecure: true }), key);
        assert_ne!(of(Auth { token: None, insecure: true }), key);
        assert_eq!(of(Auth { token: None, insecure: true }), of(Auth::default()));
    }
}
