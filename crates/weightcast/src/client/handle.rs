//! The handle: calls that block until the control thread has their answer.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, mpsc as reply};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use weightcast_plan::Layout;
use weightcast_protocol::message::{Answer, Call, Listing};
use weightcast_protocol::{CallError, ContentDigest, Revision, Selector, Version};
use weightcast_transport::{ExportId, Region};

use super::connection::Connection;
use super::control::{Event, Reply};
use super::reading::fetch_layouts;
use super::registration::{Registration, union};
use super::shared::{Shared, View};
use super::{LayoutSource, Transfer, Updated};
use crate::clock::span;
use crate::config::Replica;
use crate::{Error, manifest};

/// How often a waiting call asks whether it was interrupted.
const INTERRUPT: Duration = Duration::from_millis(100);
/// How long a dropped handle takes to leave in good order.
const LEAVE: Duration = Duration::from_secs(5);

/// One worker's part in a model. Calls block; each returns within its deadline.
///
/// All shards of a replica make the same calls in the same order: each is one transaction of the
/// group, with one answer for all. Not to be called from asynchronous code.
pub struct ShardHandle {
    pub(super) model: String,
    pub(super) replica: Replica,
    pub(super) events: mpsc::UnboundedSender<Event>,
    pub(super) runtime: tokio::runtime::Handle,
    pub(super) server: String,
    pub(super) connection: Connection,
    pub(super) shared: Arc<Shared>,
    pub(super) thread: Mutex<Option<JoinHandle<()>>>,
    pub(super) interrupted: Option<Interrupted>,
}

/// Asked now and then while a call waits; true ends the wait with [`Error::Interrupted`].
pub type Interrupted = Box<dyn Fn() -> bool + Send + Sync>;

impl ShardHandle {
    pub(super) fn send(&self, event: Event) -> Result<(), Error> {
        self.events.send(event).map_err(|_| Error::misuse("the handle is closed"))
    }

    fn call(&self, call: Call, deadline: Duration) -> Result<(Answer, Transfer), Error> {
        let (reply, answer) = reply::channel::<Reply>();
        self.send(Event::Call { call, deadline: span(deadline), reply })?;
        // The session ends every call by its deadline.
        let result = self.receive(&answer, None)?;
        Ok(result.ok_or_else(|| Error::misuse("the handle is closed"))??)
    }

    /// Waits for an answer of the control thread; `None` if `limit` passes or the thread is gone.
    pub(super) fn receive<T>(
        &self,
        answer: &reply::Receiver<T>,
        limit: Option<Duration>,
    ) -> Result<Option<T>, Error> {
        let give_up = limit.map(|limit| Instant::now() + limit);
        loop {
            let left = give_up.map(|at| at.saturating_duration_since(Instant::now()));
            match answer.recv_timeout(left.map_or(INTERRUPT, |left| left.min(INTERRUPT))) {
                Ok(value) => return Ok(Some(value)),
                Err(reply::RecvTimeoutError::Disconnected) => return Ok(None),
                Err(reply::RecvTimeoutError::Timeout) => {}
            }
            if self.interrupted.as_ref().is_some_and(|interrupted| interrupted()) {
                return Err(Error::Interrupted);
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
        }
    }

    /// Declares this shard's memory: `regions[i]` is buffer `i` of the layout.
    ///
    /// # Errors
    /// Regions and buffers differ in size; shards of the group disagree about a tensor; a name is
    /// not in the version that an open layout is looked up in.
    pub fn register(
        &self,
        layout: LayoutSource,
        regions: Vec<Region>,
        deadline: Duration,
    ) -> Result<(), Error> {
        // Its thread drives all that goes over the network.
        if self.thread.lock().expect("no panic while held").is_none() {
            return Err(Error::misuse("the handle is closed; open it again"));
        }
        let until = Instant::now() + deadline;
        let layout = match layout {
            LayoutSource::Known(layout) => layout,
            LayoutSource::Open(builder) => builder.resolve(&self.catalog(until)?)?,
        };
        check_regions(&layout, &regions)?;
        let bytes = layout.bytes();
        let encoded = manifest::encode(&layout);
        let name = self.online(until, self.connection.put_manifest(encoded))?;
        let export = ExportId::random();
        let call =
            Call::Register { layout: name, export: weightcast_protocol::ExportId(export.0), bytes };
        let registered = self.call(call, left(until)).and_then(|(answer, _)| match answer {
            Answer::Registered { layouts } => self.registration(&layouts, regions, until),
            other => Err(unexpected(&other)),
        });
        let registration = Arc::new(registered?);
        self.shared.routes.forget_plans();
        *self.shared.registration.lock().expect("no panic while held") =
            Some((registration, export));
        Ok(())
    }

    /// The logical tensors of the newest version; waits until there is one.
    fn catalog(
        &self,
        until: Instant,
    ) -> Result<std::collections::BTreeMap<String, weightcast_plan::Tensor>, Error> {
        let call = Call::Describe { selector: Selector::Latest };
        match self.call(call, left(until))?.0 {
            Answer::Described { layouts, .. } => union(&self.layouts(&layouts, until)?),
            other => Err(unexpected(&other)),
        }
    }

    fn layouts(&self, names: &[ContentDigest], until: Instant) -> Result<Vec<Arc<Layout>>, Error> {
        self.online(until, fetch_layouts(&self.connection, &self.shared, names))
    }

    /// Waits for the server outside the session, no longer than `until`.
    fn online<T>(
        &self,
        until: Instant,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let late = || {
            let reason = "it did not answer before the deadline".to_owned();
            Error::Call(CallError::ServerUnreachable { server: self.server.clone(), reason })
        };
        let request = async { tokio::time::timeout(left(until), request).await };
        self.runtime.block_on(request).unwrap_or_else(|_| Err(late()))
    }

    fn registration(
        &self,
        layouts: &[ContentDigest],
        regions: Vec<Region>,
        until: Instant,
    ) -> Result<Registration, Error> {
        Registration::new(&self.layouts(layouts, until)?, self.replica.shard as usize, regions)
    }

    /// Takes the registration back and lets go of the memory.
    pub fn unregister(&self, deadline: Duration) -> Result<(), Error> {
        self.call(Call::Unregister, deadline)?;
        self.release();
        Ok(())
    }

    /// Lets go of the memory.
    fn release(&self) {
        self.shared.registration.lock().expect("no panic while held").take();
    }

    /// Makes the registered memory visible under a version; promises not to change it until
    /// [`unpublish`](Self::unpublish) returns. Takes the same time for any number of bytes: they
    /// are digested in the background.
    pub fn publish(&self, version: u64, deadline: Duration) -> Result<Version, Error> {
        let catalog = self
            .shared
            .registration
            .lock()
            .expect("no panic while held")
            .as_ref()
            .map(|(registration, _)| registration.catalog)
            .ok_or_else(|| Error::misuse("nothing is registered: call register first"))?;
        let generation = self.view().generation;
        match self.call(Call::Publish { version, catalog, generation }, deadline)?.0 {
            Answer::Published { version } => Ok(version),
            other => Err(unexpected(&other)),
        }
    }

    /// Waits until what this shard published is digested.
    pub fn wait_sealed(&self, deadline: Duration) -> Result<(), Error> {
        let (reply, answer) = reply::channel();
        self.send(Event::AwaitSeal { reply })?;
        match self.receive(&answer, Some(deadline))? {
            Some(result) => Ok(result?),
            None => Err(Error::Call(CallError::Timeout {
                call: "wait_sealed".to_owned(),
                waiting_for: "the digest of the published memory".to_owned(),
            })),
        }
    }

    /// Revokes the publication. When it returns, nobody reads and the memory may be changed.
    pub fn unpublish(&self, deadline: Duration) -> Result<(), Error> {
        self.call(Call::Unpublish, deadline).map(drop)
    }

    /// Fills the registered memory with a version; waits for it until the deadline.
    pub fn replicate(&self, selector: Selector, deadline: Duration) -> Result<Updated, Error> {
        self.updated(Call::Replicate { selector }, deadline)
    }

    /// Goes over to a version if it is available and newer than the one held.
    pub fn update(
        &self,
        selector: Selector,
        allow_rollback: bool,
        deadline: Duration,
    ) -> Result<Updated, Error> {
        self.updated(Call::Update { selector, allow_rollback }, deadline)
    }

    fn updated(&self, call: Call, deadline: Duration) -> Result<Updated, Error> {
        match self.call(call, deadline)? {
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

    /// Which replicas hold which versions; the same for all shards of the group.
    pub fn list(&self, deadline: Duration) -> Result<Listing, Error> {
        self.listing(Call::List, deadline)
    }

    /// Waits until the listing has moved past a revision.
    pub fn wait(&self, after: Revision, deadline: Duration) -> Result<Listing, Error> {
        self.listing(Call::Wait { after }, deadline)
    }

    fn listing(&self, call: Call, deadline: Duration) -> Result<Listing, Error> {
        match self.call(call, deadline)?.0 {
            Answer::Listed(listing) => Ok(listing),
            other => Err(unexpected(&other)),
        }
    }

    /// The version that the memory holds, if it holds one.
    pub fn version(&self) -> Option<Version> {
        self.view().held
    }

    /// Bytes of the running or last read that have arrived.
    pub fn progress(&self) -> u64 {
        self.shared.progress.load(Ordering::Relaxed)
    }

    /// The model's name.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Who this is.
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    fn view(&self) -> View {
        *self.shared.view.lock().expect("no panic while held")
    }

    /// Unpublishes, waits until nobody reads, unregisters, leaves. Returns by the deadline or soon
    /// after, also when the session has failed; closing again does nothing.
    pub fn close(&self, deadline: Duration) {
        let Some(thread) = self.thread.lock().expect("no panic while held").take() else { return };
        let (reply, closed) = reply::channel();
        if self.send(Event::Close { deadline: span(deadline), reply }).is_ok() {
            let _ = closed.recv_timeout(deadline + LEAVE);
        }
        let _ = thread.join();
        self.release();
    }
}

impl Drop for ShardHandle {
    fn drop(&mut self) {
        self.close(LEAVE);
    }
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

fn unexpected(answer: &Answer) -> Error {
    Error::Bug(format!("the server answered another call: {answer:?}"))
}

fn check_regions(layout: &Layout, regions: &[Region]) -> Result<(), Error> {
    let sizes = layout.buffers();
    if sizes.len() != regions.len() {
        return Err(Error::misuse(format!(
            "the layout has {} buffers, {} regions were given",
            sizes.len(),
            regions.len()
        )));
    }
    for (index, (size, region)) in sizes.iter().zip(regions).enumerate() {
        if *size != region.len() as u64 {
            return Err(Error::misuse(format!(
                "buffer {index} has {size} bytes in the layout and {} in memory",
                region.len()
            )));
        }
    }
    Ok(())
}

// A handle is used from whichever thread the worker likes.
const _: () = {
    const fn shared_between_threads<T: Send + Sync>() {}
    shared_between_threads::<ShardHandle>();
};
