//! What whoever only looks is told of a replica: what a reader would be, and nothing else.

use crate::cluster::*;
use weightcast_protocol::message::Call;
use weightcast_protocol::server::{Inspection, ReplicaState};
use weightcast_protocol::{Selector, Sum};

fn inspect(cluster: &Cluster, replica: &str) -> Inspection {
    cluster.server.inspect("policy", replica, None)
}

#[test]
fn a_copy_is_told_as_a_reader_is_told_of_it() {
    let mut cluster = Cluster::new();
    cluster.auto_read = false;
    let trainer = cluster.trainer("trainer", 2);
    let rollout = cluster.rollout("rollout", 2);
    cluster.publish(&trainer, 1, 11);
    cluster.begin_all(&rollout, |_| replicate(Selector::Latest));
    let told =
        cluster.clients[rollout[0]].host.reading.clone().expect("it was told to read").assignment;
    let seen = inspect(&cluster, "trainer");
    assert_eq!(seen.copy.as_ref(), Some(&told));
    let content = cluster.content(&trainer);
    assert_eq!((seen.state, seen.as_published), (Some(ReplicaState::Sealed), Some(false)));
    // Who has digested it is told whether that is it; nobody is told what it should be.
    let found = |sum| cluster.server.inspect("policy", "trainer", Some(sum)).as_published;
    assert_eq!(found(Sum([content, 0])), Some(true));
    assert_eq!(found(Sum([content, 1])), Some(false));
    // One that is being filled has nothing to show, whoever may read from it.
    let filled = inspect(&cluster, "rollout");
    assert_eq!((filled.state, filled.copy), (Some(ReplicaState::Reading), None));
    cluster.finish_reads(&rollout);
    let filled = inspect(&cluster, "rollout").copy.expect("it is whole");
    assert_eq!((filled.version, filled.catalog, filled.in_flight), (told.version, CATALOG, false));
    assert_eq!(filled.shards.len(), 2);
}

#[test]
fn what_is_not_sealed_has_no_digest_and_what_was_given_up_is_not_told() {
    let mut cluster = Cluster::new();
    cluster.auto_seal = false;
    let trainer = cluster.trainer("trainer", 1);
    assert_eq!(inspect(&cluster, "nobody"), Inspection::default());
    assert_eq!(cluster.server.inspect("no such model", "trainer", None), Inspection::default());
    assert_eq!(inspect(&cluster, "trainer").state, Some(ReplicaState::Empty));
    cluster.publish(&trainer, 1, 11);
    let seen = inspect(&cluster, "trainer");
    assert!(seen.copy.is_some() && seen.as_published.is_none());
    cluster.finish_seals(&trainer);
    let first = inspect(&cluster, "trainer");
    assert!(first.as_published.is_some());
    cluster.call_all(&trainer, |_| Call::Unpublish);
    assert_eq!(inspect(&cluster, "trainer").copy, None);
    // The same memory, shown again, is another exposure.
    cluster.publish(&trainer, 2, 11);
    let again = inspect(&cluster, "trainer").copy.expect("it is published");
    assert_ne!(again.shards[0].generation, first.copy.expect("it was too").shards[0].generation);
}
