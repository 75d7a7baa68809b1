//! Offloading: the registered memory is copied aside, and the copy becomes a replica of its own,
//! until the server does not need it any more.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;
use weightcast_protocol::server::offload_name;
use weightcast_protocol::{Generation, Version};
use weightcast_transport::Region;

use super::copy_aside::copy_aside;
use super::second::{Owner, Second};
use crate::client::event::Event;
use crate::client::threads;
use crate::config::Role;
use crate::error::Error;
use crate::metrics::process::SharedFigures;

/// Makes the offloads of one handle.
pub(in crate::client) struct Offloader {
    owner: Owner,
    events: mpsc::UnboundedSender<Event>,
    running: Copying,
}

/// Control over a copy of the registered memory that is being made.
#[derive(Clone, Default)]
struct Copying {
    /// Raised to end the copying.
    cancel: Arc<AtomicBool>,
    /// Held while the registered memory is read.
    reads: Arc<Mutex<()>>,
}

impl Offloader {
    pub(in crate::client) fn new(owner: Owner, events: mpsc::UnboundedSender<Event>) -> Self {
        Self { owner, events, running: Copying::default() }
    }

    /// Copies the registered memory, on a thread that then keeps the copy until the server does not
    /// need it any more.
    pub(in crate::client) fn start(&mut self, version: Version, generation: Generation) {
        self.stop();
        // A new flag: an older copy that has not begun yet must still find its own flag raised.
        self.running.cancel = Arc::default();
        let (events, copying) = (self.events.clone(), self.running.clone());
        let figures = self.owner.shared.figures.model();
        let over = self.events.clone();
        self.owner.begin(
            "weightcast-offload",
            (offload_name(&self.owner.replica.name, version), Role::Offload(version)),
            move |second| {
                if keep(second, version, &copying, &figures)? {
                    drop(over.send(Event::OffloadOver { version, generation }));
                }
                Ok(())
            },
            move |reason| drop(events.send(Event::OffloadFailed { version, generation, reason })),
        );
    }

    /// Whether no copy that was begun reads the registered memory, now or later.
    #[cfg(test)]
    pub(in crate::client) fn is_stopped(&self) -> bool {
        self.running.cancel.load(Ordering::Acquire) && self.running.reads.try_lock().is_ok()
    }

    /// Stops the running copy. When this returns, no copy touches the registered memory. A finished
    /// copy lives on.
    pub(in crate::client) fn stop(&mut self) {
        self.running.cancel.store(true, Ordering::Release);
        // The copy holds the lock while it reads: wait for its end.
        drop(self.running.reads.lock());
    }
}

/// Makes the copy a replica, and returns when the server does not need it any more. False if the
/// copying was stopped.
fn keep(
    second: Second,
    version: Version,
    copying: &Copying,
    figures: &SharedFigures,
) -> Result<bool, Error> {
    let span = second.offload_span(version).entered();
    let room = second.take_room(Duration::ZERO)?;
    let Some(regions) = copying.copy(&second)? else { return Ok(false) };
    let deadline = second.options.deadline;
    let open = second.open(regions, room)?;
    open.handle.publish(version.number, deadline)?;
    drop(span);
    figures.lock().expect("no panic while held").offloads += 1;
    open.handle.wait_ended().map(|()| true)
}

impl Copying {
    /// Copies the registered memory; `None` if stopped.
    fn copy(&self, second: &Second) -> Result<Option<Vec<Region>>, Error> {
        let _reads = self.reads.lock().expect("no panic while held");
        copy_aside(&second.registration.regions, threads::copying(), &self.cancel)
    }
}

#[cfg(test)]
mod tests;
