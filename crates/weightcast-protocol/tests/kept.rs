//! What was read when a call ran out of time is worth something to the next one (L4).

use crate::cluster::*;
use weightcast_protocol::message::{Call, ClientMessage, Role};
use weightcast_protocol::server::ServerConfig;
use weightcast_protocol::session::Output;
use weightcast_protocol::{CallError, Condition, Revision, Selector, Span, Term};

const SHORT: Span = Span::from_secs(2);

/// A trainer that has published version 1, and a rollout of two shards whose `update` has run out of
/// time while it read that.
fn cut_off() -> (Cluster, Vec<usize>, Vec<usize>) {
    let mut cluster = Cluster::new();
    cluster.relays = true;
    cluster.auto_read = false;
    let trainer = cluster.trainer("trainer", 2);
    cluster.publish(&trainer, 1, 11);
    let rollout = cluster.rollout("rollout", 2);
    run_out(&mut cluster, &rollout);
    (cluster, trainer, rollout)
}

fn run_out(cluster: &mut Cluster, rollout: &[usize]) {
    for client in rollout {
        cluster.call_within(*client, update(), SHORT);
    }
    cluster.advance(SHORT);
    for client in rollout {
        assert!(matches!(cluster.outcome(*client), Some(Err(CallError::Timeout { .. }))));
        assert_eq!(cluster.clients[*client].session.version(), None);
        assert_eq!(cluster.clients[*client].host.exposed, None, "the memory is the user's");
    }
}

/// Whether the shards go on with what they had, of those reads that run.
fn keeps(cluster: &Cluster, rollout: &[usize]) -> Vec<bool> {
    rollout.iter().map(|client| cluster.clients[*client].keep).collect()
}

/// How much each of them has said.
fn said(cluster: &Cluster, clients: &[usize]) -> Vec<usize> {
    clients.iter().map(|client| cluster.clients[*client].log.len()).collect()
}

/// Nobody is served what the user may have written to.
fn serves_nothing_since(cluster: &Cluster, clients: &[usize], before: &[usize]) {
    for (client, before) in clients.iter().zip(before) {
        let said = &cluster.clients[*client].log[*before..];
        let serves = |output: &Output| {
            let told = matches!(output, Output::Send(ClientMessage::Filling { .. }));
            told || matches!(output, Output::ExposeFilling(_))
        };
        assert!(!said.iter().any(serves), "{said:?}");
    }
}

#[test]
fn what_goes_on_at_a_second_source_is_served_to_nobody_either() {
    let mut cluster = Cluster::new();
    cluster.relays = true;
    let trainer = cluster.trainer("trainer", 2);
    cluster.publish(&trainer, 1, 11);
    let holder = cluster.rollout("holder", 2);
    cluster.call_all(&holder, |_| update());
    cluster.auto_read = false;
    let rollout = cluster.rollout("rollout", 2);
    run_out(&mut cluster, &rollout);
    let before = said(&cluster, &rollout);
    cluster.begin_all(&rollout, |_| update());
    let sources = |cluster: &Cluster| -> Vec<String> {
        let ReadOrder { assignment, .. } =
            cluster.clients[rollout[0]].host.reading.as_ref().expect("it reads");
        assignment.sources().into_iter().map(str::to_owned).collect()
    };
    let first = sources(&cluster);
    let lost = if first.contains(&"trainer".to_owned()) { &trainer } else { &holder };
    lost.iter().for_each(|client| cluster.kill(*client));
    cluster.advance(Span::from_secs(6));
    assert_ne!(sources(&cluster), first);
    assert_eq!(keeps(&cluster, &rollout), [true, true]);
    serves_nothing_since(&cluster, &rollout, &before);
}

#[test]
fn the_next_call_goes_on_where_the_one_before_was() {
    let (mut cluster, _, rollout) = cut_off();
    let before = said(&cluster, &rollout);
    cluster.begin_all(&rollout, |_| update());
    assert_eq!(keeps(&cluster, &rollout), [true, true]);
    serves_nothing_since(&cluster, &rollout, &before);
    cluster.finish_reads(&rollout);
    assert_eq!(committed(&cluster.outcome(rollout[0]).unwrap()), Some(1));
    assert_eq!(cluster.content(&rollout), 11);
}

#[test]
fn call_after_call_goes_on() {
    let (mut cluster, _, rollout) = cut_off();
    for _ in 0..3 {
        run_out(&mut cluster, &rollout);
        assert_eq!(keeps(&cluster, &rollout), [true, true]);
    }
    // Also one that only waited.
    let other = cluster.rollout("other", 1);
    cluster.begin_all(&other, |_| update());
    run_out(&mut cluster, &rollout);
    cluster.finish_reads(&other);
    cluster.begin_all(&rollout, |_| update());
    assert_eq!(keeps(&cluster, &rollout), [true, true]);
}

#[test]
fn what_the_user_wrote_to_meanwhile_is_read_again_and_nobody_is_blamed() {
    let (mut cluster, trainer, rollout) = cut_off();
    cluster.begin_all(&rollout, |_| update());
    // The digests are of the whole memory, of which the user has changed a part.
    let published = cluster.clients[trainer[0]].memory;
    cluster.clients[trainer[0]].memory ^= 1;
    cluster.finish_reads(&rollout);
    cluster.clients[trainer[0]].memory = published;
    assert_eq!(keeps(&cluster, &rollout), [false, false], "all is read again");
    let counters = cluster.counters();
    assert_eq!((counters.digest_mismatches, counters.accusations), (1, 0));
    cluster.finish_reads(&rollout);
    assert_eq!(committed(&cluster.outcome(rollout[0]).unwrap()), Some(1));
    assert_eq!(cluster.content(&rollout), 11);
}

#[test]
fn another_version_or_memory_begins_anew() {
    let (mut cluster, trainer, rollout) = cut_off();
    cluster.call_all(&trainer, |_| Call::Unpublish);
    cluster.publish(&trainer, 2, 22);
    run_out(&mut cluster, &rollout);
    assert_eq!(keeps(&cluster, &rollout), [false, false]);
    cluster.call_all(&rollout, |_| Call::Unregister);
    cluster.call_all(&rollout, register);
    cluster.begin_all(&rollout, |_| update());
    assert_eq!(keeps(&cluster, &rollout), [false, false]);
}

#[test]
fn a_staged_update_keeps_what_lies_beside_the_memory_until_it_is_not_gone_on_with() {
    let mut cluster = Cluster::new();
    cluster.relays = true;
    let trainer = cluster.trainer("trainer", 1);
    cluster.publish(&trainer, 1, 11);
    let rollout = cluster.group("rollout", 1, Role::Rollout);
    cluster.call_all(&rollout, |_| update());
    cluster.auto_read = false;
    cluster.call_all(&trainer, |_| Call::Unpublish);
    cluster.publish(&trainer, 2, 22);
    let unstaged = |cluster: &Cluster| {
        let log = &cluster.clients[rollout[0]].log;
        log.iter().filter(|output| **output == Output::Unstage).count()
    };
    for keep in [false, true] {
        cluster.call_within(rollout[0], staged_update(), SHORT);
        assert_eq!(keeps(&cluster, &rollout), [keep]);
        cluster.advance(SHORT);
        assert!(matches!(cluster.outcome(rollout[0]), Some(Err(CallError::Timeout { .. }))));
        assert_eq!(cluster.clients[rollout[0]].session.version(), Some(version(0, 1)));
        assert_eq!(unstaged(&cluster), 0);
    }
    cluster.call_all(&rollout, |_| Call::Unpublish);
    assert_eq!(unstaged(&cluster), 1);
}

/// One source that serves one reader at a time, for which `a` has six seconds; `b` has waited behind it,
/// and has run out of time.
fn line() -> (Cluster, Vec<usize>, [usize; 4]) {
    let mut cluster = Cluster::with(ServerConfig { depth_limit: 1, ..ServerConfig::default() });
    let trainer = cluster.trainer("trainer", 1);
    cluster.publish(&trainer, 1, 11);
    let rollouts = ["a", "b", "c", "d"].map(|name| cluster.rollout(name, 1)[0]);
    cluster.auto_read = false;
    cluster.call_within(rollouts[0], update(), Span::from_secs(6));
    cluster.call_within(rollouts[1], update(), SHORT);
    cluster.advance(SHORT);
    assert!(matches!(cluster.outcome(rollouts[1]), Some(Err(CallError::Timeout { .. }))));
    (cluster, trainer, rollouts)
}

fn reads(cluster: &Cluster) -> Vec<String> {
    cluster.edges().into_iter().map(|(reader, _)| reader).collect()
}

#[test]
fn a_wait_between_two_transfers_leaves_the_place_in_the_line_to_the_second() {
    let (changed, there) = (
        Condition::Changed { after: Revision { term: Term(u64::MAX), number: u64::MAX } },
        Condition::Available(Selector::Latest),
    );
    for (until, in_vain) in [(changed, true), (there, false)] {
        let (mut cluster, _, [_, second, third, _]) = line();
        cluster.call(third, update());
        cluster.call_within(second, Call::Wait { until }, SHORT);
        cluster.advance(SHORT);
        let outcome = cluster.outcome(second).expect("it ended");
        assert_eq!(matches!(outcome, Err(CallError::Timeout { .. })), in_vain, "{outcome:?}");
        cluster.call(second, update());
        assert_eq!(reads(&cluster), ["a"]);
        cluster.advance(SHORT);
        assert_eq!(reads(&cluster), ["b"], "{until}");
    }
}

#[test]
fn a_wait_gives_no_place_in_the_line_of_those_who_read() {
    let (mut cluster, _, [_, _, third, fourth]) = line();
    let until = Condition::Changed { after: Revision { term: Term(u64::MAX), number: u64::MAX } };
    cluster.call_within(fourth, Call::Wait { until }, Span::from_secs(1));
    cluster.call(third, update());
    cluster.advance(SHORT);
    cluster.call(fourth, update());
    cluster.advance(SHORT);
    assert_eq!(reads(&cluster), ["c"]);
}

#[test]
fn the_place_in_the_line_is_taken_once() {
    let (mut cluster, trainer, [_, second, third, fourth]) = line();
    cluster.call(second, update());
    cluster.advance(Span::from_secs(4));
    cluster.finish_reads(&[second]);
    assert_eq!(committed(&cluster.outcome(second).unwrap()), Some(1));
    cluster.call_all(&trainer, |_| Call::Unpublish);
    cluster.publish(&trainer, 2, 22);
    cluster.call_within(third, update(), SHORT);
    cluster.call(fourth, update());
    cluster.call(second, update());
    assert_eq!(reads(&cluster), ["c"]);
    cluster.advance(SHORT);
    assert_eq!(reads(&cluster), ["d"]);
}
