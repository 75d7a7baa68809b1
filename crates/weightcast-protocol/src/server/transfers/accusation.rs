//! Accusations: a reader whose bytes are not the publisher's leaves its source. Only two replicas
//! together fence the source's copy (T4).

use crate::message::Assignment;
use crate::server::rooms::TransferHandler;
use crate::server::transfers::Onward;
use crate::server::transfers::choose::ATTEMPTS_PER_SOURCE;
use crate::server::transfers::source_loss::Loss;
use crate::{CallError, Incarnation, Safeguard};

/// Replicas that must have read wrong bytes from a source before it is fenced.
const ACCUSERS: usize = 2;

impl TransferHandler<'_> {
    /// The bytes are not the publisher's: everything that was read is void, and the transfer tries another source.
    /// After a resume, with several sources, or where shards of one host have brought each other a part, nobody knows
    /// which of them was wrong, so no source is accused.
    pub(super) fn refuse_content(
        &mut self,
        incarnation: Incarnation,
        assignment: &Assignment,
        detail: &str,
    ) -> Onward {
        self.counters.digest_mismatches += 1;
        let resumed = self.groups.pending_transfer(incarnation).resumed();
        let resumed = resumed && self.config.safeguards.on(Safeguard::ResumedNotAccused);
        let several =
            assignment.stripes() > 1 && self.config.safeguards.on(Safeguard::OneSourceAccused);
        let shared = self.groups.of(&incarnation).read_from_siblings()
            && self.config.safeguards.on(Safeguard::SharedNotAccused);
        let unsure = resumed || several || shared;
        let source = self.edges.source_of(incarnation);
        let failures = if unsure { 1 } else { ATTEMPTS_PER_SOURCE };
        self.lose_source(incarnation, detail, Loss { failures, suspect: true, stripe: 0 });
        let transfer = self.groups.pending_transfer(incarnation);
        transfer.last_error = Some(CallError::DigestMismatch {
            version: assignment.version,
            source_replica: assignment.sources().join(", "),
            detail: detail.to_owned(),
        });
        match source.filter(|_| !unsure) {
            Some(source) => self.accuse(source, incarnation),
            None => Onward::Done,
        }
    }

    /// Counts an accusation. Accusations by two replicas fence a copy, unless it is the last copy
    /// of its version.
    fn accuse(&mut self, source: Incarnation, by: Incarnation) -> Onward {
        let accuser = self.groups.of(&by).replica.clone();
        let Some(group) = self.groups.get_mut(&source) else { return Onward::Done };
        let Some(held) = group.held.as_mut().filter(|held| held.visible) else {
            return Onward::Done;
        };
        self.counters.accusations += 1;
        held.accusers.insert(accuser);
        let (version, accusers) = (held.version, held.accusers.len());
        let holders = self.models.of(&group.model).visible.get(&version).map_or(0, |h| h.len());
        if (accusers >= ACCUSERS && holders > 1)
            || !self.config.safeguards.on(Safeguard::TwoAccusers)
        {
            self.counters.accused_fenced += 1;
            return Onward::Accused(source, version);
        }
        Onward::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attempt;
    use crate::server::Server;
    use crate::server::props::{server, version};

    /// So many holders of version 1, and a reader of the first `sources` of them.
    fn read(holders: usize, sources: usize) -> (Server, Vec<Incarnation>, Incarnation) {
        let mut server = server();
        let names = ["a", "b", "c"];
        let holders: Vec<Incarnation> =
            names[..holders].iter().map(|name| server.prop(name, 1)).collect();
        holders.iter().for_each(|holder| server.holds(*holder, version(1)));
        let reader = server.prop("reader", 1);
        server.reads(reader, version(1), &holders[..sources]);
        (server, holders, reader)
    }

    fn accusers(server: &Server, group: Incarnation) -> Vec<String> {
        server.groups[&group].held.as_ref().unwrap().accusers.iter().cloned().collect()
    }

    #[test]
    fn a_source_is_accused_if_all_came_from_it_and_it_is_left_for_good() {
        for (sources, resumed) in [(1, false), (1, true), (2, false), (2, true)] {
            let (mut server, holders, reader) = read(2, sources);
            let transfer = server.groups.transfer(reader).unwrap();
            if resumed {
                transfer.attempt = Attempt(2);
            }
            let assignment = transfer.assignment.clone().unwrap();
            let onward = server.transfers().refuse_content(reader, &assignment, "wrong bytes");
            server.go_on(reader, onward);
            let sure = sources == 1 && !resumed;
            let expected: &[&str] = if sure { &["reader"] } else { &[] };
            assert_eq!(accusers(&server, holders[0]), expected, "{sources}, {resumed}");
            assert!(accusers(&server, holders[1]).is_empty());
            let counters = &server.counters;
            assert_eq!((counters.digest_mismatches, counters.accusations), (1, u64::from(sure)));
            let transfer = server.groups[&reader].transfer().unwrap();
            let failures = if sure { ATTEMPTS_PER_SOURCE } else { 1 };
            assert_eq!(transfer.failures, [(holders[0], failures)].into());
            assert!(transfer.void, "all that was read is read again");
            let error = CallError::DigestMismatch {
                version: version(1),
                source_replica: ["a", "a, b"][sources - 1].to_owned(),
                detail: "wrong bytes".to_owned(),
            };
            assert_eq!(transfer.last_error, Some(error));
        }
    }

    /// As long as its shards on one host may have brought each other a part.
    #[test]
    fn nobody_is_accused_of_what_siblings_brought() {
        for (hosts, since, sure) in [(2, 1, true), (1, 1, false), (1, 2, true)] {
            let (mut server, holders, _) = read(2, 1);
            let reader = server.prop("group", 2);
            (0..2).for_each(|shard| server.lies(reader, shard, &format!("host-{}", shard % hosts)));
            server.reads(reader, version(1), &holders[..1]);
            let transfer = server.groups.transfer(reader).unwrap();
            (transfer.attempt, transfer.since) = (Attempt(since), Attempt(since));
            let assignment = transfer.assignment.clone().unwrap();
            let onward = server.transfers().refuse_content(reader, &assignment, "wrong bytes");
            server.go_on(reader, onward);
            let expected: &[&str] = if sure { &["group"] } else { &[] };
            assert_eq!(accusers(&server, holders[0]), expected, "{hosts} hosts, since {since}");
            let failures = if sure { ATTEMPTS_PER_SOURCE } else { 1 };
            let transfer = server.groups[&reader].transfer().unwrap();
            assert_eq!(transfer.failures, [(holders[0], failures)].into());
        }
    }

    #[test]
    fn two_replicas_word_fences_a_copy_that_is_not_the_last_one() {
        for holders in 1..=3 {
            let (mut server, groups, reader) = read(holders, 1);
            let [same, other] = ["reader", "other"].map(|name| server.prop(name, 1));
            for (by, accused, fenced) in
                [(reader, 1, false), (same, 1, false), (other, 2, holders > 1)]
            {
                let onward = server.transfers().accuse(groups[0], by);
                server.go_on(by, onward);
                assert_eq!(accusers(&server, groups[0]).len(), accused, "one word each");
                let is_fenced = server.groups[&groups[0]].held.as_ref().unwrap().fenced.is_some();
                assert_eq!(is_fenced, fenced, "{holders} hold it");
            }
            assert_eq!(server.counters.accusations, 3);
            assert_eq!(server.counters.accused_fenced, u64::from(holders > 1));
        }
        // An unlisted copy is no source any more.
        let (mut server, groups, reader) = read(2, 1);
        server.copies().hide(groups[0]);
        let onward = server.transfers().accuse(groups[0], reader);
        server.go_on(reader, onward);
        server.groups.remove(&groups[1]);
        let onward = server.transfers().accuse(groups[1], reader);
        server.go_on(reader, onward);
        assert_eq!(server.counters.accusations, 0);
    }
}
