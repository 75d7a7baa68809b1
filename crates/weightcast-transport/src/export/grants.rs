//! The open grants of a process.

use crate::base::error::RequestRefusal;
use crate::base::id::GrantId;
use crate::base::limits::MAX_GRANTS;
use crate::base::lock::lock;
use crate::base::secret::Secret;
use crate::export::grant::{Grant, GrantError, GrantTerms, Spans, WriteGrant};
use crate::memory::region::Region;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Grants by name. None is open by default. A grant that is taken off is closed under the same lock: an export
/// that finds no grant over its bytes must not be overtaken by the last write of one.
#[derive(Default)]
pub(crate) struct GrantTable(Mutex<HashMap<GrantId, Arc<Grant>>>);

impl GrantTable {
    /// Opens a grant over regions that no export serves. `known`: its name and its secret, if they are drawn already.
    pub(crate) fn open(
        &self,
        terms: GrantTerms,
        known: Option<(GrantId, Secret)>,
        now: Instant,
    ) -> Result<WriteGrant, GrantError> {
        if let Some(region) = terms.regions.iter().position(|region| !region.is_writable()) {
            return Err(GrantError::ReadOnly { region });
        }
        let mut grants = lock(&self.0);
        end(&mut grants, |grant| grant.is_expired(now));
        if grants.len() >= MAX_GRANTS {
            return Err(GrantError::TooMany { limit: MAX_GRANTS });
        }
        let (grant, half) = match known {
            Some((id, secret)) => Grant::known_as(id, secret, terms, now),
            None => Grant::new(terms, now),
        };
        grants.insert(half.id, Arc::new(grant));
        Ok(half)
    }

    /// Ends a grant, after the writes that are being copied. False if it was not open.
    pub(crate) fn close(&self, id: GrantId) -> bool {
        let mut grants = lock(&self.0);
        let grant = grants.remove(&id);
        if let Some(grant) = &grant {
            grant.close();
        }
        grant.is_some()
    }

    /// Ends the grants over any byte of these regions.
    pub(crate) fn close_over(&self, regions: &[Region]) {
        let mut grants = lock(&self.0);
        if grants.is_empty() {
            return;
        }
        let spans = Spans::of(regions);
        end(&mut grants, |grant| grant.overlaps(&spans));
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

/// Takes off and closes those grants of which this holds.
fn end(grants: &mut HashMap<GrantId, Arc<Grant>>, ends: impl Fn(&Grant) -> bool) {
    grants.retain(|_, grant| {
        let ended = ends(grant);
        if ended {
            grant.close();
        }
        !ended
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const DAY: Duration = Duration::from_secs(86_400);

    fn terms() -> GrantTerms {
        let regions = vec![Region::allocate(1).unwrap()];
        GrantTerms { generation: 1, regions, writer: None, valid_for: DAY }
    }

    /// A write may have been let in just before the end, and an export no longer finds the grant.
    #[test]
    fn an_expired_grant_that_makes_room_is_closed() {
        let (table, now) = (GrantTable::default(), Instant::now());
        let id = table.open(terms(), None, now).unwrap().id;
        let held = table.get(id).unwrap();
        table.open(terms(), None, now).unwrap();
        assert!(!held.is_closed());
        table.open(terms(), None, now + DAY).unwrap();
        assert!(held.is_closed() && table.get(id).is_err());
    }

    /// Whoever finds the grant gone finds its last write gone as well.
    #[test]
    fn a_grant_is_taken_off_no_sooner_than_its_last_write_has_ended() {
        let table = GrantTable::default();
        let id = table.open(terms(), None, Instant::now()).unwrap().id;
        let held = table.get(id).unwrap();
        let writing = held.keep_open();
        std::thread::scope(|scope| {
            let closing = scope.spawn(|| table.close(id));
            let until = Instant::now() + Duration::from_secs(20);
            while let Ok(grants) = table.0.try_lock() {
                assert!(grants.contains_key(&id), "gone while it is written to");
                assert!(Instant::now() < until, "nobody closes it");
                drop(grants);
                std::thread::yield_now();
            }
            drop(writing);
            assert!(closing.join().unwrap());
        });
        assert!(held.is_closed());
    }
}
