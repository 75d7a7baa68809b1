//! Staged updates: the old version is held until the new one is in place, or stays.

use crate::support;
use std::thread;
use std::time::Duration;

use crate::support::{Cluster, Shard, expected_columns, run_group};
use weightcast::transport::Region;
use weightcast::{
    CallError, Error, LayoutSource, Options, Replica, Role, Selector, ShardHandle, Updated,
};

const SOON: Duration = Duration::from_secs(20);

/// One shard of two, and its memory.
struct StagedShard(ShardHandle, Region);

/// A rollout of which each shard has so much room beside its memory.
fn rollout(cluster: &Cluster, room: [Option<u64>; 2]) -> [StagedShard; 2] {
    let open = |shard: u32| {
        let options = Options {
            server: Some(cluster.server.address().to_owned()),
            staging_bytes: room[shard as usize],
            ..Options::new(Role::Rollout)
        };
        let handle =
            ShardHandle::open("model", Replica::new("rollout", shard, 2), &options).unwrap();
        let (layout, bytes) = support::columns(shard.into(), 2);
        let region = Region::from_bytes(&bytes).unwrap();
        handle.register(LayoutSource::Known(layout), vec![region.clone()], SOON).unwrap();
        StagedShard(handle, region)
    };
    thread::scope(|scope| {
        [0, 1].map(|shard| scope.spawn(move || open(shard))).map(|opened| opened.join().unwrap())
    })
}

fn staged(rollout: &[StagedShard; 2]) -> [Result<Updated, Error>; 2] {
    thread::scope(|scope| {
        let update = |StagedShard(handle, _): &StagedShard| {
            handle.update_staged(Selector::Latest, false, SOON)
        };
        let updates = rollout.each_ref().map(|shard| scope.spawn(move || update(shard)));
        updates.map(|update| update.join().unwrap())
    })
}

fn publish(trainer: &[Shard], version: u64) {
    run_group(trainer, |shard| {
        if shard.handle.version().is_some() {
            shard.handle.unpublish(SOON).unwrap();
        }
        shard.fill(&support::expected_rows(shard.index, 1, version));
        shard.handle.publish(version, SOON).unwrap();
    });
}

#[track_caller]
fn hold(rollout: &[StagedShard; 2], version: u64) {
    for (shard, StagedShard(handle, region)) in (0..).zip(rollout) {
        assert_eq!(handle.version().unwrap().number, version);
        assert_eq!(region.to_vec(), expected_columns(shard, 2, version));
    }
}

/// Bytes of each shard.
fn bytes() -> u64 {
    expected_columns(0, 2, 0).len() as u64
}

#[test]
fn a_staged_update_puts_the_new_version_in_place() {
    let cluster = Cluster::start();
    let trainer = cluster.group("trainer", Role::Trainer, 1, |_| support::rows(0, 1, 1));
    let rollout = rollout(&cluster, [None, Some(bytes())]);
    for version in 1..4 {
        publish(&trainer, version);
        for updated in staged(&rollout) {
            let updated = updated.unwrap();
            assert!(updated.changed && updated.version.unwrap().number == version);
            assert_eq!((updated.transfer.bytes, updated.transfer.verified), (bytes(), bytes()));
            if version > 1 {
                assert_eq!(updated.transfer.staged, bytes());
            }
        }
        hold(&rollout, version);
        for StagedShard(handle, _) in &rollout {
            assert_eq!(handle.progress(), bytes());
        }
    }
    assert!(staged(&rollout).into_iter().all(|updated| !updated.unwrap().changed));
}

#[test]
fn without_room_on_one_shard_all_keep_what_they_hold() {
    let cluster = Cluster::start();
    let trainer = cluster.group("trainer", Role::Trainer, 1, |_| support::rows(0, 1, 1));
    let rollout = rollout(&cluster, [None, Some(bytes() - 1)]);
    publish(&trainer, 1);
    run_both(&rollout, |handle| drop(handle.update(Selector::Latest, false, SOON).unwrap()));
    publish(&trainer, 2);
    let [other, own] = staged(&rollout);
    let Err(Error::NoRoom { bytes: needed, limit }) = own else { panic!("{own:?}") };
    assert_eq!((needed, limit), (bytes(), bytes() - 1));
    match other {
        Err(Error::Call(CallError::LayoutMismatch { replica, detail })) => {
            assert_eq!(replica, "rollout");
            assert!(detail.contains("staging_bytes"), "{detail}");
        }
        other => panic!("{other:?}"),
    }
    hold(&rollout, 1);
    run_both(&rollout, |handle| {
        assert!(handle.update(Selector::Latest, false, SOON).unwrap().changed);
    });
    hold(&rollout, 2);
}

fn run_both(rollout: &[StagedShard; 2], call: impl Fn(&ShardHandle) + Sync) {
    thread::scope(|scope| {
        rollout.iter().for_each(|StagedShard(handle, _)| drop(scope.spawn(|| call(handle))));
    });
}
