//! Offload seeding: new memory of the registered layout, and a session of its own that replicates a
//! version into it, until the server does not need it any more.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;
use weightcast_protocol::server::seed_name;
use weightcast_protocol::{Selector, Span, Version};
use weightcast_transport::Region;

use super::LayoutSource;
use super::control::Event;
use super::handle::ShardHandle;
use super::registration::Registration;
use super::room::{Room, allocate};
use super::shared::Shared;
use crate::Error;
use crate::config::{Options, Replica, Role};

/// How long a seed waits for the memory of the one before, which has just been let go of.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who seeds, and for whom.
pub(super) struct Seeder {
    model: String,
    replica: Replica,
    options: Options,
    shared: Arc<Shared>,
    events: mpsc::UnboundedSender<Event>,
    room: Arc<Room>,
}

impl Seeder {
    pub(super) fn new(
        model: String,
        replica: Replica,
        options: Options,
        shared: Arc<Shared>,
        events: mpsc::UnboundedSender<Event>,
        room: Arc<Room>,
    ) -> Self {
        Self { model, replica, options, shared, events, room }
    }

    /// Brings a version near, on a thread that then keeps it as long as it is needed.
    pub(super) fn start(&self, version: Version, ask: u64, deadline: Span) {
        let Some((registration, _)) = self.shared.current() else {
            return self.failed(ask, "nothing is registered");
        };
        let job = Job {
            version,
            model: self.model.clone(),
            replica: Replica {
                name: seed_name(&self.replica.name, version),
                ..self.replica.clone()
            },
            options: Options {
                role: Role::Seed(version),
                offload_seeding: false,
                ..self.options.clone()
            },
            registration,
            room: Arc::clone(&self.room),
            deadline: Duration::from_nanos(deadline.0),
        };
        let events = self.events.clone();
        let run = move || {
            if let Err(error) = job.run() {
                let _ = events.send(Event::SeedFailed { ask, reason: error.to_string() });
            }
        };
        let name = "weightcast-seed".to_owned();
        if let Err(error) = thread::Builder::new().name(name).spawn(run) {
            self.failed(ask, &error.to_string());
        }
    }

    fn failed(&self, ask: u64, reason: &str) {
        let _ = self.events.send(Event::SeedFailed { ask, reason: reason.to_owned() });
    }
}

/// One seed.
struct Job {
    version: Version,
    model: String,
    replica: Replica,
    options: Options,
    registration: Arc<Registration>,
    room: Arc<Room>,
    deadline: Duration,
}

impl Job {
    /// Ends when the seed is not needed any more.
    fn run(self) -> Result<(), Error> {
        let _share = self.room.take(&self.registration, PATIENCE.min(self.deadline))?;
        let regions: Vec<Region> =
            self.registration.regions.iter().map(allocate).collect::<Result<_, _>>()?;
        let layout = LayoutSource::Known((*self.registration.layout).clone());
        drop(self.registration);
        let handle = ShardHandle::open(&self.model, self.replica, &self.options)?;
        handle.register(layout, regions, self.options.deadline)?;
        handle.replicate(Selector::Exact(self.version.number), self.deadline)?;
        handle.wait_ended()
    }
}
