//! What went wrong between two answers: counters that rose, replicas that broke or went, versions that were lost.

use std::collections::BTreeSet;
use std::time::Duration;

use weightcast::Status;
use weightcast::wire::ReplicaStatus;

/// Something that went wrong, and the time of the answer that told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Incident {
    pub(super) at: Duration,
    pub(super) what: String,
}

/// Counters of what goes wrong: the name, and the words for one event and for several.
const COUNTED: [(&str, &str, &str); 11] = [
    ("timeouts", "call timed out", "calls timed out"),
    ("read_failures", "read failed at its source", "reads failed at their sources"),
    (
        "evictions",
        "session was evicted: its lease ran out",
        "sessions were evicted: their leases ran out",
    ),
    ("drains_cut", "reader was cut off by a drain", "readers were cut off by a drain"),
    ("refusals", "session was refused", "sessions were refused"),
    (
        "fenced",
        "publication was refused: its digests differ",
        "publications were refused: their digests differ",
    ),
    ("digest_mismatches", "read had wrong digests", "reads had wrong digests"),
    (
        "accused_fenced",
        "source was fenced after accusations",
        "sources were fenced after accusations",
    ),
    ("refuted", "copy turned out to hold other bytes", "copies turned out to hold other bytes"),
    ("divergences", "group made different calls", "groups made different calls"),
    ("seeds_failed", "seed failed", "seeds failed"),
];

/// All that went wrong from one answer to the next, in words.
pub(super) fn incidents(before: &Status, after: &Status) -> Vec<String> {
    let mut found = Vec::new();
    if before.term != after.term {
        found.push(format!("the server acts in term {}, no longer in {}", after.term, before.term));
    }
    for (name, one, several) in COUNTED {
        let count = |status: &Status| status.counters.get(name).copied().unwrap_or(0);
        let (then, now) = (count(before), count(after));
        // A lower count is that of another server, which counts from zero.
        match now.checked_sub(then).unwrap_or(now) {
            0 => {}
            1 => found.push(format!("1 {one}")),
            risen => found.push(format!("{risen} {several}")),
        }
    }
    let lost = after.losses.iter().filter(|loss| !before.losses.contains(loss));
    found.extend(lost.map(|loss| {
        format!(
            "version {} of {} was lost with {}: {}",
            loss.version, loss.model, loss.replica, loss.reason
        )
    }));
    found.extend(gone(before, after));
    found
}

/// Replicas that broke or left.
fn gone(before: &Status, after: &Status) -> Vec<String> {
    let whole = |replica: &&ReplicaStatus| !matches!(replica.state.as_str(), "broken" | "closing");
    let mut found = Vec::new();
    for model in &before.models {
        let now = after.models.iter().find(|other| other.name == model.name);
        let now = now.map_or(&[][..], |model| &model.replicas);
        let named = |state: &str| -> BTreeSet<&str> {
            let those = now.iter().filter(|replica| replica.state == state);
            those.map(|replica| replica.name.as_str()).collect()
        };
        let (broken, closing) = (named("broken"), named("closing"));
        let here: BTreeSet<&str> =
            now.iter().filter(whole).map(|replica| replica.name.as_str()).collect();
        for replica in model.replicas.iter().filter(whole) {
            let name = replica.name.as_str();
            if here.contains(name) || closing.contains(name) {
                continue;
            }
            let what = if broken.contains(name) { "has broken" } else { "is gone" };
            found.push(format!("replica {name} of {} {what}", model.name));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use weightcast::wire::{LossStatus, ModelStatus};

    use super::*;

    fn status(counters: &[(&str, u64)], replicas: &[(&str, &str)]) -> Status {
        let replicas = replicas.iter().map(|(name, state)| ReplicaStatus {
            name: (*name).to_owned(),
            state: (*state).to_owned(),
            ..ReplicaStatus::default()
        });
        let name = "policy".to_owned();
        Status {
            term: 1,
            counters: counters.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
            models: vec![ModelStatus { name, replicas: replicas.collect(), ..Default::default() }],
            ..Status::default()
        }
    }

    #[test]
    fn counters_that_rise_are_told_of_and_no_others() {
        let before = status(&[("timeouts", 4), ("evictions", 1), ("commits", 3)], &[]);
        let after =
            status(&[("timeouts", 5), ("evictions", 3), ("commits", 9), ("refusals", 0)], &[]);
        let expected = ["1 call timed out", "2 sessions were evicted: their leases ran out"];
        assert_eq!(incidents(&before, &after), expected);
        assert_eq!(incidents(&after, &after), [""; 0]);
        let restarted = Status { term: 2, ..status(&[("timeouts", 2)], &[]) };
        let expected = ["the server acts in term 2, no longer in 1", "2 calls timed out"];
        assert_eq!(incidents(&after, &restarted), expected);
    }

    #[test]
    fn every_counter_that_is_watched_is_one_of_the_servers() {
        let server = weightcast::serve(weightcast::ServeConfig {
            address: "127.0.0.1:0".to_owned(),
            insecure: true,
            ..Default::default()
        });
        let server = server.expect("a free port");
        let options = weightcast::Options {
            server: Some(server.address().to_owned()),
            insecure: true,
            ..weightcast::Options::new(weightcast::Role::Rollout)
        };
        let counters = weightcast::status(&options).expect("it answers").counters;
        for (name, ..) in COUNTED {
            assert!(counters.contains_key(name), "{name}");
        }
    }

    #[test]
    fn a_version_is_lost_once() {
        let loss = |version| LossStatus {
            version,
            replica: "t".to_owned(),
            reason: "no room".to_owned(),
            model: "policy".to_owned(),
            epoch: 1,
        };
        let before = Status { losses: vec![loss(4)], ..status(&[], &[]) };
        let after = Status { losses: vec![loss(4), loss(5)], ..status(&[], &[]) };
        assert_eq!(incidents(&before, &after), ["version 5 of policy was lost with t: no room"]);
    }

    #[test]
    fn replicas_that_break_or_go_are_named_once() {
        let all =
            [("a", "reading"), ("b", "sealed"), ("c", "sealed"), ("d", "broken"), ("e", "empty")];
        let before = status(&[], &all);
        let after = [("a", "broken"), ("c", "closing"), ("e", "broken"), ("e", "opening")];
        let after = status(&[], &after);
        let expected = ["replica a of policy has broken", "replica b of policy is gone"];
        assert_eq!(incidents(&before, &after), expected, "c leaves, d was broken, e is here again");
        let expected = ["replica e of policy is gone"];
        assert_eq!(incidents(&after, &Status { term: 1, ..Status::default() }), expected);
    }
}
