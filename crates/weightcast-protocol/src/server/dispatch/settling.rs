//! After each event, does everything that the event has made possible, in a deterministic order.
//! The number of steps is bounded: a bug that never ends leaves its rest to the next event, and
//! shows (T5).

use std::collections::BTreeSet;

use crate::Time;
use crate::limits::{SETTLING_ROUNDS, SETTLING_ROUNDS_PER_GROUP};
use crate::server::Server;
use crate::server::stores::agenda::EndedCall;
use crate::server::stores::violation::{Violation, ensure};

impl Server {
    pub(in crate::server) fn settle(&mut self, now: Time) {
        let bound = SETTLING_ROUNDS + SETTLING_ROUNDS_PER_GROUP * self.groups.len();
        let mut settled = BTreeSet::new();
        self.unsettled = (0..bound).all(|_| self.settle_one(now, &mut settled));
        self.tell(now);
        self.agenda.models.append(&mut settled);
        self.membership().free_models();
        self.blobs.schedule_grace(now, &mut self.timers);
        if self.config.paranoid
            && let Err(violation) = self.validate()
        {
            panic!("invariant broken: {violation}");
        }
    }

    /// Tells of the calls that have ended or moved on, for figures and traces.
    fn tell(&mut self, now: Time) {
        let mut ended = std::mem::take(&mut self.agenda.ended);
        for EndedCall { call, outcome, started, .. } in &ended {
            self.durations.0.add(call, outcome, now - *started);
        }
        match self.config.tell_stages {
            true => self.tell_stages(&ended),
            false => self.agenda.moved.clear(),
        }
        // The next event uses the same memory.
        ended.clear();
        self.agenda.ended = ended;
    }

    /// Does the next thing on the agenda. False if there is none.
    fn settle_one(&mut self, now: Time, settled: &mut BTreeSet<String>) -> bool {
        if let Some(group) = self.agenda.groups.pop_first() {
            self.agenda.moved.push(group);
            self.advance(now, group);
        } else if let Some(model) = self.agenda.models.pop_first() {
            self.durability().review_claims(now, &model);
            self.review_seeds(&model);
            self.serve_waiting(now, &model);
            if let Some(model) = self.models.get_mut(&model) {
                model.observe_latest(now);
            }
            settled.insert(model);
        } else if let Some(group) = self.agenda.sealed.pop_first() {
            // After those who have no source yet.
            self.transfers().let_help(group);
        } else if let Some(model) = settled.pop_first() {
            // Offloads come last: a group that has just listed a copy again may give it up for
            // another source (A3).
            self.durability().review_offloads(&model);
        } else {
            return false;
        }
        true
    }

    pub(in crate::server) fn validate_settled(&self) -> Result<(), Violation> {
        ensure(!self.unsettled, "T5", || {
            let (groups, models) = (&self.agenda.groups, &self.agenda.models);
            format!("an event had no end: still to do are groups {groups:?}, models {models:?}")
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::message::{Answer, Call};
    use crate::server::props::{SEQ, server, version};
    use crate::{CallError, Selector, Span, Time};

    #[test]
    fn a_call_is_counted_with_its_duration_when_it_has_its_answer() {
        let update =
            || Call::Update { selector: Selector::Latest, allow_rollback: false, staged: false };
        let late = CallError::Timeout {
            call: String::new(),
            waiting_for: String::new(),
            detail: String::new(),
        };
        for (call, result, name, outcome) in [
            (update(), Ok(Answer::Unchanged { held: None }), "update", "unchanged"),
            (update(), Err(late), "update", "timeout"),
            (Call::Unpublish, Ok(Answer::Unpublished), "unpublish", "ok"),
        ] {
            let mut server = server();
            let group = server.prop("g", 1);
            let pending = server.has_called(group, call.clone());
            (pending.started, pending.arrived) = (Time(20), [(0, call)].into());
            server.settle(Time(25));
            assert_eq!(server.snapshot(Time(25)).durations.each().count(), 0, "it is pending");
            server.calls().finish(group, result);
            server.settle(Time(30));
            server.settle(Time(40));
            let durations = server.snapshot(Time(40)).durations;
            let each: Vec<_> =
                durations.each().map(|(c, o, d)| (c, o, d.count(), d.sum())).collect();
            assert_eq!(each, [(name, outcome, 1, Span(10))], "{SEQ}");
        }
    }

    #[test]
    fn the_newest_version_is_as_old_as_its_first_copy() {
        let mut server = server();
        let [one, other, next] = ["one", "other", "next"].map(|name| server.prop(name, 1));
        let age = |server: &crate::server::Server, now| {
            server.snapshot(Time(now)).models["policy"].latest_for
        };
        server.holds(one, version(1));
        server.settle(Time(10));
        assert_eq!(age(&server, 15), Some(Span(5)));
        server.holds(other, version(1));
        server.settle(Time(20));
        assert_eq!(age(&server, 25), Some(Span(15)), "another copy is no news");
        server.holds(next, version(2));
        server.settle(Time(30));
        assert_eq!(age(&server, 35), Some(Span(5)));
        server.copies().hide(next);
        server.settle(Time(40));
        assert_eq!(age(&server, 45), Some(Span(5)), "the one before is the newest again");
        [one, other].into_iter().for_each(|group| server.copies().hide(group));
        server.settle(Time(50));
        assert_eq!(age(&server, 55), None);
    }
}
