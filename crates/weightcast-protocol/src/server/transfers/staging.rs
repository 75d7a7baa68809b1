//! Staged updates: the group holds and serves its old copy while the shards read the new version
//! beside it. The old copy is given up only when all shards have the new version, verified (G4).
//! After that there is no way back: the shards install the version, and the group holds it once all
//! have.
//!
//! The group is no source of the new version before it is installed. Other groups that want the
//! version wait, as for a group that is being filled.

use crate::message::ServerMessage;
use crate::server::contexts::GroupCtx;
use crate::server::rooms::TransferHandler;
use crate::server::stores::group::Group;
use crate::server::stores::sessions::MemberId;
use crate::server::stores::timers::Timer;
use crate::server::stores::transaction::Phase;
use crate::{Attempt, Generation, Incarnation, OpSeq, Time, Version};

impl TransferHandler<'_> {
    /// All shards have read the version beside their memory, and it is the publisher's. The group
    /// releases its sources. The readers of its old copy finish, as before any change of memory.
    pub(super) fn verified_beside(&mut self, now: Time, incarnation: Incarnation) {
        self.counters.staged += 1;
        self.groups.pending_transfer(incarnation).progress.clear();
        self.release_edge(incarnation);
        let model = self.groups.of(&incarnation).model.clone();
        self.models.of_mut(&model).landing.insert(incarnation);
        self.drain_old_copy(now, incarnation);
    }

    /// The old copy is given up, and the shards install the new version. The call's deadline is
    /// postponed: a call that ended now would leave the shards with neither copy.
    pub(super) fn install(&mut self, now: Time, incarnation: Incarnation) {
        let span = self.config.install_deadline;
        let group = self.groups.of_mut(&incarnation);
        let transaction = group.pending_mut();
        let seq = transaction.seq;
        let deadline = transaction.deadline.max(now + span);
        transaction.deadline = deadline;
        let transfer = transaction.as_transfer_mut();
        (transfer.phase, transfer.gave_up) = (Phase::Installing, true);
        let attempt = transfer.attempt;
        self.timers.set(deadline, Timer::Call(incarnation, seq));
        for member in group.members.values() {
            let message = ServerMessage::Install { seq, attempt, deadline: span };
            self.connections.send(member.session, message);
        }
    }

    /// A shard has installed the version.
    pub(in crate::server) fn installed(
        &mut self,
        from: MemberId,
        seq: OpSeq,
        attempt: Attempt,
        generation: Generation,
    ) {
        let group = self.groups.of_mut(&from.group);
        let Some(transfer) = group.transfer_of_mut(seq) else { return };
        if transfer.phase == Phase::Installing && transfer.attempt == attempt {
            transfer.installed.insert(from.shard, generation);
            self.agenda.wake(from.group);
        }
    }

    /// The group holds the version once all shards have installed it.
    pub(super) fn try_commit_installed(&mut self, incarnation: Incarnation) {
        let num_shards = self.groups.of(&incarnation).num_shards as usize;
        let transfer = self.groups.pending_transfer(incarnation);
        if transfer.installed.len() < num_shards {
            return;
        }
        let assignment = transfer.assigned().clone();
        let generations = transfer.installed.values().copied().collect();
        self.end_landing(incarnation);
        self.commit(incarnation, assignment, generations);
    }

    /// The group does not install anything any more.
    pub(super) fn end_landing(&mut self, incarnation: Incarnation) {
        let Some(group) = self.groups.get(&incarnation) else { return };
        let model = self.models.of_mut(&group.model);
        if model.landing.remove(&incarnation) {
            self.agenda.note_change(&group.model);
        }
    }
}

impl<'a> GroupCtx<'a> {
    /// Other groups that have a version beside their memory, verified, and will hold it soon.
    pub(in crate::server) fn landing(self, version: Version) -> impl Iterator<Item = &'a Group> {
        let landing = self.model.landing.iter().map(move |group| self.groups.of(group));
        landing.filter(move |group| {
            group.transfer().is_some_and(|transfer| transfer.version == Some(version))
                && group.incarnation != self.group.incarnation
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Server;
    use crate::server::props::{SEQ, server, version};

    /// A group of two shards that puts version 2 in place, with its third assignment.
    fn installing() -> (Server, Incarnation) {
        let mut server = server();
        let [source, group] = ["source", "group"].map(|name| server.prop(name, 2));
        server.holds(source, version(2));
        server.reads(group, version(2), &[source]);
        let transfer = server.groups.transfer(group).expect("it reads");
        (transfer.staged, transfer.attempt) = (true, Attempt(3));
        server.transfers().install(Time(50), group);
        (server, group)
    }

    #[test]
    fn what_was_read_is_put_in_place_with_the_longer_of_two_times() {
        for (span, deadline) in [(10, 9), (10, 60), (10, 61), (0, 9), (700, 200)] {
            let (mut server, group) = installing();
            server.config.install_deadline = crate::Span(span);
            let call = server.at(group).active_transaction().expect("it reads");
            call.deadline = Time(deadline);
            server.transfers().install(Time(50), group);
            let call = &server.groups[&group].transactions[&SEQ];
            let expected = Time(deadline.max(50 + span));
            assert_eq!((call.deadline, server.next_timeout()), (expected, Some(expected)));
            let transfer = call.transfer.as_ref().expect("it reads");
            assert_eq!((transfer.phase, transfer.gave_up), (Phase::Installing, true));
        }
    }

    #[test]
    fn a_shard_has_put_in_place_what_it_was_told_to_and_its_last_word_counts() {
        let earlier = OpSeq(SEQ.0 - 1);
        for (seq, attempt, phase, counts) in [
            (SEQ, Attempt(3), Phase::Installing, true),
            (SEQ, Attempt(2), Phase::Installing, false),
            (SEQ, Attempt(4), Phase::Installing, false),
            (earlier, Attempt(3), Phase::Installing, false),
            (SEQ.next(), Attempt(3), Phase::Installing, false),
            (SEQ, Attempt(3), Phase::Reading, false),
            (SEQ, Attempt(3), Phase::Draining, false),
            (SEQ, Attempt(3), Phase::Waiting, false),
        ] {
            let (mut server, group) = installing();
            server.groups.transfer(group).expect("it reads").phase = phase;
            server.agenda.groups.clear();
            let shard = server.member(group, 1);
            for generation in [20, 21] {
                server.transfers().installed(shard, seq, attempt, Generation(generation));
                let installed = &server.groups.transfer(group).expect("it reads").installed;
                let expected = counts.then_some(Generation(generation));
                assert_eq!(installed.get(&1).copied(), expected, "{seq} {attempt} {phase:?}");
                assert_eq!(installed.len(), usize::from(counts));
                assert_eq!(server.agenda.groups.contains(&group), counts);
            }
        }
    }

    #[test]
    fn what_lands_is_of_this_version_and_not_the_readers_own_and_its_end_is_noticed_once() {
        let (mut server, group) = installing();
        let reader = server.prop("reader", 1);
        let landing = |server: &Server, of: Incarnation, number: u64| {
            server.books().group(of).landing(version(number)).count()
        };
        assert_eq!(landing(&server, reader, 2), 0);
        server.transfers().verified_beside(Time(60), group);
        assert_eq!((landing(&server, reader, 2), landing(&server, reader, 1)), (1, 0));
        assert_eq!(landing(&server, group, 2), 0);
        assert_eq!(server.counters.staged, 1);
        server.agenda.models.clear();
        server.transfers().end_landing(reader);
        assert!(server.agenda.models.is_empty());
        server.transfers().end_landing(group);
        assert!(server.agenda.models.contains("policy"));
        assert_eq!(landing(&server, reader, 2), 0);
        server.agenda.models.clear();
        server.transfers().end_landing(group);
        assert!(server.agenda.models.is_empty(), "it has ended before");
    }
}
