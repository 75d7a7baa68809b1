//! Group transactions: the first shard's call starts one, the others join it, and every shard gets
//! the same result, whenever it asks (§4.4 of the paper; G1 to G5).

use crate::message::Call;
use crate::server::Server;
use crate::server::dispatch::arrival::Arrival;
use crate::server::stores::sessions::MemberId;
use crate::server::stores::timers::Timer;
use crate::server::stores::transaction::Transaction;
use crate::{CallError, Incarnation, OpSeq, Safeguard, Span, Time};

impl Server {
    /// A shard makes a call.
    pub(in crate::server) fn call(
        &mut self,
        now: Time,
        from: MemberId,
        seq: OpSeq,
        allowed: Span,
        call: Call,
    ) {
        match self.groups.of(&from.group).arrival(from.shard, seq, &call) {
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
            Arrival::Repeats | Arrival::Starts | Arrival::Joins => {}
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

    /// The mutant forgets a call that has ended, and so runs a repeated call again.
    fn runs_again(&mut self, incarnation: Incarnation, seq: OpSeq) -> bool {
        let group = self.groups.of_mut(&incarnation);
        let ended =
            group.active.is_none() && !self.config.safeguards.on(Safeguard::RepeatsAnswered);
        ended && group.transactions.remove(&seq).is_some()
    }

    /// Whether a call may start or join: not at the end of a group, and not too many calls ahead.
    fn admit(&mut self, incarnation: Incarnation, seq: OpSeq) -> Result<(), CallError> {
        let group = self.groups.of(&incarnation);
        // When a group has ended, every call that it made has its result.
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
            let error = group.broken(format!(
                "one shard is {} calls ahead of another; all shards must make the same calls",
                group.transactions.len()
            ));
            self.membership().break_group(incarnation, error.clone());
            return Err(error);
        }
        Ok(())
    }

    /// The shard has passed its last call; forgets calls that every shard has passed.
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

    /// A shard's call comes in. The first call starts the group's call; the last one may release an
    /// answer that was kept back.
    pub(super) fn arrive(
        &mut self,
        now: Time,
        from: MemberId,
        seq: OpSeq,
        deadline: Time,
        call: Call,
    ) {
        let MemberId { group: incarnation, shard, .. } = from;
        let group = self.groups.of_mut(&incarnation);
        let starts = !group.transactions.contains_key(&seq);
        let calls = group.transactions.entry(seq);
        let transaction =
            calls.or_insert_with(|| Transaction::new(seq, call.clone(), shard, now, deadline));
        let declines = matches!(call, Call::Decline { .. }) && transaction.result.is_none();
        if let Call::Register { layout, .. } = &call
            && transaction.result.is_none()
        {
            // Keep the manifest while the call waits: other shards may take long to load their
            // models.
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::props::{SEQ, waiting};
    use crate::server::stores::group::Over;

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
}
