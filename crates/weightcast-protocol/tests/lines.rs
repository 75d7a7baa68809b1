//! Who waits in one line: one that finds nothing stands for those behind it that are like it, and for
//! no others (L2).

use crate::cluster::*;
use weightcast_protocol::message::{Call, ReadFailure, Role};
use weightcast_protocol::server::ServerConfig;
use weightcast_protocol::{ContentDigest, ExportId, Selector, Span};

/// Reads end by hand, and each source has one reader.
fn by_hand() -> Cluster {
    let mut cluster = Cluster::with(ServerConfig { fanout: 1, ..ServerConfig::default() });
    cluster.auto_read = false;
    cluster
}

fn source(cluster: &Cluster, reader: &str) -> Option<String> {
    cluster.edges().into_iter().find(|(name, _)| name == reader).map(|(_, source)| source)
}

fn wants(cluster: &mut Cluster, name: &str, number: u64) -> Vec<usize> {
    let reader = cluster.rollout(name, 1);
    cluster.call(reader[0], replicate(Selector::Exact(number)));
    reader
}

fn leaves(cluster: &mut Cluster, group: &[usize]) {
    for client in group {
        cluster.clients[*client].session.close(cluster.now, Span::from_secs(1));
        cluster.run();
    }
}

#[test]
fn who_wants_another_version_is_looked_at() {
    let mut cluster = by_hand();
    let [one, two] = ["one", "two"].map(|name| cluster.trainer(name, 1));
    cluster.publish(&one, 1, 11);
    cluster.publish(&two, 2, 22);
    wants(&mut cluster, "x", 1);
    let y = wants(&mut cluster, "y", 2);
    wants(&mut cluster, "a", 1);
    wants(&mut cluster, "b", 2);
    assert_eq!((source(&cluster, "a"), source(&cluster, "b")), (None, None));
    leaves(&mut cluster, &y);
    assert_eq!(source(&cluster, "a"), None);
    assert_eq!(source(&cluster, "b").as_deref(), Some("two"));
}

#[test]
fn who_has_another_layout_may_have_another_source() {
    let mut cluster = Cluster::with(ServerConfig { depth_limit: 2, ..ServerConfig::default() });
    (cluster.relays, cluster.auto_read) = (true, false);
    let trainer = cluster.trainer("trainer", 1);
    cluster.publish(&trainer, 1, 11);
    let odd = |cluster: &mut Cluster, name| {
        let client = cluster.start(open(name, 0, 1, Role::Rollout));
        let (layout, export) = (ContentDigest([9; 16]), ExportId(1));
        cluster.call_all(&[client], |_| Call::Register { layout, export, bytes: 8 });
        cluster.call(client, replicate(Selector::Latest));
        [client]
    };
    odd(&mut cluster, "relay");
    let below = odd(&mut cluster, "below");
    wants(&mut cluster, "plain", 1);
    odd(&mut cluster, "behind");
    assert_eq!((source(&cluster, "plain"), source(&cluster, "behind")), (None, None));
    leaves(&mut cluster, &below);
    assert_eq!(source(&cluster, "plain"), None, "it has another layout than the relay");
    assert_eq!(source(&cluster, "behind").as_deref(), Some("relay"));
}

#[test]
fn whom_a_source_has_failed_does_not_stand_for_those_whom_it_has_not() {
    let mut cluster = by_hand();
    let [one, two] = ["one", "two"].map(|name| cluster.trainer(name, 1));
    cluster.publish(&one, 1, 11);
    cluster.publish(&two, 1, 11);
    let reader = wants(&mut cluster, "reader", 1);
    wants(&mut cluster, "blocker", 1);
    wants(&mut cluster, "behind", 1);
    let had = source(&cluster, "reader");
    assert!(had.is_some() && source(&cluster, "behind").is_none());
    let ReadOrder { seq, attempt, .. } =
        cluster.clients[reader[0]].host.reading.take().expect("it reads");
    let failure = ReadFailure::Source { shard: 0, reason: "cut".into() };
    let now = cluster.now;
    cluster.clients[reader[0]].session.handle_read(now, seq, attempt, Err(failure));
    cluster.run();
    // It waits for the other one, which has not failed it.
    assert_eq!(source(&cluster, "reader"), None);
    assert_eq!(source(&cluster, "behind"), had);
}

#[test]
fn who_could_read_from_its_own_reader_only_does_not_stand_for_others() {
    let mut cluster = Cluster::with(ServerConfig { fanout: 1, ..ServerConfig::default() });
    let trainer = cluster.trainer("trainer", 1);
    let [a, b] = ["a", "b"].map(|name| cluster.rollout(name, 1));
    cluster.publish(&trainer, 1, 11);
    cluster.call_all(&a, |_| update());
    cluster.call_all(&trainer, |_| Call::Unpublish);
    cluster.publish(&trainer, 2, 22);
    cluster.call_all(&b, |_| update());
    cluster.call_all(&trainer, |_| Call::Unpublish);
    cluster.auto_read = false;
    let first = wants(&mut cluster, "first", 2);
    // b goes back to the version of a, staged; a wants that of b meanwhile.
    let back = Call::Update { selector: Selector::Exact(1), allow_rollback: true, staged: true };
    cluster.call(b[0], back);
    cluster.call(a[0], staged_update());
    wants(&mut cluster, "behind", 2);
    assert_eq!(source(&cluster, "first").as_deref(), Some("b"));
    assert_eq!((source(&cluster, "a"), source(&cluster, "behind")), (None, None));
    leaves(&mut cluster, &first);
    assert_eq!(source(&cluster, "a"), None, "b reads from it");
    assert_eq!(source(&cluster, "behind").as_deref(), Some("b"));
}

#[test]
fn one_condition_that_holds_for_nobody_does_not_stand_for_another() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 1);
    let [never, soon, never_too] = ["x", "y", "z"].map(|name| cluster.rollout(name, 1));
    let until = |number| Call::Wait {
        until: weightcast_protocol::Condition::Available(Selector::AtLeast(number)),
    };
    cluster.call(never[0], until(9));
    cluster.call(soon[0], until(1));
    cluster.call(never_too[0], until(9));
    cluster.publish(&trainer, 1, 11);
    assert_eq!([never, soon, never_too].map(|group| cluster.ended(group[0])), [1, 2, 1]);
}
