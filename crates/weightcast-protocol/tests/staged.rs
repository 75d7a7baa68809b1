//! Staged updates: the old version is held and served until the new one is there, verified (G4).

use crate::cluster::*;
use weightcast_protocol::message::{Answer, Call, Location, Open, ReadFailure, Role};
use weightcast_protocol::server::{ReplicaState, ServerConfig};
use weightcast_protocol::session::Output;
use weightcast_protocol::{CallError, Selector, Span};

/// Readers take longer than calls.
fn config() -> ServerConfig {
    ServerConfig { fanout: 2, drain_deadline: Span::from_secs(600), ..ServerConfig::default() }
}

/// A trainer with version 2, and a rollout of two shards that holds version 1 and has begun to read
/// version 2 beside it. Reads and installs end by hand.
fn staging() -> (Cluster, Vec<usize>, Vec<usize>) {
    let mut cluster = Cluster::with(config());
    cluster.relays = true;
    let trainer = cluster.trainer("trainer", 1);
    let rollout = cluster.rollout("rollout", 2);
    cluster.publish(&trainer, 1, 11);
    cluster.call_all(&rollout, |_| update());
    cluster.call_all(&trainer, |_| Call::Unpublish);
    cluster.publish(&trainer, 2, 22);
    (cluster.auto_read, cluster.auto_install) = (false, false);
    cluster.begin_all(&rollout, |_| staged_update());
    (cluster, trainer, rollout)
}

fn held(cluster: &Cluster, client: usize) -> Option<u64> {
    cluster.clients[client].session.version().map(|version| version.number)
}

/// Each shard holds the version, served or not.
fn all_hold(cluster: &Cluster, group: &[usize], number: u64, served: bool) -> bool {
    group.iter().all(|client| {
        held(cluster, *client) == Some(number)
            && cluster.clients[*client].host.exposed.is_some() == served
    })
}

#[test]
fn the_old_version_is_held_served_and_listed_until_the_new_one_is_in_place() {
    let (mut cluster, _, rollout) = staging();
    assert!(all_hold(&cluster, &rollout, 1, true));
    assert_eq!(cluster.state("rollout"), ReplicaState::Sealed);
    assert_eq!(cluster.edges(), [("rollout".to_owned(), "trainer".to_owned())]);
    // Others read the old version meanwhile.
    let other = cluster.rollout("other", 1);
    cluster.auto_read = true;
    let read = cluster.call_all(&other, |_| replicate(Selector::Exact(1)));
    assert_eq!(committed(&read[0]), Some(1));
    cluster.finish_reads(&rollout);
    assert_eq!(cluster.state("rollout"), ReplicaState::Installing);
    assert!(rollout.iter().all(|client| cluster.clients[*client].host.exposed.is_none()));
    assert!(!cluster.list(&other).versions[&version(0, 2)].contains("rollout"));
    let ended = cluster.ended(rollout[0]);
    cluster.finish_install(rollout[0]);
    cluster.run();
    assert_eq!(cluster.ended(rollout[0]), ended, "one shard alone");
    cluster.finish_install(rollout[1]);
    cluster.run();
    for client in &rollout {
        assert_eq!(committed(&cluster.outcome(*client).unwrap()), Some(2));
    }
    assert!(all_hold(&cluster, &rollout, 2, true));
    assert_eq!(cluster.content(&rollout), 22);
    assert!(cluster.list(&other).versions[&version(0, 2)].contains("rollout"));
}

#[test]
fn the_old_version_is_fenced_before_the_copy_and_the_new_one_served_after_it() {
    let (mut cluster, _, rollout) = staging();
    let old = cluster.clients[rollout[0]].session.generation();
    cluster.finish_reads(&rollout);
    cluster.finish_installs(&rollout);
    let log = &cluster.clients[rollout[0]].log;
    let at = |wanted: &dyn Fn(&Output) -> bool| log.iter().rposition(wanted).expect("logged");
    let read = at(&|o| matches!(o, Output::Read { .. }));
    let fenced = at(&|o| *o == Output::Fence(old));
    let installed = at(&|o| matches!(o, Output::Install { .. }));
    let exposed = at(&|o| *o == Output::Expose(old.next()));
    let done = at(&|o| matches!(o, Output::Done { result: Ok(Answer::Committed { .. }), .. }));
    assert!(read < fenced && fenced < installed && installed < exposed && exposed < done);
}

#[test]
fn a_source_that_is_lost_leaves_the_old_version_as_it_was() {
    let (mut cluster, trainer, rollout) = staging();
    cluster.finish_read(rollout[0]);
    cluster.kill(trainer[0]);
    cluster.advance(Span::from_secs(10));
    for client in &rollout {
        let outcome = cluster.outcome(*client);
        assert!(matches!(outcome, Some(Err(CallError::SourceLost { .. }))), "{outcome:?}");
        assert_eq!(cluster.clients[*client].host.beside, None);
    }
    assert!(all_hold(&cluster, &rollout, 1, true));
    assert_eq!(cluster.content(&rollout), 11);
    assert_eq!(cluster.state("rollout"), ReplicaState::Sealed);
    // And can be read from.
    let other = cluster.rollout("other", 1);
    cluster.auto_read = true;
    let read = cluster.call_all(&other, |_| replicate(Selector::Latest));
    assert_eq!(committed(&read[0]), Some(1));
}

#[test]
fn a_lost_source_is_replaced_and_what_was_read_is_kept() {
    let (mut cluster, trainer, rollout) = staging();
    cluster.auto_read = true;
    let other = cluster.rollout("other", 1);
    cluster.call_all(&other, |_| update());
    cluster.auto_read = false;
    let reason = "cut".to_owned();
    let ReadOrder { seq, attempt, .. } =
        cluster.clients[rollout[0]].host.reading.take().expect("reads");
    let failure = ReadFailure::Source { shard: 0, reason };
    let now = cluster.now;
    cluster.clients[rollout[0]].session.handle_read(now, seq, attempt, Err(failure));
    cluster.run();
    assert_eq!(cluster.edges(), [("rollout".to_owned(), "other".to_owned())]);
    assert!(rollout.iter().all(|client| cluster.clients[*client].keep));
    cluster.kill(trainer[0]);
    cluster.finish_reads(&rollout);
    cluster.finish_installs(&rollout);
    assert!(all_hold(&cluster, &rollout, 2, true));
}

#[test]
fn readers_of_the_old_version_finish_before_it_is_given_up() {
    let (mut cluster, _, rollout) = staging();
    let slow = cluster.rollout("slow", 1);
    cluster.call(slow[0], replicate(Selector::Exact(1)));
    cluster.finish_reads(&rollout);
    assert_eq!(cluster.state("rollout"), ReplicaState::Draining);
    assert!(all_hold(&cluster, &rollout, 1, true));
    // Nothing is read from the trainer any more: it may go on.
    assert_eq!(cluster.edges(), [("slow".to_owned(), "rollout".to_owned())]);
    cluster.finish_read(slow[0]);
    cluster.run();
    assert_eq!(committed(&cluster.outcome(slow[0]).unwrap()), Some(1));
    assert_eq!(cluster.state("rollout"), ReplicaState::Installing);
    cluster.finish_installs(&rollout);
    assert!(all_hold(&cluster, &rollout, 2, true));
}

#[test]
fn a_deadline_that_passes_while_the_old_one_drains_leaves_it_shown_again() {
    let (mut cluster, _, rollout) = staging();
    let slow = cluster.rollout("slow", 1);
    cluster.call_within(slow[0], replicate(Selector::Exact(1)), Span::from_secs(600));
    cluster.finish_reads(&rollout);
    assert_eq!(cluster.state("rollout"), ReplicaState::Draining);
    cluster.advance(DEADLINE);
    for client in &rollout {
        let outcome = cluster.outcome(*client);
        assert!(matches!(outcome, Some(Err(CallError::Timeout { .. }))), "{outcome:?}");
    }
    assert!(all_hold(&cluster, &rollout, 1, true));
    assert_eq!(cluster.state("rollout"), ReplicaState::Sealed);
}

#[test]
fn nobody_is_sent_away_while_a_version_is_put_in_place() {
    let (mut cluster, trainer, rollout) = staging();
    cluster.finish_reads(&rollout);
    // From here on nobody holds version 2, and it is on its way.
    cluster.call_all(&trainer, |_| Call::Unpublish);
    let other = cluster.rollout("other", 1);
    cluster.call(other[0], replicate(Selector::Latest));
    assert_eq!(cluster.ended(other[0]), 1);
    cluster.finish_installs(&rollout);
    cluster.finish_reads(&other);
    assert_eq!(committed(&cluster.outcome(other[0]).unwrap()), Some(2));
}

#[test]
fn the_calls_own_deadline_does_not_leave_a_group_with_neither() {
    let (mut cluster, _, rollout) = staging();
    cluster.finish_reads(&rollout);
    let ended = cluster.ended(rollout[0]);
    cluster.advance(Span(DEADLINE.0 + Span::from_secs(5).0));
    assert_eq!(cluster.ended(rollout[0]), ended);
    cluster.finish_installs(&rollout);
    assert!(all_hold(&cluster, &rollout, 2, true));
    assert_eq!(committed(&cluster.outcome(rollout[1]).unwrap()), Some(2));
}

#[test]
fn a_copy_that_never_ends_is_given_up_by_all() {
    let (mut cluster, _, rollout) = staging();
    cluster.finish_reads(&rollout);
    cluster.finish_install(rollout[0]);
    cluster.advance(Span::from_secs(120));
    for client in &rollout {
        let outcome = cluster.outcome(*client);
        assert!(matches!(outcome, Some(Err(CallError::Timeout { .. }))), "{outcome:?}");
        assert_eq!(held(&cluster, *client), None);
        assert!(cluster.clients[*client].host.exposed.is_none());
    }
}

#[test]
fn a_shard_that_dies_in_the_copy_breaks_its_group() {
    let (mut cluster, _, rollout) = staging();
    cluster.finish_reads(&rollout);
    cluster.finish_install(rollout[0]);
    cluster.kill(rollout[1]);
    cluster.advance(Span::from_secs(10));
    let outcome = cluster.outcome(rollout[0]);
    assert!(matches!(outcome, Some(Err(CallError::GroupBroken { .. }))), "{outcome:?}");
    assert!(cluster.clients[rollout[0]].host.exposed.is_none());
}

#[test]
fn a_stream_that_breaks_in_the_copy_loses_nothing() {
    let (mut cluster, _, rollout) = staging();
    cluster.finish_read(rollout[0]);
    cluster.break_stream(rollout[0]);
    cluster.reachable = false;
    cluster.finish_read(rollout[1]);
    cluster.run();
    // Its report comes late, and then it is told to install.
    cluster.reachable = true;
    cluster.advance(Span::from_secs(2));
    cluster.finish_install(rollout[1]);
    cluster.break_stream(rollout[0]);
    cluster.finish_install(rollout[0]);
    cluster.advance(Span::from_secs(2));
    assert!(all_hold(&cluster, &rollout, 2, true));
    assert_eq!(cluster.content(&rollout), 22);
}

#[test]
fn closing_in_the_middle_serves_the_old_version_to_its_readers_to_the_end() {
    let (mut cluster, _, rollout) = staging();
    let slow = cluster.rollout("slow", 1);
    cluster.call(slow[0], replicate(Selector::Exact(1)));
    let now = cluster.now;
    rollout.iter().for_each(|c| cluster.clients[*c].session.close(now, Span::from_secs(5)));
    cluster.run();
    assert!(rollout.iter().all(|client| cluster.clients[*client].host.beside.is_none()));
    assert!(rollout.iter().all(|client| cluster.clients[*client].host.exposed.is_some()));
    cluster.finish_reads(&slow);
    assert_eq!(cluster.content(&slow), 11);
    assert!(rollout.iter().all(|client| cluster.clients[*client].closed == Some(None)));
}

#[test]
fn a_group_that_holds_nothing_reads_into_its_memory() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 1);
    let rollout = cluster.rollout("rollout", 2);
    cluster.publish(&trainer, 1, 11);
    let outcomes = cluster.call_all(&rollout, |_| staged_update());
    assert!(outcomes.iter().all(|outcome| committed(outcome) == Some(1)), "{outcomes:?}");
    let installs = |o: &Output| matches!(o, Output::Install { .. });
    assert!(rollout.iter().all(|client| !cluster.clients[*client].log.iter().any(installs)));
}

#[test]
fn what_is_far_only_once_its_source_is_lost_is_left_to_a_seed() {
    let mut cluster = Cluster::new();
    let place = |replica: &str, datacentre: &str, role| Open {
        location: Location { datacentre: datacentre.into(), ..Location::default() },
        offload_seeding: true,
        ..open(replica, 0, 1, role)
    };
    let start = |cluster: &mut Cluster, place| {
        let group = vec![cluster.start(place)];
        cluster.call_all(&group, register);
        group
    };
    let trainer = start(&mut cluster, place("trainer", "far", Role::Trainer));
    let near = start(&mut cluster, place("near", "here", Role::Rollout));
    let rollout = start(&mut cluster, place("rollout", "here", Role::Rollout));
    cluster.publish(&trainer, 1, 11);
    cluster.call_all(&near, |_| replicate(Selector::Latest));
    cluster.call_all(&rollout, |_| replicate(Selector::Latest));
    cluster.call_all(&trainer, |_| Call::Unpublish);
    cluster.publish(&trainer, 2, 22);
    cluster.call_all(&near, |_| Call::Unpublish);
    cluster.call_all(&near, |_| replicate(Selector::Latest));
    cluster.auto_read = false;
    cluster.call(rollout[0], staged_update());
    assert_eq!(cluster.edges(), [("rollout".to_owned(), "near".to_owned())]);
    cluster.kill(near[0]);
    cluster.advance(Span::from_secs(10));
    let outcome = cluster.outcome(rollout[0]);
    assert!(matches!(outcome, Some(Ok(Answer::Unchanged { held: Some(_) }))), "{outcome:?}");
    assert!(all_hold(&cluster, &rollout, 1, true));
    let log = &cluster.clients[rollout[0]].log;
    assert!(log.contains(&Output::StopRead) && log.contains(&Output::Unstage));
}

#[test]
fn staged_and_not_staged_are_different_calls() {
    let mut cluster = Cluster::new();
    let rollout = cluster.rollout("rollout", 2);
    cluster.call(rollout[0], staged_update());
    cluster.call(rollout[1], update());
    let outcome = cluster.outcome(rollout[1]);
    assert!(matches!(outcome, Some(Err(CallError::GroupDiverged { .. }))), "{outcome:?}");
}

#[test]
fn who_reads_the_old_version_is_no_source_of_the_new_one() {
    let mut cluster = Cluster::with(ServerConfig { fanout: 2, ..ServerConfig::default() });
    let trainer = cluster.trainer("trainer", 1);
    let [a, b] = ["a", "b"].map(|name| cluster.rollout(name, 1));
    cluster.publish(&trainer, 1, 11);
    cluster.call_all(&a, |_| update());
    cluster.call_all(&trainer, |_| Call::Unpublish);
    cluster.publish(&trainer, 2, 22);
    cluster.call_all(&b, |_| update());
    cluster.call_all(&trainer, |_| Call::Unpublish);
    cluster.auto_read = false;
    // b goes back to the version of a, staged; a wants that of b meanwhile.
    let back = Call::Update { selector: Selector::Exact(1), allow_rollback: true, staged: true };
    cluster.call(b[0], back);
    cluster.call(a[0], staged_update());
    assert_eq!(cluster.edges(), [("b".to_owned(), "a".to_owned())]);
    cluster.finish_reads(&b);
    assert_eq!(cluster.content(&b), 11);
    // Nobody holds version 2 any more, which is no loss for a.
    let outcome = cluster.outcome(a[0]);
    assert!(matches!(outcome, Some(Ok(Answer::Unchanged { .. }))), "{outcome:?}");
    assert!(all_hold(&cluster, &a, 1, true));
}

#[test]
fn a_server_that_is_lost_before_the_copy_costs_nothing() {
    let mut cluster = Cluster::with_servers(2);
    let trainer = cluster.trainer("trainer", 2);
    let rollout = cluster.rollout("rollout", 2);
    cluster.publish(&trainer, 1, 11);
    cluster.call_all(&rollout, |_| update());
    cluster.call_all(&trainer, |_| Call::Unpublish);
    cluster.publish(&trainer, 2, 22);
    cluster.auto_read = false;
    for client in &rollout {
        cluster.call_within(*client, staged_update(), Span::from_secs(60));
    }
    cluster.finish_read(rollout[0]);
    cluster.crash(0);
    cluster.advance(Span::from_secs(7));
    assert!(rollout.iter().all(|client| held(&cluster, *client) == Some(1)));
    // The call is made again there: the trainer may not have come over yet.
    let unchanged = |o: &Outcome| matches!(o, Ok(Answer::Unchanged { held: Some(_) }));
    assert!(rollout.iter().all(|client| unchanged(&cluster.outcome(*client).unwrap())));
    cluster.auto_read = true;
    cluster.begin_all(&rollout, |_| staged_update());
    // The new server does not know yet whether anybody else holds the old version (A5).
    assert!(rollout.iter().all(|client| held(&cluster, *client) == Some(1)));
    cluster.advance(Span::from_secs(10));
    for client in &rollout {
        assert_eq!(committed(&cluster.outcome(*client).unwrap()), Some(2));
    }
    assert_eq!(cluster.content(&rollout), 22);
}

#[test]
fn what_a_holder_reads_beside_does_not_make_its_copy_deeper() {
    let config = ServerConfig { depth_limit: 1, ..config() };
    let mut cluster = Cluster::with(config);
    let trainer = cluster.trainer("trainer", 1);
    let rollout = cluster.rollout("rollout", 1);
    cluster.publish(&trainer, 1, 11);
    cluster.call_all(&rollout, |_| update());
    cluster.call_all(&trainer, |_| Call::Unpublish);
    cluster.publish(&trainer, 2, 22);
    cluster.auto_read = false;
    cluster.begin_all(&rollout, |_| staged_update());
    // One source lies between version 1 and its next reader, whatever comes for version 2.
    let other = cluster.rollout("other", 1);
    cluster.call(other[0], replicate(Selector::Exact(1)));
    assert!(cluster.edges().contains(&("other".to_owned(), "rollout".to_owned())));
}
