use super::*;
use crate::{Epoch, ExportId, Freshness, Oldest, Quorum, Revision, Term};

fn version(number: u64) -> Version {
    Version { epoch: Epoch(1), number }
}

fn register(layout: u8) -> Call {
    Call::Register { layout: ContentDigest([layout; 16]), export: ExportId(1), bytes: 8 }
}

fn publish(version: u64, catalog: u8) -> Call {
    let (catalog, generation) = (ContentDigest([catalog; 16]), Generation(u64::from(catalog)));
    Call::Publish { version, catalog, generation }
}

fn update(selector: Selector, allow_rollback: bool, staged: bool) -> Call {
    Call::Update { selector, allow_rollback, staged }
}

fn wait(until: Condition) -> Call {
    Call::Wait { until }
}

fn decline(detail: &str) -> Call {
    Call::Decline { detail: detail.into() }
}

fn called(call: Call, by: &[u32]) -> Transaction {
    Transaction {
        seq: OpSeq(1),
        arrived: by.iter().map(|shard| (*shard, call.clone())).collect(),
        call,
        first_shard: 0,
        started: Time(1),
        deadline: Time(2),
        passed: 0,
        decided: None,
        result: None,
        place: None,
        transfer: None,
    }
}

/// A call of each kind, as people see it, and two where an argument differs that counts.
fn calls() -> Vec<(Call, &'static str)> {
    let (latest, exact) = (Selector::Latest, Selector::Exact(3));
    let after = Revision { term: Term(1), number: 4 };
    let held = Freshness { oldest: Oldest::Number(3), by: Quorum::All };
    vec![
        (register(1), "register"),
        (Call::Unregister, "unregister"),
        (publish(3, 1), "publish(3)"),
        (publish(4, 1), "publish(4)"),
        (Call::Unpublish, "unpublish"),
        (Call::Replicate { selector: latest }, "replicate(latest)"),
        (Call::Replicate { selector: exact }, "replicate(3)"),
        (update(latest, false, false), "update(latest)"),
        (update(exact, false, false), "update(3)"),
        (update(latest, true, false), "update(latest, allow_rollback)"),
        (update(latest, false, true), "update(latest, staged)"),
        (update(latest, true, true), "update(latest, allow_rollback, staged)"),
        (Call::Describe { selector: latest }, "register or catalog"),
        (Call::Describe { selector: exact }, "register or catalog"),
        (Call::List, "list"),
        (wait(Condition::Available(exact)), "wait(3)"),
        (wait(Condition::Changed { after }), ""),
        (wait(Condition::Held(held)), ""),
        (decline("x"), "decline"),
    ]
}

#[test]
fn every_call_has_the_name_by_which_people_know_it() {
    for (call, name) in calls() {
        let expected = match &call {
            Call::Wait { until } => format!("wait({until})"),
            _ => name.to_owned(),
        };
        assert_eq!(call.to_string(), expected);
    }
}

#[test]
fn two_shards_calls_are_the_same_where_nothing_differs_that_has_to_be_alike() {
    let looks_up = Call::Describe { selector: Selector::Latest };
    let calls: Vec<Call> = calls().into_iter().map(|(call, _)| call).collect();
    for a in &calls {
        for b in &calls {
            let declined = [a, b].iter().any(|call| matches!(call, Call::Decline { .. }));
            let looked_up =
                (*a == register(1) && *b == looks_up) || (*b == register(1) && *a == looks_up);
            assert_eq!(same_call(a, b), a == b || declined || looked_up, "{a:?} {b:?}");
        }
    }
    // What is the shard's own may differ.
    assert!(same_call(&register(1), &register(2)) && same_call(&register(2), &register(1)));
    assert!(
        same_call(&publish(3, 1), &publish(3, 2)) && !same_call(&publish(3, 1), &publish(4, 2))
    );
    assert!(same_call(&decline("x"), &decline("y")));
    for call in &calls {
        assert_eq!(super::looks_up(call), *call == looks_up, "{call:?}");
    }
}

#[test]
fn shards_are_named_and_of_many_the_first_eight() {
    let named = |count: u32| name_shards(&(1..=count).collect::<Vec<_>>());
    assert_eq!(named(0), None);
    assert_eq!(named(1).unwrap(), "shard 1");
    assert_eq!(named(2).unwrap(), "shards 1, 2");
    assert_eq!(named(8).unwrap(), "shards 1, 2, 3, 4, 5, 6, 7, 8");
    assert_eq!(named(9).unwrap(), "shards 1, 2, 3, 4, 5, 6, 7, 8 and 1 more");
    assert_eq!(named(300).unwrap(), "shards 1, 2, 3, 4, 5, 6, 7, 8 and 292 more");
    assert_eq!(
        name_shards(&[7, 0]).unwrap(),
        "shards 7, 0",
        "in the order in which they are given"
    );
}

#[test]
fn who_has_not_called_is_missing_the_first_and_the_last_too() {
    let missing = |by: &[u32]| called(Call::List, by).missing(3);
    assert_eq!(missing(&[]).unwrap(), "shards 0, 1, 2");
    assert_eq!(missing(&[0, 1]).unwrap(), "shard 2");
    assert_eq!(missing(&[1, 2]).unwrap(), "shard 0");
    assert_eq!(missing(&[0, 2]).unwrap(), "shard 1");
    assert_eq!(missing(&[0, 1, 2]), None);
}

#[test]
fn a_transfer_wants_its_version_once_all_shards_are_there_and_while_it_has_no_source() {
    use Phase::{Draining, Installing, Reading, Waiting};
    for phase in [Waiting, Draining, Reading, Installing] {
        for (by, all) in [(&[0, 1][..], false), (&[0, 1, 2][..], true)] {
            for known in [None, Some(version(3))] {
                let mut call = called(update(Selector::Latest, false, false), by);
                assert_eq!(call.wants(3), None, "it is no transfer yet");
                call.transfer =
                    Some(GroupTransfer { version: known, phase, ..GroupTransfer::default() });
                let expected = known.filter(|_| all && phase == Waiting);
                assert_eq!(call.wants(3), expected, "{phase:?} {by:?} {known:?}");
            }
        }
    }
    assert_eq!(GroupTransfer::default().phase, Waiting);
}

#[test]
fn only_calls_that_look_for_a_version_have_a_selector() {
    for (call, _) in calls() {
        let update = matches!(call, Call::Update { .. });
        let expected = match call {
            Call::Replicate { selector } | Call::Describe { selector } => Some(selector),
            Call::Update { selector, .. } => Some(selector),
            Call::Wait { until: Condition::Available(selector) } => Some(selector),
            _ => None,
        };
        let transaction = called(call, &[0]);
        assert_eq!((transaction.selector(), transaction.is_update()), (expected, update));
    }
}

#[test]
fn layouts_are_kept_for_a_register_until_it_has_a_result() {
    let mut call = called(register(1), &[0, 2]);
    call.arrived.insert(1, register(5));
    call.arrived.insert(3, decline("x"));
    let layouts = |call: &Transaction| call.pinned().map(|layout| layout.0[0]).collect::<Vec<_>>();
    assert_eq!(layouts(&call), [1, 5, 1], "once for each shard that named it");
    call.decided = Some(Answer::Unregistered);
    assert_eq!(layouts(&call), [1, 5, 1]);
    call.result = Some(Ok(Answer::Unregistered));
    assert_eq!(layouts(&call), [0; 0]);
}

#[test]
fn a_transfer_is_resumed_if_it_began_at_an_earlier_assignment() {
    for (since, attempt, expected) in [(1, 1, false), (1, 2, true), (4, 4, false)] {
        let (since, attempt) = (Attempt(since), Attempt(attempt));
        assert_eq!(
            GroupTransfer { since, attempt, ..GroupTransfer::default() }.resumed(),
            expected
        );
    }
}
