//! The ends of group transactions: answers, repeated answers and deadlines (G1, G5, L1).

use crate::message::{Answer, Call, ServerMessage};
use crate::server::rooms::CallHandler;
use crate::server::stores::agenda::EndedCall;
use crate::server::stores::sessions::MemberId;
use crate::server::stores::timers::Timer;
use crate::{CallError, Incarnation, OpSeq, Safeguard};

impl CallHandler<'_> {
    /// Ends the group's pending call with one result: sent to the shards that have called, and kept
    /// for the others. A good result waits until all shards have called.
    pub(in crate::server) fn finish(
        &mut self,
        incarnation: Incarnation,
        result: Result<Answer, CallError>,
    ) {
        let waits = self.config.safeguards.on(Safeguard::GroupTransaction);
        let group = self.groups.of_mut(&incarnation);
        let num_shards = group.num_shards;
        let Some(transaction) = group.active_transaction() else { return };
        if let Ok(answer) = &result
            && waits
            && !transaction.is_whole(num_shards)
        {
            transaction.decided = Some(answer.clone());
            return;
        }
        let seq = transaction.seq;
        // An answer that was kept back for the last shard is void once the call has a result.
        transaction.decided = None;
        // Before the result is set: only a call without a result pins layouts.
        let pinned: Vec<_> = transaction.pinned().collect();
        transaction.result = Some(result.clone());
        transaction.transfer = transaction.transfer.take().filter(|t| t.assignment.is_some());
        let place = transaction.place.take();
        let outcome = result.as_ref().map_or_else(CallError::name, Answer::outcome);
        let (call, started) = (transaction.call.name(), transaction.started);
        self.agenda.ended.push(EndedCall { group: incarnation, seq, call, outcome, started });
        group.active = None;
        let mut asked = group.member_ids();
        asked.retain(|member| group.recorded(seq).arrived.contains_key(&member.shard));
        if let Some(place) = place {
            self.models.of_mut(&group.model).waiting.remove(&place);
        }
        self.timers.cancel(Timer::Call(incarnation, seq));
        pinned.into_iter().for_each(|layout| self.blobs.release(layout));
        for member in asked {
            self.answer(member, seq, result.clone());
        }
    }

    pub(in crate::server) fn answer(
        &mut self,
        to: MemberId,
        seq: OpSeq,
        result: Result<Answer, CallError>,
    ) {
        if let Ok(answer) = &result {
            self.vouch(to, answer);
        }
        self.connections.send(to.session, ServerMessage::Answered { seq, result });
    }

    /// A shard makes its call again after its stream broke: repeats everything that the shard may
    /// have missed.
    pub(in crate::server) fn repeat(&mut self, to: MemberId, seq: OpSeq) {
        let group = self.groups.of(&to.group);
        let transaction = group.recorded(seq);
        let over = group.over.as_ref();
        let over = over.filter(|_| !self.config.safeguards.on(Safeguard::RecordOverEnd));
        let ended = over.map(|over| Err(over.error.clone()));
        let result = ended.or_else(|| transaction.result.clone());
        // Repeat the assignment even before an error: it tells the session that the group's copy
        // was given up.
        let assigned = transaction.transfer.as_ref().and_then(|transfer| {
            let assignment = transfer.assignment.clone()?;
            let (attempt, since) = (transfer.attempt, transfer.since);
            Some(ServerMessage::Assigned { seq, attempt, since, assignment })
        });
        let gave_up = transaction.transfer.as_ref().filter(|transfer| transfer.gave_up);
        let deadline = self.config.install_deadline;
        let install = gave_up.map(|transfer| ServerMessage::Install {
            seq,
            attempt: transfer.attempt,
            deadline,
        });
        for message in assigned.into_iter().chain(install) {
            self.connections.send(to.session, message);
        }
        if let Some(result) = result {
            self.answer(to, seq, result);
        }
    }

    /// The recorded answer. Without the safeguard, answers that depend on the moment are computed
    /// anew.
    pub(in crate::server) fn as_recorded(
        &mut self,
        incarnation: Incarnation,
        seq: OpSeq,
        recorded: Result<Answer, CallError>,
    ) -> Result<Answer, CallError> {
        if self.config.safeguards.on(Safeguard::GroupTransaction) {
            return recorded;
        }
        let group = self.groups.of(&incarnation);
        match group.recorded(seq).call {
            Call::List | Call::Wait { .. } => {
                let model = self.models.of_mut(&group.model);
                Ok(Answer::Listed(model.listing()))
            }
            _ => recorded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;
    use crate::server::Server;
    use crate::server::props::{SEQ, server, version};

    fn arrive(server: &mut Server, group: Incarnation, shards: &[u32]) {
        let call = server.at(group).transactions.get_mut(&SEQ).unwrap();
        call.arrived = shards.iter().map(|shard| (*shard, call.call.clone())).collect();
    }

    #[test]
    fn what_ends_a_call_is_forgotten_with_it_and_the_answer_is_kept() {
        for result in [Ok(Answer::Unpublished), Err(CallError::Misuse { detail: "no".into() })] {
            for assigned in [false, true] {
                let mut server = server();
                let [source, group] = ["source", "g"].map(|name| server.prop(name, 2));
                server.holds(source, version(1));
                server.reads(group, version(1), &[source]);
                if !assigned {
                    server.groups.transfer(group).unwrap().assignment = None;
                }
                arrive(&mut server, group, &[0, 1]);
                server.calls().start_waiting(group);
                server.timers.set(Time(9), Timer::Call(group, SEQ));
                server.calls().finish(group, result.clone());
                assert_eq!(server.groups[&group].active, None);
                assert!(server.models["policy"].waiting.is_empty());
                assert_eq!(server.next_timeout(), None);
                let call = &server.groups[&group].transactions[&SEQ];
                assert_eq!(call.result, Some(result.clone()));
                assert_eq!((call.place, call.transfer.is_some()), (None, assigned));
                server.calls().finish(group, Ok(Answer::Unregistered));
                let call = &server.groups[&group].transactions[&SEQ];
                assert_eq!(call.result, Some(result.clone()), "a call ends once");
            }
        }
    }

    #[test]
    fn a_good_answer_waits_for_the_last_shard_and_a_bad_one_for_nobody() {
        let mut server = server();
        let group = server.prop("g", 2);
        server.has_called(group, Call::Unpublish);
        arrive(&mut server, group, &[1]);
        server.calls().finish(group, Ok(Answer::Unpublished));
        let call = server.groups[&group].transactions[&SEQ].clone();
        assert_eq!((call.decided, call.result), (Some(Answer::Unpublished), None));
        assert_eq!(server.groups[&group].active, Some(SEQ));
        let error = Err(CallError::Misuse { detail: "no".into() });
        server.calls().finish(group, error.clone());
        let call = server.groups[&group].transactions[&SEQ].clone();
        assert_eq!((call.decided, call.result), (None, Some(error)));
    }

    /// What a shard is told, in order.
    fn told(server: &mut Server) -> Vec<String> {
        let mut told = Vec::new();
        while let Some(output) = server.poll_output() {
            let crate::server::ServerOutput::Send { to, message } = output else { panic!() };
            assert_eq!(to, crate::ConnectionId(5));
            told.push(match message {
                ServerMessage::Assigned { seq, attempt, since, assignment } => {
                    format!("{seq}: read {} with {attempt} since {since}", assignment.replica)
                }
                ServerMessage::Install { seq, attempt, .. } => format!("{seq}: install {attempt}"),
                ServerMessage::Answered { seq, result } => {
                    format!("{seq}: ended {}", result.is_ok())
                }
                ServerMessage::Vouched { .. } => "vouched".to_owned(),
                message => panic!("{message:?}"),
            });
        }
        told
    }

    #[test]
    fn who_asks_again_is_told_all_that_it_may_have_missed() {
        let good = || Answer::Committed { version: version(1), source: "source".to_owned() };
        let bad = || CallError::Misuse { detail: "no".to_owned() };
        for (assigned, gave_up, result, expected) in [
            (false, false, None, &[][..]),
            (true, false, None, &["3: read source with 4 since 2"]),
            (true, true, None, &["3: read source with 4 since 2", "3: install 4"]),
            (false, false, Some(Err(bad())), &["3: ended false"]),
            (true, false, Some(Err(bad())), &["3: read source with 4 since 2", "3: ended false"]),
            (
                true,
                true,
                Some(Ok(good())),
                &["3: read source with 4 since 2", "3: install 4", "vouched", "3: ended true"],
            ),
            (false, false, Some(Ok(Answer::Unpublished)), &["3: ended true"]),
        ] {
            let mut server = server();
            let [source, group] = ["source", "g"].map(|name| server.prop(name, 2));
            server.holds(source, version(1));
            server.reads(group, version(1), &[source]);
            let member = server.member(group, 1);
            server.connections.bind(member.session, crate::ConnectionId(5));
            let call = server.at(group).transactions.get_mut(&SEQ).unwrap();
            let transfer = call.transfer.as_mut().unwrap();
            (transfer.attempt, transfer.since) = (crate::Attempt(4), crate::Attempt(2));
            transfer.gave_up = gave_up;
            transfer.assignment.take_if(|_| !assigned);
            call.result = result.clone();
            server.calls().repeat(member, SEQ);
            assert_eq!(told(&mut server), expected, "{assigned}, {gave_up}, {result:?}");
        }
    }
}
