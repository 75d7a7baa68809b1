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
use crate::client::reading::route::THREADS;
use crate::config::Role;
use crate::error::Error;

/// Who copies, and for whom.
pub(in crate::client) struct Offloader {
    owner: Owner,
    events: mpsc::UnboundedSender<Event>,
    running: Copying,
}

/// A copy of the registered memory, while it is made.
#[derive(Clone, Default)]
struct Copying {
    /// Raised to end it.
    cancel: Arc<AtomicBool>,
    /// Held while the registered memory is read.
    reads: Arc<Mutex<()>>,
}

impl Offloader {
    pub(in crate::client) fn new(owner: Owner, events: mpsc::UnboundedSender<Event>) -> Self {
        Self { owner, events, running: Copying::default() }
    }

    /// Copies what is registered, on a thread that then keeps the copy as long as it is needed.
    pub(in crate::client) fn start(&mut self, version: Version, generation: Generation) {
        self.stop();
        self.running.cancel = Arc::default();
        let (events, copying) = (self.events.clone(), self.running.clone());
        let over = self.events.clone();
        self.owner.begin(
            "weightcast-offload",
            (offload_name(&self.owner.replica.name, version), Role::Offload(version)),
            move |second| {
                if keep(second, version, &copying)? {
                    drop(over.send(Event::OffloadOver { version, generation }));
                }
                Ok(())
            },
            move |reason| drop(events.send(Event::OffloadFailed { version, generation, reason })),
        );
    }

    /// Whether nothing reads the registered memory any more, or will, of what was begun.
    #[cfg(test)]
    pub(in crate::client) fn is_stopped(&self) -> bool {
        self.running.cancel.load(Ordering::Acquire) && self.running.reads.try_lock().is_ok()
    }

    /// After this, no copy touches the registered memory. One that is through lives on.
    pub(in crate::client) fn stop(&mut self) {
        self.running.cancel.store(true, Ordering::Release);
        drop(self.running.reads.lock());
    }
}

/// Ends when the copy is not needed any more. Whether there was one: copying may have been stopped.
fn keep(second: Second, version: Version, copying: &Copying) -> Result<bool, Error> {
    let room = second.take_room(Duration::ZERO)?;
    let Some(regions) = copying.copy(&second)? else { return Ok(false) };
    let deadline = second.options.deadline;
    let open = second.open(regions, room)?;
    open.handle.publish(version.number, deadline)?;
    open.handle.wait_ended().map(|()| true)
}

impl Copying {
    /// A copy of the registered memory; none if it was stopped.
    fn copy(&self, second: &Second) -> Result<Option<Vec<Region>>, Error> {
        let _reads = self.reads.lock().expect("no panic while held");
        copy_aside(&second.registration.regions, THREADS, &self.cancel)
    }
}

#[cfg(test)]
mod tests;
