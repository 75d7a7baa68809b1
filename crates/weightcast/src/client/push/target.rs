//! The memory that is filled: between `accept` and the end of its call, words of drivers and senders are heard.
//!
//! [`TargetRoom`] is what the handle, its control thread and its data port share; [`fill`](super::fill) is the thread that
//! runs the machine. The machine outlives calls: an order that comes late finds that its push is over.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use weightcast_protocol::message::{Assignment, ReadFailure};
use weightcast_protocol::push::{PushTarget, TargetId, TargetOutput};
use weightcast_protocol::{Generation, Safeguards, Time};
use weightcast_transport::ExportTable;

use super::opened::OpenedGrants;
use super::word::{OrderWord, PushQuestion, TargetOver, WrittenWord};
use crate::client::reading::route::ArrivedRead;
use crate::error::Error;
use crate::limits::PUSH_EVENTS;

/// So many drivers are answered once more.
const ASKED: usize = 8;

/// What a handle has as a target.
#[derive(Default)]
pub(in crate::client) struct TargetRoom {
    state: Mutex<TargetPlace>,
    pub(super) opened: OpenedGrants,
}

#[derive(Default)]
struct TargetPlace {
    /// Where words go while somebody listens.
    events: Option<SyncSender<TargetEvent>>,
    /// Reads of the session's call are filled by senders.
    fills: bool,
    /// Questions that were answered while nobody accepted, one of each driver.
    asked: Vec<PushQuestion>,
    /// Between two calls. Of the memory that was registered then.
    resting: Option<(TargetId, PushTarget)>,
}

/// Something that happens to a target.
pub(in crate::client) enum TargetEvent {
    Order(Box<OrderWord>),
    Written(WrittenWord),
    Read(Box<PushedRead>),
    /// The session's call has ended: well, or why not.
    Ended(Result<(), (TargetOver, String)>),
}

/// A read of the session, whose bytes are written by others.
pub(in crate::client) struct PushedRead {
    pub(in crate::client) assignment: Assignment,
    /// What was filled so far is good.
    pub(in crate::client) keep: bool,
    /// Raised when the read was replaced.
    pub(in crate::client) cancelled: Arc<AtomicBool>,
    pub(in crate::client) report: ReportRead,
}

/// Told the end of a read, once.
pub(in crate::client) type ReportRead =
    Box<dyn FnOnce(Result<ArrivedRead, ReadFailure>) + Send + 'static>;

impl TargetRoom {
    /// Listens for orders from now on, until [`TargetRoom::close`].
    ///
    /// # Errors
    /// Somebody listens already.
    pub(in crate::client) fn open(&self) -> Result<Receiver<TargetEvent>, Error> {
        let mut room = self.state.lock().expect("no panic while held");
        if room.events.is_some() {
            return Err(Error::misuse("this handle accepts already, in another thread"));
        }
        let (sender, receiver) = sync_channel(PUSH_EVENTS);
        room.events = Some(sender);
        Ok(receiver)
    }

    /// Listens no more.
    pub(super) fn close(&self) {
        self.state.lock().expect("no panic while held").events = None;
    }

    /// The machine of this memory, to be run; the memory is empty for a machine that is new.
    pub(super) fn take(&self, id: TargetId, generation: Generation) -> PushTarget {
        let resting = self.state.lock().expect("no panic while held").resting.take();
        let kept = resting.filter(|(of, _)| *of == id).map(|(_, machine)| machine);
        kept.unwrap_or_else(|| PushTarget::new(id, generation, Safeguards::default()))
    }

    /// Keeps the machine until the next call.
    pub(super) fn rest(&self, id: TargetId, machine: PushTarget) {
        self.state.lock().expect("no panic while held").resting = Some((id, machine));
    }

    /// Whether the handle waits for a push. If not, its driver's question is kept until the handle does.
    pub(super) fn accepts(&self, question: &PushQuestion) -> bool {
        let mut room = self.state.lock().expect("no panic while held");
        let accepts = room.events.is_some() && !room.fills;
        if !accepts {
            room.asked.retain(|asked| asked.driver != question.driver);
            let first = (room.asked.len() + 1).saturating_sub(ASKED);
            room.asked.drain(..first);
            room.asked.push(question.clone());
        }
        accepts
    }

    /// The questions of drivers that were told that nobody accepts.
    pub(super) fn take_asked(&self) -> Vec<PushQuestion> {
        std::mem::take(&mut self.state.lock().expect("no panic while held").asked)
    }

    /// Reads of the call that is made next are filled by senders.
    pub(in crate::client) fn begin_fill(&self) {
        self.state.lock().expect("no panic while held").fills = true;
        self.opened.begin();
    }

    /// Whether reads are filled by senders.
    pub(in crate::client) fn fills(&self) -> bool {
        self.state.lock().expect("no panic while held").fills
    }

    /// Nobody writes any more, and further reads are made by this end. No write is under way when this returns.
    pub(in crate::client) fn end_fill(&self, exports: &ExportTable) {
        self.state.lock().expect("no panic while held").fills = false;
        self.opened.end(exports);
    }

    /// Takes a read over, if reads are filled by senders; else returns it.
    pub(in crate::client) fn take_read(&self, read: PushedRead) -> Option<PushedRead> {
        let room = self.state.lock().expect("no panic while held");
        let Some(events) = room.events.as_ref().filter(|_| room.fills) else { return Some(read) };
        match events.try_send(TargetEvent::Read(Box::new(read))) {
            Ok(()) => None,
            Err(refused) => match refused {
                std::sync::mpsc::TrySendError::Full(TargetEvent::Read(read))
                | std::sync::mpsc::TrySendError::Disconnected(TargetEvent::Read(read)) => {
                    Some(*read)
                }
                _ => None,
            },
        }
    }

    /// The session's call has ended.
    pub(super) fn ended(&self, result: Result<(), (TargetOver, String)>) {
        let events = self.state.lock().expect("no panic while held").events.clone();
        if let Some(events) = events {
            let _ = events.send(TargetEvent::Ended(result));
        }
    }

    /// An order came in. `None`: it is for nobody here. What a machine says to it that rests between two calls: the driver
    /// has not heard how its push ended here.
    pub(super) fn order(&self, now: Time, word: OrderWord) -> Option<Vec<TargetOutput>> {
        let mut room = self.state.lock().expect("no panic while held");
        if let Some(events) = &room.events {
            let taken = events.try_send(TargetEvent::Order(Box::new(word))).is_ok();
            return taken.then(Vec::new);
        }
        let (_, machine) = room.resting.as_mut()?;
        if machine.report().push != word.order.push {
            return None;
        }
        machine.handle_order(now, word.order);
        Some(std::iter::from_fn(|| machine.poll_output()).collect())
    }

    /// A sender's word came in.
    pub(super) fn written(&self, word: WrittenWord) -> bool {
        let room = self.state.lock().expect("no panic while held");
        let Some(events) = room.events.as_ref().filter(|_| room.fills) else { return false };
        events.try_send(TargetEvent::Written(word)).is_ok()
    }
}

#[cfg(test)]
mod tests;
