//! The registered memory as the session wants it: served, fenced, digested, filled.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tracing::field::Empty;
use tracing::{Instrument, Span, info_span};
use weightcast_protocol::message::{ReadFailure, Witnesses};
use weightcast_protocol::session::{ReadOrder, ReadProgress};
use weightcast_protocol::{Attempt, Generation, Nonce, OpSeq, ShardSums};
use weightcast_transport::{ExportId, Filling};

use crate::client::connection::ServerConnection;
use crate::client::event::Event;
use crate::client::handle_state::HandleState;
use crate::client::memory::registration::RegisteredShard;
use crate::client::memory::siblings::taken_from;
use crate::client::mismatch::refusal::{FoundRefusal, OwnPublication, look};
use crate::client::push::target::{PushedRead, ReportRead};
use crate::client::reading::entering::EnteringBytes;
use crate::client::reading::route::ArrivedRead;
use crate::client::reading::staging::{self, Installed};
use crate::client::reading::{RunningRead, Target, read_assigned};

/// One shard's registered memory and the work on it. Reads and digests that end come back as
/// events.
pub(in crate::client) struct RegisteredMemory {
    shared: Arc<HandleState>,
    connection: ServerConnection,
    events: mpsc::UnboundedSender<Event>,
    /// Exports that the data port serves.
    pub(super) exposed: Vec<ExportId>,
    /// Progress of the exposure that is served while it is filled.
    pub(in crate::client) filling: Option<Arc<Filling>>,
    /// Progress of a fill that a fence cut short, for a call that continues it; and the memory that
    /// was filled. The weak reference must not keep that memory alive.
    left: Option<(Weak<RegisteredShard>, Arc<Filling>)>,
    /// What siblings take while the memory, or what lies beside it, is filled.
    entering: Option<(ExportId, EnteringBytes)>,
    /// Memory beside the registered memory, which a staged update fills.
    pub(in crate::client) staged: Option<Target>,
    /// The running read, or the running copy into place.
    pub(in crate::client) read: Option<RunningRead>,
    /// The call of the last read.
    last_read: Option<OpSeq>,
    /// The span of the pending call.
    pub(in crate::client) call_span: Span,
    /// The finished read of the pending call.
    arrived: Option<Box<ArrivedRead>>,
    /// The note of the held version: readers whose digests differ ask for it.
    pub(in crate::client) note: Option<Vec<u8>>,
    /// The generation that is being digested.
    sealing: Option<Generation>,
    /// The export that serves the note of a refused publication, and no memory.
    pub(in crate::client) record: Option<ExportId>,
    /// The search for the reason of the refusal.
    refusal: Option<Arc<FoundRefusal>>,
}

impl RegisteredMemory {
    pub(in crate::client) fn new(
        shared: Arc<HandleState>,
        connection: ServerConnection,
        events: mpsc::UnboundedSender<Event>,
    ) -> Self {
        Self {
            shared,
            connection,
            events,
            exposed: Vec::new(),
            filling: None,
            left: None,
            entering: None,
            staged: None,
            read: None,
            last_read: None,
            call_span: Span::none(),
            arrived: None,
            note: None,
            sealing: None,
            record: None,
            refusal: None,
        }
    }

    /// Serves the whole memory at this generation from now on.
    pub(in crate::client) fn expose(&mut self, generation: Generation) {
        let Some((registration, export)) = self.shared.current() else { return };
        self.drop_record();
        let id = export.at(generation.0);
        // A relay serves this export already: its readers read on from the same export.
        if !self.exposed.contains(&id) {
            let regions = registration.regions.clone();
            self.shared.exports.exports().expose_as(id, generation.0, regions);
            self.exposed.push(id);
        }
        // A read, and a version that is served again, have a note. A publication gets one in
        // `sealed`.
        let arrived = self.arrived.as_ref().filter(|arrived| arrived.in_place);
        if let Some(note) = arrived.map(|arrived| &arrived.note).or(self.note.as_ref()) {
            self.annotate(id, note);
        }
    }

    /// Serves the memory while it is filled: readers get each unit once it is final.
    pub(super) fn expose_filling(&mut self, generation: Generation) {
        if self.is_pushed_to() {
            return;
        }
        let Some((registration, export)) = self.shared.current() else { return };
        self.drop_record();
        let (id, regions) = (export.at(generation.0), registration.regions.clone());
        let filling = Arc::new(Filling::new(&regions));
        self.left = None;
        self.filling = Some(Arc::clone(&filling));
        self.shared.exports.exports().expose_filling(id, generation.0, regions, filling);
        self.exposed.push(id);
    }

    /// Whether others write the memory.
    pub(super) fn is_pushed_to(&self) -> bool {
        self.shared.push.target.fills()
    }

    /// Stops serving all exports. All are of the fenced generation or older: generations only grow.
    pub(super) fn fence(&mut self) {
        if let (Some(filling), Some((registration, _))) =
            (self.filling.take(), self.shared.current())
        {
            self.left = Some((Arc::downgrade(&registration), filling));
        }
        self.drop_record();
        self.close_to_siblings();
        for id in self.exposed.drain(..) {
            // No wait: the readers that are still there were told to read elsewhere.
            self.shared.exports.exports().withdraw(id, Duration::ZERO);
        }
    }

    /// Digests the published memory in the background.
    pub(super) fn seal(&mut self, generation: Generation) {
        let Some((registration, _)) = self.shared.current() else { return };
        self.sealing = Some(generation);
        let (events, threads) = (self.events.clone(), self.shared.sealing_threads);
        let figures = self.shared.figures.model();
        let span = self.shared.label.seal_span(generation);
        let work = tokio::task::spawn_blocking(move || {
            let _entered = span.entered();
            let started = Instant::now();
            let digests = registration.digest_all_on(threads);
            figures.lock().expect("no panic while held").sealed_in(started.elapsed());
            (registration.fold(&digests), registration.note(&digests))
        });
        tokio::spawn(async move {
            let event = match work.await {
                Ok((sums, note)) => Event::Sealed { generation, sums, note },
                // Without this event, nobody could ever read the version, and the group could not
                // give it up.
                Err(error) => Event::SealFailed { generation, reason: error.to_string() },
            };
            let _ = events.send(event);
        });
    }

    /// Sums the challenge's sample of the memory in the background.
    pub(in crate::client) fn prove(&self, generation: Generation, nonce: Nonce) {
        let Some((registration, _)) = self.shared.current() else { return };
        let events = self.events.clone();
        tokio::task::spawn_blocking(move || {
            let sum = registration.prove(nonce);
            let _ = events.send(Event::Proved { generation, nonce, sum });
        });
    }

    /// The memory has been digested: attaches the note, and keeps it unless a later seal has begun.
    pub(in crate::client) fn sealed(&mut self, generation: Generation, note: Vec<u8>) {
        if let Some((_, export)) = self.shared.current() {
            self.annotate(export.at(generation.0), &note);
        }
        if self.sealing == Some(generation) {
            self.note = Some(note);
            self.sealing = None;
        }
    }

    /// The publication was refused, and is fenced. Serves its note without memory, for the other
    /// shards that look for the difference; looks for it in the background too.
    pub(in crate::client) fn refused(&mut self, witnesses: Witnesses, generation: Generation) {
        let Some((_, export)) = self.shared.current() else { return };
        let Some(note) = self.note.clone() else { return };
        let id = export.at(generation.0);
        self.shared.exports.exports().expose_as(id, generation.0, Vec::new());
        self.annotate(id, &note);
        self.record = Some(id);
        let own = OwnPublication { export, note };
        let refusal = Arc::new(FoundRefusal::default());
        self.refusal = Some(Arc::clone(&refusal));
        let (connection, shared) = (self.connection.clone(), Arc::clone(&self.shared));
        tokio::spawn(look(connection, shared, own, witnesses, refusal));
    }

    /// The search for the reason, if the publication was refused.
    pub(in crate::client) fn refusal(&self) -> Option<Arc<FoundRefusal>> {
        self.refusal.clone()
    }

    fn drop_record(&mut self) {
        if let Some(id) = self.record.take() {
            self.shared.exports.exports().withdraw(id, Duration::ZERO);
        }
    }

    /// Attaches a note to an export.
    fn annotate(&self, id: ExportId, note: &[u8]) {
        if let Err(error) = self.shared.exports.exports().annotate(id, note) {
            tracing::debug!(%error, "an export goes without a note");
        }
    }

    /// Reads the assigned source, in place of the running read. Final units are not read again: the
    /// filling says where to go on.
    pub(super) fn start_read(&mut self, order: ReadOrder, deadline: Instant) {
        self.stop_read();
        let Some(order) = self.leave_to_senders(order) else { return };
        let ReadOrder { seq, attempt, keep, .. } = order;
        let again = self.last_read.replace(seq) == Some(seq);
        if again {
            self.shared.figures.count(|model| model.retries += 1);
        }
        let target = match self.target(order.assignment.staged, keep, again) {
            Ok(target) => self.open_to_siblings(target, &order),
            Err(detail) => {
                let result = Err(ReadFailure::Layout { detail });
                let _ = self.events.send(Event::ReadDone { seq, attempt, result });
                return;
            }
        };
        let assignment = order.assignment;
        let span = info_span!(
            parent: &self.call_span,
            "read",
            attempt = attempt.0,
            version = %assignment.version,
            source = assignment.sources().join(", "),
            staged = assignment.staged,
            bytes = Empty,
            unchanged = Empty,
        );
        let running = RunningRead::default();
        self.read = Some(running.clone());
        let shared = Arc::clone(&self.shared);
        let (connection, events) = (self.connection.clone(), self.events.clone());
        tokio::spawn(async move {
            let cancelled = Arc::clone(&running.cancel);
            let read = read_assigned(connection, shared, assignment, target, deadline, running);
            let read = read.instrument(span);
            let result = read.await.map(Box::new);
            // `stop_read` promises that a stopped read reports nothing.
            if !cancelled.load(Ordering::Acquire) {
                let _ = events.send(Event::ReadDone { seq, attempt, result });
            }
        });
    }

    /// Has the bytes written by others, in a call that takes a push in; else returns what is to be read.
    fn leave_to_senders(&mut self, order: ReadOrder) -> Option<ReadOrder> {
        let ReadOrder { seq, attempt, keep, .. } = order;
        let running = RunningRead::default();
        let (cancelled, events) = (Arc::clone(&running.cancel), self.events.clone());
        let stopped = Arc::clone(&running.cancel);
        let report: ReportRead = Box::new(move |result| {
            if !stopped.load(Ordering::Acquire) {
                let result = result.map(Box::new);
                let _ = events.send(Event::ReadDone { seq, attempt, result });
            }
        });
        let read = PushedRead { assignment: order.assignment, keep, cancelled, report };
        match self.shared.push.target.take_read(read) {
            Some(read) => Some(ReadOrder { assignment: read.assignment, ..order }),
            None => {
                self.read = Some(running);
                None
            }
        }
    }

    /// Nobody writes the memory any more when this returns.
    pub(super) fn end_push(&self) {
        if self.is_pushed_to() {
            self.shared.push.target.end_fill(self.shared.exports.exports());
        }
    }

    /// What a read fills: the registered memory, or memory beside it. With `keep`, the read goes on
    /// in the memory and after the progress that a lost source has left. One that begins anew in its call, `again`, may do so
    /// because its bytes were wrong.
    fn target(&mut self, staged: bool, keep: bool, again: bool) -> Result<Target, String> {
        let (registration, _) = self.shared.current().ok_or("nothing is registered")?;
        let moves_all = again && !keep;
        if !staged {
            let left = self.left.as_ref().filter(|_| keep);
            let left = left.filter(|(of, _)| of.as_ptr() == Arc::as_ptr(&registration));
            let left = left.map(|(_, filling)| Arc::clone(filling));
            let serving = self.filling.as_ref().and(self.exposed.last().copied());
            let filling = self.filling.clone().or(left);
            let (live, entering) = (None, None);
            return Ok(Target { registration, filling, live, serving, moves_all, entering });
        }
        let staged = match self.staged.take().filter(|_| keep) {
            Some(staged) => staged,
            None => {
                let limit = self.shared.staging_bytes;
                staging::allocate(&registration, limit).map_err(|e| e.to_string())?
            }
        };
        self.staged = Some(staged.clone());
        Ok(Target { live: Some(registration), moves_all, ..staged })
    }

    /// Lets siblings take what this shard brings into the target, as long as they may.
    fn open_to_siblings(&mut self, mut target: Target, order: &ReadOrder) -> Target {
        let siblings = target.registration.siblings.clone();
        let Some((siblings, (_, memory))) = siblings.zip(self.shared.current()) else {
            self.close_to_siblings();
            return target;
        };
        let opening = siblings.sharing().begin(order);
        let has = self.entering.as_ref().map(|(_, entering)| entering.opening);
        if has != opening {
            self.withdraw_from_siblings();
        }
        if let Some(opening) = opening.filter(|_| self.entering.is_none()) {
            let regions = target.registration.regions.clone();
            let filling = Arc::new(Filling::new(&regions));
            let (id, generation) = (taken_from(memory, opening), opening.since.0);
            let exports = self.shared.exports.exports();
            exports.expose_filling(id, generation, regions, Arc::clone(&filling));
            self.entering = Some((id, EnteringBytes { opening, filling }));
        }
        target.entering = self.entering.as_ref().map(|(_, entering)| entering.clone());
        target
    }

    /// Siblings take no more: all have what they need, or begin anew.
    fn close_to_siblings(&mut self) {
        let current = self.shared.current();
        if let Some(siblings) = current.and_then(|(registration, _)| registration.siblings.clone())
        {
            siblings.sharing().close();
        }
        self.withdraw_from_siblings();
    }

    fn withdraw_from_siblings(&mut self) {
        if let Some((id, _)) = self.entering.take() {
            self.shared.exports.exports().withdraw(id, Duration::ZERO);
        }
    }

    /// Copies the staged bytes into the registered memory, in the background.
    pub(in crate::client) fn install(&mut self, seq: OpSeq, attempt: Attempt) {
        let (Some(staged), Some((registration, _))) = (self.staged.take(), self.shared.current())
        else {
            return; // the session is told of no end, and gives up
        };
        // All shards have read.
        self.close_to_siblings();
        let running = RunningRead::default();
        let cancel = Arc::clone(&running.cancel);
        self.read = Some(running);
        let (shared, events) = (Arc::clone(&self.shared), self.events.clone());
        let span = info_span!(parent: &self.call_span, "install", bytes = registration.bytes());
        tokio::task::spawn_blocking(move || {
            let _entered = span.entered();
            let (from, to) = (&staged.registration, &registration);
            let installed = staging::install(from, to, &shared.memory, &cancel);
            // Before the event: the staged memory is free when the call returns.
            drop(staged);
            if let Some(installed) = installed {
                let _ = events.send(Event::Installed { seq, attempt, installed });
            }
        });
    }

    /// The staged bytes are in the registered memory.
    pub(in crate::client) fn installed(&mut self, installed: Installed) {
        if let Some(arrived) = &mut self.arrived {
            arrived.transfer.staged = installed.bytes;
            arrived.transfer.install_seconds = installed.seconds;
            arrived.in_place = true;
        }
    }

    /// Frees the memory beside the registered memory.
    pub(super) fn unstage(&mut self) {
        self.close_to_siblings();
        self.staged = None;
    }

    /// How far the running read is; `None` until bytes move.
    pub(in crate::client) fn progress(&self) -> Option<ReadProgress> {
        self.read.as_ref()?.pace.look()
    }

    /// Stops the running read or copy. When this returns, neither touches the memory.
    pub(super) fn stop_read(&mut self) {
        self.arrived = None;
        if let Some(running) = self.read.take() {
            running.cancel.store(true, Ordering::Release);
            // A read holds the lock while it writes: wait for its end.
            drop(self.shared.memory.lock());
        }
    }

    /// Keeps a finished read and returns its sums. `None` if the read was stopped while its event
    /// was on the way.
    pub(in crate::client) fn arrived(
        &mut self,
        result: Result<Box<ArrivedRead>, ReadFailure>,
    ) -> Option<Result<ShardSums, ReadFailure>> {
        let stopped = |arrival: &ArrivedRead| arrival.evidence.overwritten.load(Ordering::Acquire);
        match result {
            Ok(arrival) if stopped(&arrival) => None,
            Ok(arrival) => Some(Ok(self.arrived.insert(arrival).sums)),
            Err(failure) => Some(Err(failure)),
        }
    }

    /// Takes the read of an ended call. Its note becomes the memory's if the call succeeded and the
    /// bytes are in place.
    pub(super) fn take_arrived(&mut self, well: bool) -> Option<Box<ArrivedRead>> {
        self.close_to_siblings();
        let arrived = self.arrived.take()?;
        if well && arrived.in_place {
            self.note = Some(arrived.note.clone());
            self.shared.routes.remember(arrived.content.clone());
        } else if !well {
            self.shared.routes.forget_content();
        }
        Some(arrived)
    }

    /// The memory holds no version any more: forgets its note and the refusal.
    pub(in crate::client) fn forget(&mut self) {
        self.note = None;
        self.refusal = None;
    }
}

#[cfg(test)]
mod tests;
