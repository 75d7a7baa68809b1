//! L7: what is published is sealed: a copy that is listed has its digests at the server that acts soon after
//! the last fault, whatever server they were told before.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::server::{ReplicaState, Snapshot};
use weightcast_protocol::{Incarnation, Span, Time};

use super::{Checker, Fact};

/// Longer than any message takes.
const ON_ITS_WAY: Span = Span::from_millis(500);

pub(super) struct Sealed {
    /// How long it may take: who has died is found out after a lease, who has lost a server comes over
    /// in two.
    within: Span,
    /// When the last fault that was seen is over.
    calm_at: Time,
    /// Since when copies have been listed without.
    since: BTreeMap<Incarnation, Time>,
}

impl Sealed {
    pub(super) fn new(lease: Span, digest_time: Span) -> Self {
        let within = Span(3 * lease.0 + digest_time.0 + ON_ITS_WAY.0);
        Self { within, calm_at: Time(0), since: BTreeMap::new() }
    }

    fn books(&mut self, now: Time, books: &Snapshot) -> Option<String> {
        let replicas = books.models.values().flat_map(|model| &model.replicas);
        let open: BTreeMap<Incarnation, &str> = replicas
            .filter(|replica| replica.state == ReplicaState::Published)
            .map(|replica| (replica.incarnation, replica.name.as_str()))
            .collect();
        let here: BTreeSet<Incarnation> = open.keys().copied().collect();
        self.since.retain(|group, _| here.contains(group));
        let (calm_at, within) = (self.calm_at, self.within);
        open.into_iter().find_map(|(group, name)| {
            let since = *self.since.entry(group).or_insert(now);
            let late = now > since.max(calm_at) + within;
            late.then(|| format!("{name} has published, and its digests have not come"))
        })
    }
}

impl Checker for Sealed {
    fn name(&self) -> &'static str {
        "L7"
    }

    fn observe(&mut self, now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Struck { until, .. } => {
                self.calm_at = self.calm_at.max(*until);
                None
            }
            Fact::Books(books) => self.books(now, books),
            _ => None,
        }
    }
}
