//! `retain` and `let_go`: versions that are kept by name.

use std::time::Duration;

use weightcast_protocol::message::{Answer, Call};
use weightcast_protocol::{Selector, Version};

use super::{ShardHandle, unexpected};
use crate::error::Error;

impl ShardHandle {
    /// Waits for a version, and has it kept for this group until [`ShardHandle::let_go`] or the group's end, whatever newer
    /// versions come: whoever gives up the last copy of it has it copied to CPU memory first. Returns the version. The memory of
    /// this handle has no part in this; it may hold another version, or none.
    ///
    /// # Errors
    /// [`VersionUnavailable`](weightcast_protocol::CallError::VersionUnavailable) if the version is gone;
    /// [`Limit`](weightcast_protocol::CallError::Limit) if [`RETAINED`](weightcast_protocol::limits::RETAINED) others are kept.
    pub fn retain(&self, selector: Selector, deadline: Duration) -> Result<Version, Error> {
        match self.call(Call::Retain { selector }, deadline)?.0 {
            Answer::Retained { version } => Ok(version),
            other => Err(unexpected(&other)),
        }
    }

    /// Lets go of the version of this number. No error if it is not kept.
    pub fn let_go(&self, version: u64, deadline: Duration) -> Result<(), Error> {
        self.call(Call::LetGo { version }, deadline).map(drop)
    }
}
