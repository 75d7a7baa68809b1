//! What a transfer that ran out of time has read: the group's next one to the same version goes on
//! after it. Else who has to wait for most of a short deadline is cut off while it reads, and begins at
//! zero for ever (L4).
//!
//! Between the two calls the memory is the user's, who may write to it. So what is kept is not served to
//! others, the whole is digested at the end as after any loss of a source, and if that is not what was
//! published nobody is accused: all is read again.

use super::group::Group;
use super::transaction::{Phase, Transfer};
use crate::{Attempt, Version};

/// How far the shards of a group were.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    version: Version,
    staged: bool,
    /// The last assignment; the next one is numbered after it.
    attempt: Attempt,
    since: Attempt,
}

impl Group {
    /// A call runs out of time. If it is a transfer, the next one takes its place in the line and,
    /// where that is kept, goes on where this one was; any other leaves what was left before.
    pub(super) fn leave_to_next(&mut self, keeps: bool) {
        let Some(call) = self.active_transaction() else { return };
        let place = call.place.filter(|_| call.transfer.is_some());
        // One that was given no source leaves what was kept before.
        let given = call.transfer.as_ref().filter(|transfer| transfer.attempt > Attempt(0));
        let kept = given.map(|transfer| transfer.kept().filter(|_| keeps));
        self.place = place.or(self.place);
        self.kept = kept.unwrap_or(self.kept);
    }
}

impl Transfer {
    fn kept(&self) -> Option<Kept> {
        let reads = matches!(self.phase, Phase::Waiting | Phase::Reading);
        let begun = reads && !self.void;
        let Transfer { staged, attempt, since, .. } = *self;
        self.version.filter(|_| begun).map(|version| Kept { version, staged, attempt, since })
    }

    /// Goes on after what was kept of the same version, before its first assignment.
    pub(super) fn go_on_after(&mut self, kept: Option<Kept>) {
        let same = |kept: &Kept| (Some(kept.version), kept.staged) == (self.version, self.staged);
        if let Some(kept) = kept.filter(same).filter(|_| self.attempt == Attempt(0)) {
            (self.attempt, self.since) = (kept.attempt, kept.since);
        }
    }
}
