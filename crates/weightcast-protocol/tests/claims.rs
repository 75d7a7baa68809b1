//! Whoever says that it holds a retained version shows it before anybody relies on it (A1, A2).

use crate::cluster::{Cluster, committed, replicate};
use weightcast_protocol::message::{Call, ClientMessage};
use weightcast_protocol::server::{Server, ServerConfig};
use weightcast_protocol::session::Output;
use weightcast_protocol::{ConnectionId, Generation, Nonce, Selector, Span};

const LATEST: Selector = Selector::Latest;

impl Cluster {
    /// A rollout that commits, and has not read a byte.
    fn empty(&mut self, replica: &str, num_shards: u32, content: u64) -> Vec<usize> {
        let rollout = self.rollout(replica, num_shards);
        self.auto_read = false;
        self.begin_all(&rollout, |_| replicate(LATEST));
        rollout.iter().for_each(|client| self.claim(*client, content));
        self.auto_read = true;
        assert_eq!(self.outcome(rollout[0]).as_ref().and_then(committed), Some(1));
        assert_eq!(self.content(&rollout), 0);
        rollout
    }

    fn honest(&mut self, replica: &str, num_shards: u32) -> Vec<usize> {
        let rollout = self.rollout(replica, num_shards);
        let outcome = self.call_all(&rollout, |_| replicate(LATEST)).remove(0);
        assert_eq!(committed(&outcome), Some(1));
        rollout
    }

    fn offloads_asked(&self, group: &[usize]) -> bool {
        group.iter().any(|client| {
            self.clients[*client].log.iter().any(|o| matches!(o, Output::Offload { .. }))
        })
    }
}

#[test]
fn an_empty_claim_does_not_let_the_last_copy_go() {
    let (mut cluster, trainer) = Cluster::published(2, 100);
    cluster.auto_offload = false;
    let liar = cluster.empty("liar", 1, 100);
    assert!(!cluster.unpublished(&trainer), "nobody else has a byte of it");
    assert_eq!((cluster.counters().refuted, cluster.counters().proofs), (1, 0));
    // It goes once it is copied aside, and can be had from there when the liar has left.
    cluster.finish_offloads(&trainer);
    assert!(cluster.gone(&trainer));
    cluster.fill(&trainer, 0);
    cluster.kill(liar[0]);
    cluster.advance(Span::from_secs(7));
    let reader = cluster.honest("reader", 2);
    assert_eq!(cluster.content(&reader), 100);
    assert_eq!(cluster.counters().retention_lost, 0);
}

#[test]
fn a_half_empty_claim_does_not_either() {
    let (mut cluster, trainer) = Cluster::published(1, 100);
    cluster.auto_offload = false;
    let rollout = cluster.rollout("half", 2);
    cluster.auto_read = false;
    cluster.begin_all(&rollout, |_| replicate(LATEST));
    cluster.finish_reads(&rollout[..1]);
    cluster.claim(rollout[1], 100);
    assert_eq!(cluster.outcome(rollout[0]).as_ref().and_then(committed), Some(1));
    assert!(!cluster.unpublished(&trainer));
    assert_eq!(cluster.counters().refuted, 1);
}

#[test]
fn who_has_shown_the_bytes_lets_the_last_copy_go_at_once() {
    let (mut cluster, trainer) = Cluster::published(2, 100);
    cluster.honest("rollout", 3);
    assert_eq!(cluster.counters().proofs, 1, "asked for as soon as there was another copy");
    assert!(cluster.unpublished(&trainer));
    assert!(!cluster.offloads_asked(&trainer));
}

#[test]
fn nothing_is_asked_where_nothing_is_retained_or_two_have_shown_it() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 1);
    cluster.publish(&trainer, 1, 100);
    cluster.honest("rollout", 1);
    assert_eq!(cluster.counters().challenges, 0);
    let (mut cluster, trainer) = Cluster::published(1, 100);
    for rollout in ["a", "b", "c"] {
        cluster.honest(rollout, 1);
    }
    assert_eq!(cluster.counters().challenges, 1);
    // One of the two goes: a third is asked.
    assert!(cluster.unpublished(&trainer));
    assert_eq!((cluster.counters().challenges, cluster.counters().proofs), (2, 2));
}

#[test]
fn an_honest_copy_is_found_behind_empty_ones() {
    let (mut cluster, trainer) = Cluster::published(1, 100);
    cluster.empty("a", 1, 100);
    cluster.empty("b", 2, 100);
    cluster.honest("c", 2);
    assert_eq!((cluster.counters().refuted, cluster.counters().proofs), (2, 1));
    assert!(cluster.unpublished(&trainer));
    assert!(!cluster.offloads_asked(&trainer));
}

#[test]
fn who_does_not_answer_is_not_waited_for_long() {
    let (mut cluster, trainer) = Cluster::published(1, 100);
    cluster.auto_prove = false;
    let rollout = cluster.honest("rollout", 1);
    cluster.finish_proofs(trainer[0]);
    cluster.auto_offload = false;
    assert!(!cluster.unpublished(&trainer));
    assert!(!cluster.offloads_asked(&trainer), "an answer is still to come");
    cluster.advance(Span::from_secs(6));
    assert!(cluster.offloads_asked(&trainer), "it was not");
    // Too late: it is not believed any more, and the copy that is made is.
    cluster.auto_prove = true;
    cluster.finish_proofs(rollout[0]);
    cluster.run();
    assert!(!cluster.gone(&trainer));
    cluster.finish_offloads(&trainer);
    assert!(cluster.gone(&trainer));
}

#[test]
fn an_answer_that_comes_while_the_copy_is_given_up_is_enough() {
    let (mut cluster, trainer) = Cluster::published(2, 100);
    cluster.auto_prove = false;
    let rollout = cluster.honest("rollout", 1);
    assert!(!cluster.unpublished(&trainer));
    for client in trainer.iter().chain(&rollout) {
        cluster.finish_proofs(*client);
    }
    cluster.run();
    assert!(cluster.gone(&trainer) && !cluster.offloads_asked(&trainer));
}

#[test]
fn a_broken_stream_loses_no_challenge() {
    let (mut cluster, trainer) = Cluster::published(1, 100);
    cluster.auto_prove = false;
    let rollout = cluster.honest("rollout", 1);
    for client in [trainer[0], rollout[0]] {
        cluster.clients[client].host.proving.clear();
        cluster.break_stream(client);
    }
    cluster.advance(Span::from_secs(1));
    cluster.finish_proofs(trainer[0]);
    cluster.finish_proofs(rollout[0]);
    cluster.run();
    assert_eq!(cluster.counters().proofs, 1);
}

#[test]
fn an_offload_is_believed_when_it_has_shown_the_bytes() {
    let (mut cluster, trainer) = Cluster::published(1, 100);
    assert!(cluster.unpublished(&trainer));
    assert_eq!((cluster.counters().offloads, cluster.counters().proofs), (1, 1));
}

#[test]
fn an_offload_that_holds_nothing_is_a_loss_on_record() {
    let (mut cluster, trainer) = Cluster::published(1, 100);
    cluster.auto_prove = false;
    cluster.begin_all(&trainer, |_| Call::Unpublish);
    // The copy says that it is as it should be, and its memory goes.
    let copy = cluster.clients.len() - 1;
    cluster.clients[copy].memory = 0;
    cluster.finish_proofs(copy);
    cluster.finish_proofs(trainer[0]);
    cluster.run();
    assert_eq!((cluster.counters().refuted, cluster.counters().retention_lost), (1, 1));
}

/// A server that knows nothing, in the place of the first.
fn restart(cluster: &mut Cluster) {
    cluster.crash(0);
    cluster.server =
        Server::new(ServerConfig { life: 2, paranoid: true, ..ServerConfig::default() });
    cluster.down.clear();
}

#[test]
fn what_comes_over_from_an_earlier_term_is_a_claim_that_others_confirm() {
    let mut cluster = Cluster::new();
    cluster.reconnect = Span::from_secs(60);
    let trainer = cluster.retaining("trainer", 1, 1);
    cluster.publish(&trainer, 1, 100);
    cluster.honest("rollout", 2);
    restart(&mut cluster);
    cluster.advance(Span::from_secs(20));
    assert_eq!(cluster.holders(1), ["rollout", "trainer"]);
    // Retention is told at open, so by whoever opens next.
    cluster.retaining("other", 1, 1);
    cluster.honest("second", 1);
    assert!(cluster.counters().proofs >= 1, "{:?}", cluster.counters());
    assert!(cluster.unpublished(&trainer) && !cluster.offloads_asked(&trainer));
}

#[test]
fn a_false_copy_that_comes_over_does_not_take_the_place_of_a_true_one() {
    let mut cluster = Cluster::new();
    cluster.reconnect = Span::from_secs(60);
    let trainer = cluster.retaining("trainer", 1, 1);
    cluster.publish(&trainer, 1, 100);
    cluster.empty("a", 1, 100);
    cluster.honest("c", 1);
    restart(&mut cluster);
    cluster.advance(Span::from_secs(20));
    cluster.retaining("other", 1, 1);
    cluster.honest("d", 1);
    cluster.auto_offload = false;
    let refuted = cluster.counters().refuted;
    assert!(cluster.unpublished(&trainer), "others have shown it");
    assert!(refuted <= 1 && cluster.counters().retention_lost == 0);
}

#[test]
fn numbers_are_not_foreseen_and_strange_answers_change_nothing() {
    let nonces = |secret| {
        let mut cluster = Cluster::with(ServerConfig { secret, ..ServerConfig::default() });
        let trainer = cluster.retaining("trainer", 1, 1);
        cluster.publish(&trainer, 1, 100);
        cluster.auto_prove = false;
        let rollout = cluster.honest("rollout", 1);
        (cluster.clients[rollout[0]].host.proving.clone(), cluster, rollout)
    };
    let (one, _, _) = nonces([1, 2]);
    let (other, mut cluster, rollout) = nonces([1, 3]);
    assert_eq!((one.len(), other.len()), (1, 1));
    assert_ne!(one[0].1, other[0].1);
    let (generation, nonce) = other[0];
    let now = cluster.now;
    let stranger = |generation, nonce| ClientMessage::Proof { generation, nonce, sum: 1 };
    let connection = ConnectionId(2); // the rollout's
    for message in
        [stranger(generation, Nonce(nonce.0 ^ 1)), stranger(Generation(generation.0 + 1), nonce)]
    {
        cluster.server.handle(now, connection, message);
    }
    assert_eq!(cluster.counters().refuted, 0);
    cluster.auto_prove = true;
    cluster.finish_proofs(0); // the trainer's
    cluster.finish_proofs(rollout[0]);
    cluster.run();
    assert_eq!((cluster.counters().refuted, cluster.counters().proofs), (0, 1));
}

#[test]
fn whose_memory_changed_is_not_known_when_the_publisher_has_gone() {
    let (mut cluster, trainer) = Cluster::published(1, 100);
    cluster.auto_prove = false;
    let rollouts = ["a", "b"].map(|replica| cluster.honest(replica, 1)[0]);
    // The optimiser steps too early: whoever is compared with the trainer looks wrong.
    cluster.fill(&trainer, 7);
    cluster.auto_prove = true;
    for client in [trainer[0], rollouts[0], rollouts[1], trainer[0], rollouts[1]] {
        cluster.finish_proofs(client);
        cluster.run();
    }
    assert_eq!(cluster.counters().refuted, 2);
    // Its own copy can't be made aside, since that has other digests, and it goes.
    assert!(cluster.unpublished(&trainer));
    assert_eq!(cluster.counters().retention_lost, 1);
    // The others agree, so one of them lets the other go.
    assert_eq!(cluster.counters().proofs, 1);
    assert!(cluster.unpublished(&rollouts[..1]));
    assert_eq!(cluster.counters().retention_lost, 1);
}

#[test]
fn who_did_not_answer_is_asked_again() {
    let (mut cluster, trainer) = Cluster::published(1, 100);
    cluster.auto_prove = false;
    let rollout = cluster.honest("rollout", 1);
    // The trainer's copy is made aside, since nobody else has shown his in time.
    cluster.begin_all(&trainer, |_| Call::Unpublish);
    cluster.finish_proofs(trainer[0]);
    cluster.advance(Span::from_secs(6));
    let copy = cluster.clients.len() - 1;
    assert_eq!(cluster.counters().offloads, 1);
    for client in [trainer[0], copy, copy] {
        cluster.finish_proofs(client);
        cluster.run();
    }
    assert!(cluster.gone(&trainer));
    // Nor does it beside that copy, which is kept.
    cluster.advance(Span::from_secs(6));
    assert!(cluster.holders(1).iter().any(|name| name.contains("~offload")));
    assert_eq!(cluster.counters().challenges, 3);
    // Now it can: what was made in its place goes.
    cluster.clients[rollout[0]].host.proving.clear();
    cluster.auto_prove = true;
    cluster.advance(Span::from_secs(20));
    assert_eq!(cluster.holders(1), ["rollout"]);
    assert_eq!((cluster.counters().refuted, cluster.counters().offloads_released), (0, 1));
}

#[test]
fn of_two_offloads_that_are_made_one_goes_once_one_has_shown_the_bytes() {
    let (mut cluster, first) = Cluster::published(1, 100);
    let second = cluster.retaining("second", 1, 1);
    // Nobody shows anything, and digests are late: the first gives up before its offload counts.
    cluster.auto_prove = false;
    cluster.publish(&second, 1, 100);
    (cluster.auto_seal, cluster.auto_offload) = (false, false);
    let mut copies = Vec::new();
    for trainer in [first[0], second[0]] {
        cluster.call_within(trainer, Call::Unpublish, Span::from_secs(20));
        cluster.advance(Span::from_secs(6));
        cluster.finish_offloads(&[trainer]);
        copies.push(cluster.clients.len() - 1);
        cluster.advance(Span::from_secs(15));
    }
    assert_eq!(cluster.counters().retention_lost, 2, "neither was good enough in time");
    cluster.finish_seals(&copies);
    assert_eq!(cluster.holders(1), ["second~offload-4294967296.1", "trainer~offload-4294967296.1"]);
    copies.iter().for_each(|client| cluster.finish_proofs(*client));
    cluster.run();
    assert_eq!(cluster.holders(1), ["second~offload-4294967296.1"]);
    assert_eq!(cluster.counters().offloads_released, 1);
}
