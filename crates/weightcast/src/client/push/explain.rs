//! `explain_push`: what a push would do now, and why. Nothing is written.

use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use weightcast_protocol::Version;

use super::base::Base;
use super::candidates::{Candidates, WillingReplica};
use super::desk::DriverWord;
use super::looking::{Driving, LOOK, look};
use super::outcome::{PushEnd, PushOutlook, PushTerms, PushWay};
use super::server::{ANSWER, layouts};
use super::word::PushWord;
use crate::client::handle::{ShardHandle, left};
use crate::client::handle_state::HandleState;
use crate::error::Error;

/// How long the asker waits at once.
const TICK: Duration = Duration::from_millis(50);

impl ShardHandle {
    /// Says of each shard to which [`ShardHandle::push`] would push whether it would be written now, and why, or how it
    /// gets the version otherwise. Asks the shards whether they accept, by the deadline of `terms` at the latest.
    ///
    /// # Errors
    /// As [`ShardHandle::push`].
    pub fn explain_push(&self, terms: &PushTerms) -> Result<Vec<PushOutlook>, Error> {
        let until = Instant::now() + terms.deadline;
        let state = Arc::clone(&self.own()?.shared);
        let version = self.pushable(terms.version)?;
        let words = state.push.drive()?;
        let _driving = Driving(&state);
        let base = Base::find(&state, self, version)?;
        let mut candidates = Candidates::new(version, terms.to.clone());
        let (mut outlooks, mut looks_at) = (Vec::new(), Instant::now());
        while !left(until).is_zero() && !candidates.is_answered() {
            if self.is_interrupted() {
                return Err(Error::Interrupted);
            }
            if looks_at <= Instant::now() {
                looks_at = Instant::now() + LOOK;
                look(&state, self, &mut candidates);
            }
            let DriverWord::Said(word) = (match words.recv_timeout(TICK) {
                Ok(word) => word,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            }) else {
                continue;
            };
            if let PushWord::Offer(offer) = *word
                && let Some(willing) = candidates.offered(offer)
            {
                outlooks.extend(pushed_to(&state, &base, willing));
            }
        }
        let others = candidates.others(true);
        outlooks
            .extend(others.into_iter().map(|of| otherwise(of.replica, of.shard, of.end, version)));
        outlooks.sort_by(|a, b| (&a.replica, a.shard).cmp(&(&b.replica, b.shard)));
        Ok(outlooks)
    }
}

/// What would be written into a replica that accepts.
fn pushed_to(state: &Arc<HandleState>, base: &Base, willing: WillingReplica) -> Vec<PushOutlook> {
    let replica = willing.name;
    let of = |(offer, _): (super::word::PushOffer, String)| {
        let planned = layouts(state, &offer.layouts, ANSWER).and_then(|targets| {
            let key = (offer.layouts.clone(), offer.shard, base.names.clone());
            state.push.plans.get(key, &targets, &base.layouts)
        });
        let (way, bytes, why) = match planned {
            Ok(plan) => {
                let bytes = plan.parcels.iter().map(|parcel| parcel.bytes).sum();
                let holders = base.senders.iter().map(Vec::len).min().unwrap_or_default();
                let parcels = plan.parcels.len();
                let why = format!(
                    "it accepts: the copies of the plan that a pull would read are written as {parcels} parcels; \
                     {holders} replicas hold the version in the layouts of that plan"
                );
                (PushWay::Push, bytes, why)
            }
            Err(error) => (PushWay::Neither, 0, error.to_string()),
        };
        PushOutlook { replica: replica.clone(), shard: offer.shard, way, bytes, why }
    };
    willing.shards.into_iter().map(of).collect()
}

/// How a shard that is not pushed to gets the version.
fn otherwise(replica: String, shard: u32, end: PushEnd, version: Version) -> PushOutlook {
    let (way, why) = match end {
        PushEnd::Held => (PushWay::Neither, format!("it holds {version}")),
        PushEnd::Absent => {
            (PushWay::Neither, "no replica of this name has registered memory".to_owned())
        }
        _ => {
            let why = "it does not accept: it gets the version by update; call accept on all of its shards for a push";
            (PushWay::Pull, why.to_owned())
        }
    };
    PushOutlook { replica, shard, way, bytes: 0, why }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::client::push::scene::*;
    use crate::client::push::word::PushOffer;

    /// What cannot be filled from what is held is said, with the reason, and the others are told as ever.
    #[test]
    fn a_shard_that_cannot_be_filled_is_told_why() {
        let scene = PushScene::sender(0);
        let offer = |shard, layouts: &[_]| PushOffer {
            replica: "rollout".to_owned(),
            shard,
            target: TARGET,
            layouts: layouts.to_vec(),
            accepts: true,
            holds: None,
        };
        let shards = vec![offer(0, &BASE), offer(1, &BASE)];
        let shards = shards.into_iter().map(|of| (of, String::new())).collect();
        let senders = vec![SENDERS.to_vec()];
        let half = Base {
            names: BASE[..1].to_vec(),
            layouts: base()[..1].to_vec(),
            senders,
            addresses: BTreeMap::new(),
        };
        let willing = WillingReplica { name: "rollout".to_owned(), shards };
        let [first, second] = &pushed_to(&scene.state, &half, willing)[..] else { panic!("two") };
        assert_eq!((first.way, first.shard, first.bytes), (PushWay::Push, 0, BYTES / 2));
        assert!(first.why.contains("as 1 parcels; 2 replicas"), "{}", first.why);
        assert_eq!((second.way, second.shard, second.bytes), (PushWay::Neither, 1, 0));
        assert!(second.why.contains('w') && second.replica == "rollout", "{}", second.why);
    }
}
