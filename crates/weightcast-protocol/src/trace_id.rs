//! Names of calls in traces.

use std::fmt;

use crate::{Incarnation, OpSeq, TermProof};

/// Separates these names from other hashes of the same words.
const CONTEXT: &str = "weightcast 2026 names of calls in traces";

/// The name of one group's call in traces: 128 bits, as OpenTelemetry wants trace ids. The server and all
/// shards of the group derive the name from what they know anyway, so no message carries one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId(pub u128);

impl TraceId {
    /// The name of a group's call in the term that is proved. The proof's keyed hash keeps the names of
    /// different jobs apart; the name does not give the hash away.
    pub fn of(proof: &TermProof, group: Incarnation, seq: OpSeq) -> Self {
        let mut hash = blake3::Hasher::new_derive_key(CONTEXT);
        hash.update(&proof.mac.0);
        for number in [group.term.0, group.number, seq.0] {
            hash.update(&number.to_le_bytes());
        }
        let mut bytes = [0; 16];
        hash.finalize_xof().fill(&mut bytes);
        Self(u128::from_be_bytes(bytes))
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{Term, TicketKey};

    #[test]
    fn each_call_of_each_group_of_each_job_has_a_name_of_its_own() {
        let mut names = BTreeSet::new();
        for secret in ["one job", "another job"] {
            let proof = TicketKey::of_secret(secret.as_bytes()).prove(Term(1), Term(1));
            for (term, number) in [(1, 1), (1, 2), (2, 1)] {
                let group = Incarnation { term: Term(term), number };
                for seq in [1, 2] {
                    let name = TraceId::of(&proof, group, OpSeq(seq));
                    assert_eq!(name, TraceId::of(&proof, group, OpSeq(seq)));
                    assert_eq!(name.to_string().len(), 32);
                    names.insert(name);
                }
            }
        }
        assert_eq!(names.len(), 12);
    }
}
