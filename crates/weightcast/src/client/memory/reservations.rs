//! The registered memory of this process, by handle.
//!
//! Memory that one handle fills may be registered by no other handle: the version that the other
//! handle reports would change under it, and no digest would tell. Any number of handles may
//! register memory that none of them fills: two names of one model, published from the same
//! weights.
//!
//! Memory that two processes share goes unnoticed, and so does memory that is mapped twice.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock};

use weightcast_plan::{Layout, LayoutError, Overlap, Placed, overlap};
use weightcast_transport::Region;

use crate::config::Replica;
use crate::error::Error;
use crate::per_process::PerProcess;

/// Memory that a handle has registered, until this is dropped.
pub(in crate::client) struct Reservation {
    number: u64,
}

/// Marks the memory of a reservation as being filled, until this is dropped. The guard goes with
/// the call: the caller may stop waiting before the call has ended.
pub(in crate::client) struct FillGuard(Arc<Reservation>);

/// The handle that registers memory.
#[derive(Clone, Debug)]
pub(in crate::client) struct Registrant {
    /// Number of the handle; no other handle of this process has the same.
    pub(in crate::client) handle: u64,
    pub(super) model: String,
    pub(in crate::client) replica: Replica,
}

/// One registration, as the other handles see it.
struct ReservedRegistration {
    holder: Registrant,
    memory: ReservedMemory,
    /// Whether its handle may write to it at any time.
    filled: bool,
    /// Calls that may write to it now.
    filling: usize,
}

impl ReservedRegistration {
    fn is_filled(&self) -> bool {
        self.filled || self.filling > 0
    }
}

/// Slices and where they lie.
#[derive(Clone)]
pub(in crate::client) struct ReservedMemory {
    layout: Arc<Layout>,
    starts: Vec<Option<u64>>,
    /// First byte, and the one after the last.
    span: (u64, u64),
}

impl ReservedMemory {
    /// The slices of a layout in these regions.
    pub(in crate::client) fn new(layout: &Layout, regions: &[Region]) -> Self {
        let starts: Vec<Option<u64>> = regions
            .iter()
            .map(|region| (!region.is_computed()).then(|| region.address()))
            .collect();
        let placed = starts.iter().zip(layout.buffers()).filter(|(_, bytes)| **bytes > 0);
        let placed = placed.filter_map(|(start, bytes)| Some(((*start)?, (*start)? + bytes)));
        let first = placed.clone().map(|(start, _)| start).min().unwrap_or_default();
        let end = placed.map(|(_, end)| end).max().unwrap_or_default();
        Self { span: (first, end), layout: Arc::new(layout.clone()), starts }
    }

    fn placed(&self) -> Placed<'_> {
        Placed { layout: &self.layout, starts: &self.starts }
    }

    /// # Errors
    /// Two of its buffers lie in each other's memory.
    pub(in crate::client) fn check(&self) -> Result<(), LayoutError> {
        overlap(&[self.placed()]).map_or(Ok(()), |found| Err(LayoutError::Overlap(Box::new(found))))
    }

    fn overlap(&self, other: &Self) -> Option<Overlap> {
        let apart = self.span.1 <= other.span.0 || other.span.1 <= self.span.0;
        if apart { None } else { overlap(&[self.placed(), other.placed()]) }
    }
}

impl Registrant {
    /// A new handle of this process.
    pub(in crate::client) fn new(model: &str, replica: &Replica) -> Self {
        static HANDLES: AtomicU64 = AtomicU64::new(0);
        let handle = HANDLES.fetch_add(1, Ordering::Relaxed);
        Self { handle, model: model.to_owned(), replica: replica.clone() }
    }

    /// Reserves memory for this handle; `filled` says that versions may be written to it at any
    /// time.
    ///
    /// # Errors
    /// Another handle has registered some of it, and one of the two fills it.
    pub(in crate::client) fn reserve(
        &self,
        memory: ReservedMemory,
        filled: bool,
    ) -> Result<Reservation, Error> {
        static RESERVATIONS: AtomicU64 = AtomicU64::new(0);
        let mut reservations = reservations();
        for other in reservations.values().filter(|other| other.holder.handle != self.handle) {
            if let Some(found) =
                memory.overlap(&other.memory).filter(|_| filled || other.is_filled())
            {
                return Err(self.refused(&other.holder, &found));
            }
        }
        let number = RESERVATIONS.fetch_add(1, Ordering::Relaxed);
        reservations.insert(
            number,
            ReservedRegistration { holder: self.clone(), memory, filled, filling: 0 },
        );
        Ok(Reservation { number })
    }

    fn refused(&self, other: &Self, found: &Overlap) -> Error {
        Error::misuse(format!(
            "{} of {} lies in memory of this process that {} has registered for {}, and what one \
             handle fills no other may hold: {}; close or unregister the other one, or give each \
             memory of its own (published weights can be sampled from as they are)",
            found.first.name,
            self,
            other,
            found.second.name,
            found.range(),
        ))
    }
}

impl std::fmt::Display for Registrant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Replica { name, shard, num_shards, .. } = &self.replica;
        write!(f, "{name}[{shard}/{num_shards}] of model {}", self.model)
    }
}

impl Reservation {
    /// Notes that the memory is filled from now on.
    ///
    /// # Errors
    /// Another handle has registered some of it.
    pub(in crate::client) fn fill(self: Arc<Self>) -> Result<FillGuard, Error> {
        let mut reservations = reservations();
        let own = reservations.get(&self.number).expect("listed until it is dropped");
        // `reserve` has refused `filled` memory to all other handles: nothing is left to check.
        let others = reservations.values().filter(|_| !own.filled);
        for other in others.filter(|other| other.holder.handle != own.holder.handle) {
            if let Some(found) = own.memory.overlap(&other.memory) {
                return Err(own.holder.refused(&other.holder, &found));
            }
        }
        reservations.entry(self.number).and_modify(|own| own.filling += 1);
        drop(reservations);
        Ok(FillGuard(self))
    }
}

impl Drop for FillGuard {
    fn drop(&mut self) {
        reservations().entry(self.0.number).and_modify(|own| own.filling -= 1);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        reservations().remove(&self.number);
    }
}

/// All reservations of this process.
fn reservations() -> MutexGuard<'static, Reservations> {
    static FIRST: OnceLock<PerProcess<Reservations>> = OnceLock::new();
    PerProcess::lock(&FIRST)
}

type Reservations = BTreeMap<u64, ReservedRegistration>;

#[cfg(test)]
mod tests;
