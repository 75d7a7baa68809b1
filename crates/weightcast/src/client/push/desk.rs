//! What a handle has of pushes.

use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, OnceLock, mpsc};
use std::time::Instant;

use weightcast_protocol::{ContentDigest, Time};

use super::lines::WordLines;
use super::numbers::PushNumbers;
use super::plans::PushPlans;
use super::sending::SendingRoom;
use super::target::TargetRoom;
use super::word::PushWord;
use crate::client::connection::ServerConnection;
use crate::error::Error;

/// What a handle has of pushes.
pub(crate) struct PushDesk {
    /// Where peers reach the handle's data port.
    pub(super) address: String,
    /// When the handle was opened: the origin of the machines' time.
    started: Instant,
    /// The layouts of all shards of the handle's replica, once they are registered.
    layouts: Mutex<Vec<ContentDigest>>,
    /// How to reach the server.
    pub(super) server: OnceLock<(ServerConnection, tokio::runtime::Handle)>,
    pub(super) plans: PushPlans,
    pub(super) words: WordLines,
    pub(in crate::client) target: TargetRoom,
    pub(in crate::client) sending: SendingRoom,
    /// The driver of the push that this handle has begun.
    driver: Mutex<Option<SyncSender<DriverWord>>>,
    pub(super) numbers: Mutex<PushNumbers>,
}

/// Something that a driver hears.
#[derive(Debug)]
pub(super) enum DriverWord {
    Said(Box<PushWord>),
    /// Nobody listens at this address any more.
    Gone(String),
}

impl PushDesk {
    pub(in crate::client) fn new(address: String) -> Self {
        Self {
            address,
            started: Instant::now(),
            layouts: Mutex::default(),
            server: OnceLock::new(),
            plans: PushPlans::default(),
            words: WordLines::default(),
            target: TargetRoom::default(),
            sending: SendingRoom::default(),
            driver: Mutex::default(),
            numbers: Mutex::default(),
        }
    }

    /// Notes how to reach the server.
    pub(in crate::client) fn connect(
        &self,
        connection: ServerConnection,
        runtime: tokio::runtime::Handle,
    ) {
        let _ = self.server.set((connection, runtime));
    }

    /// Notes what the handle's replica has registered.
    pub(in crate::client) fn registered(&self, layouts: Vec<ContentDigest>) {
        *self.layouts.lock().expect("no panic while held") = layouts;
    }

    /// The layouts of all shards of the handle's replica.
    pub(super) fn layouts(&self) -> Vec<ContentDigest> {
        self.layouts.lock().expect("no panic while held").clone()
    }

    /// The machines' time.
    pub(super) fn now(&self) -> Time {
        Time(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Words for a driver go here from now on; the driver's end of that.
    pub(super) fn drive(&self) -> Result<mpsc::Receiver<DriverWord>, Error> {
        let mut driver = self.driver.lock().expect("no panic while held");
        if driver.is_some() {
            return Err(Error::misuse("another push of this handle is running; wait for it first"));
        }
        let (sender, receiver) = mpsc::sync_channel(crate::limits::PUSH_EVENTS);
        *driver = Some(sender);
        Ok(receiver)
    }

    /// The push is over.
    pub(super) fn end_drive(&self) {
        self.driver.lock().expect("no panic while held").take();
    }

    /// A target has heard this driver.
    pub(super) fn heard(&self, driver: u64) {
        self.numbers.lock().expect("no panic while held").hear(driver);
    }

    pub(super) fn to_driver(&self, word: DriverWord) -> bool {
        let driver = self.driver.lock().expect("no panic while held");
        driver.as_ref().is_some_and(|driver| driver.try_send(word).is_ok())
    }
}

#[cfg(test)]
mod tests;
