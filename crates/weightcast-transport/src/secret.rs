//! The token of a job, and what both ends derive from it.

use crate::handshake::Channel;
use std::fmt;
use std::sync::atomic::{Ordering, compiler_fence};

/// A secret that is never printed, and zeroed when dropped (best effort: moves leave copies).
#[derive(Clone)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// Takes the secret's bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into().into_boxed_slice())
    }

    /// The token itself, to be shown to a peer and nowhere else.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        for byte in &mut self.0 {
            // SAFETY: a valid exclusive reference; volatile, so that the store is not elided.
            unsafe { std::ptr::write_volatile(byte, 0) };
        }
        compiler_fence(Ordering::SeqCst);
    }
}

/// How a data port and its readers prove themselves to each other.
#[derive(Clone, Debug, Default)]
pub struct Auth {
    /// The job's token. Without one anybody who reaches the port is served.
    pub token: Option<Secret>,
    /// Allows a port beyond loopback without a token. It is logged loudly.
    pub insecure: bool,
}

impl Auth {
    /// A token and nothing else.
    pub fn with_token(token: Secret) -> Self {
        Self { token: Some(token), insecure: false }
    }

    /// The key of the handshake's MACs: derived from the token, or zeros without one.
    pub(crate) fn mac_key(&self) -> MacKey {
        MacKey(match &self.token {
            Some(token) => blake3::derive_key("weightcast 2025 data port handshake", &token.0),
            None => [0; 32],
        })
    }
}

/// Who computes a MAC: neither side's can be played back as the other's.
#[derive(Clone, Copy)]
pub(crate) enum Role {
    Reader,
    Source,
}

/// The key of the handshake's MACs.
#[derive(Clone)]
pub(crate) struct MacKey([u8; 32]);

impl MacKey {
    /// The MAC over both nonces, the role and the channel. Comparing two `Hash`es takes constant
    /// time.
    pub(crate) fn mac(
        &self,
        role: Role,
        channel: Channel,
        source: &[u8; 32],
        reader: &[u8; 32],
    ) -> blake3::Hash {
        let role: &[u8] = match role {
            Role::Reader => b"reader",
            Role::Source => b"source",
        };
        let mut message = [source.as_slice(), reader.as_slice(), role].concat();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_nothing() {
        let auth = Auth::with_token(Secret::new("open sesame"));
        assert!(!format!("{auth:?}").contains("sesame"));
    }

    #[test]
    fn macs_depend_on_token_role_and_nonces() {
        let key = Auth::with_token(Secret::new("a")).mac_key();
        let other = Auth::with_token(Secret::new("b")).mac_key();
        let (one, two) = ([1; 32], [2; 32]);
        let tcp = Channel::Tcp;
        let mac = key.mac(Role::Reader, tcp, &one, &two);
        assert_eq!(mac, key.mac(Role::Reader, tcp, &one, &two));
        assert_ne!(mac, key.mac(Role::Source, tcp, &one, &two));
        assert_ne!(mac, key.mac(Role::Reader, tcp, &two, &one));
        assert_ne!(mac, other.mac(Role::Reader, tcp, &one, &two));
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
