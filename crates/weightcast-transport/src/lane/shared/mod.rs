//! Reads out of memory that the source shares: mapped once, read-only, and copied with no system call.
//!
//! The source hands over sealed files on the connection that proves its process, and a page with the fence
//! word of the export. A piece's bytes are copied and digested in one pass; then the word is looked at, as the
//! direct lane does: if the word still holds the export's id, it held it while the bytes were read.
//!
//! A process that has died takes nothing away from its readers, so whether it lives is asked now and then, and at
//! the end.

use super::endpoint::{Endpoint, OpenLane};
use super::kind::{LaneKind, Meeting};
use super::task::LaneTask;
use crate::base::error::TransportError;
use crate::base::id::ExportId;
use crate::base::lock::lock;
use crate::base::patience::Patience;
use crate::export::served::Export;
use crate::lane::way::Way;
use crate::lane::writable::WritableTargets;
use crate::memory::region::Region;
use crate::wire::description::ExportDescription;
use crate::wire::local_source::LocalSource;
use crate::wire::socket::Socket;
use lane::SharedLane;
use mapped::{Mapped, MappedExports};
use offer::Offer;
use std::sync::{Arc, Mutex};
pub use view::ExportView;

mod lane;
mod mapped;
mod offer;
mod view;

/// The lane out of shared memory.
pub(super) struct SharedKind;

impl LaneKind for SharedKind {
    fn way(&self) -> Way {
        Way::Shared
    }

    fn number(&self) -> u64 {
        offer::LANE
    }

    fn offer(&self, export: &Export, reader: &Socket) -> Option<Vec<u8>> {
        reader.is_local().then(|| Offer::of(export.lending())).flatten().map(Offer::encode)
    }

    fn reach(&self, meeting: &Meeting<'_>) -> Result<Box<dyn Endpoint>, TransportError> {
        Ok(Box::new(SharedSource::new(meeting.process()?)))
    }
}

/// A process of this host whose shared memory is mapped as it is needed.
struct SharedSource {
    process: Arc<LocalSource>,
    exports: Mutex<MappedExports>,
    writable: Mutex<WritableTargets>,
}

impl SharedSource {
    fn new(process: Arc<LocalSource>) -> Self {
        Self { process, exports: Mutex::default(), writable: Mutex::default() }
    }

    fn mapped(&self, export: ExportId) -> Option<Result<Arc<Mapped>, String>> {
        lock(&self.exports).get(export)
    }

    /// Nobody but this process copies the bytes, so memory that it may not write would end it. Each target
    /// is tried once, and backed with pages on the way.
    ///
    /// # Errors
    /// [`TransportError::UnwritableTarget`].
    fn try_targets(&self, targets: &[Region]) -> Result<(), TransportError> {
        lock(&self.writable).try_all(targets)
    }
}

impl Endpoint for SharedSource {
    fn way(&self) -> Way {
        Way::Shared
    }

    fn why(&self) -> &'static str {
        "memory that a process of this host shares"
    }

    fn takes_any_memory(&self) -> bool {
        false
    }

    fn check(&self, description: &ExportDescription) -> Result<(), TransportError> {
        let what = "offer of shared memory";
        let broken =
            description.descriptor(offer::LANE).is_some() && Offer::in_(description).is_none();
        if broken {
            Err(TransportError::Protocol { addr: self.process.addr(), what })
        } else {
            Ok(())
        }
    }

    fn prepare(
        &self,
        export: ExportId,
        generation: u64,
        description: &ExportDescription,
        patience: &Patience<'_>,
    ) -> Result<(), TransportError> {
        let offered = Offer::in_(description) == Some(Offer::Whole);
        if !offered || self.mapped(export).is_some() {
            return Ok(());
        }
        let (places, files) = self.process.borrow(export, generation, patience)?;
        let known = lock(&self.exports).all();
        let mapped = Mapped::map(description, places, files, &known, patience)?;
        if let Err(why) = &mapped {
            tracing::warn!(addr = %self.process.addr(), why, "shared memory was not mapped");
        }
        lock(&self.exports).insert(export, mapped.map(Arc::new));
        Ok(())
    }

    fn carries(&self, export: ExportId, _: &ExportDescription) -> bool {
        self.mapped(export).is_some_and(|mapped| mapped.is_ok())
    }

    fn why_not(&self, export: ExportId, description: &ExportDescription) -> Option<String> {
        match (self.mapped(export), Offer::in_(description)) {
            (Some(Err(why)), _) => Some(format!("shared memory was not mapped: {why}")),
            (_, None) => Some("not in shared memory".to_owned()),
            (_, Some(offer)) => offer.why_not(),
        }
    }

    fn view(&self, export: ExportId) -> Option<ExportView> {
        Some(ExportView::new(export, self.mapped(export)?.ok()?))
    }

    fn verify(&self) -> Result<(), TransportError> {
        self.process.verify()
    }

    fn open<'a>(&'a self, task: LaneTask<'a>) -> Result<Option<OpenLane<'a>>, TransportError> {
        let Some(Ok(mapped)) = self.mapped(task.export) else {
            // It was mapped when it was described: fenced since, and given up.
            return Err(TransportError::Fenced { export: task.export });
        };
        self.try_targets(task.targets)?;
        Ok(Some(Box::new(SharedLane::new(&self.process, mapped, task))))
    }
}
