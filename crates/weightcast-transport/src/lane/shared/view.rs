//! The memory of an export as it is, mapped for reading: no byte is copied.

use super::mapped::Mapped;
use crate::base::id::ExportId;
use crate::memory::region::Region;
use std::fmt;
use std::sync::Arc;

/// Memory that a process of this host serves, mapped here for reading alone; mapped as long as this value or one
/// of its regions lives. The source does not wait for it: when it is done with the export it fences it, and then
/// changes the bytes. So what was read counts only if [`ExportView::is_whole`] says so afterwards.
///
/// A source that has died changes nothing any more, so a view of its memory stays whole.
#[derive(Clone)]
pub struct ExportView {
    export: ExportId,
    mapped: Arc<Mapped>,
}

impl ExportView {
    pub(super) fn new(export: ExportId, mapped: Arc<Mapped>) -> Self {
        Self { export, mapped }
    }

    /// The regions of the export, in its order; none may be written.
    pub fn regions(&self) -> &[Region] {
        &self.mapped.regions
    }

    /// True if all bytes that this thread has read out of it before the call were served: the source had not begun
    /// to change them. Once false, false for ever.
    pub fn is_whole(&self) -> bool {
        self.mapped.word.is(self.export)
    }
}

impl fmt::Debug for ExportView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let regions = self.regions().len();
        f.debug_struct("ExportView")
            .field("export", &self.export)
            .field("regions", &regions)
            .finish()
    }
}
