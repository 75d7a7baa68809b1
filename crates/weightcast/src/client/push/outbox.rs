//! Says words to data ports: each port has a line of its own, so that one that does not answer holds up no other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use weightcast_transport::TransportError;

use super::desk::DriverWord;
use super::word::PushWord;
use crate::client::handle_state::HandleState;
use crate::limits::{PUSH_LINES, PUSH_WORDS};

/// How long one word may take: it comes again by itself.
const PATIENCE: Duration = Duration::from_secs(3);

/// Says a word soon, or loses it. Never waits.
pub(super) fn post(state: &Arc<HandleState>, address: &str, word: PushWord) {
    let mut lines = state.push.words.0.lock().expect("no panic while held");
    if let Some(line) = lines.get_mut(address) {
        if line.len() == PUSH_WORDS {
            line.pop_front();
        }
        line.push_back(word);
        return;
    }
    if lines.len() == PUSH_LINES {
        return;
    }
    lines.insert(address.to_owned(), VecDeque::from([word]));
    drop(lines);
    let (state, address) = (Arc::clone(state), address.to_owned());
    let (lost, at) = (Arc::clone(&state), address.clone());
    let spawned = thread::Builder::new()
        .name("weightcast-words".to_owned())
        .spawn(move || say_all(&state, &address));
    if spawned.is_err() {
        lost.push.words.0.lock().expect("no panic while held").remove(&at);
    }
}

fn say_all(state: &HandleState, address: &str) {
    while let Some(word) = state.push.words.next(address) {
        let said = match word.encode() {
            Ok(bytes) => say(state, address, &bytes),
            Err(error) => {
                tracing::warn!(%error, "a word of a push was not said");
                continue;
            }
        };
        if let Err(error) = said {
            tracing::debug!(%error, address, "a word of a push was lost");
            if matches!(error, Unsaid::Peer(TransportError::Unreachable { .. })) {
                // What a driver makes of that is its business.
                state.push.to_driver(DriverWord::Gone(address.to_owned()));
            }
        }
    }
}

/// Why a word was not said.
#[derive(Debug, thiserror::Error)]
enum Unsaid {
    #[error(transparent)]
    Peer(#[from] TransportError),
    #[error("{0}")]
    Address(String),
}

fn say(state: &HandleState, address: &str, word: &[u8]) -> Result<(), Unsaid> {
    let deadline = Instant::now() + PATIENCE;
    let peer = state.routes.reach(address, deadline);
    let peer =
        peer.map_err(|error| error.kind.map_or(Unsaid::Address(error.said), Unsaid::Peer))?;
    peer.tell(word, deadline).map_err(|error| {
        if !matches!(error, TransportError::Refused(_)) {
            state.routes.forget_peer(address);
        }
        Unsaid::Peer(error)
    })
}

#[cfg(test)]
mod tests;
