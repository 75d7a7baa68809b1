//! Several replicas as one reader's sources, over real sockets: what they give is the version. How wrong bytes of
//! one of them are told apart, `unchanged.rs` shows.

use crate::support;
use std::time::Duration;

use crate::support::{Cluster, Shard, run_group};
use weightcast::{CallError, Error, Options, Role, Selector, Updated};

const SOON: Duration = Duration::from_secs(20);

/// Replicas `a` and `b` of two shards hold version 1 and have nothing else to do.
fn idle() -> (Cluster, Vec<Shard>, Vec<Shard>) {
    let cluster = Cluster::with_stripes(2);
    let trainer = cluster.group("trainer", Role::Trainer, 2, |shard| support::rows(shard, 2, 1));
    run_group(&trainer, |shard| {
        shard.handle.publish(1, SOON).unwrap();
        shard.handle.wait_sealed(SOON).unwrap();
    });
    let [a, b] = ["a", "b"].map(|name| {
        let group = cluster.group(name, Role::Rollout, 2, |shard| support::rows(shard, 2, 0));
        run_group(&group, |shard| shard.handle.replicate(Selector::Latest, SOON).unwrap());
        group
    });
    run_group(&trainer, |shard| shard.handle.unpublish(SOON).unwrap());
    (cluster, a, b)
}

fn counter(cluster: &Cluster, name: &str) -> u64 {
    let server = Some(cluster.server.address().to_owned());
    let options = Options { server, ..Options::new(Role::Rollout) };
    weightcast::status(&options).unwrap().counters[name]
}

fn read(cluster: &Cluster) -> (Shard, Result<Updated, Error>) {
    let mut reader = cluster.group("reader", Role::Rollout, 1, |_| support::columns(0, 1));
    let reader = reader.pop().unwrap();
    let updated = reader.handle.replicate(Selector::Latest, SOON);
    (reader, updated)
}

#[test]
fn a_reader_draws_from_both() {
    let (cluster, _a, _b) = idle();
    let (reader, updated) = read(&cluster);
    let updated = updated.unwrap();
    assert_eq!(updated.source.as_deref(), Some("a"));
    assert_eq!(updated.transfer.helpers, ["b"]);
    assert_eq!(updated.transfer.given.iter().sum::<u64>(), updated.transfer.bytes);
    assert_eq!(updated.transfer.given.len(), 2);
    assert_eq!(reader.memory(), support::expected_columns(0, 1, 1));
    assert_eq!(counter(&cluster, "striped"), 1);
}

#[test]
fn wrong_bytes_of_both_end_in_an_error_that_says_where() {
    let (cluster, a, b) = idle();
    a[0].flip_bit(3, 1);
    b[0].flip_bit(3, 1);
    let (reader, refused) = read(&cluster);
    let Err(Error::Call(CallError::DigestMismatch { .. })) = refused else { panic!("{refused:?}") };
    assert!(reader.handle.version().is_none());
    let place = reader.handle.mismatch().expect("it was found");
    assert_eq!((place.tensor.as_str(), place.source_shard), ("matrix", Some(0)));
    // One from both together, one from each.
    assert_eq!(counter(&cluster, "digest_mismatches"), 3);
    assert_eq!(counter(&cluster, "accusations"), 2);
}
