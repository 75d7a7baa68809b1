//! `accept`: a shard waits for a push, and lets its memory be filled.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use weightcast_protocol::message::Call;
use weightcast_protocol::push::{PushCommand, TargetId};
use weightcast_protocol::{CallError, Selector, Version};

use super::fill::Fill;
use super::hearing;
use super::target::TargetEvent;
use super::word::{OrderWord, TargetOver};
use crate::client::handle::{INTERRUPT, ShardHandle, UNWATCHED, left};
use crate::client::handle_state::HandleState;
use crate::client::updated::Updated;
use crate::error::Error;

impl ShardHandle {
    /// Waits for a push and takes it in: the registered memory is filled by those who hold the version. Nobody writes into
    /// the memory outside of this call. A call of the group: all shards accept.
    ///
    /// `before` is told the version before the memory changes, and may take time; if it says false, the push is refused and
    /// the call ends with [`Error::Interrupted`]. What a push leaves undone, since its driver or its senders are lost, this
    /// call reads, as [`ShardHandle::update`] does: so if it returns well, the memory holds the version.
    ///
    /// # Errors
    /// [`CallError::Timeout`] if no push came, with the memory as it was; whatever [`ShardHandle::update`] may return.
    pub fn accept(
        &self,
        before: &mut dyn FnMut(Version) -> bool,
        deadline: Duration,
    ) -> Result<Updated, Error> {
        let until = Instant::now() + deadline;
        self.check_writable()?;
        let state = Arc::clone(&self.own()?.shared);
        if state.current().is_none() {
            return Err(Error::misuse("register memory before it is pushed to"));
        }
        let events = state.push.target.open()?;
        let _listening = Acceptance(&state);
        hearing::accepting(&state);
        let order = self.next_order(&state, &events, until)?;
        let version = order.order.version;
        let fill = Fill::new(&state, &order, until)?;
        state.push.target.begin_fill();
        let thread = thread::Builder::new()
            .name("weightcast-filled".to_owned())
            .spawn(move || fill.run(order, &events))
            .map_err(|e| Error::io("start the thread of a push", e))?;
        let result = match before(version) {
            true => self.filled(version, left(until)),
            false => Err(Error::Interrupted),
        };
        state.push.target.end_fill(state.exports.exports());
        state.push.target.ended(result.as_ref().map(drop).map_err(over));
        drop(thread.join());
        result
    }

    /// The call in which the memory is filled.
    fn filled(&self, version: Version, left: Duration) -> Result<Updated, Error> {
        let selector = Selector::Exact(version.number);
        let call = Call::Update { selector, allow_rollback: true, staged: false };
        self.updated(call, left, UNWATCHED)
    }

    /// Waits for an order to this memory.
    fn next_order(
        &self,
        state: &HandleState,
        events: &Receiver<TargetEvent>,
        until: Instant,
    ) -> Result<OrderWord, Error> {
        loop {
            let left = left(until);
            let own = state.current().map(|(_, export)| TargetId(export.0));
            match events.recv_timeout(left.min(INTERRUPT)) {
                Ok(event) => {
                    if let Some(word) = begins(event, own) {
                        return Ok(*word);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::Bug("nobody can push to a handle that accepts".to_owned()));
                }
            }
            if self.is_interrupted() {
                return Err(Error::Interrupted);
            }
            if left.is_zero() {
                return Err(Error::Call(CallError::Timeout {
                    call: "accept".to_owned(),
                    waiting_for: format!("a push of {}", self.model()),
                    detail: String::new(),
                }));
            }
        }
    }
}

/// The order that begins a push into this memory, if the event is one. What else comes is the end of an earlier push.
fn begins(event: TargetEvent, own: Option<TargetId>) -> Option<Box<OrderWord>> {
    let TargetEvent::Order(word) = event else { return None };
    let fills = matches!(word.order.command, PushCommand::Fill { .. });
    (fills && Some(word.order.target) == own).then_some(word)
}

/// Ends with the call, however the call ends: nobody may write after that.
struct Acceptance<'a>(&'a HandleState);

impl Drop for Acceptance<'_> {
    fn drop(&mut self) {
        self.0.push.target.end_fill(self.0.exports.exports());
        self.0.push.target.close();
    }
}

/// What a driver is told of a call that failed.
fn over(error: &Error) -> (TargetOver, String) {
    let why = match error {
        Error::Call(CallError::DigestMismatch { .. }) => TargetOver::Differs,
        _ => TargetOver::Left,
    };
    (why, error.to_string())
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use weightcast_protocol::message::Answer;
    use weightcast_protocol::push::PushNumber;
    use weightcast_transport::{ExportId, Region};

    use super::*;
    use crate::client::handle::tests::{HandleScene, HeardCall};
    use crate::client::memory::registration::RegisteredShard;
    use crate::client::push::samples::{self, VERSION};
    use crate::client::push::scene::*;
    use crate::clock::span;

    /// A handle with the memory of the target, whose calls are answered so.
    fn accepting(
        answers: impl FnMut(&Call) -> Result<Answer, CallError> + Send + 'static,
    ) -> HandleScene {
        let scene = HandleScene::new(1, Vec::new(), answers);
        let (own, region) = (scene.own(), Region::allocate(BYTES as usize).unwrap());
        let made = RegisteredShard::new(&[whole()], 0, vec![region]).unwrap();
        own.shared.register(made, ExportId(TARGET.0));
        own.shared.push.connect(own.connection.clone(), own.runtime.clone());
        for (name, layout) in BASE.iter().zip(base()) {
            own.shared.layouts.lock().unwrap().keep(*name, &layout);
        }
        scene
    }

    /// Accepts the push of this number, which this driver begins.
    fn accept(
        scene: &HandleScene,
        (driver, number): (&PushScene, u64),
        before: &mut (dyn FnMut(Version) -> bool + Send),
    ) -> Result<Updated, Error> {
        let room = &scene.own().shared.push.target;
        thread::scope(|scope| {
            let accepts = scope.spawn(|| {
                catch_unwind(AssertUnwindSafe(|| scene.handle.accept(&mut |of| before(of), LONG)))
            });
            while !room.accepts(&samples::question("rollout", "driver")) {
                thread::yield_now();
            }
            let order = driver.order(PushNumber { driver: 3, number }, 1);
            assert_eq!(room.order(driver.state.push.now(), order), Some(Vec::new()));
            accepts.join().unwrap().unwrap_or_else(|_| Err(Error::Bug("panicked".to_owned())))
        })
    }

    /// Whatever the call comes to, nobody may write after it, and the next push is accepted like the first.
    #[test]
    fn nothing_is_left_open_by_a_call_that_has_ended() {
        let late = CallError::Timeout {
            call: "update".to_owned(),
            waiting_for: "all shards".to_owned(),
            detail: String::new(),
        };
        let committed = Answer::Committed { version: VERSION, source: "trainer".to_owned() };
        for (answer, consents) in [
            (Ok(committed.clone()), Some(true)),
            (Err(late), Some(true)),
            (Ok(committed.clone()), Some(false)),
            (Ok(committed), None),
        ] {
            let told = answer.clone();
            let scene = accepting(move |_| told.clone());
            let state = &scene.own().shared;
            let driver = PushScene::sender(0);
            for number in [2, 3] {
                let mut before = |version: Version| {
                    assert_eq!(version, VERSION);
                    let (exports, auth) = (state.exports.exports(), &state.routes.auth);
                    let regions = state.current().unwrap().0.regions.clone();
                    let grant = samples::grant([0]);
                    let opened = &state.push.target.opened;
                    assert_eq!(opened.open(exports, auth, &grant, &regions, LONG), Ok(true));
                    consents.expect("as a test wants")
                };
                let accepted = accept(&scene, (&driver, number), &mut before);
                assert_eq!(accepted.is_ok(), answer.is_ok() && consents == Some(true));
                assert_eq!(state.exports.exports().grants(), 0);
                assert!(
                    !state.push.target.fills()
                        && !state.push.target.accepts(&samples::question("rollout", "driver"))
                );
            }
            // The call has what is left of the time.
            for heard in scene.heard() {
                let HeardCall::Call(_, deadline) = heard else { panic!("{heard:?}") };
                assert!(deadline < span(LONG) && deadline > span(LONG / 2), "{deadline:?}");
            }
        }
    }

    #[test]
    fn a_push_begins_with_an_order_to_fill_this_memory() {
        let filling = samples::order([0, 1]);
        let own = Some(filling.order.target);
        let begun = |word: &OrderWord, own| {
            begins(TargetEvent::Order(Box::new(word.clone())), own).is_some()
        };
        assert!(begun(&filling, own));
        assert!(!begun(&filling, Some(TargetId(filling.order.target.0 + 1))), "other memory");
        assert!(!begun(&filling, None), "no memory");
        let mut late = filling.clone();
        late.order.command = PushCommand::Dismiss;
        assert!(!begun(&late, own), "the end of an earlier push");
        assert!(begins(TargetEvent::Written(samples::written([0])), own).is_none());
    }

    /// The call takes that version in, even if it is an older one.
    #[test]
    fn a_filled_call_is_an_update_to_the_version_that_is_pushed() {
        let (version, source) = (samples::VERSION, "trainer".to_owned());
        let committed = move |_: &Call| Ok(Answer::Committed { version, source: source.clone() });
        let scene = HandleScene::new(1, Vec::new(), committed);
        assert!(scene.handle.filled(version, Duration::from_secs(20)).unwrap().changed);
        let selector = Selector::Exact(version.number);
        assert_eq!(scene.calls(), [Call::Update { selector, allow_rollback: true, staged: false }]);
    }

    #[test]
    fn a_driver_is_told_whether_the_content_was_wrong() {
        let differs = CallError::DigestMismatch {
            version: samples::VERSION,
            source_replica: "trainer".to_owned(),
            detail: "in w".to_owned(),
        };
        let (why, detail) = over(&differs.into());
        assert!(why == TargetOver::Differs && detail.contains("in w"), "{detail}");
        assert_eq!(
            over(&Error::misuse("no room")),
            (TargetOver::Left, Error::misuse("no room").to_string())
        );
    }
}
