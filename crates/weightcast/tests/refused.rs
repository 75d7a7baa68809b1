//! Who publishes what differs is told in which tensors, and between whom.

use std::time::Duration;

use crate::support::{Cluster, Shard, run_group};
use weightcast::plan::{DType, Layout, LayoutBuilder, Part};
use weightcast::{CallError, Error, Role};

const SOON: Duration = Duration::from_secs(20);
const ROWS: u64 = 8;
const COLUMNS: u64 = 6;

/// Tensors with these names, each with one byte for all of it: half of the rows for a shard of two.
fn memory(shard: u64, of: u64, tensors: &[(&str, u8)]) -> (Layout, Vec<u8>) {
    let (mut builder, mut bytes) = (LayoutBuilder::new(), Vec::new());
    let mut parts = Vec::new();
    for (name, byte) in tensors {
        parts.push(Part::new(*name).shape([ROWS, COLUMNS]).dim(0, shard, of));
        bytes.extend(vec![*byte; (ROWS / of * COLUMNS) as usize]);
    }
    let rows = ROWS / of * tensors.len() as u64;
    builder.add("all", DType::U8, &[rows, COLUMNS], parts, 0);
    (builder.build().unwrap(), bytes)
}

/// Publishes, and says why it was refused.
fn refusal(group: &[Shard]) -> Vec<Option<String>> {
    run_group(group, |shard| {
        shard.handle.publish(1, SOON).unwrap();
        match shard.handle.wait_sealed(SOON) {
            Ok(()) => None,
            Err(Error::Call(CallError::ContentMismatch { version, detail, .. })) => {
                assert_eq!(version.number, 1);
                Some(detail)
            }
            Err(other) => panic!("{other:?}"),
        }
    })
}

#[track_caller]
fn all_say(refusals: &[Option<String>], said: &str) {
    for refusal in refusals {
        let refusal = refusal.as_ref().expect("it is refused");
        assert!(refusal.starts_with(said), "{refusal}");
    }
}

#[test]
fn copies_that_differ_within_a_group_are_named() {
    for (bytes, said) in [
        ([(1, 1), (2, 2), (3, 3)], None),
        ([(1, 1), (2, 9), (3, 3)], Some("the copies of b[0:8, 0:6] on shards 0 and 1 differ:")),
        (
            [(1, 1), (2, 9), (3, 9)],
            Some(
                "the copies of b[0:8, 0:6] on shards 0 and 1 differ (and those of another tensor)",
            ),
        ),
        (
            [(1, 9), (2, 9), (3, 9)],
            Some(
                "the copies of a[0:8, 0:6] on shards 0 and 1 differ (and those of 2 other tensors)",
            ),
        ),
    ] {
        let cluster = Cluster::start();
        // Both shards hold all of it.
        let group = cluster.group("trainer", Role::Trainer, 2, |shard| {
            let byte = |at: usize| if shard == 0 { bytes[at].0 } else { bytes[at].1 };
            memory(0, 1, &[("a", byte(0)), ("b", byte(1)), ("c", byte(2))])
        });
        let before = weightcast::metrics(None)["weightcast/refusals"];
        let refusals = refusal(&group);
        // Of the process, in which other tests may count as well.
        let counted = weightcast::metrics(None)["weightcast/refusals"] - before;
        assert!(counted >= refusals.iter().flatten().count() as f64, "{counted}");
        match said {
            Some(said) => all_say(&refusals, said),
            None => assert_eq!(refusals, [None, None]),
        }
    }
}

#[test]
fn tensors_that_differ_from_another_replica_are_named() {
    for (changed, said) in [
        (vec![], None),
        (vec!["c"], Some("c differ from what good holds:")),
        (vec!["a", "c"], Some("a, c differ from what good holds:")),
        (
            vec!["a", "b", "c", "d", "e"],
            Some("a, b, c and 2 more tensors differ from what good holds:"),
        ),
    ] {
        let cluster = Cluster::start();
        let tensors = ["a", "b", "c", "d", "e"];
        let good = cluster
            .group("good", Role::Trainer, 1, |_| memory(0, 1, &tensors.map(|name| (name, 7))));
        assert_eq!(refusal(&good), [None]);
        let other = cluster.group("other", Role::Trainer, 2, |shard| {
            // Only one of its shards holds what is different.
            let byte = |name| if shard == 1 && changed.contains(&name) { 9 } else { 7 };
            memory(shard, 2, &tensors.map(|name| (name, byte(name))))
        });
        let refusals = refusal(&other);
        match said {
            Some(said) => all_say(&refusals, said),
            None => assert_eq!(refusals, [None, None]),
        }
    }
}

#[test]
fn unpublish_tells_of_the_refusal_as_well() {
    let cluster = Cluster::start();
    let good = cluster.group("good", Role::Trainer, 1, |_| memory(0, 1, &[("a", 7)]));
    assert_eq!(refusal(&good), [None]);
    let other = cluster.group("other", Role::Trainer, 1, |_| memory(0, 1, &[("a", 8)]));
    assert!(refusal(&other)[0].is_some());
    match other[0].handle.unpublish(SOON) {
        Err(Error::Call(CallError::ContentMismatch { detail, .. })) => {
            assert!(detail.starts_with("a differ from what good holds"), "{detail}");
        }
        said => panic!("{said:?}"),
    }
    assert_eq!(other[0].handle.version(), None);
    // And what is right may be published in its place.
    other[0].fill(&[7; (ROWS * COLUMNS) as usize]);
    assert_eq!(refusal(&other), [None]);
}
