//! Challenges: running comparisons of two copies, each under an unpredictable number.

use std::collections::{BTreeMap, VecDeque};
use std::hash::Hasher;
use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};

use crate::server::stores::group::Group;
use crate::server::stores::store::Store;
use crate::{Generation, Incarnation, Nonce, Term, Version};

/// The running comparisons, by number.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::server) struct Challenges {
    running: Store<Nonce, Challenge>,
    /// How many numbers have been drawn.
    drawn: u64,
    /// What a recorded server drew next, whose secret is not known here.
    #[serde(skip)]
    given: VecDeque<Nonce>,
}

/// Two groups that were asked to show the bytes of a version.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::server) struct Challenge {
    pub(in crate::server) model: String,
    pub(in crate::server) version: Version,
    pub(in crate::server) claimant: ChallengeSide,
    pub(in crate::server) reference: ChallengeSide,
}

/// One of the two groups of a comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::server) struct ChallengeSide {
    pub(in crate::server) group: Incarnation,
    /// Generations at which the group's shards held the version when asked. Later generations mean
    /// that it has moved on.
    pub(in crate::server) generations: Vec<Generation>,
    pub(in crate::server) answers: BTreeMap<u32, u64>,
}

impl ChallengeSide {
    pub(in crate::server) fn of(group: &Group) -> Option<Self> {
        let generations = group.held.as_ref()?.generations.clone();
        Some(Self { group: group.incarnation, generations, answers: BTreeMap::new() })
    }

    /// The sum over all shards' answers, once all shards have answered.
    pub(in crate::server) fn shown(&self) -> Option<u64> {
        let whole = self.answers.len() == self.generations.len();
        whole.then(|| self.answers.values().fold(0, |sum: u64, part| sum.wrapping_add(*part)))
    }
}

impl Challenges {
    /// Draws a number that no client can predict.
    pub(in crate::server) fn next_nonce(&mut self, secret: [u64; 2], term: Term) -> Nonce {
        self.drawn += 1;
        self.given.pop_front().unwrap_or_else(|| nonce(secret, term, self.drawn))
    }

    /// How many numbers were drawn.
    pub(in crate::server) fn drawn(&self) -> u64 {
        self.drawn
    }

    /// The numbers that were drawn in this term after the first so many.
    pub(in crate::server) fn drawn_after(
        &self,
        count: u64,
        secret: [u64; 2],
        term: Term,
    ) -> Vec<Nonce> {
        (count..self.drawn).map(|before| nonce(secret, term, before + 1)).collect()
    }

    /// These come next, instead of what would be drawn.
    pub(in crate::server) fn give(&mut self, nonces: Vec<Nonce>) {
        self.given = nonces.into();
    }
}

fn nonce(secret: [u64; 2], term: Term, place: u64) -> Nonce {
    let [one, other] = secret;
    #[expect(deprecated, reason = "a keyed pseudorandom function, which is what it is for")]
    let mut hasher = std::hash::SipHasher::new_with_keys(one, other);
    hasher.write_u64(term.0);
    hasher.write_u64(place);
    Nonce(hasher.finish())
}

impl Deref for Challenges {
    type Target = Store<Nonce, Challenge>;
    fn deref(&self) -> &Self::Target {
        &self.running
    }
}

impl DerefMut for Challenges {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.running
    }
}
