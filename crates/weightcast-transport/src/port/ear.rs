//! Who listens to the words that come to a data port.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// Takes a word, at once. False if the word is not taken: it is lost, and its speaker is told.
pub(crate) type Listens = dyn Fn(&[u8]) -> bool + Send + Sync;

/// The listener of a data port. None listens by default.
#[derive(Default)]
pub(crate) struct Ear(RwLock<Option<Arc<Listens>>>);

impl Ear {
    pub(crate) fn set(&self, listens: Option<Arc<Listens>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = listens;
    }

    /// Whether the word was taken.
    pub(crate) fn hear(&self, word: &[u8]) -> bool {
        let listens = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        listens.is_some_and(|listens| listens(word))
    }
}

impl fmt::Debug for Ear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ear(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::{RequestRefusal, TransportError};
    use crate::base::limits::MAX_WORD_BYTES;
    use crate::base::secret::{Auth, Secret};
    use crate::engine::peer::Peer;
    use crate::export::grant::GrantTerms;
    use crate::piece::copy::StridedCopy;
    use crate::{DataServer, GrantId, Region, TargetJob, TransferOptions, WriteGrant, write};
    use std::sync::Mutex;
    use std::time::{Duration, Instant};

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    fn port(auth: &Auth) -> (DataServer, Peer) {
        let server = DataServer::bind(([127, 0, 0, 1], 0).into(), auth.clone()).unwrap();
        let peer = Peer::connect(server.addr(), auth, soon()).unwrap();
        (server, peer)
    }

    #[test]
    fn a_word_reaches_the_listener_and_its_speaker_hears_whether_it_was_taken() {
        let (server, peer) = port(&Auth::with_token(Secret::new("a")));
        let not_heard = Err(TransportError::Refused(RequestRefusal::NotHeard));
        assert_eq!(peer.tell(b"nobody", soon()), not_heard, "nobody listens by default");
        let heard = Arc::new(Mutex::new(Vec::new()));
        let words = Arc::clone(&heard);
        server.listen(move |word| {
            words.lock().unwrap().push(word.to_vec());
            word != b"full"
        });
        assert_eq!(peer.tell(b"one", soon()), Ok(()));
        assert_eq!(peer.tell(b"full", soon()), not_heard);
        let large = vec![7; MAX_WORD_BYTES];
        assert_eq!(peer.tell(&large, soon()), Ok(()));
        let beyond = peer.tell(&vec![7; MAX_WORD_BYTES + 1], soon());
        assert_eq!(beyond, Err(TransportError::Refused(RequestRefusal::TooMuch)));
        server.stop_listening();
        assert_eq!(peer.tell(b"late", soon()), not_heard);
        assert_eq!(*heard.lock().unwrap(), [b"one".to_vec(), b"full".to_vec(), large]);
    }

    /// Both ends derive the secret: what goes from one to the other is no secret.
    #[test]
    fn a_writer_that_derives_the_secret_writes_and_one_of_another_token_does_not() {
        let auth = Auth::with_token(Secret::new("a"));
        let (server, peer) = port(&auth);
        let (id, region) = (GrantId::random(), Region::allocate(4).unwrap());
        let terms = GrantTerms {
            generation: 3,
            regions: vec![region.clone()],
            writer: None,
            valid_for: Duration::from_secs(60),
        };
        let secret = auth.grant_secret(id, b"sender 7");
        let opened = server.exports().open_grant_as(id, secret, terms).unwrap();
        assert_eq!((opened.id, opened.generation, &opened.lens[..]), (id, 3, &[4][..]));
        let source = Region::from_bytes(b"byte").unwrap();
        let writes = |by: &Auth, known: &[u8]| {
            let secret = by.grant_secret(id, known);
            let grant = WriteGrant { secret, ..opened.clone() };
            let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, 4)];
            let job = TargetJob { peer: &peer, grant: &grant, copies };
            write(&[job], std::slice::from_ref(&source), &TransferOptions::default()).map(drop)
        };
        let stranger = Auth::with_token(Secret::new("b"));
        for (by, known) in [(&stranger, &b"sender 7"[..]), (&auth, b"sender 8")] {
            let refused = writes(by, known).unwrap_err().kind;
            assert_eq!(refused, TransportError::Refused(RequestRefusal::NotGranted));
            assert_eq!(region.to_vec(), [0; 4]);
        }
        writes(&auth, b"sender 7").unwrap();
        assert_eq!(region.to_vec(), b"byte");
    }
}
