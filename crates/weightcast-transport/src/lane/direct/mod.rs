//! Reads straight from another process's memory, which the kernel copies: `addresses` is what the source tells, and
//! `lane` reads pieces, over a `desk` of each worker.

use super::endpoint::{Endpoint, OpenLane};
use super::kind::{LaneKind, Meeting};
use super::task::LaneTask;
use crate::base::error::TransportError;
use crate::base::id::ExportId;
use crate::base::lock::lock;
use crate::export::served::Export;
use crate::lane::way::Way;
use crate::lane::writable::WritableTargets;
use crate::memory::sys;
use crate::wire::description::ExportDescription;
use crate::wire::local_source::LocalSource;
use crate::wire::socket::Socket;
use addresses::Addresses;
use desk::{DESK_BYTES, FreeDesks};
use lane::DirectLane;
use std::sync::{Arc, Mutex};

pub(crate) mod addresses;
mod desk;
mod lane;

/// The lane out of another process's memory.
pub(super) struct DirectKind;

impl LaneKind for DirectKind {
    fn way(&self) -> Way {
        Way::Direct
    }

    fn number(&self) -> u64 {
        addresses::LANE
    }

    /// The owner hands out its own addresses, to those of its host and user to whom the kernel says
    /// whose they are; it never takes one from a peer.
    fn offer(&self, export: &Export, reader: &Socket) -> Option<Vec<u8>> {
        reader.is_local().then(|| Addresses::put(export)).flatten()
    }

    fn reach(&self, meeting: &Meeting<'_>) -> Result<Box<dyn Endpoint>, TransportError> {
        Ok(Box::new(Direct::new(meeting.process()?)?))
    }
}

/// A process of this host whose memory we may read.
struct Direct {
    process: Arc<LocalSource>,
    writable: Mutex<WritableTargets>,
    desks: FreeDesks,
}

impl Direct {
    /// # Errors
    /// [`TransportError::NoDirect`] if the kernel does not permit it.
    fn new(process: Arc<LocalSource>) -> Result<Self, TransportError> {
        sys::may_read(process.pid()).map_err(|error| {
            let what = format!("its memory may not be read: {error}");
            TransportError::NoDirect { addr: process.addr(), what }
        })?;
        Ok(Self { process, writable: Mutex::default(), desks: FreeDesks::default() })
    }
}

impl Endpoint for Direct {
    fn way(&self) -> Way {
        Way::Direct
    }

    fn why(&self) -> &'static str {
        "another process of this host and user"
    }

    fn check(&self, description: &ExportDescription) -> Result<(), TransportError> {
        let what = "addresses of an export";
        let fit = description.descriptor(addresses::LANE).is_none()
            || Addresses::of(description).is_some_and(|found| found.fit(description));
        fit.then_some(()).ok_or(TransportError::Protocol { addr: self.process.addr(), what })
    }

    fn carries(&self, _: ExportId, description: &ExportDescription) -> bool {
        Addresses::of(description).is_some()
    }

    fn verify(&self) -> Result<(), TransportError> {
        self.process.verify()
    }

    /// Of an export that it carries.
    fn open<'a>(&'a self, task: LaneTask<'a>) -> Result<Option<OpenLane<'a>>, TransportError> {
        let Some(addresses) = Addresses::of(task.description) else { return Ok(None) };
        // This process writes the targets itself, so memory that it may not write would end it.
        lock(&self.writable).try_all(task.targets)?;
        let desk = self.desks.take().map_err(|error| TransportError::System {
            call: "mmap",
            what: format!("{DESK_BYTES} bytes to read through: {error}"),
        })?;
        Ok(Some(Box::new(DirectLane::new(&self.process, desk, task, addresses))))
    }
}
