//! The open grants of a process.

use crate::base::error::RequestRefusal;
use crate::base::id::GrantId;
use crate::base::limits::MAX_GRANTS;
use crate::base::lock::lock;
use crate::export::grant::{Grant, GrantError, GrantTerms, Spans, WriteGrant};
use crate::memory::region::Region;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Grants by name. None is open by default.
#[derive(Default)]
pub(crate) struct GrantTable(Mutex<HashMap<GrantId, Arc<Grant>>>);

impl GrantTable {
    /// Opens a grant over regions that no export serves.
    pub(crate) fn open(&self, terms: GrantTerms, now: Instant) -> Result<WriteGrant, GrantError> {
        if let Some(region) = terms.regions.iter().position(|region| !region.is_writable()) {
            return Err(GrantError::ReadOnly { region });
        }
        let mut grants = lock(&self.0);
        grants.retain(|_, grant| !grant.is_expired(now));
        if grants.len() >= MAX_GRANTS {
            return Err(GrantError::TooMany { limit: MAX_GRANTS });
        }
        let (grant, half) = Grant::new(terms, now);
        grants.insert(half.id, Arc::new(grant));
        Ok(half)
    }

    /// Ends a grant, after the writes that are being copied. False if it was not open.
    pub(crate) fn close(&self, id: GrantId) -> bool {
        let grant = lock(&self.0).remove(&id);
        grant.is_some_and(|grant| {
            grant.close();
            true
        })
    }

    /// Ends the grants over any byte of these regions.
    pub(crate) fn close_over(&self, regions: &[Region]) {
        let mut grants = lock(&self.0);
        if grants.is_empty() {
            return;
        }
        let spans = Spans::of(regions);
        grants.retain(|_, grant| {
            let ends = grant.overlaps(&spans);
            if ends {
                grant.close();
            }
            !ends
        });
    }

    /// Ends all of them.
    pub(crate) fn close_all(&self) {
        lock(&self.0).drain().for_each(|(_, grant)| grant.close());
    }

    /// Grants that were opened, and neither closed nor found to be expired.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }

    /// # Errors
    /// [`RequestRefusal::NotGranted`] as for a grant that does not allow the write.
    pub(crate) fn get(&self, id: GrantId) -> Result<Arc<Grant>, RequestRefusal> {
        lock(&self.0).get(&id).cloned().ok_or(RequestRefusal::NotGranted)
    }
}
