//! How a shard's call relates to what the shard and its group have called before (§4.4 of the paper; G2, G5).

use crate::message::Call;
use crate::server::stores::group::Group;
use crate::server::stores::transaction::same_call;
use crate::{CallError, OpSeq};

/// How a call relates to what the shard and its group have called before.
pub(super) enum Arrival {
    /// This shard makes the call first in its group.
    Starts,
    /// Other shards have made the call before.
    Joins,
    /// This shard has made the call before (G5).
    Repeats,
    /// The shard has made a later call since, and can't want the answer any more.
    Stale,
    /// The call does not follow the shard's last call, or differs from the group's call.
    Wrong(CallError),
}

impl Group {
    /// How a shard's call relates to earlier calls.
    pub(super) fn arrival(&self, shard: u32, seq: OpSeq, call: &Call) -> Arrival {
        let last = self.member(shard).last_seq;
        let transaction = self.transactions.get(&seq);
        // `last` may come from an announcement. A call of that number repeats one only if the
        // shard's call came in here; otherwise the shard would be counted as past the call that it
        // joins (T5).
        let came = transaction.is_some_and(|call| call.arrived.contains_key(&shard));
        if seq < last || (seq == last && !came) {
            return Arrival::Stale;
        }
        if seq > last.next() {
            let expected = last.next();
            return Arrival::Wrong(self.broken(format!(
                "shard {shard} made call {seq} where call {expected} was expected"
            )));
        }
        let Some(transaction) = transaction else {
            let Some(active) = self.active else { return Arrival::Starts };
            return Arrival::Wrong(self.broken(format!(
                "shard {shard} made call {seq} before call {active} was answered"
            )));
        };
        let (before, by) = match transaction.arrived.get(&shard) {
            Some(own) => (own, shard),
            None => (&transaction.call, transaction.first_shard),
        };
        let repeats = by == shard;
        if !same_call(before, call) || (repeats && before != call) {
            return Arrival::Wrong(CallError::GroupDiverged {
                replica: self.replica.clone(),
                seq,
                shard_a: by,
                call_a: before.to_string(),
                shard_b: shard,
                call_b: call.to_string(),
            });
        }
        if repeats { Arrival::Repeats } else { Arrival::Joins }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Selector;
    use crate::server::props::{SEQ, server, waiting};

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
            let arrival = named(server.groups[&group].arrival(shard, OpSeq(seq), call));
            assert_eq!(arrival, expected, "shard {shard}, call {seq}");
        }
    }

    #[test]
    fn once_a_call_has_its_answer_the_next_one_starts() {
        let (mut server, group) = waiting();
        server.at(group).active = None;
        let arrival =
            |shard, seq| named(server.groups[&group].arrival(shard, OpSeq(seq), &Call::List));
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
        let arrival = |shard, call| named(server.groups[&group].arrival(shard, SEQ, call));
        assert_eq!(arrival(0, &one), "repeats");
        assert_eq!(arrival(0, &other), "0 register, 0 register");
        assert_eq!(
            (arrival(1, &one), arrival(1, &other)),
            ("joins".to_owned(), "joins".to_owned())
        );
        assert_eq!(arrival(1, &Call::Describe { selector: Selector::Latest }), "joins");
    }
}
