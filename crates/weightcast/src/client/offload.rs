//! Offloading: the registered memory is copied aside, and the copy becomes a replica of its own,
//! with a session of its own, until the server does not need it any more.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;
use weightcast_protocol::server::offload_name;
use weightcast_protocol::{Generation, Version};
use weightcast_transport::Region;

use super::LayoutSource;
use super::control::Event;
use super::copy_aside::copy_aside;
use super::handle::ShardHandle;
use super::registration::Registration;
use super::room::Room;
use super::route::THREADS;
use super::shared::Shared;
use crate::Error;
use crate::config::{Options, Replica, Role};

/// Who copies, and for whom.
pub(super) struct Offloader {
    model: String,
    replica: Replica,
    options: Options,
    shared: Arc<Shared>,
    events: mpsc::UnboundedSender<Event>,
    /// Raised to end the running copy.
    cancel: Arc<AtomicBool>,
    /// Held while the registered memory is read.
    copying: Arc<Mutex<()>>,
    room: Arc<Room>,
}

impl Offloader {
    pub(super) fn new(
        model: String,
        replica: Replica,
        options: Options,
        shared: Arc<Shared>,
        events: mpsc::UnboundedSender<Event>,
        room: Arc<Room>,
    ) -> Self {
        let (cancel, copying) = (Arc::default(), Arc::default());
        Self { model, replica, options, shared, events, cancel, copying, room }
    }

    /// Copies what is registered, on a thread that then keeps the copy as long as it is needed.
    pub(super) fn start(&mut self, version: Version, generation: Generation) {
        self.stop();
        self.cancel = Arc::default();
        let Some((registration, _)) = self.shared.current() else {
            return self.failed(version, generation, "nothing is registered");
        };
        let job = Job {
            version,
            model: self.model.clone(),
            replica: Replica {
                name: offload_name(&self.replica.name, version),
                ..self.replica.clone()
            },
            options: Options { role: Role::Offload(version), ..self.options.clone() },
            registration,
            cancel: Arc::clone(&self.cancel),
            copying: Arc::clone(&self.copying),
            room: Arc::clone(&self.room),
        };
        let events = self.events.clone();
        let run = move || {
            if let Err(error) = job.run() {
                let reason = error.to_string();
                let _ = events.send(Event::OffloadFailed { version, generation, reason });
            }
        };
        let name = "weightcast-offload".to_owned();
        if let Err(error) = thread::Builder::new().name(name).spawn(run) {
            self.failed(version, generation, &error.to_string());
        }
    }

    /// After this, no copy touches the registered memory. One that is through lives on.
    pub(super) fn stop(&mut self) {
        self.cancel.store(true, Ordering::Release);
        drop(self.copying.lock());
    }

    fn failed(&self, version: Version, generation: Generation, reason: &str) {
        let reason = reason.to_owned();
        let _ = self.events.send(Event::OffloadFailed { version, generation, reason });
    }
}

/// One offload.
struct Job {
    version: Version,
    model: String,
    replica: Replica,
    options: Options,
    registration: Arc<Registration>,
    cancel: Arc<AtomicBool>,
    copying: Arc<Mutex<()>>,
    room: Arc<Room>,
}

impl Job {
    /// Ends when the copy is not needed any more.
    fn run(self) -> Result<(), Error> {
        let _share = self.room.take(&self.registration, Duration::ZERO)?;
        let Some(regions) = self.copy()? else { return Ok(()) };
        let layout = LayoutSource::Known((*self.registration.layout).clone());
        let deadline = self.options.deadline;
        let handle = ShardHandle::open(&self.model, self.replica, &self.options)?;
        // From here on it does not depend on its owner.
        drop(self.registration);
        handle.register(layout, regions, deadline)?;
        handle.publish(self.version.number, deadline)?;
        handle.wait_ended()
    }

    /// A copy of the registered memory; none if it was stopped.
    fn copy(&self) -> Result<Option<Vec<Region>>, Error> {
        let _reads = self.copying.lock().expect("no panic while held");
        copy_aside(&self.registration.regions, THREADS, &self.cancel)
    }
}
