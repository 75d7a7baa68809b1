//! Live replicas of other layouts are compared over their data ports, and what was changed is found.

use crate::support;
use std::time::Duration;

use crate::gate::Gate;
use crate::support::{Cluster, Shard, run_group};
use weightcast::transport::Region;
use weightcast::{
    Comparison, Error, LayoutSource, Options, Other, Replica, Role, Selector, ShardHandle, Verdict,
    verify,
};

const SOON: Duration = Duration::from_secs(20);

/// A trainer by rows and a rollout by columns, both holding version 7.
fn both(cluster: &Cluster) -> (Vec<Shard>, Vec<Shard>) {
    let trainer = cluster.group("trainer", Role::Trainer, 3, |shard| support::rows(shard, 3, 7));
    run_group(&trainer, |shard| {
        shard.handle.publish(7, SOON).unwrap();
        shard.handle.wait_sealed(SOON).unwrap();
    });
    let rollout = cluster.group("rollout", Role::Rollout, 2, |shard| support::columns(shard, 2));
    run_group(&rollout, |shard| shard.handle.replicate(Selector::Latest, SOON).unwrap());
    (trainer, rollout)
}

fn comparison(replica: &str, other: Other) -> Comparison {
    Comparison {
        model: "model".to_owned(),
        replica: replica.to_owned(),
        other,
        version: None,
        deadline: SOON,
    }
}

fn options(cluster: &Cluster) -> Options {
    let server = Some(cluster.server.address().to_owned());
    Options { server, ..Options::new(Role::Rollout) }
}

fn compare(cluster: &Cluster, replica: &str, other: Other) -> Result<Verdict, Error> {
    verify(&comparison(replica, other), &options(cluster), &|_| true)
}

/// A replica of one shard whose data port is behind a gate.
fn gated(cluster: &Cluster, gate: &Gate) -> (ShardHandle, Region) {
    let options = Options {
        data_bind: Some(gate.bind()),
        data_advertise: Some(gate.advertise()),
        ..options(cluster)
    };
    let gated = ShardHandle::open("model", Replica::new("gated", 0, 1), &options).unwrap();
    let (layout, bytes) = support::columns(0, 1);
    let region = Region::from_bytes(&bytes).unwrap();
    gated.register(LayoutSource::Known(layout), vec![region.clone()], SOON).unwrap();
    (gated, region)
}

fn with_trainer() -> Other {
    Other::Replica("trainer".to_owned())
}

#[test]
fn equal_replicas_of_other_layouts() {
    let cluster = Cluster::start();
    let (_trainer, rollout) = both(&cluster);
    for (replica, other) in
        [("rollout", with_trainer()), ("rollout", Other::Any), ("trainer", Other::Any)]
    {
        let verdict = compare(&cluster, replica, other).unwrap();
        assert!(verdict.equal && verdict.different.is_empty(), "{verdict:?}");
        assert_eq!((verdict.version, verdict.tensors, verdict.replicas.len()), (7, 1, 2));
        assert!(verdict.replicas.iter().all(|r| r.as_published == Some(true) && r.copies_agree));
        // Each byte once.
        assert_eq!(verdict.digested, 2 * 2 * support::ROWS * support::COLUMNS);
    }
    let alone = compare(&cluster, "rollout", Other::Sealed).unwrap();
    assert!(alone.equal && alone.replicas.len() == 1);
    for shard in &rollout {
        assert_eq!(shard.memory(), support::expected_columns(shard.index, 2, 7), "only looked at");
    }
}

#[test]
fn a_flipped_bit_is_named_to_the_element_with_who_has_changed() {
    let cluster = Cluster::start();
    let (_trainer, rollout) = both(&cluster);
    // Row 5, column 3 of the second half.
    let half = support::COLUMNS / 2;
    rollout[1].flip_bit((5 * half + 3) as usize * 2, 3);
    let verdict = compare(&cluster, "rollout", with_trainer()).unwrap();
    assert!(!verdict.equal && verdict.different == ["matrix"]);
    let [ref place] = verdict.differences[0].ranges[..] else { panic!("{verdict:?}") };
    assert_eq!(place.slice, [(5, 6), (half + 3, half + 4)]);
    assert!(place.exact && !place.moving);
    let mut held: Vec<_> = place
        .readings
        .iter()
        .map(|same| same.iter().map(|h| (&*h.replica, h.shard, h.as_published)).collect::<Vec<_>>())
        .collect();
    held.sort();
    assert_eq!(held, [[("rollout", 1, Some(false))], [("trainer", 0, Some(true))]]);
    assert_eq!(verdict.replicas[0].as_published, Some(false));
    assert_eq!(verdict.replicas[1].as_published, Some(true));
    // Alone it knows only the slice.
    let alone = compare(&cluster, "rollout", Other::Sealed).unwrap();
    let [ref place] = alone.differences[0].ranges[..] else { panic!("{alone:?}") };
    assert_eq!(place.slice, [(0, support::ROWS), (half, support::COLUMNS)]);
    assert_eq!(place.readings[0][0].shard, 1);
}

#[test]
fn who_gave_its_version_up_is_an_error() {
    let cluster = Cluster::start();
    let (trainer, rollout) = both(&cluster);
    run_group(&rollout, |shard| shard.handle.unpublish(SOON).unwrap());
    for replica in ["rollout", "nobody"] {
        let verdict = compare(&cluster, replica, with_trainer());
        assert!(matches!(verdict, Err(Error::Unverified { .. })), "{verdict:?}");
    }
    // Nobody else is left to compare with but what was sealed.
    let alone = compare(&cluster, "trainer", Other::Any).unwrap();
    assert!(alone.equal && alone.replicas.len() == 1);
    drop(trainer);
}

#[test]
fn a_replica_that_moves_on_meanwhile_is_an_error_and_no_verdict() {
    let cluster = Cluster::start();
    let (trainer, _rollout) = both(&cluster);
    let gate = Gate::new();
    let (gated, _region) = gated(&cluster, &gate);
    gated.replicate(Selector::Latest, SOON).unwrap();
    gate.hold_after(0);
    let verdict = std::thread::scope(|scope| {
        let comparing = scope.spawn(|| compare(&cluster, "gated", with_trainer()));
        gate.wait_held();
        gated.unpublish(SOON).unwrap();
        gate.open();
        comparing.join().unwrap()
    });
    assert!(
        matches!(&verdict, Err(Error::Unverified { replica, .. }) if replica == "gated"),
        "{verdict:?}"
    );
    drop(trainer);
}

#[test]
fn a_shard_that_is_silent_is_an_error_in_time_and_so_is_who_gives_up() {
    let cluster = Cluster::start();
    let (_trainer, _rollout) = both(&cluster);
    let gate = Gate::new();
    let (gated, _region) = gated(&cluster, &gate);
    gated.replicate(Selector::Latest, SOON).unwrap();
    gate.hold_after(0);
    let mut what = comparison("gated", with_trainer());
    what.deadline = Duration::from_millis(200);
    let verdict = verify(&what, &options(&cluster), &|_| true);
    assert!(matches!(verdict, Err(Error::Unverified { .. })), "{verdict:?}");
    what.deadline = Duration::from_secs(1);
    let given_up = verify(&what, &options(&cluster), &|_| false);
    assert!(given_up.is_err(), "{given_up:?}");
    gate.open();
    what.deadline = SOON;
    assert!(verify(&what, &options(&cluster), &|_| true).unwrap().equal);
    what.other = Other::Replica("gated".to_owned());
    assert!(verify(&what, &options(&cluster), &|_| true).is_err(), "with itself");
}

#[test]
fn little_comes_back() {
    let cluster = Cluster::start();
    let (_trainer, _rollout) = both(&cluster);
    let gate = Gate::new();
    let (gated, region) = gated(&cluster, &gate);
    gated.replicate(Selector::Latest, SOON).unwrap();
    let mut bytes = region.to_vec();
    bytes[11] ^= 1;
    region.write_at(0, &bytes).unwrap();
    let verdict = compare(&cluster, "gated", with_trainer()).unwrap();
    assert!(!verdict.equal);
    // What has gone to and from all ports: about as much as to and from this one, and twice in all.
    let here = gate.passed() + gate.asked();
    assert!((here..4 * here).contains(&verdict.moved), "{} of {here}", verdict.moved);
    // What its port has sent: a handshake, digests, a note.
    assert!(gate.passed() < verdict.moved && gate.passed() * 2 < bytes.len() as u64);
}
