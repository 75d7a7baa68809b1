//! Both ends of a connection prove that they hold the same token, without sending it.
//!
//! source -> reader: magic, source nonce. reader -> source: magic, reader nonce, MAC as reader.
//! source -> reader: verdict, MAC as source. A wrong token is told, then the connection closed. A
//! source without a place left says so instead of its hello, or of its welcome.
//! It authenticates the peers, not the bytes after: on untrusted networks the port needs a tunnel.

use crate::base::id::random;
use crate::wire::mac::{Channel, MacKey, Nonces, Party};

const MAGIC: [u8; 8] = *b"wcdata2\n";
const WELCOME: [u8; 8] = *b"welcome\n";
const DENIED: [u8; 8] = *b"denied!\n";
const FULL: [u8; 8] = *b"wcfull!\n";

pub(crate) const HELLO_BYTES: usize = 8 + 32;
pub(crate) const PROOF_BYTES: usize = 8 + 32 + 32;
pub(crate) const VERDICT_BYTES: usize = 8 + 32;

/// Why a handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The other end speaks something else.
    NotTheProtocol,
    /// The other end holds another token, or none.
    Unauthorized,
    /// The source has no place left.
    Full,
}

/// What a source says instead of its hello, or of its verdict, when it has no place left.
pub(crate) fn full() -> [u8; VERDICT_BYTES] {
    join(FULL, [0; 32])
}

/// The source's side: makes the hello, judges the proof.
pub(crate) struct SourceSide {
    channel: Channel,
    nonce: [u8; 32],
}

impl SourceSide {
    pub(crate) fn new(channel: Channel) -> Self {
        Self { channel, nonce: random() }
    }

    pub(crate) fn hello(&self) -> [u8; HELLO_BYTES] {
        join(MAGIC, self.nonce)
    }

    /// What this handshake was drawn with, once its proof was judged.
    pub(crate) fn nonces(&self, proof: &[u8; PROOF_BYTES]) -> Nonces {
        let (_magic, rest): ([u8; 8], _) = split(proof);
        Nonces { source: self.nonce, reader: split(rest).0 }
    }

    /// What to answer, and whether the reader is let in.
    pub(crate) fn judge(
        &self,
        key: &MacKey,
        proof: &[u8; PROOF_BYTES],
    ) -> ([u8; VERDICT_BYTES], Result<(), Failed>) {
        let (magic, rest): ([u8; 8], _) = split(proof);
        let (reader, mac): ([u8; 32], _) = split(rest);
        let (mac, _): ([u8; 32], _) = split(mac);
        if magic != MAGIC {
            return (join(DENIED, [0; 32]), Err(Failed::NotTheProtocol));
        }
        // Comparing hashes takes constant time.
        if key.mac(Party::Reader, self.channel, &self.nonce, &reader)
            != blake3::Hash::from_bytes(mac)
        {
            return (join(DENIED, [0; 32]), Err(Failed::Unauthorized));
        }
        let ours = key.mac(Party::Source, self.channel, &self.nonce, &reader);
        (join(WELCOME, *ours.as_bytes()), Ok(()))
    }
}

/// The reader's side: answers the hello, checks the verdict.
pub(crate) struct ReaderSide {
    channel: Channel,
    source: [u8; 32],
    nonce: [u8; 32],
}

impl ReaderSide {
    pub(crate) fn new(channel: Channel, hello: &[u8; HELLO_BYTES]) -> Result<Self, Failed> {
        let (magic, rest): ([u8; 8], _) = split(hello);
        let (source, _): ([u8; 32], _) = split(rest);
        match magic {
            MAGIC => Ok(Self { channel, source, nonce: random() }),
            FULL => Err(Failed::Full),
            _ => Err(Failed::NotTheProtocol),
        }
    }

    pub(crate) fn proof(&self, key: &MacKey) -> [u8; PROOF_BYTES] {
        let mac = key.mac(Party::Reader, self.channel, &self.source, &self.nonce);
        let mut proof = [0; PROOF_BYTES];
        proof[..8].copy_from_slice(&MAGIC);
        proof[8..40].copy_from_slice(&self.nonce);
        proof[40..].copy_from_slice(mac.as_bytes());
        proof
    }

    /// What this handshake was drawn with.
    pub(crate) fn nonces(&self) -> Nonces {
        Nonces { source: self.source, reader: self.nonce }
    }

    pub(crate) fn check(&self, key: &MacKey, verdict: &[u8; VERDICT_BYTES]) -> Result<(), Failed> {
        let (word, rest): ([u8; 8], _) = split(verdict);
        let (mac, _): ([u8; 32], _) = split(rest);
        match word {
            WELCOME => {
                let expected = key.mac(Party::Source, self.channel, &self.source, &self.nonce);
                let equal = expected == blake3::Hash::from_bytes(mac);
                if equal { Ok(()) } else { Err(Failed::Unauthorized) }
            }
            DENIED => Err(Failed::Unauthorized),
            FULL => Err(Failed::Full),
            _ => Err(Failed::NotTheProtocol),
        }
    }
}

fn join(word: [u8; 8], rest: [u8; 32]) -> [u8; 40] {
    let mut bytes = [0; 40];
    bytes[..8].copy_from_slice(&word);
    bytes[8..].copy_from_slice(&rest);
    bytes
}

/// Splits a message of fixed size, whose length the types already guarantee.
fn split<const N: usize>(bytes: &[u8]) -> ([u8; N], &[u8]) {
    let (front, rest) = bytes.split_first_chunk().expect("messages are of fixed size");
    (*front, rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::secret::{Auth, Secret};

    const LOCAL: Channel = Channel::Local { pid: 7, port: 9 };

    fn shake(source: &MacKey, reader: &MacKey) -> [Result<(), Failed>; 2] {
        shake_over([Channel::Tcp; 2], source, reader)
    }

    fn shake_over(over: [Channel; 2], source: &MacKey, reader: &MacKey) -> [Result<(), Failed>; 2] {
        let s = SourceSide::new(over[0]);
        let r = ReaderSide::new(over[1], &s.hello()).unwrap();
        let (verdict, judged) = s.judge(source, &r.proof(reader));
        [judged, r.check(reader, &verdict)]
    }

    #[test]
    fn equal_tokens_and_only_they_shake_hands() {
        let [a, b] = ["a", "b"].map(|token| Auth::with_token(Secret::new(token)).mac_key());
        let none = Auth::default().mac_key();
        assert_eq!(shake(&a, &a), [Ok(()), Ok(())]);
        assert_eq!(shake(&none, &none), [Ok(()), Ok(())]);
        for (source, reader) in [(&a, &b), (&a, &none), (&none, &b)] {
            assert_eq!(shake(source, reader), [Err(Failed::Unauthorized); 2]);
        }
    }

    #[test]
    fn what_was_said_elsewhere_is_worth_nothing() {
        let key = Auth::with_token(Secret::new("a")).mac_key();
        assert_eq!(shake_over([LOCAL; 2], &key, &key), [Ok(()), Ok(())]);
        let others =
            [Channel::Tcp, Channel::Local { pid: 8, port: 9 }, Channel::Local { pid: 7, port: 8 }];
        for other in others {
            for over in [[LOCAL, other], [other, LOCAL]] {
                assert_eq!(shake_over(over, &key, &key), [Err(Failed::Unauthorized); 2]);
            }
        }
    }

    #[test]
    fn a_source_without_the_token_is_found_out() {
        let [a, b] = ["a", "b"].map(|token| Auth::with_token(Secret::new(token)).mac_key());
        let source = SourceSide::new(Channel::Tcp);
        let reader = ReaderSide::new(Channel::Tcp, &source.hello()).unwrap();
        let lie = join(
            WELCOME,
            *b.mac(Party::Source, Channel::Tcp, &source.nonce, &reader.nonce).as_bytes(),
        );
        assert_eq!(reader.check(&a, &lie), Err(Failed::Unauthorized));
        let mirrored = join(
            WELCOME,
            *a.mac(Party::Reader, Channel::Tcp, &source.nonce, &reader.nonce).as_bytes(),
        );
        assert_eq!(reader.check(&a, &mirrored), Err(Failed::Unauthorized));
    }

    #[test]
    fn other_protocols_are_told_apart() {
        assert!(ReaderSide::new(Channel::Tcp, &[b'S'; HELLO_BYTES]).is_err());
        let key = Auth::default().mac_key();
        let judged = SourceSide::new(Channel::Tcp).judge(&key, &[b'G'; PROOF_BYTES]).1;
        assert_eq!(judged, Err(Failed::NotTheProtocol));
    }

    /// What a source says instead of letting in, at either place, and what a reader makes of it.
    #[test]
    fn a_reader_hears_why_it_is_not_let_in() {
        let key = Auth::default().mac_key();
        let first = full().first_chunk().copied().unwrap();
        assert_eq!(ReaderSide::new(Channel::Tcp, &first).err(), Some(Failed::Full));
        let source = SourceSide::new(Channel::Tcp);
        let reader = ReaderSide::new(Channel::Tcp, &source.hello()).unwrap();
        let verdict = |word| reader.check(&key, &join(word, [0; 32]));
        assert_eq!(verdict(*b"wcfull!\n"), Err(Failed::Full));
        assert_eq!(verdict(*b"denied!\n"), Err(Failed::Unauthorized));
        assert_eq!(verdict(*b"welcome\n"), Err(Failed::Unauthorized), "without the sum");
        assert_eq!(verdict(*b"wcdata1\n"), Err(Failed::NotTheProtocol));
        assert_eq!(reader.check(&key, &full()), Err(Failed::Full));
        let strange = ReaderSide::new(Channel::Tcp, &join(*b"wcdata1\n", [0; 32])).err();
        assert_eq!(strange, Some(Failed::NotTheProtocol));
    }

    /// Every byte of each message counts.
    #[test]
    fn a_message_with_one_byte_changed_lets_nobody_in() {
        let key = Auth::with_token(Secret::new("a")).mac_key();
        for byte in 0..PROOF_BYTES.max(VERDICT_BYTES) {
            let source = SourceSide::new(Channel::Tcp);
            let reader = ReaderSide::new(Channel::Tcp, &source.hello()).unwrap();
            let (mut proof, (mut verdict, judged)) =
                (reader.proof(&key), source.judge(&key, &reader.proof(&key)));
            assert_eq!((judged, reader.check(&key, &verdict)), (Ok(()), Ok(())));
            proof[byte] ^= 1;
            let (denied, judged) = source.judge(&key, &proof);
            assert_eq!(judged.is_err(), reader.check(&key, &denied).is_err());
            let why = if byte < 8 { Failed::NotTheProtocol } else { Failed::Unauthorized };
            assert_eq!(judged, Err(why), "byte {byte} of the proof");
            if byte < VERDICT_BYTES {
                verdict[byte] ^= 1;
                let found = reader.check(&key, &verdict);
                assert_eq!(found, Err(why), "byte {byte} of the verdict");
                let mut hello = source.hello();
                hello[byte] ^= 1;
                let shaken = ReaderSide::new(Channel::Tcp, &hello)
                    .and_then(|reader| source.judge(&key, &reader.proof(&key)).1);
                assert_eq!(shaken, Err(why), "byte {byte} of the hello");
            }
        }
        assert_ne!(
            SourceSide::new(LOCAL).hello(),
            SourceSide::new(LOCAL).hello(),
            "never the same"
        );
    }

    /// Otherwise a process that heard one welcome could play it back to the same reader.
    #[test]
    fn a_reader_never_says_the_same_twice() {
        let hello = SourceSide::new(Channel::Tcp).hello();
        let key = Auth::default().mac_key();
        let [one, other] = [(); 2].map(|()| ReaderSide::new(Channel::Tcp, &hello).unwrap());
        assert_ne!(one.proof(&key), other.proof(&key));
        let source = SourceSide::new(Channel::Tcp);
        let heard = source.judge(&key, &one.proof(&key)).0;
        assert_eq!(other.check(&key, &heard), Err(Failed::Unauthorized));
    }
}
