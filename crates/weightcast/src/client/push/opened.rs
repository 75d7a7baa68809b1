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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::push::samples;
    use weightcast_protocol::push::TargetId;
    use weightcast_transport::Secret;

    const LONG: Duration = Duration::from_secs(3_600);

    fn grant(number: u64, sender: u64) -> PushGrant {
        PushGrant { number, sender: SenderId(sender), ..samples::grant([0]) }
    }

    /// At the data port as here: what is closed is closed there, and after the end nothing opens.
    #[test]
    fn the_data_port_has_the_grants_that_are_open_and_no_others() {
        let (opened, exports) = (OpenedGrants::default(), ExportTable::new());
        let (auth, regions) = (Auth::default(), [Region::allocate(8).unwrap()]);
        let open = |number| opened.open(&exports, &auth, &grant(number, 6), &regions, LONG);
        assert_eq!((open(1), exports.grants()), (Ok(false), 0), "before a call");
        opened.begin();
        for number in 1..4 {
            assert_eq!((open(number), exports.grants() as u64), (Ok(true), number));
        }
        assert!(opened.has(2, SenderId(6)) && !opened.has(2, SenderId(7)));
        opened.close(&exports, 2);
        opened.close(&exports, 2);
        opened.close(&exports, 9);
        assert_eq!((exports.grants(), opened.has(2, SenderId(6))), (2, false));
        let numbers: Vec<u64> = opened.all().iter().map(|of| of.number).collect();
        assert_eq!(numbers, [1, 3]);
        opened.end(&exports);
        assert_eq!((exports.grants(), opened.all().len()), (0, 0));
        assert_eq!((open(5), exports.grants()), (Ok(false), 0), "after the call");
        opened.begin();
        let fixed = [Region::allocate(8).unwrap().read_only()];
        let refused = opened.open(&exports, &auth, &grant(6, 6), &fixed, LONG);
        assert_eq!(refused, Err(GrantError::ReadOnly { region: 0 }));
        assert!(opened.all().is_empty());
    }

    /// Two grants of one number have other names and other secrets.
    #[test]
    fn every_grant_is_drawn_anew() {
        let (opened, exports) = (OpenedGrants::default(), ExportTable::new());
        let known = || {
            opened.begin();
            let regions = [Region::allocate(8).unwrap()];
            let auth = Auth::with_token(Secret::new("a"));
            opened.open(&exports, &auth, &grant(1, 6), &regions, LONG).unwrap();
            opened.all()[0]
        };
        let (one, other) = (known(), known());
        assert!(one.id != other.id && one.nonce != other.nonce);
        let of = |of: OpenedGrant| of.known(TargetId(1), SenderId(6), 5);
        assert_ne!(of(one), of(other));
    }
}
