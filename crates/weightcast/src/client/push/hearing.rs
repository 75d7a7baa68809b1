//! Where words of pushes come in.

use std::sync::{Arc, Weak};

use weightcast_protocol::push::{TargetId, TargetOutput};

use super::desk::DriverWord;
use super::outbox::post;
use super::sender;
use super::word::{OrderWord, PushOffer, PushQuestion, PushWord, ReportWord};
use crate::client::handle_state::HandleState;

/// Has words that come to the handle's data port heard, as long as the handle lives.
pub(in crate::client) fn listen(state: &Arc<HandleState>) {
    let of: Weak<HandleState> = Arc::downgrade(state);
    state.exports.listen(move |bytes| of.upgrade().is_some_and(|state| hear(&state, bytes)));
}

/// Takes a word, at once. False if it is none, or is for nobody here.
fn hear(state: &Arc<HandleState>, bytes: &[u8]) -> bool {
    let word = match PushWord::decode(bytes) {
        Ok(word) => word,
        Err(error) => {
            tracing::debug!(%error, "a word was not taken");
            return false;
        }
    };
    match word {
        PushWord::Ask(question) => answer(state, &question),
        PushWord::Order(order) => order_came(state, order),
        PushWord::Written(written) => state.push.target.written(written),
        PushWord::Grant(grant) => sender::grant(state, grant),
        word @ (PushWord::Offer(_)
        | PushWord::Report(_)
        | PushWord::Refused(_)
        | PushWord::Over(_)) => state.push.to_driver(DriverWord::Said(Box::new(word))),
    }
}

/// The handle accepts from now on: drivers that have asked already hear of that, and need not ask again.
pub(super) fn accepting(state: &Arc<HandleState>) {
    for question in state.push.target.take_asked() {
        answer(state, &question);
    }
}

/// Says what this shard is, if it was meant.
fn answer(state: &Arc<HandleState>, question: &PushQuestion) -> bool {
    let own = &state.label.replica;
    if (&own.name, own.shard) != (&question.replica, question.shard) {
        return false;
    }
    let Some((_, export)) = state.current() else { return false };
    let offer = PushOffer {
        replica: own.name.clone(),
        shard: own.shard,
        target: TargetId(export.0),
        layouts: state.push.layouts(),
        accepts: state.push.target.accepts(question),
        holds: state.view.lock().expect("no panic while held").held,
    };
    post(state, &question.driver, PushWord::Offer(offer));
    true
}

/// An order came in.
fn order_came(state: &Arc<HandleState>, word: OrderWord) -> bool {
    let (driver, at) = (word.driver.clone(), state.push.now());
    let Some(said) = state.push.target.order(at, word) else { return false };
    for output in said {
        if let TargetOutput::Tell { report, .. } = output {
            let word = PushWord::Report(ReportWord { report, opened: Vec::new() });
            post(state, &driver, word);
        }
    }
    true
}

#[cfg(test)]
mod tests;
