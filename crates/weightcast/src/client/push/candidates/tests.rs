//! Who is asked, who takes part, and when nobody is waited for.

use super::*;
use crate::wire::{ModelStatus, ReplicaStatus, ShardStatus};
use weightcast_protocol::push::TargetId;
use weightcast_protocol::{ContentDigest, Epoch};

const VERSION: Version = Version { epoch: Epoch(1), number: 7 };

fn replica(name: &str, role: &str, addresses: &[&str]) -> ReplicaStatus {
    let shard = |(number, address): (usize, &&str)| ShardStatus {
        shard: number as u32,
        data_address: (*address).to_owned(),
        bytes: 8,
        ..ShardStatus::default()
    };
    ReplicaStatus {
        name: name.to_owned(),
        role: role.to_owned(),
        num_shards: addresses.len() as u32,
        shards: addresses.iter().enumerate().map(shard).collect(),
        ..ReplicaStatus::default()
    }
}

fn status(replicas: Vec<ReplicaStatus>) -> Status {
    let own = ModelStatus { name: "m".to_owned(), replicas, ..ModelStatus::default() };
    let other = ModelStatus {
        name: "other".to_owned(),
        replicas: vec![replica("elsewhere", "rollout", &["e:0"])],
        ..ModelStatus::default()
    };
    Status { models: vec![other, own], ..Status::default() }
}

fn offer(replica: &str, shard: u32, of: usize) -> PushOffer {
    PushOffer {
        replica: replica.to_owned(),
        shard,
        target: TargetId(u64::from(shard)),
        layouts: vec![ContentDigest([1; 16]); of],
        accepts: true,
        holds: None,
    }
}

/// Replicas of every kind: the driver's own, another trainer, a rollout of two shards, one that still registers.
fn fleet() -> Status {
    let mut half = replica("half", "rollout", &["h:0", "h:1"]);
    half.num_shards = 3;
    let mut early = replica("early", "rollout", &["y:0", "y:1"]);
    early.shards[1].bytes = 0;
    status(vec![
        replica("own", "trainer", &["o:0"]),
        replica("peer", "trainer", &["p:0"]),
        replica("pair", "rollout", &["r:0", "r:1"]),
        half,
        early,
    ])
}

fn candidates(wanted: Option<&[&str]>) -> Candidates {
    let wanted = wanted.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
    let mut candidates = Candidates::new(VERSION, wanted);
    candidates.see(&fleet(), "m", "own");
    candidates
}

fn asked(candidates: &mut Candidates) -> Vec<String> {
    candidates
        .take_questions()
        .into_iter()
        .map(|(name, shard, at)| format!("{name}.{shard}@{at}"))
        .collect()
}

#[test]
fn whole_rollouts_of_the_model_are_asked_or_those_that_are_named() {
    assert_eq!(asked(&mut candidates(None)), ["pair.0@r:0", "pair.1@r:1"]);
    let mut named = candidates(Some(&["peer", "own", "half", "elsewhere"]));
    assert_eq!(asked(&mut named), ["peer.0@p:0"]);
}

#[test]
fn a_replica_takes_part_once_all_of_its_shards_accept() {
    let mut candidates = candidates(None);
    assert!(candidates.offered(offer("pair", 1, 2)).is_none());
    assert!(candidates.offered(offer("stranger", 0, 1)).is_none());
    assert!(candidates.offered(offer("pair", 2, 2)).is_none(), "no such shard");
    let declines = PushOffer { accepts: false, ..offer("pair", 0, 2) };
    assert!(candidates.offered(declines).is_none());
    let other = PushOffer { layouts: vec![ContentDigest([2; 16]); 2], ..offer("pair", 0, 2) };
    assert!(candidates.offered(other).is_none(), "they do not agree on what is registered");
    assert!(candidates.offered(offer("pair", 0, 3)).is_none());
    assert!(candidates.offered(offer("pair", 1, 2)).is_none());
    let willing = candidates.offered(offer("pair", 0, 2)).expect("all accept");
    let shards: Vec<_> = willing.shards.iter().map(|(of, at)| (of.shard, at.as_str())).collect();
    assert_eq!((willing.name.as_str(), shards), ("pair", vec![(0, "r:0"), (1, "r:1")]));
    assert!(candidates.offered(offer("pair", 0, 2)).is_none(), "once");
    assert!(asked(&mut candidates).is_empty());
    assert!(candidates.others(false).is_empty(), "its outcome is the machine's to say");
}

#[test]
fn who_holds_the_version_takes_no_part() {
    let mut candidates = candidates(Some(&["pair"]));
    for (shard, number) in [(0, 6), (0, 7), (1, 6), (1, 7)] {
        assert!(!candidates.is_settled(false));
        let holds = Some(Version { number, ..VERSION });
        let offer = PushOffer { accepts: false, holds, ..offer("pair", shard, 2) };
        assert!(candidates.offered(offer).is_none());
    }
    assert!(candidates.is_settled(false));
    let held: Vec<_> = candidates.others(false).iter().map(|of| (of.shard, of.end)).collect();
    assert_eq!(held, [(0, PushEnd::Held), (1, PushEnd::Held)]);
}

/// Nobody has to accept.
#[test]
fn a_push_to_all_ends_where_all_hold_the_version() {
    let mut candidates = candidates(None);
    for shard in [0, 1] {
        assert!(!candidates.is_settled(false));
        let offer = PushOffer { holds: Some(VERSION), ..offer("pair", shard, 2) };
        assert!(candidates.offered(offer).is_none());
    }
    assert!(candidates.is_settled(false));
}

#[test]
fn named_replicas_are_waited_for_until_the_end() {
    let mut candidates = candidates(Some(&["peer", "late"]));
    for _ in 0..2 * ENOUGH {
        candidates.take_questions();
    }
    assert!(!candidates.is_settled(true));
    candidates.offered(offer("peer", 0, 1)).expect("it accepts");
    assert!(!candidates.is_settled(true), "for the other one");
    let others: Vec<_> = candidates.others(false);
    assert_eq!(others.len(), 1);
    assert_eq!((others[0].replica.as_str(), others[0].end), ("late", PushEnd::Absent));
    candidates.see(&status(vec![replica("late", "rollout", &["l:0"])]), "m", "own");
    let ends: Vec<_> = candidates.others(false).iter().map(|of| of.end).collect();
    assert_eq!(ends, [PushEnd::Declined]);
    candidates.offered(offer("late", 0, 1)).expect("it accepts");
    assert!(candidates.is_settled(false));
}

/// A push to all that accept ends with the last of them, once the others were asked.
#[test]
fn a_push_to_all_waits_for_one_and_for_answers() {
    let mut candidates = candidates(None);
    candidates.see(
        &status(vec![replica("a", "rollout", &["a:0"]), replica("b", "rollout", &["b:0"])]),
        "m",
        "own",
    );
    for _ in 0..ENOUGH - 1 {
        candidates.take_questions();
    }
    assert!(!candidates.is_settled(false), "nobody has accepted");
    candidates.offered(offer("a", 0, 1)).expect("it accepts");
    assert!(!candidates.is_settled(true), "the other one may answer");
    let mut answered = PushOffer { accepts: false, ..offer("b", 0, 1) };
    candidates.offered(answered.clone());
    assert!(candidates.is_settled(true), "it does not want to");
    answered.accepts = true;
    candidates.offered(answered).expect("now it does");
    assert!(candidates.is_settled(true) && candidates.others(false).is_empty());
}

#[test]
fn a_shard_that_does_not_answer_is_not_waited_for_in_a_push_to_all() {
    let mut candidates = candidates(None);
    for _ in 0..ENOUGH {
        assert!(!candidates.is_settled(true));
        candidates.take_questions();
    }
    assert!(candidates.is_settled(true) && candidates.is_answered());
    assert!(candidates.others(false).is_empty());
    let all: Vec<_> = candidates.others(true).iter().map(|of| of.end).collect();
    assert_eq!(all, [PushEnd::Declined; 2]);
}

#[test]
fn nobody_has_answered_where_nobody_is_there() {
    let mut candidates = Candidates::new(VERSION, None);
    assert!(!candidates.is_answered());
    candidates.see(&fleet(), "m", "own");
    assert!(!candidates.is_answered());
    candidates.offered(offer("pair", 1, 2));
    assert!(!candidates.is_answered());
    candidates.offered(PushOffer { accepts: false, ..offer("pair", 0, 2) });
    assert!(candidates.is_answered());
}

/// A process that starts anew is asked anew.
#[test]
fn what_a_process_has_said_goes_with_its_address() {
    let mut candidates = candidates(Some(&["pair"]));
    candidates.offered(offer("pair", 1, 2));
    let moved = replica("pair", "rollout", &["r:0", "r:9"]);
    candidates.see(&status(vec![moved.clone()]), "m", "own");
    assert!(candidates.offered(offer("pair", 0, 2)).is_none(), "shard 1 is another process");
    candidates.see(&status(vec![moved]), "m", "own");
    candidates.offered(offer("pair", 1, 2)).expect("both accept");
}
