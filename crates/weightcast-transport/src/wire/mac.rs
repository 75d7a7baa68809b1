//! What the two ends of a handshake prove to each other: keyed sums over nonces, party and channel.

use crate::base::id::GrantId;
use crate::base::secret::{Auth, Secret};
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

/// What both ends of a connection drew at random when they shook hands: no two connections have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nonces {
    pub(crate) source: [u8; 32],
    pub(crate) reader: [u8; 32],
}

impl Nonces {
    /// Those of no connection: nothing was drawn.
    pub(crate) const NONE: Self = Self { source: [0; 32], reader: [0; 32] };
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
        forget(&mut self.0);
    }
}

/// The key of a grant's MACs, made from the secret that its writer holds.
pub(crate) struct GrantKey([u8; 32]);

impl GrantKey {
    pub(crate) fn new(secret: &Secret) -> Self {
        Self(blake3::derive_key("weightcast 2026 write grant", secret.expose()))
    }

    /// The MAC of write number `sequence` of a connection, over what the write claims. So a write that
    /// was overheard is worth nothing on another connection, and nothing a second time on its own.
    pub(crate) fn mac(&self, nonces: &Nonces, sequence: u64, claimed: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&nonces.source).update(&nonces.reader);
        hasher.update(&sequence.to_le_bytes()).update(claimed);
        hasher.finalize()
    }
}

impl Drop for GrantKey {
    fn drop(&mut self) {
        forget(&mut self.0);
    }
}

/// The key of words, derived from the token as [`MacKey`] is, and of no use in its place.
#[derive(Clone)]
pub(crate) struct WordKey([u8; 32]);

impl WordKey {
    /// The MAC of a word. What is said to whom, and when, is in the word.
    pub(crate) fn mac(&self, word: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(&self.0, word)
    }
}

impl Drop for WordKey {
    fn drop(&mut self) {
        forget(&mut self.0);
    }
}

/// Overwrites a key.
fn forget(key: &mut [u8; 32]) {
    for byte in key {
        // SAFETY: a valid exclusive reference; volatile, so that the store is not elided.
        unsafe { std::ptr::write_volatile(byte, 0) };
    }
    compiler_fence(Ordering::SeqCst);
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

    /// The key of words: derived from the token, or zeros without one.
    pub(crate) fn word_key(&self) -> WordKey {
        WordKey(match &self.token {
            Some(token) => blake3::derive_key("weightcast 2026 word", token.expose()),
            None => [0; 32],
        })
    }

    /// The secret of a grant, which both of its ends derive from the token and from what they know of the grant:
    /// so no secret has to reach the writer. Whoever lacks the token cannot make it; without a token anybody can, as
    /// anybody can read.
    pub fn grant_secret(&self, grant: GrantId, known: &[u8]) -> Secret {
        let token: &[u8] = self.token.as_ref().map_or(&[], |token| token.expose());
        let mut key = blake3::derive_key("weightcast 2026 secret of a grant", token);
        let mut hasher = blake3::Hasher::new_keyed(&key);
        forget(&mut key);
        hasher.update(&grant.0.to_le_bytes()).update(known);
        Secret::new(*hasher.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// Everything that a write is bound to: a change of any of it is another write.
    #[test]
    fn a_write_is_bound_to_its_secret_connection_number_and_claim() {
        let nonces = |source, reader| Nonces { source: [source; 32], reader: [reader; 32] };
        let mac = |secret: &str, nonces: Nonces, sequence, claimed: &[u8]| {
            GrantKey::new(&Secret::new(secret)).mac(&nonces, sequence, claimed)
        };
        let own = mac("a", nonces(1, 2), 3, b"claim");
        assert_eq!(own, mac("a", nonces(1, 2), 3, b"claim"));
        for other in [
            mac("b", nonces(1, 2), 3, b"claim"),
            mac("a", nonces(2, 2), 3, b"claim"),
            mac("a", nonces(1, 1), 3, b"claim"),
            mac("a", nonces(2, 1), 3, b"claim"),
            mac("a", nonces(1, 2), 4, b"claim"),
            mac("a", nonces(1, 2), 3, b"claims"),
        ] {
            assert_ne!(own, other);
        }
    }

    /// Each of the three keys of a token is of no use in place of another.
    #[test]
    fn a_word_and_a_grants_secret_depend_on_the_token_and_on_all_that_is_known() {
        let of = |token: &str| Auth::with_token(Secret::new(token));
        let (one, other, none) = (of("a"), of("b"), Auth::default());
        assert_eq!(one.word_key().mac(b"word"), of("a").word_key().mac(b"word"));
        for mac in [
            other.word_key().mac(b"word"),
            none.word_key().mac(b"word"),
            one.word_key().mac(b"words"),
            blake3::keyed_hash(&one.mac_key().0, b"word"),
        ] {
            assert_ne!(one.word_key().mac(b"word"), mac);
        }
        let secret = |auth: &Auth, grant, known: &[u8]| {
            auth.grant_secret(GrantId(grant), known).expose().to_vec()
        };
        let own = secret(&one, 7, b"known");
        assert_eq!((own.len(), &own), (32, &secret(&of("a"), 7, b"known")));
        for differs in [
            secret(&other, 7, b"known"),
            secret(&none, 7, b"known"),
            secret(&one, 8, b"known"),
            secret(&one, 7, b"knows"),
        ] {
            assert_ne!(own, differs);
        }
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
