//! Looks who is there, and asks them whether they take part.

use std::sync::Arc;
use std::time::Duration;

use super::candidates::Candidates;
use super::outbox::post;
use super::server::{ANSWER, ask};
use super::word::{PushQuestion, PushWord};
use crate::client::handle::ShardHandle;
use crate::client::handle_state::HandleState;

/// How often a driver looks.
pub(super) const LOOK: Duration = Duration::from_millis(500);

/// Takes over who is there, and asks those of whom nothing is decided. Answers come as words.
pub(super) fn look(state: &Arc<HandleState>, handle: &ShardHandle, candidates: &mut Candidates) {
    match ask(state, ANSWER, |connection| async move { connection.status().await }) {
        Ok(status) if status.term > 0 => {
            candidates.see(&status, handle.model(), &handle.replica().name);
        }
        Ok(_) => {}
        Err(error) => tracing::debug!(%error, "a push does not know who is there"),
    }
    for (replica, shard, address) in candidates.take_questions() {
        let driver = state.push.address.clone();
        post(state, &address, PushWord::Ask(PushQuestion { replica, shard, driver }));
    }
}

/// Ends with the push.
pub(super) struct Driving<'a>(pub(super) &'a HandleState);

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        self.0.push.end_drive();
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use weightcast_protocol::{Epoch, Version};

    use super::*;
    use crate::client::connection::tests::{FakePort, whole};
    use crate::client::handle::tests::HandleScene;
    use crate::client::push::outcome::PushEnd;
    use crate::client::push::scene::{LONG, PushScene};
    use crate::serve::Status;
    use crate::wire::{ModelStatus, ReplicaStatus, ShardStatus};

    /// What a server that acts in this term says of a rollout at an address.
    fn status(term: u64, replica: &str, address: &str) -> Vec<u8> {
        let shard =
            ShardStatus { data_address: address.to_owned(), bytes: 8, ..ShardStatus::default() };
        let replica = ReplicaStatus {
            name: replica.to_owned(),
            role: "rollout".to_owned(),
            num_shards: 1,
            shards: vec![shard],
            ..ReplicaStatus::default()
        };
        let replicas = vec![replica];
        let model = ModelStatus { name: "policy".to_owned(), replicas, ..ModelStatus::default() };
        Status { term, models: vec![model], ..Status::default() }.encode_to_vec()
    }

    /// A passive server knows nobody, and what is known stays.
    #[test]
    fn who_is_there_is_what_an_acting_server_says() {
        let target = PushScene::target();
        let (told, asked) = std::sync::mpsc::channel();
        target.state.exports.listen(move |bytes| told.send(bytes.to_vec()).is_ok());
        let [passive, acting] = [0, 3].map(|term| status(term, "peer", &target.address()));
        let said = [whole(&passive), whole(&acting), whole(&status(0, "other", "127.0.0.1:1"))];
        let driver = PushScene::sender_of(0, FakePort::saying(said));
        let own = HandleScene::new(1, Vec::new(), |call| panic!("{call:?}"));
        let version = Version { epoch: Epoch(1), number: 7 };
        let mut candidates = Candidates::new(version, Some(vec!["peer".to_owned()]));
        for end in [PushEnd::Absent, PushEnd::Declined, PushEnd::Declined] {
            look(&driver.state, &own.handle, &mut candidates);
            let ends: Vec<PushEnd> = candidates.others(true).iter().map(|of| of.end).collect();
            assert_eq!(ends, [end]);
            if end == PushEnd::Declined {
                let question = PushWord::decode(&asked.recv_timeout(LONG).unwrap());
                let (replica, driver) = ("peer".to_owned(), driver.address());
                assert_eq!(question, Ok(PushWord::Ask(PushQuestion { replica, shard: 0, driver })));
            }
        }
        assert!(asked.try_recv().is_err(), "each time once");
    }
}
