//! Group transactions: one answer for all shards, whatever the order of their calls (G1 to G5).

use crate::cluster::*;
use proptest::prelude::*;
use weightcast_protocol::message::{Answer, Call, ClientMessage, Role, ServerMessage};
use weightcast_protocol::server::{Server, ServerConfig, ServerOutput};
use weightcast_protocol::{
    CallError, ConnectionId, OpSeq, Revision, Selector, SessionId, Span, Term, Time,
};

/// What the next step of an interleaving does.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// This shard makes its next call, if its last one has ended.
    Call(usize),
    /// This shard's read ends.
    Read(usize),
    /// The trainer publishes the next version.
    Publish,
    /// The stream of this shard breaks, and is opened again.
    Break(usize),
    /// A moment passes.
    Wait,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..2usize).prop_map(Step::Call),
        4 => (0..2usize).prop_map(Step::Read),
        2 => Just(Step::Publish),
        1 => (0..2usize).prop_map(Step::Break),
        1 => Just(Step::Wait),
    ]
}

/// The program that both shards run.
fn program(position: usize) -> Call {
    match position % 5 {
        0 | 3 => update(),
        1 => Call::List,
        2 => Call::Describe { selector: Selector::Latest },
        _ => wait(Revision { term: Term(0), number: position as u64 / 2 }),
    }
}

proptest! {
    #![proptest_config(cases(300))]

    /// F18: two shards' calls interleave in any order, with versions published in between.
    #[test]
    fn any_interleaving_gives_one_answer(steps in prop::collection::vec(step(), 1..120)) {
        let mut cluster = Cluster::new();
        cluster.auto_read = false;
        let trainer = cluster.trainer("trainer", 1);
        let rollout = cluster.rollout("rollout", 2);
        let mut published = 0;
        for step in steps {
            match step {
                Step::Call(shard) => call_next(&mut cluster, rollout[shard]),
                Step::Read(shard) => cluster.finish_reads(&rollout[shard..=shard]),
                Step::Break(shard) => cluster.break_stream(rollout[shard]),
                Step::Wait => cluster.advance(Span::from_millis(60)),
                Step::Publish => publish_next(&mut cluster, trainer[0], &mut published),
            }
        }
        finish_programs(&mut cluster, &rollout, trainer[0], &mut published);
        let answers = |shard: usize| cluster.clients[rollout[shard]].done.clone();
        prop_assert_eq!(answers(0), answers(1));
        prop_assert!(answers(0).iter().all(|(_, outcome)| outcome.is_ok()), "{:?}", answers(0));
    }
}

#[test]
fn a_late_shards_call_is_no_answer_to_the_next_one() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 1);
    let rollout = cluster.rollout("rollout", 2);
    cluster.publish(&trainer, 1, 11);
    let short = Span::from_millis(200);
    // Its answer is known at once, and kept back for the other shard until the call has failed.
    cluster.call_within(rollout[0], Call::List, short);
    cluster.advance(Span::from_millis(300));
    assert!(matches!(cluster.outcome(rollout[0]), Some(Err(CallError::Timeout { .. }))));
    cluster.call(rollout[0], update());
    cluster.call_within(rollout[1], Call::List, short);
    assert_eq!(cluster.outcome(rollout[1]), cluster.outcome(rollout[0]), "the same error");
    cluster.call(rollout[1], update());
    for client in rollout {
        assert_eq!(committed(&cluster.outcome(client).expect("answered")), Some(1));
    }
}

fn call_next(cluster: &mut Cluster, client: usize) {
    let position = cluster.ended(client);
    let call = program(position);
    // `Misuse` says that the last call has not ended.
    let _ = cluster.clients[client].session.call(cluster.now, call, DEADLINE);
    cluster.run();
}

/// Unpublishes and publishes the next version, each when the one before has ended.
fn publish_next(cluster: &mut Cluster, trainer: usize, published: &mut u64) {
    let holds = cluster.clients[trainer].session.version().is_some();
    let call = if holds { Call::Unpublish } else { publish(*published + 1) };
    if !holds {
        cluster.clients[trainer].memory = *published + 1;
    }
    if cluster.clients[trainer].session.call(cluster.now, call, DEADLINE).is_ok() && !holds {
        *published += 1;
    }
    cluster.run();
}

/// Lets both shards come to the same place of their program.
fn finish_programs(cluster: &mut Cluster, rollout: &[usize], trainer: usize, published: &mut u64) {
    for _ in 0..200 {
        cluster.finish_reads(rollout);
        cluster.advance(Span::from_millis(60));
        let ended: Vec<usize> = rollout.iter().map(|client| cluster.ended(*client)).collect();
        let target = *ended.iter().max().unwrap();
        let behind: Vec<usize> = (0..2).filter(|shard| ended[*shard] < target).collect();
        // Whoever is behind calls; whoever waits for a version gets one.
        behind.iter().for_each(|shard| call_next(cluster, rollout[*shard]));
        if behind.is_empty() && ended[0] == ended[1] {
            return;
        }
        publish_next(cluster, trainer, published);
    }
    panic!("the shards did not come to the same place");
}

#[test]
fn what_the_first_shard_saw_is_what_all_are_told() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 1);
    let other = cluster.trainer("other", 1);
    let rollout = cluster.rollout("rollout", 2);
    cluster.publish(&other, 0, 5);
    cluster.call_all(&rollout, |_| update());
    cluster.call_all(&other, |_| Call::Unpublish);
    cluster.call(rollout[0], update());
    cluster.publish(&trainer, 1, 11);
    cluster.call(rollout[1], update());
    let held = Some(version(0, 0));
    for client in &rollout {
        assert_eq!(cluster.outcome(*client), Some(Ok(Answer::Unchanged { held })));
    }
    cluster.call_all(&rollout, |_| Call::Unpublish);
    cluster.call(rollout[0], Call::List);
    cluster.call_all(&trainer, |_| Call::Unpublish);
    cluster.call(rollout[1], Call::List);
    assert_eq!(cluster.outcome(rollout[0]), cluster.outcome(rollout[1]));
    let Some(Ok(Answer::Listed(listing))) = cluster.outcome(rollout[0]) else { panic!() };
    assert_eq!(listing.versions.len(), 1, "seen before the version went");
}

#[test]
fn shards_that_know_their_shapes_register_with_those_that_look_them_up() {
    let look_up = || Call::Describe { selector: Selector::Latest };
    for first in [0, 1, 2] {
        let mut cluster = Cluster::new();
        let trainer = cluster.trainer("trainer", 1);
        let rollout: Vec<usize> =
            (0..3).map(|shard| cluster.start(open("rollout", shard, 3, Role::Rollout))).collect();
        for shard in [first, (first + 1) % 3, (first + 2) % 3] {
            // Only shard 1 has to look.
            let call = if shard == 1 { look_up() } else { register(shard as u32) };
            cluster.call(rollout[shard], call);
            assert!(rollout.iter().all(|client| cluster.ended(*client) == 0));
        }
        cluster.publish(&trainer, 1, 11);
        for client in &rollout {
            let outcome = cluster.outcome(*client);
            assert!(matches!(outcome, Some(Ok(Answer::Described { .. }))), "{outcome:?}");
        }
        for outcome in cluster.call_all(&rollout, register) {
            assert!(matches!(outcome, Ok(Answer::Registered { .. })), "{outcome:?}");
        }
        let outcomes = cluster.call_all(&rollout, |_| update());
        assert_eq!(committed(&outcomes[0]), Some(1));
    }
}

#[test]
fn who_looks_shapes_up_in_vain_fails_those_that_registered_meanwhile() {
    let mut cluster = Cluster::new();
    let rollout: Vec<usize> =
        (0..2).map(|shard| cluster.start(open("rollout", shard, 2, Role::Rollout))).collect();
    cluster.call(rollout[0], register(0));
    cluster.call(rollout[1], Call::Describe { selector: Selector::Latest });
    cluster.advance(DEADLINE);
    for client in &rollout {
        let outcome = cluster.outcome(*client);
        assert!(matches!(outcome, Some(Err(CallError::VersionUnavailable { .. }))), "{outcome:?}");
    }
    // Nothing is registered, and the group goes on.
    for outcome in cluster.call_all(&rollout, register) {
        assert!(matches!(outcome, Ok(Answer::Registered { .. })), "{outcome:?}");
    }
}

#[test]
fn shards_that_were_never_opened_are_told_from_those_that_do_not_call() {
    let mut cluster = Cluster::new();
    let alone = cluster.start(open("alone", 0, 3, Role::Rollout));
    let both: Vec<usize> =
        (0..2).map(|shard| cluster.start(open("both", shard, 2, Role::Rollout))).collect();
    for client in [alone, both[0]] {
        cluster.call(client, register(0));
    }
    cluster.advance(DEADLINE);
    let waited = |client: usize| match cluster.outcome(client) {
        Some(Err(CallError::Timeout { waiting_for, .. })) => waiting_for,
        other => panic!("{other:?}"),
    };
    for part in ["shards 1, 2", "alone", "open", "num_shards is 3"] {
        assert!(waited(alone).contains(part), "{part} in {}", waited(alone));
    }
    for part in ["shard 1", "both", "call"] {
        assert!(waited(both[0]).contains(part), "{part} in {}", waited(both[0]));
    }
}

#[test]
fn latest_is_resolved_once() {
    let mut cluster = Cluster::new();
    let a = cluster.trainer("a", 1);
    let b = cluster.trainer("b", 1);
    let rollout = cluster.rollout("rollout", 2);
    cluster.publish(&a, 1, 11);
    cluster.call(rollout[0], replicate(Selector::Latest));
    cluster.publish(&b, 2, 22);
    cluster.call(rollout[1], replicate(Selector::Latest));
    for client in rollout {
        assert_eq!(committed(&cluster.outcome(client).unwrap()), Some(1));
    }
}

#[test]
fn different_calls_are_group_diverged_on_every_shard_now_and_later() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 3);
    cluster.publish(&trainer, 1, 11);
    cluster.call(trainer[0], Call::Unpublish);
    cluster.call(trainer[1], publish(2));
    let error = cluster.outcome(trainer[0]).unwrap().unwrap_err();
    let CallError::GroupDiverged { shard_a, call_a, shard_b, call_b, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!((*shard_a, call_a.as_str()), (0, "unpublish"));
    assert_eq!((*shard_b, call_b.as_str()), (1, "publish(2)"));
    assert_eq!(cluster.outcome(trainer[1]), Some(Err(error.clone())));
    for client in &trainer {
        let late = cluster.clients[*client].session.call(cluster.now, Call::List, DEADLINE);
        assert_eq!(late, Err(error.clone()));
        assert!(cluster.clients[*client].host.exposed.is_none());
    }
    // The name is free for a group that starts over.
    let again = cluster.trainer("trainer", 3);
    assert!(cluster.list(&again).versions.is_empty());
}

#[test]
fn different_arguments_diverge_too() {
    let mut cluster = Cluster::new();
    let rollout = cluster.rollout("rollout", 2);
    cluster.call(rollout[0], replicate(Selector::Latest));
    cluster.call(rollout[1], replicate(Selector::Exact(3)));
    for client in rollout {
        assert!(matches!(cluster.outcome(client), Some(Err(CallError::GroupDiverged { .. }))));
    }
}

#[test]
fn a_shard_that_declines_ends_the_call_for_all_and_nothing_else() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 3);
    let decline = || Call::Decline { detail: "w is wrong".to_owned() };
    for order in [[0, 1, 2], [1, 0, 2], [1, 2, 0]] {
        for shard in order {
            let call = if shard == 0 { decline() } else { publish(1) };
            cluster.call(trainer[shard], call);
        }
        for client in &trainer {
            let Some(Err(error)) = cluster.outcome(*client) else { panic!("{order:?}") };
            assert!(error.to_string().contains("shard 0: w is wrong"), "{error}");
            assert!(matches!(error, CallError::LayoutMismatch { .. }));
            assert!(cluster.clients[*client].host.exposed.is_none());
        }
    }
    cluster.publish(&trainer, 1, 11);
    let rollout = cluster.rollout("rollout", 2);
    cluster.call_all(&rollout, |_| replicate(Selector::Exact(1)));
    // An answer that was decided already, and a copy that is kept.
    cluster.call(rollout[1], update());
    cluster.call(rollout[0], decline());
    for client in rollout {
        let outcome = cluster.outcome(client);
        assert!(matches!(outcome, Some(Err(CallError::LayoutMismatch { .. }))), "{outcome:?}");
        assert!(cluster.clients[client].session.version().is_some());
    }
}

#[test]
fn a_shard_that_never_calls_is_named_at_the_deadline() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 4);
    cluster.call_within(trainer[0], publish(1), Span::from_secs(2));
    cluster.call_within(trainer[2], publish(1), Span::from_secs(3));
    cluster.advance(Span::from_millis(1_900));
    assert_eq!(cluster.ended(trainer[0]), 1);
    cluster.advance(Span::from_millis(200));
    let error = cluster.outcome(trainer[0]).unwrap().unwrap_err();
    let CallError::Timeout { call, waiting_for, .. } = &error else { panic!("{error}") };
    assert_eq!(
        (call.as_str(), waiting_for.as_str()),
        ("publish(1)", "shards 1, 3 of replica trainer to call")
    );
    cluster.call(trainer[3], publish(1));
    assert_eq!(cluster.outcome(trainer[3]), Some(Err(error)));
    assert!(cluster.clients[trainer[0]].host.exposed.is_none());
}

#[test]
fn a_version_that_does_not_come_is_named_at_the_deadline() {
    let mut cluster = Cluster::new();
    let rollout = cluster.rollout("rollout", 2);
    for client in &rollout {
        cluster.call_within(*client, replicate(Selector::Exact(8)), Span::from_secs(2));
    }
    cluster.advance(Span::from_secs(2));
    for client in rollout {
        let error = cluster.outcome(client).unwrap().unwrap_err();
        assert!(matches!(
            error,
            CallError::VersionUnavailable { selector: Selector::Exact(8), .. }
        ));
    }
}

#[test]
fn wait_ends_when_the_listing_moves() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 1);
    let rollout = cluster.rollout("rollout", 2);
    let revision = cluster.list(&rollout).revision;
    cluster.call(rollout[0], wait(revision));
    cluster.publish(&trainer, 1, 11);
    cluster.call_all(&trainer, |_| Call::Unpublish);
    cluster.call(rollout[1], wait(revision));
    let Some(Ok(Answer::Listed(listing))) = cluster.outcome(rollout[0]) else { panic!() };
    assert_eq!(listing.versions.len(), 1);
    assert_eq!(cluster.outcome(rollout[1]), Some(Ok(Answer::Listed(listing))));
}

/// A server spoken to by hand, one stream per shard of one group.
struct Raw {
    server: Server,
    now: Time,
}

impl Raw {
    fn new(num_shards: u32, config: ServerConfig) -> Self {
        let server = Server::new(ServerConfig { paranoid: true, ..config });
        let mut raw = Self { server, now: Time(1) };
        for shard in 0..num_shards {
            let mut open = open("group", shard, num_shards, Role::Trainer);
            open.session = SessionId(shard.into());
            raw.say(shard, ClientMessage::Open(open));
        }
        raw.take();
        raw
    }

    fn say(&mut self, shard: u32, message: ClientMessage) {
        self.server.handle(self.now, ConnectionId(shard.into()), message);
    }

    fn call(&mut self, shard: u32, seq: u64, call: Call) -> Vec<(u64, ServerMessage)> {
        self.say(shard, ClientMessage::Call { seq: OpSeq(seq), deadline: DEADLINE, call });
        self.take()
    }

    fn take(&mut self) -> Vec<(u64, ServerMessage)> {
        std::iter::from_fn(|| self.server.poll_output())
            .filter_map(|output| match output {
                ServerOutput::Send { to, message } => Some((to.0, message)),
                ServerOutput::Disconnect { .. } => None,
            })
            .collect()
    }
}

fn is_broken(sent: &[(u64, ServerMessage)], shards: u64) -> bool {
    let told: Vec<u64> = sent
        .iter()
        .filter(|(_, message)| matches!(message, ServerMessage::Broken { .. }))
        .map(|(to, _)| *to)
        .collect();
    told == (0..shards).collect::<Vec<_>>()
}

#[test]
fn a_repeated_call_gets_the_recorded_answer_and_changes_nothing() {
    let mut raw = Raw::new(2, ServerConfig::default());
    assert!(raw.call(0, 1, register(0)).is_empty());
    assert!(raw.call(0, 1, register(0)).is_empty());
    let answers = raw.call(1, 1, register(1));
    assert_eq!(answers.len(), 2);
    assert_eq!(raw.call(0, 1, register(0)), answers[..1]);
    raw.call(0, 2, publish(1));
    raw.call(1, 2, publish(1));
    let before = raw.server.snapshot(raw.now);
    assert_eq!(raw.call(1, 2, publish(1)).len(), 2, "its ticket, and the answer");
    assert_eq!(raw.server.snapshot(raw.now), before);
    // Once the shard has gone on it can't want the old answer any more.
    raw.call(1, 3, Call::List);
    assert!(raw.call(1, 2, publish(1)).is_empty());
}

#[test]
fn a_number_used_again_for_another_call_diverges() {
    let mut raw = Raw::new(2, ServerConfig::default());
    raw.call(0, 1, register(0));
    assert!(is_broken(&raw.call(0, 1, Call::List), 2));
}

#[test]
fn a_skipped_number_breaks_the_group() {
    let mut raw = Raw::new(2, ServerConfig::default());
    assert!(is_broken(&raw.call(0, 2, Call::List), 2));
}

#[test]
fn answers_are_kept_only_until_every_shard_has_gone_past_them() {
    let mut config = ServerConfig::default();
    config.limits.calls_ahead = 8;
    let mut raw = Raw::new(2, config);
    for seq in 1..100 {
        assert_eq!(raw.call(0, seq, Call::List).len(), 0);
        assert_eq!(raw.call(1, seq, Call::List).len(), 2);
    }
    // Errors are told at once, so a shard can run ahead with them.
    for seq in 100..=107 {
        assert_eq!(raw.call(0, seq, Call::Unpublish).len(), 1);
    }
    assert!(is_broken(&raw.call(0, 108, Call::Unpublish), 2), "nine ahead");
}

#[test]
fn a_call_before_the_last_ones_answer_breaks_the_group() {
    let mut raw = Raw::new(2, ServerConfig::default());
    assert_eq!(raw.call(0, 1, Call::List).len(), 0);
    assert!(is_broken(&raw.call(0, 2, Call::List), 2));
}

#[test]
fn unknown_streams_are_closed() {
    let mut server = Server::new(ServerConfig::default());
    let connection = ConnectionId(5);
    server.handle(Time(0), connection, ClientMessage::Heartbeat { sent_at: 0 });
    assert_eq!(server.poll_output(), Some(ServerOutput::Disconnect { connection }));
    assert_eq!(server.next_timeout(), None);
}
