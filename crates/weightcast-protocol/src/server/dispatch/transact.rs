//! Group transactions: the first shard's call starts one, the others join it, and every shard gets
//! the one result, whenever it asks (§4.4 of the paper; G1 to G5).

use crate::limits::DETAIL_CHARS;
use crate::message::Call;
use crate::server::Server;
use crate::server::stores::sessions::MemberId;
use crate::server::stores::timers::Timer;
use crate::server::stores::transaction::{Transaction, same_call};
use crate::{CallError, Incarnation, OpSeq, Safeguard, Span, Time};

/// How a call relates to what the shard and its group have called before.
enum Arrival {
    /// The first shard to make it.
    Starts,
    /// Other shards have made it before.
    Joins,
    /// This shard has made it before (G5).
    Repeats,
    /// It has been answered, and the shard has gone on since: it can't want to know any more.
    Stale,
    /// It does not follow the shard's last call, or differs from the group's.
    Wrong(CallError),
}

impl Server {
    pub(in crate::server) fn call(
        &mut self,
        now: Time,
        from: MemberId,
        seq: OpSeq,
        allowed: Span,
        call: Call,
    ) {
        match self.arrival(from, seq, &call) {
            Arrival::Wrong(error) => {
                self.counters.divergences += 1;
                self.membership().break_group(from.group, error.clone());
                self.calls().answer(from, seq, Err(error));
                return;
            }
            Arrival::Stale => return,
            Arrival::Repeats if !self.runs_again(from.group, seq) => {
                return self.calls().repeat(from, seq);
            }
            Arrival::Repeats => {}
            Arrival::Starts | Arrival::Joins => {}
        }
        if let Err(error) = self.admit(from.group, seq) {
            return self.calls().answer(from, seq, Err(error));
        }
        self.pass_earlier(from, seq);
        self.calls().look_up_first(from.group, seq, &call);
        let whole = self.config.safeguards.on(Safeguard::FullDeadline);
        let allowed = if whole { allowed } else { allowed.scaled(1, 2) };
        self.arrive(now, from, seq, now + allowed, call);
        self.agenda.wake(from.group);
    }

    /// Without the safeguard, what is known of a call that has ended is forgotten.
    fn runs_again(&mut self, incarnation: Incarnation, seq: OpSeq) -> bool {
        let group = self.groups.of_mut(&incarnation);
        let ended =
            group.active.is_none() && !self.config.safeguards.on(Safeguard::RepeatsAnswered);
        ended && group.transactions.remove(&seq).is_some()
    }

    fn arrival(&self, from: MemberId, seq: OpSeq, call: &Call) -> Arrival {
        let group = self.groups.of(&from.group);
        let shard = from.shard;
        let last = group.member(shard).last_seq;
        let transaction = group.transactions.get(&seq);
        // What a shard has called last, by its own word too, is a call only if it came here: else
        // a shard would go past the call that it joins (T5).
        let came = transaction.is_some_and(|call| call.arrived.contains_key(&shard));
        if seq < last || (seq == last && !came) {
            return Arrival::Stale;
        }
        if seq > last.next() {
            let (replica, expected) = (group.replica.clone(), last.next());
            let reason =
                format!("shard {shard} made call {seq} where call {expected} was expected");
            return Arrival::Wrong(CallError::GroupBroken { replica, reason });
        }
        let Some(transaction) = transaction else {
            let Some(active) = group.active else { return Arrival::Starts };
            let replica = group.replica.clone();
            let reason = format!("shard {shard} made call {seq} before call {active} was answered");
            return Arrival::Wrong(CallError::GroupBroken { replica, reason });
        };
        let (before, by) = match transaction.arrived.get(&shard) {
            Some(own) => (own, shard),
            None => (&transaction.call, transaction.first_shard),
        };
        let repeats = by == shard;
        if !same_call(before, call) || (repeats && before != call) {
            return Arrival::Wrong(CallError::GroupDiverged {
                replica: group.replica.clone(),
                seq,
                shard_a: by,
                call_a: before.to_string(),
                shard_b: shard,
                call_b: call.to_string(),
            });
        }
        if repeats { Arrival::Repeats } else { Arrival::Joins }
    }

    /// Whether a call may start or join: not at the end of a group, and not too far ahead.
    fn admit(&mut self, incarnation: Incarnation, seq: OpSeq) -> Result<(), CallError> {
        let group = self.groups.of(&incarnation);
        // At the end of a group every call that it has made has its result.
        let recorded = group.transactions.contains_key(&seq);
        if let Some(over) = &group.over
            && !recorded
        {
            return Err(over.error.clone());
        }
        if group.transactions.len() > self.config.limits.calls_ahead
            && self.config.safeguards.on(Safeguard::CallsForgotten)
            && !recorded
        {
            let reason = format!(
                "one shard is {} calls ahead of another; all shards must make the same calls",
                group.transactions.len()
            );
            let error = CallError::GroupBroken { replica: group.replica.clone(), reason };
            self.membership().break_group(incarnation, error.clone());
            return Err(error);
        }
        Ok(())
    }

    /// The shard has gone past its last call; forgets calls that every shard has gone past.
    fn pass_earlier(&mut self, from: MemberId, seq: OpSeq) {
        let group = self.groups.of_mut(&from.group);
        let member = group.member_mut(from.shard);
        let last = std::mem::replace(&mut member.last_seq, seq);
        if let Some(transaction) = group.transactions.get_mut(&last) {
            transaction.passed += 1;
            if transaction.passed == group.num_shards
                && self.config.safeguards.on(Safeguard::CallsForgotten)
            {
                group.transactions.remove(&last);
            }
        }
    }

    fn arrive(&mut self, now: Time, from: MemberId, seq: OpSeq, deadline: Time, call: Call) {
        let MemberId { group: incarnation, shard, .. } = from;
        let group = self.groups.of_mut(&incarnation);
        let starts = !group.transactions.contains_key(&seq);
        let transaction = group.transactions.entry(seq).or_insert_with(|| Transaction {
            seq,
            call: call.clone(),
            first_shard: shard,
            started: now,
            deadline,
            arrived: Default::default(),
            passed: 0,
            decided: None,
            result: None,
            place: None,
            transfer: None,
        });
        let declines = matches!(call, Call::Decline { .. }) && transaction.result.is_none();
        if let Call::Register { layout, .. } = &call
            && transaction.result.is_none()
        {
            // It stays while the call waits for the other shards, whose models may take long to load.
            self.blobs.retain(*layout);
        }
        transaction.arrived.insert(shard, call);
        let whole = transaction.is_whole(group.num_shards);
        if declines && !starts {
            self.declined(incarnation, shard);
        } else if let Some(answer) = transaction.decided.take_if(|_| whole) {
            self.calls().finish(incarnation, Ok(answer));
        } else if starts {
            group.active = Some(seq);
            self.timers.set(deadline, Timer::Call(incarnation, seq));
            self.start(now, incarnation);
        } else if let Some(result) = transaction.result.clone() {
            let result = self.calls().as_recorded(incarnation, seq, result);
            self.calls().answer(from, seq, result);
        } else if deadline < transaction.deadline {
            transaction.deadline = deadline;
            self.timers.set(deadline, Timer::Call(incarnation, seq));
        }
    }

    /// What the first shard's arrival decides, for all.
    fn start(&mut self, now: Time, incarnation: Incarnation) {
        let group = self.groups.of_mut(&incarnation);
        let call = group.pending().call.clone();
        let fenced = group.held.as_ref().and_then(|held| held.fenced.clone());
        if let Some(error) = fenced.filter(|_| call != Call::Unpublish) {
            return self.calls().finish(incarnation, Err(error));
        }
        let started = match call {
            Call::Register { .. } => self.calls().start_register(incarnation),
            Call::Unregister => self.calls().start_unregister(incarnation),
            Call::Publish { version, .. } => self.versions().start_publish(incarnation, version),
            Call::Unpublish => self.versions().start_unpublish(now, incarnation),
            Call::Replicate { selector } => self.transfers().start_replicate(incarnation, selector),
            Call::Update { selector, allow_rollback, staged } => {
                self.transfers().start_update(incarnation, selector, allow_rollback, staged)
            }
            Call::Describe { .. } | Call::Wait { .. } => {
                self.calls().start_waiting(incarnation);
                Ok(())
            }
            Call::List => self.versions().start_list(incarnation),
            Call::Decline { .. } => {
                let shard = group.pending().first_shard;
                return self.declined(incarnation, shard);
            }
        };
        if let Err(error) = started {
            self.calls().finish(incarnation, Err(error));
        }
    }

    /// Moves a group's pending call on as far as it goes.
    pub(in crate::server) fn advance(&mut self, now: Time, incarnation: Incarnation) {
        let Some(group) = self.groups.get_mut(&incarnation) else { return };
        if group.over.is_some() {
            return self.membership().advance_closing(now, incarnation);
        }
        let Some(transaction) = group.active_transaction() else { return };
        if transaction.decided.is_some() {
            return;
        }
        match transaction.call {
            Call::Register { .. } => self.calls().advance_register(incarnation),
            Call::Unregister => self.calls().advance_unregister(incarnation),
            Call::Publish { .. } => self.versions().advance_publish(incarnation),
            Call::Unpublish => self.versions().advance_unpublish(now, incarnation),
            Call::Replicate { .. } | Call::Update { .. } => {
                let onward = self.transfers().advance(now, incarnation);
                self.go_on(incarnation, onward);
            }
            Call::Describe { selector } => self.versions().advance_describe(incarnation, selector),
            Call::Wait { until } => self.versions().advance_wait(incarnation, until),
            Call::List | Call::Decline { .. } => {}
        }
    }

    /// A shard can't make the group's call: it ends for all, and they learn why.
    fn declined(&mut self, incarnation: Incarnation, shard: u32) {
        self.transfers().abandon_transfer(incarnation);
        let group = self.groups.of_mut(&incarnation);
        let replica = group.replica.clone();
        let transaction = group.pending_mut();
        transaction.decided = None;
        let Some(Call::Decline { detail }) = transaction.arrived.get(&shard) else { return };
        let detail: String = detail.chars().take(DETAIL_CHARS).collect();
        let detail = format!("shard {shard}: {detail}");
        self.calls().finish(incarnation, Err(CallError::LayoutMismatch { replica, detail }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Selector;
    use crate::server::props::{SEQ, server};
    use crate::server::stores::group::Over;

    fn named(arrival: Arrival) -> String {
        match arrival {
            Arrival::Starts => "starts".to_owned(),
            Arrival::Joins => "joins".to_owned(),
            Arrival::Repeats => "repeats".to_owned(),
            Arrival::Stale => "stale".to_owned(),
            Arrival::Wrong(CallError::GroupBroken { reason, .. }) => reason,
            Arrival::Wrong(CallError::GroupDiverged {
                shard_a, call_a, shard_b, call_b, ..
            }) => {
                format!("{shard_a} {call_a}, {shard_b} {call_b}")
            }
            Arrival::Wrong(error) => panic!("{error}"),
        }
    }

    /// A group of three shards whose call 3 waits: shard 0 has made it, shards 1 and 2 have not. It is
    /// known of shard 2 only that it has called so far.
    fn waiting() -> (Server, Incarnation) {
        let mut server = server();
        let group = server.prop("g", 3);
        let call = Call::Unpublish;
        server.has_called(group, call.clone()).arrived.insert(0, call);
        server.at(group).members.get_mut(&1).unwrap().last_seq = OpSeq(SEQ.0 - 1);
        (server, group)
    }

    #[test]
    fn a_call_follows_the_shards_last_one_and_is_the_groups() {
        let (server, group) = waiting();
        let list = Call::List;
        let skipped = |shard, made, expected| {
            format!("shard {shard} made call {made} where call {expected} was expected")
        };
        let early = |shard| format!("shard {shard} made call 4 before call 3 was answered");
        for (shard, seq, call, expected) in [
            (0, 1, &Call::Unpublish, "stale".to_owned()),
            (0, 2, &Call::Unpublish, "stale".to_owned()),
            (0, 3, &Call::Unpublish, "repeats".to_owned()),
            (0, 3, &list, "0 unpublish, 0 list".to_owned()),
            (0, 4, &list, early(0)),
            (0, 5, &list, skipped(0, 5, 4)),
            (1, 1, &Call::Unpublish, "stale".to_owned()),
            (1, 2, &Call::Unpublish, "stale".to_owned()),
            (1, 3, &Call::Unpublish, "joins".to_owned()),
            (1, 3, &list, "0 unpublish, 1 list".to_owned()),
            (1, 4, &list, skipped(1, 4, 3)),
            (2, 3, &Call::Unpublish, "stale".to_owned()),
            (2, 4, &list, early(2)),
        ] {
            let arrival = named(server.arrival(server.member(group, shard), OpSeq(seq), call));
            assert_eq!(arrival, expected, "shard {shard}, call {seq}");
        }
    }

    #[test]
    fn once_a_call_has_its_answer_the_next_one_starts() {
        let (mut server, group) = waiting();
        server.at(group).active = None;
        let arrival = |shard, seq| {
            named(server.arrival(server.member(group, shard), OpSeq(seq), &Call::List))
        };
        assert_eq!((arrival(0, 4), arrival(2, 4)), ("starts".to_owned(), "starts".to_owned()));
        assert_eq!(arrival(1, 4), "shard 1 made call 4 where call 3 was expected");
    }

    #[test]
    fn a_shard_repeats_its_own_call_to_the_letter_and_joins_with_one_of_its_kind() {
        let mut server = server();
        let group = server.prop("g", 2);
        let [one, other] = [1, 2].map(|bytes| Call::Register {
            layout: crate::ContentDigest([1; 16]),
            export: crate::ExportId(1),
            bytes,
        });
        server.has_called(group, one.clone()).arrived.insert(0, one.clone());
        server.at(group).members.get_mut(&1).unwrap().last_seq = OpSeq(SEQ.0 - 1);
        let arrival = |shard, call| named(server.arrival(server.member(group, shard), SEQ, call));
        assert_eq!(arrival(0, &one), "repeats");
        assert_eq!(arrival(0, &other), "0 register, 0 register");
        assert_eq!(
            (arrival(1, &one), arrival(1, &other)),
            ("joins".to_owned(), "joins".to_owned())
        );
        assert_eq!(arrival(1, &Call::Describe { selector: Selector::Latest }), "joins");
    }

    #[test]
    fn a_shard_may_be_so_many_calls_ahead_and_not_one_more() {
        for calls in 0..5 {
            let (mut server, group) = waiting();
            server.config.limits.calls_ahead = 2;
            let (transaction, at) = (crate::server::props::called(Call::List), server.at(group));
            at.active = None;
            at.transactions = (1..=calls).map(|seq| (OpSeq(seq), transaction.clone())).collect();
            let known = OpSeq(calls.max(1));
            assert_eq!(server.admit(group, known), Ok(()), "a known one is always joined");
            let starts = server.admit(group, OpSeq(9));
            assert_eq!(starts.is_ok(), calls <= 2, "{calls} are known");
            assert_eq!(server.groups[&group].over.is_some(), calls > 2);
        }
    }

    #[test]
    fn at_the_end_of_a_group_only_what_has_its_result_is_told() {
        let (mut server, group) = waiting();
        let error = CallError::Misuse { detail: "over".to_owned() };
        server.at(group).over = Some(Over { error: error.clone(), closing: true });
        assert_eq!(server.admit(group, SEQ), Ok(()));
        assert_eq!(server.admit(group, SEQ.next()), Err(error));
    }

    #[test]
    fn a_call_is_forgotten_when_the_last_shard_has_gone_past_it() {
        let (mut server, group) = waiting();
        for shard in 0..3 {
            server.at(group).members.get_mut(&shard).unwrap().last_seq = SEQ;
        }
        for shard in 0..3 {
            assert!(server.groups[&group].transactions.contains_key(&SEQ), "before shard {shard}");
            server.pass_earlier(server.member(group, shard), SEQ.next());
            assert_eq!(server.groups[&group].members[&shard].last_seq, SEQ.next());
        }
        assert!(server.groups[&group].transactions.is_empty());
    }

    #[test]
    fn a_call_ends_at_the_earliest_time_that_a_shard_gave() {
        let (mut server, group) = waiting();
        let timer = Timer::Call(group, SEQ);
        for (shard, deadline, expected) in [(1, 8, 8), (2, 10, 8), (1, 7, 7)] {
            let member = server.member(group, shard);
            server.arrive(Time(1), member, SEQ, Time(deadline), Call::Unpublish);
            assert_eq!(server.groups[&group].transactions[&SEQ].deadline, Time(expected));
            assert_eq!(server.next_timeout(), Some(Time(expected)), "{timer:?}");
        }
    }

    #[test]
    fn what_a_shard_says_against_a_call_is_cut_to_a_page() {
        for length in [DETAIL_CHARS - 1, DETAIL_CHARS, DETAIL_CHARS + 1] {
            let (mut server, group) = waiting();
            let detail = "ü".repeat(length);
            server.arrive(Time(1), server.member(group, 2), SEQ, Time(9), Call::Decline { detail });
            let result = server.groups[&group].transactions[&SEQ].result.clone();
            let detail = format!("shard 2: {}", "ü".repeat(length.min(DETAIL_CHARS)));
            let replica = "g".to_owned();
            assert_eq!(result, Some(Err(CallError::LayoutMismatch { replica, detail })));
            assert_eq!(server.groups[&group].active, None);
        }
    }

    #[test]
    fn who_holds_what_was_refused_can_only_unpublish_it() {
        for (call, goes_on) in [
            (Call::Unpublish, true),
            (Call::List, false),
            (Call::Unregister, false),
            (Call::Replicate { selector: Selector::Latest }, false),
        ] {
            let (mut server, group) = waiting();
            server.holds(group, crate::server::props::version(1));
            let error = CallError::Misuse { detail: "refused".to_owned() };
            server.at(group).held.as_mut().unwrap().fenced = Some(error.clone());
            server.at(group).active = None;
            server.at(group).transactions.clear();
            server.arrive(Time(1), server.member(group, 0), SEQ, Time(9), call.clone());
            let result = server.groups[&group].transactions[&SEQ].result.clone();
            assert_eq!(result, (!goes_on).then_some(Err(error)), "{call:?}");
            assert_eq!(server.groups[&group].active.is_some(), goes_on);
        }
    }
}
