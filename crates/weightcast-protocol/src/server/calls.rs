//! Group transactions: the first shard's call starts one, the others join it, and every shard gets
//! the one result, whenever it asks (§4.4 of the paper; G1 to G5).

use super::Server;
use super::timers::Timer;
use super::transaction::{Transaction, call_name, same_call};
use crate::limits::DETAIL_CHARS;
use crate::message::Call;
use crate::{CallError, Incarnation, OpSeq, SessionId, Span, Time};

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
    pub(super) fn call(
        &mut self,
        now: Time,
        session: SessionId,
        seq: OpSeq,
        allowed: Span,
        call: Call,
    ) {
        let entry = &self.sessions[&session];
        let (incarnation, shard) = (entry.group, entry.shard);
        match self.arrival(incarnation, shard, seq, &call) {
            Arrival::Wrong(error) => {
                self.counters.divergences += 1;
                self.break_group(incarnation, error.clone());
                self.answer(session, seq, Err(error));
                return;
            }
            Arrival::Stale => return,
            Arrival::Repeats if !self.runs_again(incarnation, seq) => {
                return self.repeat(session, incarnation, seq);
            }
            Arrival::Repeats => {}
            Arrival::Starts | Arrival::Joins => {}
        }
        if let Err(error) = self.admit(incarnation, seq) {
            return self.answer(session, seq, Err(error));
        }
        self.pass_earlier(incarnation, shard, seq);
        self.look_up_first(incarnation, seq, &call);
        let early = self.config.mutants.early_timeouts;
        let allowed = if early { allowed.scaled(1, 2) } else { allowed };
        self.arrive(now, incarnation, shard, seq, now + allowed, call);
        self.agenda.insert(incarnation);
    }

    /// With `repeats_run_again`, what is known of a call that has ended is forgotten.
    fn runs_again(&mut self, incarnation: Incarnation, seq: OpSeq) -> bool {
        let group = self.groups.get_mut(&incarnation).expect("sessions have a group");
        let ended = group.active.is_none() && self.config.mutants.repeats_run_again;
        ended && group.transactions.remove(&seq).is_some()
    }

    fn arrival(&self, incarnation: Incarnation, shard: u32, seq: OpSeq, call: &Call) -> Arrival {
        let group = &self.groups[&incarnation];
        let last = group.members[&shard].last_seq;
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
                call_a: call_name(before),
                shard_b: shard,
                call_b: call_name(call),
            });
        }
        if repeats { Arrival::Repeats } else { Arrival::Joins }
    }

    /// Whether a call may start or join: not at the end of a group, and not too far ahead.
    fn admit(&mut self, incarnation: Incarnation, seq: OpSeq) -> Result<(), CallError> {
        let group = &self.groups[&incarnation];
        let recorded = group.transactions.get(&seq).is_some_and(|t| t.result.is_some());
        if let Some(over) = &group.over
            && !recorded
        {
            return Err(over.error.clone());
        }
        if group.transactions.len() > self.config.limits.calls_ahead
            && !self.config.mutants.calls_kept
            && !group.transactions.contains_key(&seq)
        {
            let reason = format!(
                "one shard is {} calls ahead of another; all shards must make the same calls",
                group.transactions.len()
            );
            let error = CallError::GroupBroken { replica: group.replica.clone(), reason };
            self.break_group(incarnation, error.clone());
            return Err(error);
        }
        Ok(())
    }

    /// The shard has gone past its last call; forgets calls that every shard has gone past.
    fn pass_earlier(&mut self, incarnation: Incarnation, shard: u32, seq: OpSeq) {
        let group = self.groups.get_mut(&incarnation).expect("checked");
        let member = group.members.get_mut(&shard).expect("checked");
        let last = std::mem::replace(&mut member.last_seq, seq);
        if let Some(transaction) = group.transactions.get_mut(&last) {
            transaction.passed += 1;
            if transaction.passed == group.num_shards && !self.config.mutants.calls_kept {
                group.transactions.remove(&last);
            }
        }
    }

    fn arrive(
        &mut self,
        now: Time,
        incarnation: Incarnation,
        shard: u32,
        seq: OpSeq,
        deadline: Time,
        call: Call,
    ) {
        let group = self.groups.get_mut(&incarnation).expect("checked");
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
        let session = group.members[&shard].session;
        let whole = transaction.arrived.len() == group.num_shards as usize;
        if declines && !starts {
            self.declined(incarnation, shard);
        } else if let Some(answer) = transaction.decided.take_if(|_| whole) {
            self.finish(incarnation, Ok(answer));
        } else if starts {
            group.active = Some(seq);
            self.timers.set(deadline, Timer::Call(incarnation, seq));
            self.start(now, incarnation);
        } else if let Some(result) = transaction.result.clone() {
            let result = self.unless_mutant(incarnation, seq, result);
            self.answer(session, seq, result);
        } else if deadline < transaction.deadline {
            transaction.deadline = deadline;
            self.timers.set(deadline, Timer::Call(incarnation, seq));
        }
    }

    /// What the first shard's arrival decides, for all.
    fn start(&mut self, now: Time, incarnation: Incarnation) {
        let group = self.groups.get_mut(&incarnation).expect("checked");
        let call = group.active_transaction().expect("just set").call.clone();
        let fenced = group.held.as_ref().and_then(|held| held.fenced.clone());
        if let Some(error) = fenced.filter(|_| call != Call::Unpublish) {
            return self.finish(incarnation, Err(error));
        }
        let started = match call {
            Call::Register { .. } => self.start_register(incarnation),
            Call::Unregister => self.start_unregister(incarnation),
            Call::Publish { version, .. } => self.start_publish(incarnation, version),
            Call::Unpublish => self.start_unpublish(now, incarnation),
            Call::Replicate { selector } => self.start_replicate(incarnation, selector),
            Call::Update { selector, allow_rollback, staged } => {
                self.start_update(incarnation, selector, allow_rollback, staged)
            }
            Call::Describe { .. } | Call::Wait { .. } => {
                self.start_waiting(incarnation);
                Ok(())
            }
            Call::List => self.start_list(incarnation),
            Call::Decline { .. } => {
                let shard = group.active_transaction().expect("just set").first_shard;
                return self.declined(incarnation, shard);
            }
        };
        if let Err(error) = started {
            self.finish(incarnation, Err(error));
        }
    }

    /// Moves a group's pending call on as far as it goes.
    pub(super) fn advance(&mut self, now: Time, incarnation: Incarnation) {
        let Some(group) = self.groups.get_mut(&incarnation) else { return };
        if group.over.is_some() {
            return self.advance_closing(now, incarnation);
        }
        let Some(transaction) = group.active_transaction() else { return };
        if transaction.decided.is_some() {
            return;
        }
        match transaction.call {
            Call::Register { .. } => self.advance_register(incarnation),
            Call::Unregister => self.advance_unregister(incarnation),
            Call::Publish { .. } => self.advance_publish(incarnation),
            Call::Unpublish => self.advance_unpublish(now, incarnation),
            Call::Replicate { .. } | Call::Update { .. } => self.advance_transfer(now, incarnation),
            Call::Describe { selector } => self.advance_describe(incarnation, selector),
            Call::Wait { until } => self.advance_wait(incarnation, until),
            Call::List | Call::Decline { .. } => {}
        }
    }

    /// A shard can't make the group's call: it ends for all, and they learn why.
    fn declined(&mut self, incarnation: Incarnation, shard: u32) {
        self.abandon_transfer(incarnation);
        let group = self.groups.get_mut(&incarnation).expect("checked");
        let replica = group.replica.clone();
        let transaction = group.active_transaction().expect("checked");
        transaction.decided = None;
        let Some(Call::Decline { detail }) = transaction.arrived.get(&shard) else { return };
        let detail: String = detail.chars().take(DETAIL_CHARS).collect();
        let detail = format!("shard {shard}: {detail}");
        self.finish(incarnation, Err(CallError::LayoutMismatch { replica, detail }));
    }
}
