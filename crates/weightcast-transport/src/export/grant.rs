//! A grant: the leave of a process to write into regions of its memory, for one writer and one generation.
//!
//! No grant is open by default, and without one a data port refuses every write. The writer is whoever
//! holds the grant's secret, which the owner of the memory sends to that writer alone, over a channel that
//! it trusts. The port needs no more to know that a write is the writer's: each carries a proof that only
//! the secret makes, and only for that write on that connection ([`GrantKey::mac`]).

use crate::base::error::RequestRefusal;
use crate::base::host::host_of;
use crate::base::id::{GrantId, random};
use crate::base::secret::Secret;
use crate::memory::region::Region;
use crate::wire::mac::{GrantKey, Nonces};
use crate::wire::write_frame::WriteFrame;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};
use thiserror::Error;

/// What an owner of memory allows.
#[derive(Clone, Debug)]
pub struct GrantTerms {
    /// The owner's counter, which the writer must name: a writer with old news writes nothing.
    pub generation: u64,
    /// Where bytes may go: whole regions, or parts of them ([`Region::part`]).
    pub regions: Vec<Region>,
    /// The host that the writer's connections must come from, if it is known. A whole IPv6 /64 counts as
    /// one host.
    pub writer: Option<IpAddr>,
    /// How long the grant stays open unless it is closed before.
    pub valid_for: Duration,
}

/// What a writer needs: the other half of a grant. Whoever holds it can write, so it goes to one writer,
/// over a channel that strangers cannot read.
#[derive(Clone, Debug)]
pub struct WriteGrant {
    /// Its name, which is no secret.
    pub id: GrantId,
    /// The owner's generation.
    pub generation: u64,
    /// What proves the writer. Never printed.
    pub secret: Secret,
    /// Bytes of each region, in order.
    pub lens: Vec<u64>,
}

/// Why a grant was not opened. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GrantError {
    /// A region may not be written.
    #[error(
        "region {region} is read-only: register it as writable before a grant is opened over it"
    )]
    ReadOnly {
        /// Index into the grant's regions.
        region: usize,
    },
    /// A region shares bytes with an export that is served: its readers would see them change.
    #[error("region {region} is being served: fence its export before a grant is opened over it")]
    Served {
        /// Index into the grant's regions.
        region: usize,
    },
    /// More grants than a process may have open.
    #[error("{limit} grants are open: close those that are done, or give them a shorter life")]
    TooMany {
        /// The limit.
        limit: usize,
    },
}

/// An open grant, as its owner's process knows it.
pub(crate) struct Grant {
    generation: u64,
    key: GrantKey,
    writer: Option<IpAddr>,
    until: Option<Instant>,
    /// `None` once the grant is closed. Writes copy while they read this, so no write outlives it.
    regions: RwLock<Option<Vec<Region>>>,
}

/// A write, and what its connection knows of the writer.
pub(crate) struct GrantedWrite<'a> {
    pub(crate) frame: &'a WriteFrame<'a>,
    pub(crate) nonces: &'a Nonces,
    /// How many writes came over the connection before.
    pub(crate) sequence: u64,
    /// The host that the connection comes from, unless it is a process of this host.
    pub(crate) host: Option<IpAddr>,
}

impl Grant {
    /// A grant with a secret of its own, and its writer's half.
    pub(crate) fn new(terms: GrantTerms, now: Instant) -> (Self, WriteGrant) {
        Self::known_as(GrantId::random(), Secret::new(random::<32>()), terms, now)
    }

    /// A grant of this name, whose writer knows this secret.
    pub(crate) fn known_as(
        id: GrantId,
        secret: Secret,
        terms: GrantTerms,
        now: Instant,
    ) -> (Self, WriteGrant) {
        let GrantTerms { generation, regions, writer, valid_for } = terms;
        let (key, lens) = (GrantKey::new(&secret), regions.iter().map(|r| r.len() as u64));
        let half = WriteGrant { id, generation, lens: lens.collect(), secret };
        // Beyond what the clock can say, only closing ends it.
        let until = now.checked_add(valid_for);
        let writer = writer.map(host_of);
        (Self { generation, key, writer, until, regions: RwLock::new(Some(regions)) }, half)
    }

    pub(crate) fn is_expired(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// The regions, as long as the answer lives: no write of this grant is under way once it was closed.
    ///
    /// # Errors
    /// [`RequestRefusal::NotGranted`], whatever is wrong.
    pub(crate) fn admit(
        &self,
        write: &GrantedWrite<'_>,
        now: Instant,
    ) -> Result<OpenRegions<'_>, RequestRefusal> {
        let proved = write.frame.is_proved(&self.key, write.nonces, write.sequence);
        let current = write.frame.claim.generation == self.generation;
        let from_writer = self.writer.is_none() || self.writer == write.host;
        if !proved || !current || !from_writer || self.is_expired(now) {
            return Err(RequestRefusal::NotGranted);
        }
        let open = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        if open.is_some() { Ok(OpenRegions(open)) } else { Err(RequestRefusal::NotGranted) }
    }

    /// Ends it, after the writes that are being copied: a few hundred kilobytes each.
    pub(crate) fn close(&self) {
        *self.regions.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whether it allows a write into any of these bytes. Only of use while it is open.
    pub(crate) fn overlaps(&self, spans: &Spans) -> bool {
        let open = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        open.iter().flatten().any(|region| spans.overlap(region))
    }
}

#[cfg(test)]
impl Grant {
    pub(crate) fn is_closed(&self) -> bool {
        self.keep_open().is_none()
    }

    /// As a write does that is being copied.
    pub(crate) fn keep_open(&self) -> RwLockReadGuard<'_, Option<Vec<Region>>> {
        self.regions.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The regions of a grant that cannot be closed meanwhile.
pub(crate) struct OpenRegions<'a>(RwLockReadGuard<'a, Option<Vec<Region>>>);

impl Deref for OpenRegions<'_> {
    type Target = [Region];

    fn deref(&self) -> &[Region] {
        self.0.as_deref().unwrap_or_default()
    }
}

/// The addresses of regions, to be compared with those of others.
pub(crate) struct Spans(Vec<(u64, u64)>);

impl Spans {
    pub(crate) fn of(regions: &[Region]) -> Self {
        let mut spans: Vec<_> = regions.iter().filter_map(span).collect();
        spans.sort_unstable();
        // Where they lie in each other, the end of one is no more than that of another before it.
        let mut end = 0;
        for span in &mut spans {
            end = end.max(span.1);
            span.1 = end;
        }
        Self(spans)
    }

    /// Whether a region shares a byte with any of them.
    pub(crate) fn overlap(&self, region: &Region) -> bool {
        let Some((start, end)) = span(region) else { return false };
        let before = self.0.partition_point(|(begin, _)| *begin < end);
        before.checked_sub(1).is_some_and(|last| self.0[last].1 > start)
    }
}

/// First byte, and one past the last. Bytes without an address share none.
fn span(region: &Region) -> Option<(u64, u64)> {
    let start = region.address();
    (start != 0 && !region.is_empty()).then(|| (start, start + region.len() as u64))
}

#[cfg(test)]
mod tests;
