//! The grants that a target has open at its data port: none once its call has ended.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use weightcast_protocol::push::{PushGrant, SenderId};
use weightcast_transport::{Auth, ExportTable, GrantError, GrantId, GrantTerms, Region};

use super::word::OpenedGrant;

/// Grants by number. `None`: no more may be opened.
#[derive(Default)]
pub(in crate::client) struct OpenedGrants(Mutex<Option<BTreeMap<u64, (OpenedGrant, SenderId)>>>);

impl OpenedGrants {
    /// Grants may be opened from now on.
    pub(super) fn begin(&self) {
        *self.0.lock().expect("no panic while held") = Some(BTreeMap::new());
    }

    /// Opens a grant for its sender, over all of the memory. False if no more may be opened.
    ///
    /// # Errors
    /// What the data port says.
    pub(super) fn open(
        &self,
        exports: &ExportTable,
        auth: &Auth,
        grant: &PushGrant,
        regions: &[Region],
        valid_for: Duration,
    ) -> Result<bool, GrantError> {
        let mut opened = self.0.lock().expect("no panic while held");
        let Some(opened) = opened.as_mut() else { return Ok(false) };
        let id = GrantId::random();
        let (number, generation) = (grant.number, grant.generation.0);
        let known = OpenedGrant { number, id: id.0, nonce: drawn() };
        let secret = auth.grant_secret(id, &known.known(grant.target, grant.sender, generation));
        let terms = GrantTerms { generation, regions: regions.to_vec(), writer: None, valid_for };
        exports.open_grant_as(id, secret, terms)?;
        opened.insert(number, (known, grant.sender));
        Ok(true)
    }

    /// Closes a grant: no write of it is under way when this returns.
    pub(super) fn close(&self, exports: &ExportTable, number: u64) {
        let mut opened = self.0.lock().expect("no panic while held");
        if let Some((known, _)) = opened.as_mut().and_then(|opened| opened.remove(&number)) {
            exports.close_grant(GrantId(known.id));
        }
    }

    /// Closes all grants, and lets none be opened any more.
    pub(in crate::client) fn end(&self, exports: &ExportTable) {
        for (known, _) in self
            .0
            .lock()
            .expect("no panic while held")
            .take()
            .into_iter()
            .flatten()
            .map(|(_, of)| of)
        {
            exports.close_grant(GrantId(known.id));
        }
    }

    /// The grants that are open.
    pub(super) fn all(&self) -> Vec<OpenedGrant> {
        let opened = self.0.lock().expect("no panic while held");
        opened.iter().flatten().map(|(_, (known, _))| *known).collect()
    }

    /// Whether this grant of this sender is open.
    pub(super) fn has(&self, number: u64, sender: SenderId) -> bool {
        let opened = self.0.lock().expect("no panic while held");
        opened.as_ref().and_then(|opened| opened.get(&number)).is_some_and(|(_, of)| *of == sender)
    }
}

/// Random bytes of the kernel.
fn drawn() -> [u8; 32] {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the kernel's random numbers");
    bytes
}
