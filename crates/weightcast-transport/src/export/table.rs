//! What a process serves: regions under random ids; and what it lets others write.

use crate::base::error::RequestRefusal;
use crate::base::holds::Holds;
use crate::base::id::{ExportId, GrantId};
use crate::base::limits::MAX_REGIONS;
use crate::base::lock::lock;
use crate::base::secret::Secret;
use crate::export::grant::{Grant, GrantError, GrantTerms, Spans, WriteGrant};
use crate::export::grants::GrantTable;
use crate::export::served::Export;
use crate::memory::region::Region;
use crate::piece::filling::Filling;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a withdrawn export's connections may take to notice that they were cut.
const CUT_GRACE: Duration = Duration::from_millis(200);

/// The exports of one process.
#[derive(Default)]
pub struct ExportTable {
    exports: Mutex<HashMap<ExportId, Arc<Export>>>,
    /// Over memory that no export serves. Opened and closed for that under the lock of `exports`.
    grants: GrantTable,
}

impl ExportTable {
    /// A table that serves nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Serves `regions` under a fresh id. `generation` is the caller's counter, which a reader
    /// must name: it tells a reader with old news from one with new.
    ///
    /// The regions stay alive until the export is withdrawn and nobody serves from it.
    ///
    /// # Panics
    /// With more than [`MAX_REGIONS`] regions.
    pub fn expose(&self, generation: u64, regions: impl Into<Arc<[Region]>>) -> ExportId {
        let id = ExportId::random();
        self.expose_as(id, generation, regions);
        id
    }

    /// The same under an id that the caller knows not to have been used before.
    ///
    /// # Panics
    /// With more than [`MAX_REGIONS`] regions.
    pub fn expose_as(&self, id: ExportId, generation: u64, regions: impl Into<Arc<[Region]>>) {
        self.insert(Export::new(id, generation, regions));
    }

    /// The same of memory that is still being filled: readers get what is final, and wait for the
    /// rest.
    ///
    /// # Panics
    /// With more than [`MAX_REGIONS`] regions.
    pub fn expose_filling(
        &self,
        id: ExportId,
        generation: u64,
        regions: impl Into<Arc<[Region]>>,
        filling: Arc<Filling>,
    ) {
        self.insert(Export::new(id, generation, regions).filling(filling));
    }

    fn insert(&self, export: Export) {
        let regions = export.regions().len();
        assert!(regions <= MAX_REGIONS, "an export holds at most {MAX_REGIONS} regions");
        let mut exports = lock(&self.exports);
        self.grants.close_over(export.regions());
        exports.insert(export.id(), Arc::new(export));
    }

    /// Lets one writer write into regions, until the grant is closed or expires, or an export of any of
    /// their bytes is exposed. Several grants may be open over the same bytes: which write ends up there is
    /// then no longer said.
    ///
    /// # Errors
    /// [`GrantError`]: a region is read-only or computed, or served by an export that was not fenced; or too
    /// many grants are open.
    pub fn open_grant(&self, terms: GrantTerms) -> Result<WriteGrant, GrantError> {
        self.grant_to(terms, None)
    }

    /// The same under a name and with a secret that the writer knows otherwise ([`Auth::grant_secret`]). The name is
    /// fresh ([`GrantId::random`]).
    ///
    /// # Errors
    /// As [`ExportTable::open_grant`].
    ///
    /// [`Auth::grant_secret`]: crate::Auth::grant_secret
    pub fn open_grant_as(
        &self,
        id: GrantId,
        secret: Secret,
        terms: GrantTerms,
    ) -> Result<WriteGrant, GrantError> {
        self.grant_to(terms, Some((id, secret)))
    }

    fn grant_to(
        &self,
        terms: GrantTerms,
        known: Option<(GrantId, Secret)>,
    ) -> Result<WriteGrant, GrantError> {
        let exports = lock(&self.exports);
        let served = exports.values().filter(|export| export.is_served());
        let spans = Spans::of(&terms.regions);
        let found = served.flat_map(|export| export.regions()).find(|region| spans.overlap(region));
        if let Some(served) = found {
            let served = Spans::of(std::slice::from_ref(served));
            let region = terms.regions.iter().position(|region| served.overlap(region));
            return Err(GrantError::Served { region: region.unwrap_or_default() });
        }
        self.grants.open(terms, known, Instant::now())
    }

    /// Ends a grant. Once this returns, no write of the grant is under way, and none comes. False if the
    /// grant was not open.
    pub fn close_grant(&self, id: GrantId) -> bool {
        self.grants.close(id)
    }

    /// Grants that are open; those that have expired count until the next one is opened.
    pub fn grants(&self) -> usize {
        self.grants.len()
    }

    /// The regions that a write may go to, for as long as the write copies.
    pub(crate) fn grant(&self, id: GrantId) -> Result<Arc<Grant>, RequestRefusal> {
        self.grants.get(id)
    }

    /// Ends the serving of an export's bytes. After it returns, a read that ends well has seen
    /// only bytes from before: the memory may be changed. Running reads end as fenced.
    ///
    /// Cheap, never waits, may be repeated; an unknown id is fenced already.
    pub fn fence(&self, id: ExportId) {
        if let Ok(export) = self.get(id) {
            export.fence();
        }
    }

    /// Fences an export, waits up to `deadline` for connections that still send from it, then
    /// cuts them, and gives the regions up. Returns true if no connection holds them any more;
    /// otherwise the last to let go drops them.
    pub fn withdraw(&self, id: ExportId, deadline: Duration) -> bool {
        let Some(export) = lock(&self.exports).remove(&id) else { return true };
        export.fence();
        if export.wait_idle(deadline) {
            return true;
        }
        export.cut();
        export.wait_idle(CUT_GRACE)
    }

    /// Stops reads of an export's bytes in this process, for tests. Once for each export.
    #[doc(hidden)]
    pub fn hold(&self, id: ExportId, holds: Holds) {
        if let Ok(export) = self.get(id) {
            let _ = export.holds.set(holds);
        }
    }

    /// Fences every export, and closes every grant.
    pub(crate) fn fence_all(&self) {
        for export in lock(&self.exports).values() {
            export.fence();
        }
        self.grants.close_all();
    }

    /// Exports that are not withdrawn.
    pub fn len(&self) -> usize {
        lock(&self.exports).len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn get(&self, id: ExportId) -> Result<Arc<Export>, RequestRefusal> {
        lock(&self.exports).get(&id).cloned().ok_or(RequestRefusal::UnknownExport)
    }
}

impl Drop for ExportTable {
    /// Readers must notice that the memory is no longer kept for them.
    fn drop(&mut self) {
        // Without the lock, which a fork's copy may find held by a thread that it lacks.
        let exports = self.exports.get_mut().unwrap_or_else(PoisonError::into_inner);
        exports.values().for_each(|export| export.fence());
    }
}

impl fmt::Debug for ExportTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportTable").field("exports", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::socket::Socket;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_fence_moves_the_word_and_a_withdrawal_drops_the_owner() {
        let table = ExportTable::new();
        let owner = Arc::new([1_u8; 8]);
        let address = owner.as_ptr().cast_mut();
        // SAFETY: the array lives in the Arc and is only read.
        let region = unsafe { Region::from_raw(address, 8, false, owner.clone()) };
        let id = table.expose(3, vec![region]);
        let export = table.get(id).unwrap();
        assert!(export.is_served());
        table.fence(id);
        table.fence(id);
        assert!(!export.is_served());
        drop(export);
        assert_eq!(Arc::strong_count(&owner), 2);
        assert!(table.withdraw(id, Duration::ZERO));
        assert_eq!(Arc::strong_count(&owner), 1);
        assert!(table.is_empty() && table.get(id).is_err());
        assert!(table.withdraw(id, Duration::ZERO), "unknown ids are withdrawn already");
    }

    /// Readers of the same host have no connection for which a withdrawal could wait.
    #[test]
    fn what_nobody_is_connected_to_is_fenced_when_it_is_withdrawn() {
        let table = ExportTable::new();
        let id = table.expose(1, Vec::new());
        let export = table.get(id).unwrap();
        assert!(table.withdraw(id, Duration::ZERO));
        assert!(!export.is_served());
    }

    #[test]
    fn a_withdrawal_cuts_connections_that_do_not_let_go() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = Arc::new(Socket::Tcp(listener.accept().unwrap().0));
        let table = ExportTable::new();
        let id = table.expose(1, Vec::new());
        let export = table.get(id).unwrap();
        let serving = export.serve(&socket);
        assert!(!table.withdraw(id, Duration::ZERO));
        let ended = std::io::Read::read(&mut reader, &mut [0]).unwrap();
        assert_eq!(ended, 0, "the reader's connection was cut");
        drop(serving);
        assert!(export.wait_idle(Duration::ZERO));
    }

    #[test]
    fn a_table_knows_what_it_serves() {
        let table = ExportTable::new();
        assert!(table.is_empty() && table.get(ExportId(7)).is_err());
        let region = |len| Region::allocate(len).unwrap();
        table.expose_as(ExportId(7), 4, vec![region(3), region(5)]);
        let filling = Arc::new(Filling::new(&[]));
        table.expose_filling(ExportId(8), 5, Vec::new(), filling);
        let own = table.expose(6, vec![region(1)]);
        assert_eq!((table.len(), table.is_empty()), (3, false));
        assert_eq!(format!("{table:?}"), "ExportTable { exports: 3, .. }");
        let of = |id| {
            let export = table.get(id).unwrap();
            let lens: Vec<usize> = export.regions().iter().map(Region::len).collect();
            (export.id(), export.generation(), lens, export.progress().is_some())
        };
        assert_eq!(of(ExportId(7)), (ExportId(7), 4, vec![3, 5], false));
        assert_eq!(of(ExportId(8)), (ExportId(8), 5, vec![], true));
        assert_eq!(of(own), (own, 6, vec![1], false));
        let served =
            || [ExportId(7), ExportId(8), own].map(|id| table.get(id).unwrap().is_served());
        table.fence(ExportId(8));
        table.fence(ExportId(9));
        assert_eq!(served(), [true, false, true], "only that one");
        table.fence_all();
        assert_eq!((served(), table.len()), ([false; 3], 3));
    }

    #[test]
    fn whoever_drops_a_table_serves_no_more() {
        let table = ExportTable::new();
        let export = table.get(table.expose(1, Vec::new())).unwrap();
        drop(table);
        assert!(!export.is_served());
    }

    #[test]
    fn an_export_has_so_many_regions_and_no_more() {
        let region = Region::allocate(1).unwrap();
        let table = ExportTable::new();
        table.expose(1, vec![region.clone(); MAX_REGIONS]);
        let beyond =
            std::panic::AssertUnwindSafe(|| table.expose(1, vec![region; MAX_REGIONS + 1]));
        assert!(std::panic::catch_unwind(beyond).is_err());
        assert_eq!(table.len(), 1);
    }
}
