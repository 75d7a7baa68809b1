//! The ends of group transactions: answers, repeated answers and deadlines (G1, G5, L1).

use crate::message::{Answer, Call, ServerMessage};
use crate::server::Server;
use crate::server::stores::timers::Timer;
use crate::server::stores::transaction::call_name;
use crate::{CallError, Incarnation, OpSeq, Safeguard, SessionId, Time};

impl Server {
    /// Ends the group's pending call: one result, told to all that have asked and kept for the rest.
    /// A good one waits until all have.
    pub(in crate::server) fn finish(
        &mut self,
        incarnation: Incarnation,
        result: Result<Answer, CallError>,
    ) {
        let waits = self.config.safeguards.on(Safeguard::GroupTransaction);
        let group = self.groups.of_mut(&incarnation);
        let num_shards = group.num_shards as usize;
        let Some(transaction) = group.active_transaction() else { return };
        if let Ok(answer) = &result
            && waits
            && transaction.arrived.len() < num_shards
        {
            transaction.decided = Some(answer.clone());
            return;
        }
        let seq = transaction.seq;
        // What was kept back for the last shard does not count any more if the call has failed.
        transaction.decided = None;
        let pinned: Vec<_> = transaction.pinned().collect();
        transaction.result = Some(result.clone());
        transaction.transfer = transaction.transfer.take().filter(|t| t.assignment.is_some());
        let place = transaction.place.take();
        let shards: Vec<u32> = transaction.arrived.keys().copied().collect();
        group.active = None;
        let sessions: Vec<SessionId> =
            shards.iter().filter_map(|s| group.members.get(s)).map(|m| m.session).collect();
        if let Some(place) = place {
            self.models.of_mut(&group.model).waiting.remove(&place);
        }
        self.timers.cancel(Timer::Call(incarnation, seq));
        pinned.into_iter().for_each(|layout| self.blobs.release(layout));
        for session in sessions {
            self.answer(session, seq, result.clone());
        }
    }

    pub(in crate::server) fn answer(
        &mut self,
        session: SessionId,
        seq: OpSeq,
        result: Result<Answer, CallError>,
    ) {
        if let Ok(answer) = &result {
            self.vouch(session, answer);
        }
        self.connections.send(session, ServerMessage::Answered { seq, result });
    }

    /// A shard asks again after its stream broke: it is told all it may have missed.
    pub(in crate::server) fn repeat(
        &mut self,
        session: SessionId,
        incarnation: Incarnation,
        seq: OpSeq,
    ) {
        let transaction = &self.groups.of(&incarnation).transactions[&seq];
        let over = self.groups.of(&incarnation).over.as_ref();
        let over = over.filter(|_| !self.config.safeguards.on(Safeguard::RecordOverEnd));
        let ended = over.map(|over| Err(over.error.clone()));
        let result = ended.or_else(|| transaction.result.clone());
        // Even before an error: from the assignment a session knows that it gave its copy up.
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
            self.connections.send(session, message);
        }
        if let Some(result) = result {
            self.answer(session, seq, result);
        }
    }

    /// The deadline of a group's call has passed.
    pub(in crate::server) fn call_timer(
        &mut self,
        now: Time,
        incarnation: Incarnation,
        seq: OpSeq,
    ) {
        let active = |server: &Self| server.groups.get(&incarnation).and_then(|g| g.active);
        if active(self) == Some(seq) && self.unpublishes(incarnation) {
            // Rather than leave the memory immutable for want of an offload.
            self.give_up_hold(now, incarnation);
        }
        if active(self) != Some(seq) {
            return;
        }
        let error = self.timeout_error(incarnation);
        self.counters.timeouts += 1;
        let keeps = self.config.safeguards.on(Safeguard::ReadsKept);
        self.groups.entry(incarnation).and_modify(|group| group.leave_to_next(keeps));
        self.abandon_transfer(incarnation);
        self.finish(incarnation, Err(error));
    }

    /// What a call was waiting for when its deadline passed.
    fn timeout_error(&self, incarnation: Incarnation) -> CallError {
        let group = self.groups.of(&incarnation);
        let transaction = &group.transactions[&group.active.expect("checked by the caller")];
        let missing = transaction.missing(group.num_shards);
        if missing.is_none()
            && let Some(error) = self.version_missing(incarnation)
        {
            return error;
        }
        let waiting_for = match (missing, &transaction.call) {
            (Some(missing), _) if group.complete() => {
                format!("{missing} of replica {} to call", group.replica)
            }
            (Some(_), _) => group.waits_to_open(),
            (None, Call::Replicate { .. } | Call::Update { .. }) => {
                self.transfer_waits_for(incarnation)
            }
            (None, Call::Unpublish) => self.unpublish_waits_for(incarnation),
            (None, Call::Publish { .. }) if self.waits_for_digest(incarnation) => {
                "those of the last reference server who know the version's digest".to_owned()
            }
            (None, Call::Wait { until }) => self.wait_waits_for(incarnation, *until),
            (None, _) => format!("replica {}", group.replica),
        };
        CallError::Timeout { call: call_name(&transaction.call), waiting_for }
    }

    /// The recorded answer. Without the safeguard, answers that depend on the moment are found anew.
    pub(super) fn as_recorded(
        &mut self,
        incarnation: Incarnation,
        seq: OpSeq,
        recorded: Result<Answer, CallError>,
    ) -> Result<Answer, CallError> {
        if self.config.safeguards.on(Safeguard::GroupTransaction) {
            return recorded;
        }
        let group = self.groups.of(&incarnation);
        match group.transactions[&seq].call {
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
    use crate::server::props::{SEQ, server, version};
    use crate::server::stores::transaction::Phase;
    use crate::{Generation, Selector};

    /// What its call would be said to have waited for.
    fn waited_for(server: &Server, group: Incarnation) -> (String, String) {
        match server.timeout_error(group) {
            CallError::Timeout { call, waiting_for } => (call, waiting_for),
            CallError::VersionUnavailable { selector, latest, .. } => {
                (selector.to_string(), format!("{latest:?}"))
            }
            error => panic!("{error}"),
        }
    }

    fn arrive(server: &mut Server, group: Incarnation, shards: &[u32]) {
        let call = server.at(group).transactions.get_mut(&SEQ).unwrap();
        call.arrived = shards.iter().map(|shard| (*shard, call.call.clone())).collect();
    }

    fn said(call: &str, waiting_for: &str) -> (String, String) {
        (call.to_owned(), waiting_for.to_owned())
    }

    #[test]
    fn shards_that_did_not_call_are_named_whatever_was_called() {
        for (call, name) in [
            (Call::Unregister, "unregister"),
            (Call::Unpublish, "unpublish"),
            (Call::Replicate { selector: Selector::Latest }, "replicate(latest)"),
            (Call::List, "list"),
        ] {
            let mut server = server();
            let group = server.prop("g", 3);
            server.holds(group, version(1));
            server.calls(group, call);
            arrive(&mut server, group, &[1]);
            assert_eq!(waited_for(&server, group), said(name, "shards 0, 2 of replica g to call"));
            server.at(group).members.remove(&2);
            let absent = "shard 2 of replica g to open: the others say that num_shards is 3";
            assert_eq!(waited_for(&server, group), said(name, absent));
        }
    }

    #[test]
    fn a_transfer_says_how_far_it_has_come() {
        let mut server = server();
        let [source, group] = ["source", "g"].map(|name| server.prop(name, 2));
        server.holds(source, version(1));
        server.reads(group, version(1), &[source]);
        arrive(&mut server, group, &[0, 1]);
        let mut says = |phase, text: &str| {
            server.transfer(group).unwrap().phase = phase;
            assert_eq!(waited_for(&server, group), said("replicate(1)", text));
        };
        says(Phase::Waiting, "a free source of version 1 (epoch 0)");
        says(Phase::Draining, "readers of replica g");
        says(Phase::Installing, "the shards to put version 1 (epoch 0) in place");
        says(Phase::Reading, "shards 0, 1 to read version 1 (epoch 0)");
        let prepared = (Generation(1), Default::default());
        server.transfer(group).unwrap().prepared.insert(0, prepared);
        assert_eq!(waited_for(&server, group).1, "shard 1 to read version 1 (epoch 0)");
        server.transfer(group).unwrap().prepared.insert(1, prepared);
        let digests = "the publisher's digests of version 1 (epoch 0), or its source to commit";
        assert_eq!(waited_for(&server, group).1, digests);
        // An unresolved one waits for a version.
        server.transfer(group).unwrap().version = None;
        assert_eq!(
            waited_for(&server, group),
            said("1", "Some(Version { epoch: Epoch(0), number: 1 })")
        );
        server.transfer(group).unwrap().version = Some(version(1));
        server.transfer(group).unwrap().phase = Phase::Draining;
        server.models.get_mut("policy").unwrap().retention.held_back.insert(group);
        assert_eq!(waited_for(&server, group).1, "an offload of what replica g holds");
    }

    #[test]
    fn an_unpublish_says_what_keeps_the_copy() {
        let mut server = server();
        let group = server.prop("g", 2);
        server.holds(group, version(1));
        server.calls(group, Call::Unpublish);
        arrive(&mut server, group, &[0, 1]);
        let says = |server: &Server, text: &str| {
            assert_eq!(waited_for(server, group), said("unpublish", text));
        };
        let nobody =
            "the clients of the last reference server, of which one may hold the only other copy";
        says(&server, nobody);
        for (name, text) in
            [("r", "r"), ("s", "r, s"), ("t", "r, s, t"), ("u", "r, s, t, u"), ("v", "r, s, t, u")]
        {
            let reader = server.prop(name, 2);
            server.reads(reader, version(1), &[group]);
            says(&server, &format!("{text} to finish reading from replica g"));
        }
        server.models.get_mut("policy").unwrap().retention.held_back.insert(group);
        says(&server, "an offload of what replica g holds");
        server.at(group).held.as_mut().unwrap().sealed = false;
        says(&server, "the digests of shards 0, 1 of what replica g has published");
        server.at(group).held.as_mut().unwrap().sums.insert(0, Default::default());
        says(&server, "the digests of shard 1 of what replica g has published");
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
                    server.transfer(group).unwrap().assignment = None;
                }
                arrive(&mut server, group, &[0, 1]);
                server.start_waiting(group);
                server.timers.set(Time(9), Timer::Call(group, SEQ));
                server.finish(group, result.clone());
                assert_eq!(server.groups[&group].active, None);
                assert!(server.models["policy"].waiting.is_empty());
                assert_eq!(server.next_timeout(), None);
                let call = &server.groups[&group].transactions[&SEQ];
                assert_eq!(call.result, Some(result.clone()));
                assert_eq!((call.place, call.transfer.is_some()), (None, assigned));
                server.finish(group, Ok(Answer::Unregistered));
                let call = &server.groups[&group].transactions[&SEQ];
                assert_eq!(call.result, Some(result.clone()), "a call ends once");
            }
        }
    }

    #[test]
    fn a_good_answer_waits_for_the_last_shard_and_a_bad_one_for_nobody() {
        let mut server = server();
        let group = server.prop("g", 2);
        server.calls(group, Call::Unpublish);
        arrive(&mut server, group, &[1]);
        server.finish(group, Ok(Answer::Unpublished));
        let call = server.groups[&group].transactions[&SEQ].clone();
        assert_eq!((call.decided, call.result), (Some(Answer::Unpublished), None));
        assert_eq!(server.groups[&group].active, Some(SEQ));
        let error = Err(CallError::Misuse { detail: "no".into() });
        server.finish(group, error.clone());
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
            let session = server.session(group, 1);
            server.connections.bind(session, crate::ConnectionId(5));
            let call = server.at(group).transactions.get_mut(&SEQ).unwrap();
            let transfer = call.transfer.as_mut().unwrap();
            (transfer.attempt, transfer.since) = (crate::Attempt(4), crate::Attempt(2));
            transfer.gave_up = gave_up;
            transfer.assignment.take_if(|_| !assigned);
            call.result = result.clone();
            server.repeat(session, group, SEQ);
            assert_eq!(told(&mut server), expected, "{assigned}, {gave_up}, {result:?}");
        }
    }
}
