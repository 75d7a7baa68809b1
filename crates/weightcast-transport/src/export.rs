//! One export: regions, and the fence word that says whether they are served.
//!
//! The fence word holds the export's id while it is served and zero afterwards. Ids are random
//! and never used twice, so whoever reads the id there after a copy knows that all the bytes
//! copied before were served. A reader in another process reads the word itself; the data port
//! reads it after it has handed bytes to the kernel, and only then answers "ok".

use crate::exports::{ExportId, lock};
use crate::fence_word::FenceWord;
use crate::filling::Filling;
use crate::holds::{HoldPoint, Holds};
use crate::limits::TICK;
use crate::region::Region;
use crate::socket::Socket;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// One export. Its address is stable behind the `Arc`, so its word can be read from outside.
pub(crate) struct Export {
    word: FenceWord,
    id: ExportId,
    generation: u64,
    regions: Vec<Region>,
    /// What the publisher tells readers about the export.
    pub(crate) note: OnceLock<Arc<[u8]>>,
    /// Which parts may be read already, if the memory is still being filled.
    filling: Option<Arc<Filling>>,
    serving: Mutex<Vec<Arc<Socket>>>,
    idle: Condvar,
    /// Where a test stops whoever reads it here.
    pub(crate) holds: OnceLock<Holds>,
}

impl Export {
    pub(crate) fn new(id: ExportId, generation: u64, regions: Vec<Region>) -> Self {
        let word = FenceWord::new(id.0);
        let (serving, idle) = (Mutex::default(), Condvar::new());
        let (note, holds) = (OnceLock::new(), OnceLock::new());
        Self { word, id, generation, regions, note, filling: None, serving, idle, holds }
    }

    /// The same, of memory that is being filled.
    pub(crate) fn filling(mut self, filling: Arc<Filling>) -> Self {
        self.filling = Some(filling);
        self
    }

    pub(crate) fn id(&self) -> ExportId {
        self.id
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Set if the memory was still being filled when it was exposed.
    pub(crate) fn progress(&self) -> Option<&Filling> {
        self.filling.as_deref()
    }

    /// Waits until these ranges may be read, looking each [`TICK`] whether the asker still wants
    /// them. False if the export was fenced or the asker gave up.
    pub(crate) fn wait_final(
        &self,
        ranges: impl Iterator<Item = (u32, u64, u64)>,
        wanted: impl Fn() -> bool,
    ) -> bool {
        let Some(filling) = &self.filling else { return true };
        for (region, offset, len) in ranges {
            let units = filling.units().touched(region, offset, len);
            while !filling.is_final(units.clone()) {
                if !self.is_served() || !wanted() {
                    return false;
                }
                filling.wait(units.clone(), TICK);
            }
        }
        true
    }

    /// Where the fence word lies.
    pub(crate) fn word_address(&self) -> u64 {
        self.word.0.as_ptr().expose_provenance() as u64
    }

    /// True if all bytes read from the regions before this call were served.
    pub(crate) fn is_served(&self) -> bool {
        self.word.is(self.id.0)
    }

    pub(crate) fn fence(&self) {
        self.word.fence();
        if let Some(filling) = &self.filling {
            filling.wake();
        }
    }

    /// A read of it has come to a point.
    pub(crate) fn stop_at(&self, point: HoldPoint) {
        if let Some(holds) = self.holds.get() {
            holds.at(point);
        }
    }

    /// Notes that `socket` sends from the regions until the guard is dropped.
    pub(crate) fn serve<'a>(&'a self, socket: &'a Arc<Socket>) -> Serving<'a> {
        lock(&self.serving).push(Arc::clone(socket));
        Serving { export: self, socket }
    }

    /// Waits until no connection serves from the export. False if the deadline passed first.
    pub(crate) fn wait_idle(&self, deadline: Duration) -> bool {
        let until = Instant::now().checked_add(deadline);
        let mut serving = lock(&self.serving);
        while !serving.is_empty() {
            let left = match until {
                Some(until) => until.saturating_duration_since(Instant::now()),
                None => Duration::MAX,
            };
            if left.is_zero() {
                return false;
            }
            let woken = self.idle.wait_timeout(serving, left);
            serving = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Ends the connections that still serve from the export.
    pub(crate) fn cut(&self) {
        lock(&self.serving).iter().for_each(|socket| socket.shut_down());
    }
}

/// While it lives, a connection may be sending from the export's regions.
pub(crate) struct Serving<'a> {
    export: &'a Export,
    socket: &'a Arc<Socket>,
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        let mut serving = lock(&self.export.serving);
        if let Some(place) = serving.iter().position(|socket| Arc::ptr_eq(socket, self.socket)) {
            serving.swap_remove(place);
        }
        self.export.idle.notify_all();
    }
}
