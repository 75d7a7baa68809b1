//! Calls that fill the memory, and tell their caller the progress of the read.

use std::time::{Duration, Instant};

use weightcast_protocol::Selector;
use weightcast_protocol::message::Call;

use super::watch::ReadWatch;
use super::{ShardHandle, left};
use crate::client::updated::Updated;
use crate::error::Error;

impl ShardHandle {
    /// [`ShardHandle::replicate`], watched. Before a success `watch` is told at last that all bytes have
    /// arrived.
    pub fn replicate_watched(
        &self,
        selector: Selector,
        deadline: Duration,
        watch: ReadWatch<'_>,
    ) -> Result<Updated, Error> {
        self.updated(Call::Replicate { selector }, deadline, watch)
    }

    /// [`ShardHandle::update`] or, with `staged`, [`ShardHandle::update_staged`], watched. Before a
    /// success that has changed the memory `watch` is told at last that all bytes have arrived.
    pub fn update_watched(
        &self,
        selector: Selector,
        allow_rollback: bool,
        staged: bool,
        deadline: Duration,
        watch: ReadWatch<'_>,
    ) -> Result<Updated, Error> {
        let until = Instant::now() + deadline;
        if staged {
            self.check_room().map_err(|error| self.decline(error, until))?;
        }
        self.updated(Call::Update { selector, allow_rollback, staged }, left(until), watch)
    }
}
