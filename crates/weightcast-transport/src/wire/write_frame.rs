//! The format of a write: what a writer claims, the proof that a grant allows the claim, and the bytes.
//!
//! | field of the body | bytes | |
//! |---|---|---|
//! | grant, generation | 16 | whose leave it is, and for what |
//! | count | 8 | extents that follow |
//! | extents | 40 each | where the bytes go |
//! | proof | 32 | [`GrantKey::mac`] over all fields above |
//! | bytes | the rest | those of the extents, back to back |
//!
//! The proof covers the claim, not the bytes: a digest of what arrived is the reader's to compare, as after
//! a read. On a network where strangers change bytes under way, the port needs a tunnel.

use crate::base::id::GrantId;
use crate::base::limits::MAX_EXTENTS;
use crate::piece::extent::Extent;
use crate::wire::bodies::{EXTENT_BYTES, Fields, put_extent};
use crate::wire::frames::{self, Decoded, FrameKind, HEADER_BYTES, Malformed};
use crate::wire::mac::{GrantKey, Nonces};

const PROOF_BYTES: usize = 32;

/// What a writer claims: this grant allows bytes to go there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WriteClaim {
    pub(crate) grant: GrantId,
    pub(crate) generation: u64,
    pub(crate) extents: Vec<Extent>,
}

impl WriteClaim {
    /// Appends the frame, all but its bytes. `prove` makes the proof of what the frame claims.
    pub(crate) fn put(&self, out: &mut Vec<u8>, prove: impl FnOnce(&[u8]) -> blake3::Hash) {
        let start = frames::begin(out, FrameKind::Write);
        frames::put(out, &[self.grant.0, self.generation, self.extents.len() as u64]);
        self.extents.iter().for_each(|extent| put_extent(out, extent));
        let proof = prove(&out[start + HEADER_BYTES..]);
        out.extend_from_slice(proof.as_bytes());
        let bytes: u64 = self.extents.iter().map(Extent::bytes).sum();
        frames::finish_before(out, start, bytes as usize);
    }
}

/// A write as it came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WriteFrame<'a> {
    pub(crate) claim: WriteClaim,
    /// What the proof covers.
    claimed: &'a [u8],
    proof: [u8; PROOF_BYTES],
    pub(crate) bytes: &'a [u8],
}

impl<'a> WriteFrame<'a> {
    pub(crate) fn decode(body: &'a [u8]) -> Decoded<Self> {
        let mut fields = Fields(body);
        let (grant, generation) = (GrantId(fields.u64()?), fields.u64()?);
        let count = fields.u64()?;
        if count > MAX_EXTENTS as u64 {
            return Err(Malformed("number of extents"));
        }
        let extents = (0..count).map(|_| fields.extent()).collect::<Decoded<_>>()?;
        let claimed = &body[..24 + count as usize * EXTENT_BYTES];
        let (proof, claim) = (fields.bytes()?, WriteClaim { grant, generation, extents });
        Ok(Self { claim, claimed, proof, bytes: fields.0 })
    }

    /// Whether the writer holds the secret of `key`, and sent this as write number `sequence` of this
    /// very connection. Comparing two `Hash`es takes constant time.
    pub(crate) fn is_proved(&self, key: &GrantKey, nonces: &Nonces, sequence: u64) -> bool {
        key.mac(nonces, sequence, self.claimed) == blake3::Hash::from_bytes(self.proof)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::limits::{MAX_PIECE_EXTENTS, MAX_REQUEST_BYTES, WRITE_PIECE_BYTES};
    use crate::base::secret::Secret;
    use crate::wire::frames::Header;

    const NONCES: Nonces = Nonces { source: [1; 32], reader: [2; 32] };

    fn key() -> GrantKey {
        GrantKey::new(&Secret::new("of a writer"))
    }

    fn extent(rows: u64) -> Extent {
        Extent { region: 3, offset: 64, row_bytes: 2, rows, pitch: 16 }
    }

    fn claim(extents: Vec<Extent>) -> WriteClaim {
        WriteClaim { grant: GrantId(7), generation: 4, extents }
    }

    /// A frame of write number 5, and its bytes.
    fn frame(claim: &WriteClaim) -> Vec<u8> {
        let mut out = b"before".to_vec();
        claim.put(&mut out, |claimed| key().mac(&NONCES, 5, claimed));
        out.drain(..6);
        let bytes: u64 = claim.extents.iter().map(Extent::bytes).sum();
        out.resize(out.len() + bytes as usize, 9);
        out
    }

    #[test]
    fn a_write_comes_as_it_was_sent() {
        for extents in [vec![], vec![extent(1)], vec![extent(3), extent(0), extent(2)]] {
            let claim = claim(extents);
            let (frame, bytes) =
                (frame(&claim), claim.extents.iter().map(Extent::bytes).sum::<u64>());
            let (header, body) = frame.split_first_chunk().unwrap();
            let header = Header::decode(header).unwrap();
            assert_eq!((header.kind, header.body), (FrameKind::Write, body.len()));
            let found = WriteFrame::decode(body).unwrap();
            assert_eq!((&found.claim, found.bytes), (&claim, &vec![9; bytes as usize][..]));
            assert!(found.is_proved(&key(), &NONCES, 5));
            assert!(!found.is_proved(&key(), &NONCES, 4) && !found.is_proved(&key(), &NONCES, 6));
            let other = Nonces { reader: [3; 32], ..NONCES };
            assert!(!found.is_proved(&key(), &other, 5));
            assert!(!found.is_proved(&GrantKey::new(&Secret::new("of another")), &NONCES, 5));
        }
    }

    /// Each byte of claim and proof counts; the bytes that are written do not.
    #[test]
    fn a_claim_with_one_byte_changed_is_not_proved() {
        let frame = frame(&claim(vec![extent(2)]));
        let body = &frame[HEADER_BYTES..];
        for byte in 0..body.len() {
            let mut changed = body.to_vec();
            changed[byte] ^= 1;
            let proved =
                WriteFrame::decode(&changed).is_ok_and(|f| f.is_proved(&key(), &NONCES, 5));
            assert_eq!(proved, byte >= body.len() - 4, "byte {byte}");
        }
    }

    #[test]
    fn what_is_cut_short_is_no_write() {
        let frame = frame(&claim(vec![extent(2)]));
        let body = &frame[HEADER_BYTES..];
        let head = body.len() - 4;
        for len in 0..=body.len() {
            assert_eq!(WriteFrame::decode(&body[..len]).is_ok(), len >= head, "{len}");
        }
        let many = |count: u64| {
            let mut body = Vec::new();
            frames::put(&mut body, &[7, 4, count]);
            (0..count.min(MAX_EXTENTS as u64 + 1)).for_each(|_| put_extent(&mut body, &extent(0)));
            body.resize(body.len() + PROOF_BYTES, 0);
            body
        };
        let [most, beyond, all] = [MAX_EXTENTS as u64, MAX_EXTENTS as u64 + 1, u64::MAX].map(many);
        assert_eq!(WriteFrame::decode(&most).unwrap().claim.extents.len(), MAX_EXTENTS);
        for body in [beyond, all] {
            assert_eq!(WriteFrame::decode(&body), Err(Malformed("number of extents")));
        }
    }

    #[test]
    fn the_largest_piece_fits_into_a_request() {
        let claim = claim(vec![extent(1); MAX_PIECE_EXTENTS]);
        let mut head = Vec::new();
        claim.put(&mut head, |claimed| key().mac(&NONCES, 0, claimed));
        assert!(head.len() - HEADER_BYTES + WRITE_PIECE_BYTES <= MAX_REQUEST_BYTES);
    }
}
