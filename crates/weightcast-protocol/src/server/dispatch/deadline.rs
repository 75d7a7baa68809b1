//! The deadline of a group's call, and what the call was waiting for (L1).

use crate::server::Server;
use crate::{CallError, Incarnation, OpSeq, Safeguard, Time};

impl Server {
    /// The deadline of a group's call has passed.
    pub(in crate::server) fn call_timer(
        &mut self,
        now: Time,
        incarnation: Incarnation,
        seq: OpSeq,
    ) {
        let pending = self.groups.is_pending(incarnation, seq);
        if pending && self.groups.of(&incarnation).unpublishes() {
            // Give up on the offload, rather than keep the memory immutable past the deadline.
            if self.durability().give_up_hold(incarnation) {
                self.advance(now, incarnation);
            }
        }
        if !self.groups.is_pending(incarnation, seq) {
            return;
        }
        let error = self.timeout_error(now, incarnation);
        self.counters.timeouts += 1;
        let keeps = self.config.safeguards.on(Safeguard::ReadsKept);
        self.groups.of_mut(&incarnation).leave_to_next(keeps);
        self.transfers().abandon_transfer(incarnation);
        self.calls().finish(incarnation, Err(error));
    }

    /// The error for a call whose deadline has passed: names what the call was waiting for, and who
    /// held it up.
    fn timeout_error(&self, now: Time, incarnation: Incarnation) -> CallError {
        let caller = self.books().group(incarnation);
        let transaction = caller.group.pending();
        if transaction.is_whole(caller.group.num_shards)
            && let Some(error) = caller.version_missing()
        {
            return error;
        }
        let (waiting_for, detail) = self.waited_for(now, incarnation);
        CallError::Timeout { call: transaction.call.to_string(), waiting_for, detail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Call;
    use crate::server::props::{SEQ, server, version};
    use crate::server::stores::transaction::Phase;
    use crate::{Generation, Selector};

    /// What its call would be said to have waited for.
    fn waited_for(server: &Server, group: Incarnation) -> (String, String) {
        match server.timeout_error(Time(0), group) {
            CallError::Timeout { call, waiting_for, .. } => (call, waiting_for),
            CallError::VersionUnavailable { selector, latest, .. } => {
                (selector.to_string(), format!("{latest:?}"))
            }
            error => panic!("{error}"),
        }
    }

    fn said(call: &str, waiting_for: &str) -> (String, String) {
        (call.to_owned(), waiting_for.to_owned())
    }

    fn arrive(server: &mut Server, group: Incarnation, shards: &[u32]) {
        let call = server.at(group).transactions.get_mut(&SEQ).unwrap();
        call.arrived = shards.iter().map(|shard| (*shard, call.call.clone())).collect();
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
            server.has_called(group, call);
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
            server.groups.transfer(group).unwrap().phase = phase;
            assert_eq!(waited_for(&server, group), said("replicate(1)", text));
        };
        says(Phase::Waiting, "a free source of version 1 (epoch 0)");
        says(Phase::Draining, "readers of replica g");
        says(Phase::Installing, "the shards to put version 1 (epoch 0) in place");
        says(Phase::Reading, "shards 0, 1 to read version 1 (epoch 0)");
        let prepared = (Generation(1), Default::default());
        server.groups.transfer(group).unwrap().prepared.insert(0, prepared);
        assert_eq!(waited_for(&server, group).1, "shard 1 to read version 1 (epoch 0)");
        server.groups.transfer(group).unwrap().prepared.insert(1, prepared);
        let digests = "the publisher's digests of version 1 (epoch 0), or its source to commit";
        assert_eq!(waited_for(&server, group).1, digests);
        // An unresolved one waits for a version.
        server.groups.transfer(group).unwrap().version = None;
        assert_eq!(
            waited_for(&server, group),
            said("1", "Some(Version { epoch: Epoch(0), number: 1 })")
        );
        server.groups.transfer(group).unwrap().version = Some(version(1));
        server.groups.transfer(group).unwrap().phase = Phase::Draining;
        server.models.get_mut("policy").unwrap().retention.held_back.insert(group);
        assert_eq!(waited_for(&server, group).1, "an offload of what replica g holds");
    }

    #[test]
    fn an_unpublish_says_what_keeps_the_copy() {
        let mut server = server();
        let group = server.prop("g", 2);
        server.holds(group, version(1));
        server.has_called(group, Call::Unpublish);
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
}
