//! What both ends know of a lane before they meet.

use super::endpoint::Endpoint;
use super::way::Way;
use crate::base::error::TransportError;
use crate::base::patience::Patience;
use crate::export::served::Export;
use crate::export::table::ExportTable;
use crate::wire::local_source::LocalSource;
use crate::wire::pool::Pool;
use crate::wire::socket::Socket;
use std::cell::OnceCell;
use std::sync::Arc;

/// One way of moving bytes.
pub(crate) trait LaneKind: Sync {
    fn way(&self) -> Way;

    /// Its number on the wire, never used for another lane.
    fn number(&self) -> u64;

    /// At the source: what the reader at the other end of a connection must know of an export to use
    /// this lane. `None` if the lane is not offered to that reader, or needs no descriptor.
    fn offer(&self, _: &Export, _: &Socket) -> Option<Vec<u8>> {
        None
    }

    /// At the reader: the lane to a source.
    ///
    /// # Errors
    /// [`TransportError::NoDirect`] if there is none, which says why; whatever ends the patience.
    fn reach(&self, meeting: &Meeting<'_>) -> Result<Box<dyn Endpoint>, TransportError>;
}

/// Which lanes a reader wants.
pub(crate) struct Demand {
    pub(crate) way: Way,
    /// Exports of this very process, if it is read within itself.
    pub(crate) exports: Option<Arc<ExportTable>>,
}

impl Demand {
    pub(crate) fn of(way: Way) -> Self {
        Self { way, exports: None }
    }

    /// Of this very process, by the reference.
    pub(crate) fn within(exports: &Arc<ExportTable>) -> Self {
        Self { way: Way::Reference, exports: Some(Arc::clone(exports)) }
    }
}

/// A reader meets a source: what a lane may use to reach it.
pub(crate) struct Meeting<'a> {
    pub(crate) demand: Demand,
    /// The source's data port.
    pub(crate) port: Arc<Pool>,
    pub(crate) patience: Patience<'a>,
    process: OnceCell<Result<Arc<LocalSource>, TransportError>>,
}

impl<'a> Meeting<'a> {
    pub(crate) fn new(demand: Demand, port: Arc<Pool>, patience: Patience<'a>) -> Self {
        Self { demand, port, patience, process: OnceCell::new() }
    }

    /// The source's process, if it is of this host; looked for once. It may be this very process only
    /// where a way is demanded.
    ///
    /// # Errors
    /// [`TransportError::NoDirect`], which says why not; what ended the patience.
    pub(crate) fn process(&self) -> Result<Arc<LocalSource>, TransportError> {
        let own = self.demand.way != Way::Auto;
        let reach = || LocalSource::reach(&self.port, own, &self.patience).map(Arc::new);
        self.process.get_or_init(reach).clone()
    }

    /// The process, if a lane has looked for it and found it.
    pub(crate) fn into_process(self) -> Option<Arc<LocalSource>> {
        self.process.into_inner()?.ok()
    }
}
