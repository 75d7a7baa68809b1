//! Copies and seeds of the clients: each a client of the same world, whose program is the thread that
//! keeps it. That thread is real, so a test waits for what it does, while no time passes.

use std::sync::{Arc, Mutex, mpsc as reply};
use std::time::Instant;

use super::worker::{ClientKind, RigClient, RigWays};
use super::world::RigWorld;
use crate::client::aside::second::OpenHandle;
use crate::client::handle::process::Owned;
use crate::client::handle::{Own, ShardHandle};
use crate::client::memory::reservations::Registrant;
use crate::config::{Options, Replica};
use crate::error::Error;

/// A thread that wants a handle for its copy or its seed.
struct OpenAsked {
    owner: usize,
    replica: Replica,
    options: Options,
    reply: reply::Sender<ShardHandle>,
}

/// Threads that ask for a handle, as soon as the test lets them have one.
#[derive(Clone, Default)]
pub(super) struct Seconds {
    asked: Arc<Mutex<Vec<OpenAsked>>>,
    /// They wait.
    pub(super) late: bool,
}

impl Seconds {
    /// How the seconds of a client are opened.
    pub(super) fn way_for(&self, owner: usize) -> OpenHandle {
        let asked = Arc::clone(&self.asked);
        Arc::new(move |_: &str, replica: Replica, options: &Options| {
            let (reply, handle) = reply::channel();
            let options = options.clone();
            let deadline = options.deadline;
            asked.lock().expect("no panic").push(OpenAsked { owner, replica, options, reply });
            let over = |_| Error::misuse("the test is over");
            let handle: ShardHandle = handle.recv().map_err(over)?;
            handle.await_open("virtual", deadline)?;
            Ok(handle)
        })
    }

    /// Those who ask have none.
    pub(super) fn forget(&self) {
        self.asked.lock().expect("no panic").clear();
    }

    /// How many ask.
    pub(super) fn asking(&self) -> usize {
        self.asked.lock().expect("no panic").len()
    }
}

impl RigWorld {
    pub(super) fn ways(&self) -> RigWays<'_> {
        RigWays { net: &self.net, gate: &self.gate, seconds: &self.seconds }
    }

    /// Gives those a handle who ask for one.
    pub(super) fn open_seconds(&mut self) {
        if self.seconds.late {
            return;
        }
        let asked = std::mem::take(&mut *self.seconds.asked.lock().expect("no panic"));
        for OpenAsked { owner, replica, options, reply } in asked {
            let index = self.join(ClientKind {
                name: Some(replica.name.clone()),
                datacentre: replica.datacentre.clone(),
                retain: options.retain,
                seeding: options.offload_seeding,
                relays: true,
                ..super::scene::kind(options.role, self.workers[owner].form, options.way)
            });
            self.workers[index].second = true;
            let _ = reply.send(self.workers[index].handle(replica));
        }
    }

    /// Waits, while no time passes, until threads have done so much.
    pub(super) async fn until(&mut self, what: &str, done: impl Fn(&mut Self) -> bool) {
        let begun = Instant::now();
        loop {
            self.settle().await;
            if done(self) {
                return;
            }
            assert!(begun.elapsed().as_secs() < 30, "{what}: it never comes");
            std::thread::yield_now();
        }
    }

    /// Copies and seeds that have not ended.
    pub(super) fn live_seconds(&self) -> Vec<usize> {
        let live = |(_, worker): &(usize, &RigClient)| worker.second && !worker.gone;
        self.workers.iter().enumerate().filter(live).map(|(index, _)| index).collect()
    }
}

impl RigClient {
    /// What its program holds.
    fn handle(&self, replica: Replica) -> ShardHandle {
        let thread = std::thread::spawn(|| ());
        ShardHandle {
            model: "model".to_owned(),
            server: "virtual".to_owned(),
            own: Owned::new(Own {
                events: self.control.events.clone(),
                runtime: tokio::runtime::Handle::current(),
                connection: self.control.connection.clone(),
                shared: Arc::clone(&self.control.shared),
                thread: Mutex::new(Some(thread)),
                holder: Registrant::new("model", &replica),
                fills: true,
                reservation: Mutex::default(),
                mismatch: Mutex::new(None),
            }),
            replica,
            interrupted: None,
            warning: None,
            job: None,
        }
    }

    /// What the control thread does when its loop ends; and a second's memory is its own from when it
    /// is registered.
    pub(super) fn leave_if_over(&mut self) {
        if !self.second || self.gone {
            return;
        }
        if self.regions.is_empty() {
            let registered = self.control.shared.current();
            self.regions = registered.map(|(r, _)| r.regions.to_vec()).unwrap_or_default();
        }
        if self.control.over && !self.control.awaiting_close.is_empty() {
            self.control.leave();
            self.regions.clear();
            self.gone = true;
        }
    }

    /// When it has something to do by itself.
    pub(super) fn next_timeout(&self) -> Option<weightcast_protocol::Time> {
        self.control.session.next_timeout().filter(|_| !self.gone)
    }

    /// Whether all the room for its copies and seeds is free, where it has just enough for one.
    pub(super) fn has_room(&self) -> bool {
        let (registration, _) = self.control.shared.current().expect("registered");
        self.room.take(&registration, std::time::Duration::ZERO).is_ok()
    }
}
