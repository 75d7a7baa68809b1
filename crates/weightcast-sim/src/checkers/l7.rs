//! L7: every published version is sealed: soon after the last fault the acting server has the
//! digests of each listed copy, whichever server was told them before.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::server::{ReplicaState, Snapshot};
use weightcast_protocol::{Incarnation, Span, Time};

use super::{Checker, Fact};

/// Longer than any message takes.
const ON_ITS_WAY: Span = Span::from_millis(500);

pub(super) struct Sealed {
    /// The longest time to a seal after the last fault. The server notices a dead shard after one
    /// lease, and a session that lost its server comes over within two.
    within: Span,
    /// When the last fault seen so far ends.
    calm_at: Time,
    /// Since when each copy has been listed without its digests.
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
