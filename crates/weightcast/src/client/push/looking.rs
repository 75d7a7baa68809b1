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
