//! Names of models come and go: what nobody uses is forgotten, what was given out never is again.

use crate::cluster::{Cluster, committed, open, register, replicate};
use weightcast_protocol::message::{Answer, EpochPolicy, Open, Role};
use weightcast_protocol::server::{Server, ServerConfig};
use weightcast_protocol::{CallError, Epoch, Revision, Selector, Span};

impl Cluster {
    fn trainer_of(&mut self, model: &str, epoch: EpochPolicy) -> usize {
        let open = Open { model: model.to_owned(), epoch, ..open("trainer", 0, 1, Role::Trainer) };
        let client = self.start(open);
        self.call_all(&[client], register);
        client
    }

    fn leave(&mut self, client: usize) {
        self.clients[client].session.close(self.now, Span::from_secs(1));
        self.run();
    }

    fn models(&self) -> Vec<String> {
        self.server.snapshot(self.now).models.keys().cloned().collect()
    }

    fn revision(&mut self, client: usize) -> Revision {
        self.list(&[client]).revision
    }

    fn epoch(&self, client: usize) -> Epoch {
        self.clients[client].session.lease().expect("it is open").epoch
    }
}

#[test]
fn any_number_of_names_may_come_and_go() {
    let mut config = ServerConfig::default();
    config.limits.models = 4;
    let mut cluster = Cluster::with(config);
    for number in 0..50 {
        let trainer = cluster.trainer_of(&format!("model-{number}"), EpochPolicy::Current);
        let published = cluster.publish(&[trainer], 1, number);
        assert!(matches!(published[0], Ok(Answer::Published { .. })), "{number}: {published:?}");
        cluster.leave(trainer);
    }
    assert!(cluster.models().is_empty(), "{:?}", cluster.models());
}

#[test]
fn names_in_use_are_bounded_all_the_same() {
    let mut config = ServerConfig::default();
    config.limits.models = 2;
    let mut cluster = Cluster::with(config);
    let first = cluster.trainer_of("a", EpochPolicy::Current);
    cluster.trainer_of("b", EpochPolicy::Current);
    let open = Open { model: "c".to_owned(), ..open("trainer", 0, 1, Role::Trainer) };
    let late = cluster.start(open.clone());
    let error = cluster.clients[late].session.error().cloned();
    assert!(matches!(error, Some(CallError::Limit { limit: 2, got: 3, .. })), "{error:?}");
    cluster.leave(first);
    let late = cluster.start(open);
    assert_eq!(cluster.clients[late].session.error(), None);
}

#[test]
fn a_group_that_dies_lets_its_name_go_with_its_lease() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer_of("policy", EpochPolicy::New);
    cluster.publish(&[trainer], 1, 5);
    cluster.kill(trainer);
    assert_eq!(cluster.models(), ["policy"]);
    cluster.advance(Span::from_secs(7));
    assert!(cluster.models().is_empty());
}

#[test]
fn a_name_that_was_forgotten_gives_no_run_and_no_revision_back() {
    for policy in [EpochPolicy::Current, EpochPolicy::New] {
        let mut cluster = Cluster::new();
        let first = cluster.trainer_of("policy", EpochPolicy::New);
        cluster.publish(&[first], 7, 5);
        let (epoch, revision) = (cluster.epoch(first), cluster.revision(first));
        cluster.leave(first);
        assert!(cluster.models().is_empty());
        // Of any other name: the mark is for all.
        for model in ["policy", "other"] {
            let second = cluster.trainer_of(model, policy);
            assert!(cluster.epoch(second) > epoch, "{model}: {:?}", cluster.epoch(second));
            assert!(cluster.revision(second) > revision);
            // The same number with other bytes is another version, for whoever still has the first.
            let published = cluster.publish(&[second], 7, 6);
            let Ok(Answer::Published { version }) = published[0] else { panic!("{published:?}") };
            assert!(version.epoch > epoch);
        }
    }
}

#[test]
fn a_model_that_anybody_is_in_is_kept_with_all_that_is_known_of_it() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer_of("policy", EpochPolicy::New);
    cluster.publish(&[trainer], 1, 5);
    let rollout = cluster.rollout("rollout", 1);
    let outcome = cluster.call_all(&rollout, |_| replicate(Selector::Latest)).remove(0);
    assert_eq!(committed(&outcome), Some(1));
    let epoch = cluster.epoch(trainer);
    cluster.leave(trainer);
    let second = cluster.trainer_of("policy", EpochPolicy::Current);
    assert_eq!(cluster.epoch(second), epoch, "it goes on in the run that there is");
    // S7: the number has its content.
    cluster.publish(&[second], 1, 6);
    let verdict = cluster.clients[second].session.verdict();
    assert!(matches!(verdict, Some(Err(CallError::ContentMismatch { .. }))), "{verdict:?}");
}

#[test]
fn nothing_is_forgotten_while_clients_may_come_over() {
    let mut cluster = Cluster::new();
    cluster.reconnect = Span::from_secs(60);
    let trainer = cluster.trainer_of("policy", EpochPolicy::New);
    cluster.publish(&[trainer], 1, 5);
    cluster.crash(0);
    cluster.server =
        Server::new(ServerConfig { life: 2, paranoid: true, ..ServerConfig::default() });
    cluster.down.clear();
    cluster.advance(Span::from_secs(2));
    assert_eq!(cluster.models(), ["policy"], "it came over");
    cluster.leave(trainer);
    assert_eq!(cluster.models(), ["policy"]);
    cluster.advance(Span::from_secs(30));
    assert!(cluster.models().is_empty());
}
