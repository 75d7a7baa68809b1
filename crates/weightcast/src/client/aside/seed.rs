//! Offload seeding: new memory of the registered layout, and a replica of its own that replicates a
//! version into it, until the server does not need it any more.

use std::time::Duration;

use tokio::sync::mpsc;
use weightcast_protocol::server::seed_name;
use weightcast_protocol::{Selector, Span, Version};

use super::room::allocate;
use super::second::{Owner, Second};
use crate::client::event::Event;
use crate::config::Role;
use crate::error::Error;
use crate::metrics::process::SharedFigures;

/// How long a seed waits for the room of the seed before, which is just being dropped.
const PATIENCE: Duration = Duration::from_secs(5);

/// Makes the seeds of one handle.
pub(in crate::client) struct Seeder {
    owner: Owner,
    events: mpsc::UnboundedSender<Event>,
}

impl Seeder {
    pub(in crate::client) fn new(owner: Owner, events: mpsc::UnboundedSender<Event>) -> Self {
        Self { owner, events }
    }

    /// Brings a version near, on a thread that then keeps the copy until the server does not need
    /// it any more.
    pub(in crate::client) fn start(&self, version: Version, ask: u64, deadline: Span) {
        let (events, figures) = (self.events.clone(), self.owner.shared.figures.model());
        let deadline = Duration::from_nanos(deadline.0);
        self.owner.begin(
            "weightcast-seed",
            (seed_name(&self.owner.replica.name, version), Role::Seed(version)),
            move |second| keep(second, version, deadline, &figures),
            move |reason| drop(events.send(Event::SeedFailed { ask, reason })),
        );
    }
}

/// Ends when the seed is not needed any more.
pub(super) fn keep(
    second: Second,
    version: Version,
    deadline: Duration,
    figures: &SharedFigures,
) -> Result<(), Error> {
    let span = second.seed_span(version).entered();
    let room = second.take_room(PATIENCE.min(deadline))?;
    let regions = second.registration.regions.iter().map(allocate).collect::<Result<_, _>>()?;
    let open = second.open(regions, room)?;
    open.handle.replicate(Selector::Exact(version.number), deadline)?;
    drop(span);
    figures.lock().expect("no panic while held").seeds += 1;
    open.handle.wait_ended()
}
