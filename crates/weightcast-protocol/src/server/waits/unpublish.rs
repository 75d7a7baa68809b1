//! `unpublish`: what keeps a copy from being given up.

use super::{NAMED, WaitCause, WaitGraph};
use crate::Incarnation;
use crate::server::contexts::GroupCtx;
use crate::server::stores::transaction::name_shards;

impl WaitGraph<'_> {
    pub(super) fn unpublish_cause(self, incarnation: Incarnation) -> WaitCause {
        let owner = self.of(incarnation);
        let (group, replica) = (owner.group, &owner.group.replica);
        let undigested = owner.undigested();
        let readers: Vec<Incarnation> = owner.edges.readers_of(incarnation).collect();
        if let Some(shards) = name_shards(&undigested) {
            let cause = WaitCause::new(format!(
                "the digests of {shards} of what replica {replica} has published"
            ));
            return WaitCause { shards: undigested, ..cause };
        }
        if owner.is_held_back() {
            return self.held_back_cause(incarnation);
        }
        if readers.is_empty() {
            let other = "the clients of the last reference server, of which one may hold the only other copy";
            return WaitCause::new(other).fact("the recovery window ends the wait");
        }
        let named: Vec<&str> =
            readers.iter().take(NAMED).map(|reader| self.name(*reader)).collect();
        let waits_for = format!("{} to finish reading from replica {replica}", named.join(", "));
        let cause = WaitCause { groups: readers, ..WaitCause::new(waits_for) };
        match group.drain_until {
            Some(until) => cause.fact(format!("readers are cut off in {}", until - self.now)),
            None => cause,
        }
    }

    /// The copy is the last one of a retained version.
    pub(super) fn held_back_cause(self, incarnation: Incarnation) -> WaitCause {
        let group = self.of(incarnation).group;
        let cause = WaitCause::new(format!("an offload of what replica {} holds", group.replica));
        match group.hold_until {
            Some(until) => {
                cause.fact(format!("the copy is held back for {} more at most", until - self.now))
            }
            None => cause,
        }
    }
}

impl GroupCtx<'_> {
    /// Shards whose digests of the published memory are missing, unless the copy is judged already.
    pub(super) fn undigested(&self) -> Vec<u32> {
        match &self.group.held {
            Some(held) if !held.settled() => {
                let shards = 0..self.group.num_shards;
                shards.filter(|shard| !held.sums.contains_key(shard)).collect()
            }
            _ => Vec::new(),
        }
    }
}
