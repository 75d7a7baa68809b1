//! What the attacker computes for itself: names of manifests and catalogs, ids, sums, patterns.

use prost::Message;

use crate::attacker::wire::{Open, Role, TermProof, Ticket, manifest};

/// The code of a byte among element types.
const U8: u32 = 16;

pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the kernel's random numbers");
    bytes
}

/// SplitMix64's finaliser.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The inverse of [`mix`].
fn unmix(mut z: u64) -> u64 {
    z = (z ^ (z >> 31) ^ (z >> 62)).wrapping_mul(0x3196_42b2_d24d_8ec3);
    z = (z ^ (z >> 27) ^ (z >> 54)).wrapping_mul(0x96de_1b17_3f11_9089);
    z ^ (z >> 30) ^ (z >> 60)
}

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The bytes of an honest version, or of a secret: see `examples/honest.rs`.
pub(crate) fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes.div_ceil(8) as u64)
        .flat_map(|word| mix((seed << 32 | word).wrapping_add(STEP)).to_le_bytes())
        .take(bytes)
        .collect()
}

/// The id of the exposure at a generation of memory registered by this name.
pub(crate) fn export_at(export: u64, generation: u64) -> u64 {
    mix(export.wrapping_add(generation.wrapping_mul(STEP))).max(1)
}

/// The export id to register memory with, so that the exposure at this generation has this id.
pub(crate) fn export_for(id: u64, generation: u64) -> u64 {
    unmix(id).wrapping_sub(generation.wrapping_mul(STEP))
}

/// The name of a manifest.
pub(crate) fn blob_digest(bytes: &[u8]) -> Vec<u8> {
    blake3::hash(bytes).as_bytes()[..16].to_vec()
}

/// The manifest of one tensor of bytes in one buffer.
pub(crate) fn one_tensor(name: &str, bytes: u64) -> Vec<u8> {
    manifest::Layout {
        buffers: vec![bytes],
        tensors: vec![manifest::Tensor { name: name.to_owned(), dtype: U8, shape: vec![bytes] }],
        entries: vec![manifest::Entry {
            start: vec![0],
            len: vec![bytes],
            strides: vec![1],
            ..manifest::Entry::default()
        }],
    }
    .encode_to_vec()
}

/// The canonical encoding of a tensor of bytes.
fn describe(hasher: &mut blake3::Hasher, name: &str, bytes: u64) {
    hasher.update(&(name.len() as u64).to_le_bytes());
    hasher.update(name.as_bytes());
    hasher.update(&[U8 as u8]);
    hasher.update(&1_u64.to_le_bytes());
    hasher.update(&bytes.to_le_bytes());
}

/// The digest of a catalog of one tensor.
pub(crate) fn catalog(name: &str, bytes: u64) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new_derive_key("weightcast catalog 1");
    hasher.update(&1_u64.to_le_bytes());
    describe(&mut hasher, name, bytes);
    hasher.finalize().as_bytes()[..16].to_vec()
}

/// The key that a tensor's digest is multiplied with before sums are compared.
pub(crate) fn key(name: &str, bytes: u64) -> [u64; 2] {
    let mut hasher = blake3::Hasher::new_derive_key("weightcast tensor key 1");
    describe(&mut hasher, name, bytes);
    let key = *hasher.finalize().as_bytes();
    let lane = |at: usize| u64::from_le_bytes(*key[at..].first_chunk().expect("eight")) | 1;
    [lane(0), lane(8)]
}

/// Signs as a server with this secret would.
pub(crate) struct Mint([u8; 32]);

impl Mint {
    pub(crate) fn new(secret: &str) -> Self {
        Self(blake3::derive_key("weightcast 2026 tickets of reference servers", secret.as_bytes()))
    }

    /// A proof that there was a term.
    pub(crate) fn proof(&self, term: u64, origin: u64) -> TermProof {
        let mac = self.hash("term").number(term).number(origin).done();
        TermProof { term, origin, mac }
    }

    /// A ticket as a server would give it to a client that opens so.
    pub(crate) fn ticket(&self, open: &Open, ticket: Ticket) -> Ticket {
        let proof = ticket.proof.clone().unwrap_or_default();
        let incarnation = ticket.incarnation.unwrap_or_default();
        let mut hash = self
            .hash("ticket")
            .number(proof.term)
            .number(proof.origin)
            .number(incarnation.term)
            .number(incarnation.number)
            .number(ticket.epoch);
        hash = match &ticket.held {
            None => hash.number(0),
            Some(held) => {
                let version = held.version.unwrap_or_default();
                let hash = hash.number(1).number(version.epoch).number(version.number);
                let hash = hash.bytes(&held.catalog);
                match held.sum {
                    None => hash.number(0),
                    Some(sum) => hash.number(1).number(sum.low).number(sum.high),
                }
            }
        };
        let role = u64::from(open.role != Role::Trainer as i32);
        let mac = hash
            .bytes(&open.session)
            .bytes(open.model.as_bytes())
            .bytes(open.replica.as_bytes())
            .number(open.shard.into())
            .number(open.num_shards.into())
            .number(role)
            .done();
        Ticket { mac, ..ticket }
    }

    fn hash(&self, what: &str) -> Signed {
        Signed(blake3::Hasher::new_keyed(&self.0)).bytes(what.as_bytes())
    }
}

struct Signed(blake3::Hasher);

impl Signed {
    fn number(mut self, number: u64) -> Self {
        self.0.update(&number.to_le_bytes());
        self
    }

    fn bytes(self, bytes: &[u8]) -> Self {
        let mut hash = self.number(bytes.len() as u64);
        hash.0.update(bytes);
        hash
    }

    fn done(&self) -> Vec<u8> {
        self.0.finalize().as_bytes().to_vec()
    }
}

/// Small numbers that look random and come back with the seed.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// Below this bound.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// True once in so many times.
    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// A number as a stranger would try it: small, or at an edge.
    pub(crate) fn number(&mut self) -> u64 {
        match self.below(8) {
            0..=5 => self.below(6),
            6 => self.pick(&[u64::MAX, u64::MAX - 1, 1 << 62, (1 << 62) - 1, 1 << 32, 1 << 63]),
            _ => self.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_can_be_chosen() {
        for (id, generation) in [(1, 0), (0xdead_beef, 7), (u64::MAX, u64::MAX)] {
            assert_eq!(export_at(export_for(id, generation), generation), id);
        }
    }
}
