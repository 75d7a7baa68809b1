//! How far behind the newest version a copy is.

use crate::server::stores::model::Model;
use crate::{Span, Time, Version};

/// How far behind a copy is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Staleness {
    /// Newer versions that this server knows.
    pub versions_behind: usize,
    /// Time since this server first knew one of these.
    pub stale: Span,
}

/// The versions of a model, the newest first, each with the time when that version or a newer one was first known.
pub(super) struct Ages(Vec<(Version, Time)>);

impl Ages {
    pub(super) fn of(model: &Model) -> Self {
        let mut first = Time(u64::MAX);
        let newest_first = model.known.iter().rev().map(|(version, content)| {
            first = first.min(content.since.0);
            (*version, first)
        });
        Self(newest_first.collect())
    }

    pub(super) fn staleness(&self, now: Time, held: Version) -> Staleness {
        let newer = &self.0[..self.0.partition_point(|(version, _)| *version > held)];
        let stale = newer.last().map_or(Span(0), |(_, first)| now - *first);
        Staleness { versions_behind: newer.len(), stale }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ContentDigest;
    use crate::server::props::version;
    use crate::server::stores::model::Content;
    use crate::server::stores::observed::Observed;

    #[test]
    fn a_copy_is_as_stale_as_the_first_newer_version_is_old() {
        let mut model = Model::default();
        // Version 6 came over after a takeover, later than 8.
        for (number, since) in [(2, 10), (5, 20), (6, 60), (8, 40)] {
            let catalog = ContentDigest::default();
            let content = Content { catalog, sum: None, since: Observed(Time(since)) };
            model.known.insert(version(number), content);
        }
        let ages = Ages::of(&model);
        for (held, versions_behind, stale) in [
            (1, 4, 90),
            (2, 3, 80),
            (4, 3, 80),
            (5, 2, 60),
            (6, 1, 60),
            (7, 1, 60),
            (8, 0, 0),
            (9, 0, 0),
        ] {
            let expected = Staleness { versions_behind, stale: Span(stale) };
            assert_eq!(ages.staleness(Time(100), version(held)), expected, "{held}");
        }
        let none = Ages::of(&Model::default());
        assert_eq!(none.staleness(Time(100), version(1)), Staleness::default());
    }
}
