//! Bytes that a transfer had read when its call ran out of time. The group's next transfer of the
//! same version continues after them. Otherwise a group that has to wait for most of a short
//! deadline is cut off while it reads, and begins at zero for ever (L4).
//!
//! Between the two calls the user may write to the memory. So kept bytes are not served to others,
//! and the whole is digested at the end, as after any loss of a source. If the digest is wrong, no
//! source is accused, and everything is read again.

use crate::Attempt;
use crate::server::stores::group::Group;
use crate::server::stores::transaction::{GroupTransfer, Kept, Phase};

impl Group {
    /// A call runs out of time. A transfer leaves its place in the queue to the group's next
    /// transfer and, if `keeps`, the bytes that it has read. Any other call leaves both as they
    /// are.
    pub(in crate::server) fn leave_to_next(&mut self, keeps: bool) {
        let Some(call) = self.active_transaction() else { return };
        let place = call.place.filter(|_| call.transfer.is_some());
        // A transfer that was given no source has read nothing, and leaves what was kept before.
        let given = call.transfer.as_ref().filter(|transfer| transfer.attempt > Attempt(0));
        let kept = given.map(|transfer| transfer.kept().filter(|_| keeps));
        self.place = place.or(self.place);
        self.kept = kept.unwrap_or(self.kept);
    }
}

impl GroupTransfer {
    fn kept(&self) -> Option<Kept> {
        let reads = matches!(self.phase, Phase::Waiting | Phase::Reading);
        let begun = reads && !self.void;
        let GroupTransfer { staged, attempt, since, .. } = *self;
        self.version.filter(|_| begun).map(|version| Kept { version, staged, attempt, since })
    }

    /// Continues after the bytes that were kept of the same version, before the first assignment.
    pub(in crate::server) fn go_on_after(&mut self, kept: Option<Kept>) {
        if let Some(kept) = kept
            && (Some(kept.version), kept.staged) == (self.version, self.staged)
            && self.attempt == Attempt(0)
        {
            (self.attempt, self.since) = (kept.attempt, kept.since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Selector;
    use crate::Version;
    use crate::message::Call;
    use crate::server::props::{called, server, version};

    fn numbers(kept: Option<Kept>) -> Option<(Version, bool, u64, u64)> {
        kept.map(|kept| (kept.version, kept.staged, kept.attempt.0, kept.since.0))
    }

    #[test]
    fn what_was_read_is_kept_of_a_version_that_is_known_and_was_not_spoilt() {
        for phase in [Phase::Waiting, Phase::Draining, Phase::Reading, Phase::Installing] {
            for (void, staged) in [(false, false), (true, false), (false, true), (true, true)] {
                for version in [None, Some(version(4))] {
                    let (attempt, since) = (Attempt(3), Attempt(2));
                    let transfer = GroupTransfer {
                        version,
                        phase,
                        void,
                        staged,
                        attempt,
                        since,
                        ..Default::default()
                    };
                    let reads = [Phase::Waiting, Phase::Reading].contains(&phase);
                    let expected = version.filter(|_| reads && !void).map(|v| (v, staged, 3, 2));
                    assert_eq!(numbers(transfer.kept()), expected, "{phase:?}, void is {void}");
                }
            }
        }
    }

    #[test]
    fn a_transfer_goes_on_after_the_same_version_read_in_the_same_way_before_it_begins() {
        let (attempt, since) = (Attempt(3), Attempt(2));
        for staged in [false, true] {
            let kept = Kept { version: version(4), staged, attempt, since };
            for (of, beside, had) in [
                (Some(version(4)), staged, Attempt(0)),
                (Some(version(4)), staged, Attempt(1)),
                (Some(version(4)), !staged, Attempt(0)),
                (Some(version(5)), staged, Attempt(0)),
                (None, staged, Attempt(0)),
            ] {
                let mut transfer =
                    GroupTransfer { version: of, staged: beside, ..Default::default() };
                (transfer.attempt, transfer.since) = (had, had);
                let goes_on = of == Some(version(4)) && beside == staged && had == Attempt(0);
                let mut alone = transfer.clone();
                alone.go_on_after(None);
                assert_eq!((alone.attempt, alone.since), (had, had));
                transfer.go_on_after(Some(kept));
                let expected = if goes_on { (attempt, since) } else { (had, had) };
                assert_eq!((transfer.attempt, transfer.since), expected, "{of:?}, {beside}, {had}");
            }
        }
    }

    #[test]
    fn a_call_that_runs_out_of_time_leaves_its_place_and_what_it_was_given() {
        let before =
            Kept { version: version(1), staged: false, attempt: Attempt(9), since: Attempt(8) };
        let is = |kept: Option<Kept>| kept.map(|kept| kept.version.number);
        // What the call was given, whether it is a transfer, its place; then what is left.
        for (given, transfers, place, keeps, place_left, kept_left) in [
            (Some(2), true, Some(7), true, Some(7), Some(2)),
            (Some(2), true, Some(7), false, Some(7), None),
            (None, true, Some(7), true, Some(7), Some(1)),
            (None, true, Some(7), false, Some(7), Some(1)),
            (Some(2), true, None, true, Some(5), Some(2)),
            (None, false, Some(7), true, Some(5), Some(1)),
            (None, false, None, true, Some(5), Some(1)),
        ] {
            let mut server = server();
            let group = server.prop("g", 1);
            let call = server.has_called(group, Call::Replicate { selector: Selector::Latest });
            call.place = place;
            call.transfer = transfers.then(|| GroupTransfer {
                version: given.map(version),
                phase: Phase::Reading,
                attempt: Attempt(given.map_or(0, |_| 1)),
                since: Attempt(1),
                ..GroupTransfer::default()
            });
            let group = server.at(group);
            (group.place, group.kept) = (Some(5), Some(before));
            group.leave_to_next(keeps);
            assert_eq!((group.place, is(group.kept)), (place_left, kept_left), "{given:?}");
            // Without a call nothing is left.
            group.active = None;
            (group.place, group.kept) = (None, None);
            group.transactions.insert(crate::OpSeq(1), called(Call::List));
            group.leave_to_next(keeps);
            assert_eq!((group.place, is(group.kept)), (None, None));
        }
    }
}
