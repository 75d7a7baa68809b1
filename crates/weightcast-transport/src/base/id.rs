//! The names of exports and grants, and the random numbers that they are drawn from.

use std::fmt;

/// What an export's fence word holds once the export is no longer served: no export has this id.
pub(crate) const FENCED_WORD: u64 = 0;

/// The name of one export: random, never zero, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExportId(pub u64);

impl ExportId {
    /// A fresh name: for one exposure, or for [`at`](Self::at).
    pub fn random() -> Self {
        loop {
            let id = u64::from_le_bytes(random());
            if id != FENCED_WORD {
                return Self(id);
            }
        }
    }

    /// The id of the exposure at `generation` of memory that is known by this name: both ends
    /// compute it, and it changes with every generation.
    pub fn at(self, generation: u64) -> Self {
        // The finaliser of splitmix64: a bijection, so no two generations share an id.
        let mut id = self.0.wrapping_add(generation.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        id = (id ^ (id >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        id = (id ^ (id >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((id ^ (id >> 31)).max(FENCED_WORD + 1))
    }
}

impl fmt::Display for ExportId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The name of one grant: random, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GrantId(pub u64);

impl GrantId {
    /// A fresh name.
    pub fn random() -> Self {
        Self(u64::from_le_bytes(random()))
    }
}

impl fmt::Display for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Random bytes of the kernel. Without them nothing here is safe, so their lack is a bug.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the kernel's random numbers");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ends compute them: they are a format.
    #[test]
    fn ids_of_a_generation_are_known_numbers_and_never_the_fence() {
        let at = |id: u64, generation| ExportId(id).at(generation).0;
        assert_eq!(at(0, 1), 0xe220_a839_7b1d_cdaf);
        assert_eq!(at(0, 2), 0x6e78_9e6a_a1b9_65f4);
        assert_eq!(at(0x0123_4567_89ab_cdef, 7), 0xb8fc_5b10_6070_8c05);
        assert_eq!([at(0, 0), at(0xe8ea_9f60_838b_9397, 5)], [FENCED_WORD + 1; 2]);
        assert_eq!(ExportId(0xabc).to_string(), "0000000000000abc");
        assert_ne!(ExportId::random(), ExportId::random());
    }
}
