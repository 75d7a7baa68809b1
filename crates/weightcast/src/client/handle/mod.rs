//! The handle: calls that block until the control thread has their answer.
//!
//! `register` gives a handle memory and `publish` lets others read that memory; `watched` has calls that tell their
//! caller the progress of a read, through a `watch`; `process` ties a handle to the process that opened it. `measured`
//! counts calls for the figures of the process.

mod measured;
pub(super) mod process;
mod publish;
mod register;
mod retain;
mod watch;
mod watched;

use std::cell::Cell;
use std::sync::{Arc, Mutex, mpsc as reply};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tracing::Span;
use tracing::field::Empty;
use weightcast_protocol::engine_update::{
    FleetAnswer, FleetQuestion, RoutingAnswer, RoutingQuestion,
};
use weightcast_protocol::message::{Answer, Call, Listing};
use weightcast_protocol::{CallError, Condition, Selector, Version};
use weightcast_transport::Reading;

use self::process::Owned;
pub use self::watch::ReadWatch;
pub(super) use self::watch::UNWATCHED;
use self::watch::WatchedCall;
use super::connection::ServerConnection;
use super::event::{CallReply, Event, FailedCall};
use super::handle_state::{HandleState, SessionView};
use super::updated::{Transfer, Updated};
use crate::client::memory::reservations::{FillGuard, Registrant, Reservation};
use crate::client::mismatch::locate::{MismatchSearch, Place};
use crate::client::reading::evidence::Evidence;
use crate::client::reading::staging;
use crate::clock::span;
use crate::config::Replica;
use crate::error::Error;
use crate::recordings::WrittenRecording;
use crate::telemetry;

/// How often a waiting call asks whether it was interrupted.
pub(super) const INTERRUPT: Duration = Duration::from_millis(100);
/// The longest that a search for a difference takes.
const SEARCH: Duration = Duration::from_secs(10);
/// How long a dropped handle may take to leave in good order.
pub(super) const LEAVE: Duration = Duration::from_secs(5);

/// One worker's part in a model. Calls block; each returns within its deadline.
///
/// All shards of a replica make the same calls in the same order: each is one transaction of the
/// group, with one answer for all. Not to be called from asynchronous code.
///
/// It belongs to the process that opened it. After a fork, every call in the child fails with
/// [`CallError::Misuse`]; closing and dropping it there do nothing at all.
pub struct ShardHandle {
    pub(super) model: String,
    pub(super) replica: Replica,
    pub(super) server: String,
    pub(super) own: Owned<Own>,
    pub(super) interrupted: Option<Interrupted>,
    pub(super) warning: Option<String>,
    /// The job, if its server was found without an address.
    pub(super) job: Option<String>,
}

/// What belongs to the process that opened the handle: a fork does not inherit it.
pub(super) struct Own {
    pub(super) events: mpsc::UnboundedSender<Event>,
    pub(super) runtime: tokio::runtime::Handle,
    pub(super) connection: ServerConnection,
    pub(super) shared: Arc<HandleState>,
    pub(super) thread: Mutex<Option<JoinHandle<()>>>,
    /// This handle, as the other handles of the process know it.
    pub(super) holder: Registrant,
    /// Whether versions may be written to the memory at any time: for every role but the trainer's.
    pub(super) fills: bool,
    /// Keeps the registered memory from the other handles of the process.
    pub(super) reservation: Mutex<Option<Arc<Reservation>>>,
    /// Where the last call's read differed.
    pub(super) mismatch: Mutex<Option<Place>>,
}

/// Asked several times a second while a call waits; true ends the wait with [`Error::Interrupted`].
pub type Interrupted = Box<dyn Fn() -> bool + Send + Sync>;

impl ShardHandle {
    /// What belongs to the process that opened the handle.
    pub(in crate::client) fn own(&self) -> Result<&Own, Error> {
        self.own.get()
    }

    /// Checks that this process opened the handle.
    ///
    /// # Errors
    /// `Misuse` if another process did.
    pub fn check_process(&self) -> Result<(), Error> {
        self.own().map(drop)
    }

    pub(super) fn send(&self, event: Event) -> Result<(), Error> {
        self.own()?.events.send(event).map_err(|_| Error::misuse("the handle is closed"))
    }

    pub(super) fn call(&self, call: Call, deadline: Duration) -> Result<(Answer, Transfer), Error> {
        self.call_that_fills(None, call, deadline, UNWATCHED)
    }

    /// Makes a call that may fill the memory. The memory stays reserved until the call has ended,
    /// even if this returns sooner.
    fn call_that_fills(
        &self,
        filling: Option<FillGuard>,
        call: Call,
        deadline: Duration,
        watch: ReadWatch<'_>,
    ) -> Result<(Answer, Transfer), Error> {
        let (name, started) = (call.name(), Instant::now());
        let traced = self.call_span(&call);
        let _entered = traced.enter();
        let own = self.own()?;
        own.mismatch.lock().expect("no panic while held").take();
        let watch = WatchedCall::begin(watch, &own.shared.latest_read);
        let (reply, answer) = reply::channel::<CallReply>();
        let traced_by = traced.clone();
        self.send(Event::Call { call, deadline: span(deadline), filling, span: traced_by, reply })?;
        let result = self.answered(&answer, started + deadline, &watch);
        measured::call(&own.shared.figures, name, started, &result);
        measured::traced(&traced, &result);
        result
    }

    fn call_span(&self, call: &Call) -> Span {
        tracing::info_span!(
            "call",
            %call,
            model = self.model,
            replica = self.replica.name,
            shard = self.replica.shard,
            trace = Empty,
            outcome = Empty,
            version = Empty,
            source = Empty,
            bytes = Empty,
        )
    }

    /// Waits for the answer of a call, and explains an error.
    fn answered(
        &self,
        answer: &reply::Receiver<CallReply>,
        until: Instant,
        watch: &WatchedCall<'_>,
    ) -> Result<(Answer, Transfer), Error> {
        // No limit here: the session ends every call by its deadline.
        let result = self.receive_while(answer, None, &|| watch.tell())?;
        match result.ok_or_else(|| Error::misuse("the handle is closed"))? {
            Ok(answer) => {
                watch.tell();
                Ok(answer)
            }
            Err(FailedCall { error, evidence: Some(evidence), .. }) => {
                Err(self.located(error, &evidence, left(until))?.into())
            }
            Err(failed) => Err(self.in_its_job(self.explained(failed)?)),
        }
    }

    /// Names the job if nothing was ever published: the trainer may be of another job.
    fn in_its_job(&self, error: CallError) -> Error {
        match (&error, &self.job) {
            (CallError::VersionUnavailable { latest: None, .. }, Some(job)) => {
                Error::NobodyHere { error, job: job.clone() }
            }
            _ => error.into(),
        }
    }

    /// Adds to the error why a publication was refused, if the search finds out soon.
    fn explained(&self, failed: FailedCall) -> Result<CallError, Error> {
        let FailedCall { error, refusal: Some(refusal), .. } = failed else {
            return Ok(failed.error);
        };
        let CallError::ContentMismatch { version, replica, detail } = error else {
            return Ok(error);
        };
        let found = refusal.wait(INTERRUPT, &|| self.is_interrupted())?;
        let detail = found.map_or(detail.clone(), |found| format!("{found}: {detail}"));
        Ok(CallError::ContentMismatch { version, replica, detail })
    }

    /// Whether the owner of the handle wants its call to end: a signal has come.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.as_ref().is_some_and(|interrupted| interrupted())
    }

    /// Adds to a digest mismatch where it is, if the search finds out in half of the time that is
    /// left.
    fn located(
        &self,
        error: CallError,
        evidence: &Evidence,
        left: Duration,
    ) -> Result<CallError, Error> {
        let CallError::DigestMismatch { version, source_replica, detail } = error else {
            return Ok(error);
        };
        let own = self.own()?;
        let stopped = Cell::new(false);
        let search = MismatchSearch {
            evidence,
            routes: &own.shared.routes,
            deadline: Instant::now() + (left / 2).min(SEARCH),
            interrupted: &|| {
                stopped.set(stopped.get() || self.is_interrupted());
                stopped.get()
            },
        };
        let found = search.run();
        if stopped.get() {
            return Err(Error::Interrupted);
        }
        let detail = match &found {
            Ok(place) => place.said.clone(),
            Err(reason) => format!("{detail}; {reason}"),
        };
        *own.mismatch.lock().expect("no panic while held") = found.ok();
        Ok(CallError::DigestMismatch { version, source_replica, detail })
    }

    /// Waits for an answer of the control thread; `None` if `limit` passes or the thread is gone.
    pub(super) fn receive<T>(
        &self,
        answer: &reply::Receiver<T>,
        limit: Option<Duration>,
    ) -> Result<Option<T>, Error> {
        self.receive_while(answer, limit, &|| true)
    }

    /// [`Self::receive`] that asks now and then whether to go on.
    fn receive_while<T>(
        &self,
        answer: &reply::Receiver<T>,
        limit: Option<Duration>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Option<T>, Error> {
        let give_up = limit.map(|limit| Instant::now() + limit);
        loop {
            let left = give_up.map(|at| at.saturating_duration_since(Instant::now()));
            match answer.recv_timeout(left.map_or(INTERRUPT, |left| left.min(INTERRUPT))) {
                Ok(value) => return Ok(Some(value)),
                Err(reply::RecvTimeoutError::Disconnected) => return Ok(None),
                Err(reply::RecvTimeoutError::Timeout) => {}
            }
            if !goes_on() || self.is_interrupted() {
                return Err(Error::Interrupted);
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
        }
    }

    /// Waits until all shards have digested what this replica published, and the server has
    /// accepted it.
    ///
    /// # Errors
    /// [`CallError::ContentMismatch`] if it was refused, so that nobody can ever read it.
    pub fn wait_sealed(&self, deadline: Duration) -> Result<(), Error> {
        let started = Instant::now();
        let result = self.sealed(deadline);
        measured::wait_sealed(&self.own()?.shared.figures, started, &result);
        result
    }

    fn sealed(&self, deadline: Duration) -> Result<(), Error> {
        let (reply, answer) = reply::channel();
        self.send(Event::AwaitSeal { reply })?;
        match self.receive(&answer, Some(deadline))? {
            Some(Ok(())) => Ok(()),
            Some(Err(failed)) => Err(self.explained(failed)?.into()),
            None => Err(Error::Call(CallError::Timeout {
                call: "wait_sealed".to_owned(),
                waiting_for: "the digests of all shards' published memory".to_owned(),
                detail: String::new(),
            })),
        }
    }

    /// Writes the last minutes of this handle's session, without weights and secrets, into a file on this host that only
    /// this user can read, for `weightcast replay`.
    ///
    /// # Errors
    /// The file cannot be written, or nothing has happened yet.
    pub fn record(&self) -> Result<WrittenRecording, Error> {
        let (reply, answer) = reply::channel();
        self.send(Event::Record { reply })?;
        self.receive(&answer, None)?.ok_or_else(|| Error::misuse("the handle is closed"))?
    }

    /// Asks the register of the fleet that serves this handle's model, which the reference server keeps: who drives, and
    /// which verdict on an update counts. Not a call of the group: each shard may ask by itself. While the server is away
    /// or another one takes over, it is asked again.
    ///
    /// # Errors
    /// [`CallError::ServerUnreachable`] if no server that acts has answered within the deadline; a verdict may have been
    /// written all the same, and counts. The handle's own error if its session is over.
    pub fn ask_fleet(
        &self,
        question: FleetQuestion,
        deadline: Duration,
    ) -> Result<FleetAnswer, Error> {
        let (reply, answer) = reply::channel();
        let model = self.model.clone();
        self.send(Event::AskFleet { model, question, deadline, reply })?;
        self.receive(&answer, None)?.ok_or_else(|| Error::misuse("the handle is closed"))?
    }

    /// Tells the table of the fleet's routing leases what a worker of an engine serves, or asks for all engines. The table
    /// is the reference server's too, and is asked again in the same way.
    ///
    /// # Errors
    /// Those of [`ShardHandle::ask_fleet`]; [`CallError::Misuse`] if the table does not take the notice.
    pub fn ask_routing(
        &self,
        question: RoutingQuestion,
        deadline: Duration,
    ) -> Result<RoutingAnswer, Error> {
        let (reply, answer) = reply::channel();
        let model = self.model.clone();
        self.send(Event::AskRouting { model, question, deadline, reply })?;
        self.receive(&answer, None)?.ok_or_else(|| Error::misuse("the handle is closed"))?
    }

    /// Waits until the session is over: closed at the server's request, or failed.
    pub(super) fn wait_ended(&self) -> Result<(), Error> {
        let (reply, ended) = reply::channel();
        self.send(Event::AwaitEnd { reply })?;
        match self.receive(&ended, None)?.flatten() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    /// Revokes the publication. When it returns, nobody reads and the memory may be changed.
    ///
    /// # Errors
    /// [`CallError::ContentMismatch`] if the publication had been refused: nobody could read it. It
    /// is revoked all the same.
    pub fn unpublish(&self, deadline: Duration) -> Result<(), Error> {
        self.call(Call::Unpublish, deadline).map(drop)
    }

    /// Fills the registered memory with a version; waits for it until the deadline.
    pub fn replicate(&self, selector: Selector, deadline: Duration) -> Result<Updated, Error> {
        self.updated(Call::Replicate { selector }, deadline, UNWATCHED)
    }

    /// Fills the memory with a version if it is available and newer than the held version, or older
    /// with `allow_rollback`; otherwise returns at once. A handle that holds nothing waits for a
    /// version, as [`ShardHandle::replicate`] does.
    pub fn update(
        &self,
        selector: Selector,
        allow_rollback: bool,
        deadline: Duration,
    ) -> Result<Updated, Error> {
        let call = Call::Update { selector, allow_rollback, staged: false };
        self.updated(call, deadline, UNWATCHED)
    }

    /// [`ShardHandle::update`] that keeps the old version, readable and served to others, until the
    /// new version has arrived on all shards and is verified. The new version is read into CPU
    /// memory beside the registered memory, and copied into place at the end. If the update fails
    /// before that, all shards still hold the old version. The copying is begun in time, and not
    /// broken off for the deadline; if it takes longer than a minute (the server's
    /// `install_deadline`), the group holds nothing.
    ///
    /// # Errors
    /// [`Error::NoRoom`] if the memory beside takes more than [`crate::Options::staging_bytes`]; on
    /// the other shards [`CallError::LayoutMismatch`], which names this shard and the reason.
    pub fn update_staged(
        &self,
        selector: Selector,
        allow_rollback: bool,
        deadline: Duration,
    ) -> Result<Updated, Error> {
        self.update_watched(selector, allow_rollback, true, deadline, UNWATCHED)
    }

    fn check_room(&self) -> Result<(), Error> {
        let shared = &self.own()?.shared;
        let Some((registration, _)) = shared.current() else { return Ok(()) };
        staging::check_room(&registration, shared.staging_bytes)
    }

    pub(super) fn updated(
        &self,
        call: Call,
        deadline: Duration,
        watch: ReadWatch<'_>,
    ) -> Result<Updated, Error> {
        let until = Instant::now() + deadline;
        self.check_writable().map_err(|error| self.decline(error, until))?;
        let reservation = self.own()?.reservation.lock().expect("no panic while held").clone();
        let filling = reservation.map(Reservation::fill).transpose();
        let filling = filling.map_err(|error| self.decline(error, until))?;
        match self.call_that_fills(filling, call, deadline, watch)? {
            (Answer::Committed { version, source }, transfer) => Ok(Updated {
                changed: true,
                version: Some(version),
                source: Some(source),
                transfer,
            }),
            (Answer::Unchanged { held }, _) => Ok(Updated {
                changed: false,
                version: held,
                source: None,
                transfer: Transfer::default(),
            }),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Fails on read-only memory, which may be published but not filled.
    pub(super) fn check_writable(&self) -> Result<(), Error> {
        let Some((registration, _)) = self.own()?.shared.current() else { return Ok(()) };
        let Some(name) = registration.read_only() else { return Ok(()) };
        Err(Error::misuse(format!(
            "the memory registered for {name} is read-only and can't be filled with a version; \
             register a writable copy"
        )))
    }

    /// Which replicas hold which versions; the same for all shards of the group.
    pub fn list(&self, deadline: Duration) -> Result<Listing, Error> {
        self.listing(Call::List, deadline)
    }

    /// Waits until a condition holds; returns the listing at which it did, the same for all shards
    /// of the group.
    pub fn wait(&self, until: Condition, deadline: Duration) -> Result<Listing, Error> {
        self.listing(Call::Wait { until }, deadline)
    }

    fn listing(&self, call: Call, deadline: Duration) -> Result<Listing, Error> {
        match self.call(call, deadline)?.0 {
            Answer::Listed(listing) => Ok(Arc::unwrap_or_clone(listing)),
            other => Err(unexpected(&other)),
        }
    }

    /// The version that the memory holds, if it holds one. In another process: none.
    pub fn version(&self) -> Option<Version> {
        self.session_view().held
    }

    /// Where the read of the last call differed from what was published, if it ended with
    /// [`CallError::DigestMismatch`] and the place was found.
    pub fn mismatch(&self) -> Option<Place> {
        self.own().ok()?.mismatch.lock().expect("no panic while held").clone()
    }

    /// Bytes of the running or last read that have arrived.
    pub fn progress(&self) -> u64 {
        self.latest_read().map_or(0, |read| read.arrived)
    }

    /// Bytes of the running or last read that have arrived or are still to come; 0 before bytes move.
    pub fn progress_total(&self) -> u64 {
        self.latest_read().map_or(0, |read| read.arrived + read.left)
    }

    fn latest_read(&self) -> Option<Reading> {
        self.own().ok()?.shared.latest_read.lock().expect("no panic while held").look()
    }

    /// The model's name.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// A problem of this handle that could be seen when it was opened; logged as well.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// The replica and shard that this handle is.
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    pub(super) fn session_view(&self) -> SessionView {
        let own = self.own().ok();
        own.map_or_else(SessionView::default, |own| {
            *own.shared.view.lock().expect("no panic while held")
        })
    }

    /// Unpublishes, waits until nobody reads, unregisters, leaves. Returns by the deadline or soon
    /// after, even if the session has failed; a collector that is slow to take the spans may add two seconds.
    /// Closing again does nothing, and neither does closing
    /// in another process than the one that opened the handle.
    pub fn close(&self, deadline: Duration) {
        self.close_within(deadline, LEAVE);
    }

    /// Closes; a thread that is later than the deadline has so much longer to end.
    fn close_within(&self, deadline: Duration, patience: Duration) {
        let Ok(own) = self.own() else { return };
        let Some(thread) = own.thread.lock().expect("no panic while held").take() else { return };
        let (reply, closed) = reply::channel();
        let sent = self.send(Event::Close { deadline: span(deadline), reply }).is_ok();
        match sent.then(|| closed.recv_timeout(deadline + patience)) {
            // The thread still waits, for example for a copy that the kernel does not end. What the
            // thread uses stays alive with it; the caller need not wait.
            Some(Err(reply::RecvTimeoutError::Timeout)) => {
                tracing::warn!(model = self.model, "a closed handle's thread has not ended");
                // Keep the reservation for ever: the thread may still write to the memory.
                std::mem::forget(own.reservation.lock().expect("no panic while held").take());
            }
            // The thread answers as the last thing it does, so the join does not wait long.
            _ => {
                drop(thread.join());
                own.reservation.lock().expect("no panic while held").take();
            }
        }
        own.shared.release();
        telemetry::flush_spans();
    }
}

impl Drop for ShardHandle {
    fn drop(&mut self) {
        self.close(LEAVE);
    }
}

pub(super) fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

pub(super) fn unexpected(answer: &Answer) -> Error {
    Error::Bug(format!("the server answered another call: {answer:?}"))
}

// A handle is used from whichever thread the worker likes.
const _: () = {
    const fn shared_between_threads<T: Send + Sync>() {}
    shared_between_threads::<ShardHandle>();
};

#[cfg(test)]
pub(super) mod tests;
