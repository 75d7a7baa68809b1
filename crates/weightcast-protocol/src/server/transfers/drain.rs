//! Drain: readers of a copy finish before the copy changes, within a bound; then they are cut off
//! (S8, S9, L3). Readers that have most likely died are not waited for.

use crate::server::contexts::GroupCtx;
use crate::server::rooms::TransferHandler;
use crate::server::stores::timers::Timer;
use crate::server::transfers::source_loss::Loss;
use crate::{Incarnation, Safeguard, Time};

impl TransferHandler<'_> {
    /// Gives the readers of the group until then to finish. An earlier bound stays.
    pub(in crate::server) fn drain_until(&mut self, incarnation: Incarnation, until: Time) {
        let group = self.groups.of_mut(&incarnation);
        let until = group.drain_until.map_or(until, |earlier| earlier.min(until));
        group.drain_until = Some(until);
        self.timers.set(until, Timer::Drain(incarnation));
        for reader in self.edges.readers_of(incarnation).collect::<Vec<_>>() {
            self.leave_behind(incarnation, reader);
        }
    }

    /// Nobody has heard of a group for a while: sources that give their copies up do not wait for it.
    pub(in crate::server) fn stop_waiting_for(&mut self, reader: Incarnation) {
        for source in self.edges.sources_of(reader).to_vec() {
            self.leave_behind(source, reader);
        }
    }

    /// Takes a reader of which nobody has heard for a while off a source that drains. If its process lives after all,
    /// it keeps what it has read.
    fn leave_behind(&mut self, source: Incarnation, reader: Incarnation) {
        let of = self.groups.of(&source);
        if of.drain_until.is_some() && self.groups.of(&reader).unheard {
            let reason =
                format!("replica {} gave its copy up, and had not heard of its reader", of.replica);
            self.counters.left_behind += 1;
            self.take_off(source, reader, &reason, Loss::default());
        }
    }

    /// Ends the drain, whatever its outcome.
    pub(in crate::server) fn end_drain(&mut self, incarnation: Incarnation) {
        let group = self.groups.of_mut(&incarnation);
        if group.drain_until.take().is_some() {
            self.timers.cancel(Timer::Drain(incarnation));
        }
    }

    /// The readers' time is over: cuts them off. A read that goes on nevertheless does no harm: a
    /// source fences before its memory changes (S3).
    pub(in crate::server) fn drain_timer(&mut self, now: Time, incarnation: Incarnation) {
        let Some(group) = self.groups.get_mut(&incarnation) else { return };
        if group.drain_until.is_none_or(|until| until > now)
            || !self.config.safeguards.on(Safeguard::DrainDeadline)
        {
            return;
        }
        group.drain_until = None;
        let reason = format!("replica {} gave its copy up before it was read", group.replica);
        self.counters.drains_cut += self.edges.load(incarnation) as u64;
        self.cut_readers(incarnation, &reason);
        self.agenda.wake(incarnation);
    }

    /// Takes every reader off a source. Each reader keeps what it has read, and goes on at another source or fails.
    pub(in crate::server) fn cut_readers(&mut self, source: Incarnation, reason: &str) {
        self.take_readers_off(source, reason, Loss::default());
    }

    /// Takes every reader off a source that was proved bad. Each reader begins anew.
    pub(in crate::server) fn spoil_readers(&mut self, source: Incarnation, reason: &str) {
        self.take_readers_off(source, reason, Loss { suspect: true, ..Loss::default() });
    }

    fn take_readers_off(&mut self, source: Incarnation, reason: &str, loss: Loss) {
        let readers: Vec<Incarnation> = self.edges.readers_of(source).collect();
        readers.into_iter().for_each(|reader| self.take_off(source, reader, reason, loss));
    }

    fn take_off(&mut self, source: Incarnation, reader: Incarnation, reason: &str, loss: Loss) {
        if !self.config.safeguards.on(Safeguard::CommitFence)
            && self.groups.of(&reader).held.is_none()
        {
            // The mutant lets a read go on as if nothing had happened.
            let model = self.groups.of(&reader).model.clone();
            self.edges.remove(&model, reader);
            return;
        }
        let from = self.edges.sources_of(reader);
        let stripe = from.iter().position(|from| *from == source).unwrap_or(0);
        if stripe > 0 && !self.config.safeguards.on(Safeguard::EveryStripe) {
            self.edges.keep_first(reader); // as if it were none of its sources
        } else {
            self.lose_source(reader, reason, Loss { stripe, ..loss });
        }
    }
}

impl GroupCtx<'_> {
    /// Whether the group has no readers.
    pub(in crate::server) fn is_drained(&self) -> bool {
        let unread = self.config.safeguards.on(Safeguard::Drain);
        let mut readers = self.edges.readers_of(self.group.incarnation);
        readers.all(|reader| !unread && self.groups.of(&reader).held.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Server;
    use crate::server::props::{server, version};

    /// A holder of version 1 that so many read from.
    fn read_by(readers: usize) -> (Server, Incarnation, Vec<Incarnation>) {
        let mut server = server();
        let source = server.prop("source", 1);
        server.holds(source, version(1));
        let readers: Vec<Incarnation> =
            ["r", "s", "t"][..readers].iter().map(|name| server.prop(name, 1)).collect();
        readers.iter().for_each(|reader| server.reads(*reader, version(1), &[source]));
        (server, source, readers)
    }

    #[test]
    fn readers_have_until_the_earliest_time_that_was_given() {
        let (mut server, source, _) = read_by(0);
        for (until, expected) in [(50, 50), (60, 50), (40, 40), (40, 40)] {
            server.transfers().drain_until(source, Time(until));
            assert_eq!(server.groups[&source].drain_until, Some(Time(expected)));
            assert_eq!(server.next_timeout(), Some(Time(expected)));
        }
        server.transfers().end_drain(source);
        assert_eq!((server.groups[&source].drain_until, server.next_timeout()), (None, None));
        server.transfers().drain_until(source, Time(90));
        assert_eq!(server.next_timeout(), Some(Time(90)), "the next drain has its own time");
    }

    #[test]
    fn readers_are_cut_off_at_the_end_of_their_time_and_not_before() {
        for (now, cut) in [(49, false), (50, true), (51, true)] {
            let (mut server, source, readers) = read_by(3);
            server.agenda.groups.clear();
            server.transfers().drain_until(source, Time(50));
            assert!(!server.books().group(source).is_drained());
            server.transfers().drain_timer(Time(now), source);
            assert_eq!(server.counters.drains_cut, if cut { 3 } else { 0 }, "{now}");
            assert_eq!(server.books().group(source).is_drained(), cut);
            assert_eq!(server.groups[&source].drain_until.is_none(), cut);
            assert_eq!(server.agenda.groups.contains(&source), cut);
            for reader in readers {
                let transfer = server.groups[&reader].transfer().unwrap();
                assert_eq!(transfer.failures.get(&source), cut.then_some(&0), "no word against it");
                assert!(!transfer.void, "what it has read stays");
            }
        }
        let (mut server, source, _) = read_by(1);
        server.transfers().drain_timer(Time(u64::MAX), source);
        assert_eq!(server.counters.drains_cut, 0, "it is not drained");
    }

    #[test]
    fn readers_of_a_bad_copy_begin_anew() {
        let (mut server, source, readers) = read_by(2);
        server.transfers().spoil_readers(source, "bad");
        for reader in readers {
            assert!(server.groups[&reader].transfer().unwrap().void);
        }
        assert!(server.books().group(source).is_drained());
    }

    #[test]
    fn what_is_shown_and_hidden_moves_the_listing_once() {
        let (mut server, source, _) = read_by(0);
        let number = |server: &Server| server.models["policy"].revision.number;
        let before = number(&server);
        let listed = |server: &Server| server.models["policy"].visible.contains_key(&version(1));
        server.agenda.models.clear();
        server.copies().hide(source);
        assert!(server.agenda.models.contains("policy") && !listed(&server));
        assert!(!server.groups[&source].held.as_ref().unwrap().visible);
        server.agenda.models.clear();
        server.copies().hide(source);
        assert_eq!((number(&server), server.agenda.models.len()), (before + 1, 0), "it was hidden");
        server.at(source).held.as_mut().unwrap().offload_failed = Some("no memory".to_owned());
        server.copies().show(source);
        assert!(server.agenda.models.contains("policy") && listed(&server));
        assert_eq!(number(&server), before + 2);
        let held = server.groups[&source].held.as_ref().unwrap();
        assert_eq!((held.visible, held.offload_failed.as_ref()), (true, None));
    }
}
