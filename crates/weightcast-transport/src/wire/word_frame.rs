//! The format of a word: its proof, and the word.
//!
//! The proof is keyed with the token, so a word that was changed under way is none. A word may come twice and late: what
//! it means then is for its listener to say, since the port does not know what is said.

use crate::base::limits::MAX_WORD_BYTES;
use crate::wire::frames::{self, Decoded, FrameKind, Malformed};
use crate::wire::mac::WordKey;

const PROOF_BYTES: usize = 32;

/// A request that says a word.
pub(crate) fn word_request(key: &WordKey, word: &[u8]) -> Vec<u8> {
    let mut request = Vec::with_capacity(frames::HEADER_BYTES + PROOF_BYTES + word.len());
    let start = frames::begin(&mut request, FrameKind::Word);
    request.extend_from_slice(key.mac(word).as_bytes());
    request.extend_from_slice(word);
    frames::finish(&mut request, start);
    request
}

/// The word, if its proof fits. `None`: somebody without the token has made or changed it.
pub(crate) fn decode_word<'a>(key: &WordKey, body: &'a [u8]) -> Decoded<Option<&'a [u8]>> {
    let (proof, word) =
        body.split_first_chunk::<PROOF_BYTES>().ok_or(Malformed("body too short"))?;
    if word.len() > MAX_WORD_BYTES {
        return Err(Malformed("word beyond its limit"));
    }
    // Comparing two `Hash`es takes constant time.
    Ok((key.mac(word) == blake3::Hash::from_bytes(*proof)).then_some(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::limits::MAX_REQUEST_BYTES;
    use crate::base::secret::{Auth, Secret};
    use crate::wire::frames::{HEADER_BYTES, Header};

    fn key(token: &str) -> WordKey {
        Auth::with_token(Secret::new(token)).word_key()
    }

    #[test]
    fn a_word_comes_as_it_was_said_and_from_a_holder_of_the_token() {
        for word in [&b""[..], b"w", &[7; MAX_WORD_BYTES]] {
            let request = word_request(&key("a"), word);
            let (header, body) = request.split_first_chunk::<HEADER_BYTES>().unwrap();
            let header = Header::decode(header).unwrap();
            assert_eq!((header.kind, header.body), (FrameKind::Word, body.len()));
            assert_eq!(decode_word(&key("a"), body), Ok(Some(word)));
            assert_eq!(decode_word(&key("b"), body), Ok(None));
        }
    }

    #[test]
    fn a_word_with_one_byte_changed_is_none() {
        let request = word_request(&key("a"), b"word");
        for byte in HEADER_BYTES..request.len() {
            let mut changed = request.clone();
            changed[byte] ^= 1;
            assert_eq!(decode_word(&key("a"), &changed[HEADER_BYTES..]), Ok(None), "byte {byte}");
        }
    }

    #[test]
    fn a_word_has_its_limit() {
        let body = |len| word_request(&key("a"), &vec![0; len])[HEADER_BYTES..].to_vec();
        assert!(body(MAX_WORD_BYTES).len() <= MAX_REQUEST_BYTES);
        assert!(decode_word(&key("a"), &body(MAX_WORD_BYTES + 1)).is_err());
        for short in 0..PROOF_BYTES {
            assert!(decode_word(&key("a"), &body(0)[..short]).is_err());
        }
    }
}
