//! `unpublish`: from the first shard's call on the copy takes no new readers. The call is answered
//! when the copy has no readers (S9), and is not the last one of a retained version (A2).

use crate::message::{Answer, Call};
use crate::server::contexts::GroupCtx;
use crate::server::rooms::VersionHandler;
use crate::server::stores::group::Group;
use crate::{CallError, Incarnation, Safeguard, Time};

impl VersionHandler<'_> {
    pub(in crate::server) fn start_unpublish(
        &mut self,
        now: Time,
        incarnation: Incarnation,
    ) -> Result<(), CallError> {
        let group = self.groups.of_mut(&incarnation);
        if group.held.is_none() {
            let detail = "nothing is published; call publish or replicate first".to_owned();
            return Err(CallError::Misuse { detail });
        }
        let deadline = group.pending_mut().deadline;
        if self.config.safeguards.on(Safeguard::EarlyRetraction) {
            self.copies().hide(incarnation);
        }
        let until = deadline.min(now + self.config.drain_deadline);
        self.transfers().drain_until(incarnation, until);
        self.durability().hold_until(now, incarnation, deadline);
        Ok(())
    }

    pub(in crate::server) fn advance_unpublish(&mut self, now: Time, incarnation: Incarnation) {
        let owner = self.books().group(incarnation);
        let drained = owner.is_drained() && !owner.may_be_last();
        let transaction = owner.group.pending();
        debug_assert_eq!(transaction.call, Call::Unpublish);
        let by_one = !self.config.safeguards.on(Safeguard::WholeUnpublish);
        let arrived = transaction.is_whole(owner.group.num_shards) || by_one;
        if arrived {
            self.copies().hide(incarnation); // changes nothing, but without a safeguard
        }
        let group = self.groups.of(&incarnation);
        let settled = group.held.as_ref().is_some_and(|held| held.settled());
        let ready = arrived && settled && drained;
        // Ask retention before the copy is drained as well: it can be offloaded meanwhile.
        if settled && self.durability().may_give_up(now, incarnation, ready) && ready {
            let group = self.groups.of_mut(&incarnation);
            let refused = group.held.take().and_then(|held| held.fenced);
            self.transfers().end_drain(incarnation);
            self.durability().note_gone(incarnation);
            // A group that has not heard of the refusal hears of it now. The copy is given up
            // nevertheless.
            let told = refused.filter(|_| self.config.safeguards.on(Safeguard::TellRefusal));
            self.calls().finish(incarnation, told.map_or(Ok(Answer::Unpublished), Err));
        }
    }
}

impl Group {
    /// Whether the group's pending call is an `unpublish` of all its shards.
    pub(in crate::server) fn unpublishes(&self) -> bool {
        let call = self.active_call();
        call.is_some_and(|call| call.call == Call::Unpublish && call.is_whole(self.num_shards))
    }
}

impl GroupCtx<'_> {
    /// Whether nothing but the recovery window keeps the group from giving its copy up.
    pub(in crate::server) fn is_held_by_window(&self) -> bool {
        let call = self.group.active_call().map(|call| &call.call);
        call == Some(&Call::Unpublish) && self.is_drained() && !self.is_copied()
    }

    /// Whether the group's copy may be the last of its version, because clients that have another may still come over
    /// from an earlier term (A5).
    pub(in crate::server) fn may_be_last(&self) -> bool {
        self.recovers() && !self.is_copied()
    }

    /// Whether the version is listed elsewhere, or the copy was refused and need not be kept.
    fn is_copied(&self) -> bool {
        self.group.held.as_ref().is_some_and(|held| {
            held.fenced.is_some() || self.model.visible.contains_key(&held.version)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Span;
    use crate::message::Call;
    use crate::server::props::{server, version};

    const NOW: Time = Time(50);

    #[test]
    fn readers_and_an_offload_have_their_own_time_within_that_of_the_call() {
        for call in [51, 59, 60, 61, 79, 80, 81, 999] {
            for (drain, offload) in [(10, 30), (30, 10), (10, 10)] {
                let mut server = server();
                server.config.drain_deadline = Span(drain);
                server.config.offload_deadline = Span(offload);
                let group = server.prop("g", 1);
                server.has_called(group, Call::Unpublish).deadline = Time(call);
                let nothing = server.versions().start_unpublish(NOW, group);
                assert!(matches!(nothing, Err(CallError::Misuse { .. })), "it holds nothing");
                server.holds(group, version(1));
                assert_eq!(server.versions().start_unpublish(NOW, group), Ok(()));
                let (drained, held) = (Time(call.min(50 + drain)), Time(call.min(50 + offload)));
                let copy = &server.groups[&group];
                assert_eq!((copy.drain_until, copy.hold_until), (Some(drained), Some(held)));
                assert_eq!(server.next_timeout(), Some(drained.min(held)));
                assert!(copy.held.as_ref().is_some_and(|held| !held.visible), "to nobody new");
                // A second one that begins later takes no reader's time away, nor gives more.
                server.has_called(group, Call::Unpublish).deadline = Time(9_999);
                assert_eq!(server.versions().start_unpublish(Time(55), group), Ok(()));
                assert_eq!(server.groups[&group].drain_until, Some(drained.min(Time(55 + drain))));
            }
        }
    }

    /// The deadline of an `update` bounds neither: when it passes, the group keeps its copy.
    #[test]
    fn an_update_gives_readers_and_an_offload_their_whole_time() {
        for (drain, offload) in [(10, 30), (30, 10)] {
            let mut server = server();
            server.config.drain_deadline = Span(drain);
            server.config.offload_deadline = Span(offload);
            let [group, reader, source] =
                ["g", "reader", "source"].map(|name| server.prop(name, 1));
            server.holds(group, version(1));
            server.holds(source, version(2));
            server.reads(reader, version(1), &[group]);
            server.reads(group, version(2), &[source]);
            server.at(group).replicated = Some(version(1));
            server.at(group).held.as_mut().expect("just set").sealed = false;
            server.transfers().drain_old_copy(NOW, group);
            let copy = &server.groups[&group];
            assert_eq!(copy.drain_until, Some(Time(50 + drain)));
            assert_eq!(copy.hold_until, Some(Time(50 + offload)));
            assert!(copy.held.as_ref().is_some_and(|held| !held.visible));
            // Once nobody reads it, nothing is waited for any more.
            server.transfers().release_edge(reader);
            server.advance(Time(60), group);
            assert!(server.groups[&group].held.is_some(), "it is being digested");
            server.at(group).held.as_mut().expect("just seen").sealed = true;
            server.advance(Time(60), group);
            let copy = &server.groups[&group];
            assert_eq!(
                (copy.drain_until, copy.hold_until, copy.held.is_some()),
                (None, None, false)
            );
            assert_eq!((copy.replicated, server.next_timeout()), (None, None));
        }
    }

    /// The recovery window alone holds a copy back if its group has nothing else to wait for.
    #[test]
    fn a_copy_is_held_back_by_the_window_alone_or_not() {
        for call in [None, Some(Call::List), Some(Call::Unpublish)] {
            for (read, listed, fenced) in [
                (false, false, false),
                (true, false, false),
                (false, true, false),
                (false, false, true),
                (true, true, true),
            ] {
                let mut server = server();
                let [group, reader, other] =
                    ["g", "reader", "other"].map(|name| server.prop(name, 1));
                server.holds(group, version(1));
                server.copies().hide(group);
                if read {
                    server.reads(reader, version(1), &[group]);
                }
                if listed {
                    server.holds(other, version(1));
                }
                let error = CallError::Misuse { detail: "refused".into() };
                let held = server.at(group).held.as_mut().expect("just set");
                held.fenced = fenced.then_some(error);
                if let Some(call) = call.clone() {
                    server.has_called(group, call);
                }
                let unpublishes = call == Some(Call::Unpublish);
                let copied = listed || fenced;
                assert_eq!(
                    server.books().group(group).is_held_by_window(),
                    unpublishes && !read && !copied
                );
                assert!(!server.books().group(group).may_be_last(), "nobody comes over");
                server.terms.window_until = Some(Time(99));
                assert_eq!(server.books().group(group).may_be_last(), !copied);
            }
        }
    }
}
