//! What readers say of sources: one reader's word costs a source that reader, no more (T4).

use super::Server;
use super::choose::ATTEMPTS_PER_SOURCE;
use super::source_loss::Loss;
use crate::message::Assignment;
use crate::{CallError, Incarnation};

/// Replicas that must have read wrong bytes from a source before it is fenced.
const ACCUSERS: usize = 2;

impl Server {
    /// The bytes are not the publisher's: all that was read is void, and another source is tried.
    /// After a resume, or with several sources, it is not known which was wrong, so none is accused.
    pub(super) fn refuse_content(
        &mut self,
        incarnation: Incarnation,
        assignment: &Assignment,
        detail: &str,
    ) {
        self.counters.digest_mismatches += 1;
        let resumed = self.transfer(incarnation).expect("checked").resumed();
        let several = assignment.stripes() > 1 && !self.config.mutants.accuse_first_stripe;
        let resumed = resumed || several;
        let source = self.edges.source_of(incarnation);
        let failures = if resumed { 1 } else { ATTEMPTS_PER_SOURCE };
        self.lose_source(incarnation, detail, Loss { failures, suspect: true, stripe: 0 });
        let transfer = self.transfer(incarnation).expect("checked");
        transfer.last_error = Some(CallError::DigestMismatch {
            version: assignment.version,
            source_replica: assignment.sources().join(", "),
            detail: detail.to_owned(),
        });
        if let Some(source) = source.filter(|_| !resumed) {
            self.accuse(source, incarnation);
        }
    }

    /// Counts an accusation. Two replicas' word fences a copy, unless it is the last of its version.
    fn accuse(&mut self, source: Incarnation, by: Incarnation) {
        let accuser = self.groups[&by].replica.clone();
        let Some(group) = self.groups.get_mut(&source) else { return };
        let Some(held) = group.held.as_mut().filter(|held| held.visible) else { return };
        self.counters.accusations += 1;
        held.accusers.insert(accuser);
        let (version, accusers) = (held.version, held.accusers.len());
        let holders = self.models[&group.model].visible.get(&version).map_or(0, |h| h.len());
        if (accusers >= ACCUSERS && holders > 1) || self.config.mutants.one_accuser {
            self.counters.accused_fenced += 1;
            self.fence(source, version, "two replicas have read other bytes from it");
        }
    }
}
