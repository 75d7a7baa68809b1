//! A version's way from trainers to rollouts through the real server, sessions and transports.

use crate::support;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{Cluster, run_group};
use weightcast::plan::Slice;
use weightcast::transport::Region;
use weightcast::{
    CallError, Cause, Error, LayoutSource, Options, Replica, Role, Selector, ShardHandle,
};

const SOON: Duration = Duration::from_secs(20);

#[test]
fn a_rollout_of_another_parallelism_gets_the_same_bits() {
    let cluster = Cluster::start();
    let trainers = cluster.group("trainer", Role::Trainer, 3, |shard| support::rows(shard, 3, 7));
    run_group(&trainers, |shard| shard.handle.publish(7, SOON).unwrap());
    let rollouts = cluster.group("rollout", Role::Rollout, 2, |shard| support::columns(shard, 2));
    let updated = run_group(&rollouts, |shard| shard.handle.replicate(Selector::Latest, SOON));
    for updated in updated {
        let updated = updated.unwrap();
        assert_eq!(updated.version.unwrap().number, 7);
        assert!(
            updated.transfer.verified > 0 && updated.transfer.verified == updated.transfer.bytes
        );
    }
    for shard in &rollouts {
        assert_eq!(shard.memory(), support::expected_columns(shard.index, 2, 7));
    }
    // Nothing newer: unchanged, at once, for all.
    let again = run_group(&rollouts, |shard| shard.handle.update(Selector::Latest, false, SOON));
    assert!(again.into_iter().all(|updated| !updated.unwrap().changed));
}

#[test]
fn a_rollout_serves_when_the_trainer_is_gone() {
    let cluster = Cluster::start();
    let trainer = cluster.group("trainer", Role::Trainer, 1, |_| support::rows(0, 1, 1));
    run_group(&trainer, |shard| shard.handle.publish(1, SOON).unwrap());
    let first = cluster.group("first", Role::Rollout, 1, |_| support::columns(0, 1));
    run_group(&first, |shard| shard.handle.replicate(Selector::Latest, SOON).unwrap());
    run_group(&trainer, |shard| shard.handle.close(SOON));
    let second = cluster.group("second", Role::Rollout, 2, |shard| support::rows(shard, 2, 0));
    let updated = run_group(&second, |shard| shard.handle.replicate(Selector::Exact(1), SOON));
    for updated in updated {
        assert_eq!(updated.unwrap().source.as_deref(), Some("first"));
    }
    for shard in &second {
        assert_eq!(shard.memory(), support::expected_rows(shard.index, 2, 1));
    }
}

#[test]
fn memory_changed_while_published_is_refused() {
    let cluster = Cluster::start();
    let trainer = cluster.group("trainer", Role::Trainer, 2, |shard| support::rows(shard, 2, 3));
    run_group(&trainer, |shard| {
        shard.handle.publish(3, SOON).unwrap();
        shard.handle.wait_sealed(SOON).unwrap();
    });
    trainer[1].flip_bit(17, 5);
    let rollouts = cluster.group("rollout", Role::Rollout, 2, |shard| support::columns(shard, 2));
    let refused = run_group(&rollouts, |shard| shard.handle.replicate(Selector::Latest, SOON));
    for refused in &refused {
        let Err(Error::Call(CallError::DigestMismatch { version, source_replica, .. })) = refused
        else {
            panic!("{refused:?}")
        };
        assert_eq!((version.number, source_replica.as_str()), (3, "trainer"));
    }
    assert!(rollouts.iter().all(|shard| shard.handle.version().is_none()));
    // The shard that read it says where: in the slice of the trainer's shard that was changed.
    let found: Vec<_> = rollouts.iter().filter_map(|shard| shard.handle.mismatch()).collect();
    let half = support::ROWS.div_ceil(2);
    let changed = Slice::new([half, 0], [support::ROWS - half, support::COLUMNS]);
    assert!(!found.is_empty());
    for place in found {
        assert_eq!((place.tensor.as_str(), &place.slice), ("matrix", &changed));
        assert_eq!((place.cause, place.source_shard), (Cause::Source, Some(1)));
    }
    let said = refused.iter().any(|error| format!("{error:?}").contains("matrix[19:37, 0:22]"));
    assert!(said, "{refused:?}");
}

#[test]
fn an_earlier_mismatch_is_not_told_of_a_later_call() {
    let cluster = Cluster::start();
    let trainer = cluster.group("trainer", Role::Trainer, 1, |_| support::rows(0, 1, 3));
    trainer[0].handle.publish(3, SOON).unwrap();
    trainer[0].handle.wait_sealed(SOON).unwrap();
    trainer[0].flip_bit(17, 5);
    let rollout = cluster.group("rollout", Role::Rollout, 1, |_| support::columns(0, 1));
    let handle = &rollout[0].handle;
    let calls: [fn(&ShardHandle); 2] = [
        |handle| drop(handle.list(SOON).unwrap()),
        |handle| drop(handle.replicate(Selector::Exact(9), Duration::from_millis(1)).unwrap_err()),
    ];
    for call in calls {
        let refused = handle.replicate(Selector::Latest, SOON).unwrap_err();
        assert!(matches!(refused, Error::Call(CallError::DigestMismatch { .. })), "{refused:?}");
        assert!(handle.mismatch().is_some());
        call(handle);
        assert_eq!(handle.mismatch(), None);
    }
}

#[test]
fn a_second_publish_with_other_content_is_fenced() {
    let cluster = Cluster::start();
    let one = cluster.group("one", Role::Trainer, 1, |_| support::rows(0, 1, 5));
    let two = cluster.group("two", Role::Trainer, 1, |_| support::rows(0, 1, 6));
    run_group(&one, |shard| {
        shard.handle.publish(1, SOON).unwrap();
        shard.handle.wait_sealed(SOON).unwrap();
        // The next call is handled after the seal: the version is defined.
        shard.handle.list(SOON).unwrap();
    });
    run_group(&two, |shard| {
        shard.handle.publish(1, SOON).unwrap();
        let told = shard.handle.wait_sealed(SOON);
        assert!(matches!(told, Err(Error::Call(CallError::ContentMismatch { .. }))), "{told:?}");
    });
}

#[test]
fn updates_in_place_follow_the_trainer() {
    let cluster = Cluster::start();
    let trainer = cluster.group("trainer", Role::Trainer, 2, |shard| support::rows(shard, 2, 0));
    let rollout = cluster.group("rollout", Role::Rollout, 1, |_| support::columns(0, 1));
    for version in 0..5 {
        run_group(&trainer, |shard| {
            shard.fill(&support::expected_rows(shard.index, 2, version));
            shard.handle.publish(version, SOON).unwrap();
        });
        run_group(&rollout, |shard| {
            let updated = shard.handle.update(Selector::Latest, false, SOON).unwrap();
            assert!(updated.changed);
        });
        assert_eq!(rollout[0].memory(), support::expected_columns(0, 1, version));
        run_group(&trainer, |shard| shard.handle.unpublish(SOON).unwrap());
    }
}

#[test]
fn closing_ends_by_its_deadline_when_the_server_is_gone() {
    let cluster = Cluster::start();
    let trainer = cluster.group("trainer", Role::Trainer, 1, |_| support::rows(0, 1, 1));
    run_group(&trainer, |shard| shard.handle.publish(1, SOON).unwrap());
    cluster.server.stop().unwrap();
    // That it returns at all is what is asked for: it used to hang.
    trainer[0].handle.close(Duration::from_millis(300));
    drop(trainer);
}

#[test]
fn memory_is_reserved_until_an_interrupted_call_has_ended() {
    let cluster = Cluster::start();
    let (layout, bytes) = support::rows(0, 1, 1);
    let region = Region::from_bytes(&bytes).unwrap();
    let flag = Arc::new(AtomicBool::new(false));
    let server = Some(cluster.server.address().to_owned());
    let options = Options { server, ..Options::new(Role::Trainer) };
    let open = |model: &str| {
        let flag = Arc::clone(&flag);
        let interrupted = Box::new(move || flag.load(Ordering::Acquire));
        let replica = Replica::new("trainer", 0, 1);
        ShardHandle::open_interruptible(model, replica, &options, Some(interrupted)).unwrap()
    };
    let register = |handle: &ShardHandle| {
        handle.register(LayoutSource::Known(layout.clone()), vec![region.clone()], SOON)
    };
    let (filling, other) = (open("model"), open("another"));
    register(&filling).unwrap();
    flag.store(true, Ordering::Release);
    let interrupted = filling.replicate(Selector::Exact(1), SOON).unwrap_err();
    assert!(matches!(interrupted, Error::Interrupted), "{interrupted}");
    // Nor does a further call, which cannot be made beside it, end that.
    filling.replicate(Selector::Exact(1), SOON).unwrap_err();
    flag.store(false, Ordering::Release);
    let refused = register(&other).unwrap_err().to_string();
    assert!(refused.contains("trainer[0/1] of model model"), "{refused}");
    filling.close(SOON);
    register(&other).expect("the call has ended");
}
