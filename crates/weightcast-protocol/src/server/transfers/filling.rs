//! Replicas that are read while they are being filled (pipelined replication, §4.3.2 of the paper).

use crate::message::Assignment;
use crate::server::rooms::{Books, TransferHandler};
use crate::server::stores::sessions::MemberId;
use crate::{Attempt, Generation, Incarnation, OpSeq, Version};

impl TransferHandler<'_> {
    /// A shard serves what it has read so far. The report is void if the shard has to begin anew
    /// meanwhile.
    pub(in crate::server) fn filling(
        &mut self,
        from: MemberId,
        seq: OpSeq,
        since: Attempt,
        generation: Generation,
    ) {
        let group = self.groups.of_mut(&from.group);
        let num_shards = group.num_shards as usize;
        let Some(transfer) = group.transfer_of_mut(seq) else { return };
        if transfer.void || transfer.since != since || since == Attempt(0) {
            return;
        }
        transfer.filling.insert(from.shard, generation);
        if transfer.filling.len() == num_shards {
            self.agenda.note_change(&group.model);
        }
    }
}

impl Books<'_> {
    /// How to read from these sources: whole copies, or what a group is being filled with.
    pub(in crate::server) fn assignment(
        &self,
        sources: &[Incarnation],
        version: Version,
    ) -> Assignment {
        let group = self.groups.of(&sources[0]);
        let shards =
            sources.iter().flat_map(|source| self.groups.of(source).source_shards(version));
        Assignment {
            version,
            catalog: group.served_catalog(version),
            replica: group.replica.clone(),
            in_flight: !group.holds(version),
            staged: false,
            helpers: sources[1..].iter().map(|s| self.groups.of(s).replica.clone()).collect(),
            shards: shards.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::SourceShard;
    use crate::server::Server;
    use crate::server::props::{CATALOG, SEQ, server, version};
    use crate::{ContentDigest, Epoch, ExportId};

    /// A holder and a reader of version 1, of two shards each.
    fn pair() -> (Server, Incarnation, Incarnation) {
        let mut server = server();
        let [source, reader] = ["source", "reader"].map(|name| server.prop(name, 2));
        server.holds(source, version(1));
        server.reads(reader, version(1), &[source]);
        (server, source, reader)
    }

    fn generations(numbers: &[u64]) -> Option<Vec<Generation>> {
        Some(numbers.iter().copied().map(Generation).collect())
    }

    #[test]
    fn a_group_serves_what_it_is_filled_with_once_all_its_shards_do() {
        let (mut server, source, reader) = pair();
        let serves = |server: &Server, number| {
            let group = &server.groups[&reader];
            assert_eq!(
                group.generations(version(number)).is_some(),
                group.serves_filling(version(number))
            );
            group.serves_filling(version(number))
        };
        server.groups.transfer(reader).unwrap().filling.insert(0, Generation(20));
        assert!(!serves(&server, 1), "half of it");
        server.relays(reader);
        assert!(serves(&server, 1) && !serves(&server, 2));
        assert_eq!(server.groups[&reader].generations(version(1)), generations(&[20, 21]));
        assert_eq!(server.groups[&source].generations(version(1)), generations(&[10, 11]));
        assert_eq!(server.groups[&source].generations(version(2)), None);
        // What it holds is what it serves, if it reads beside that.
        server.holds(reader, version(2));
        assert!(!server.groups[&reader].serves_filling(version(1)));
        assert_eq!(server.groups[&reader].generations(version(1)), None);
        assert_eq!(server.groups[&reader].generations(version(2)), generations(&[10, 11]));
        server.at(reader).held = None;
        server.at(reader).active = None;
        assert!(!serves(&server, 1), "it does not read any more");
        let fenced = crate::CallError::Misuse { detail: String::new() };
        server.at(source).held.as_mut().unwrap().fenced = Some(fenced);
        assert_eq!(server.groups[&source].generations(version(1)), None);
    }

    #[test]
    fn an_assignment_names_all_shards_of_all_sources_in_order() {
        let (mut server, source, reader) = pair();
        server.relays(reader);
        let from = server.books().assignment(&[source], version(1));
        assert_eq!((from.replica.as_str(), from.in_flight, from.staged), ("source", false, false));
        assert_eq!((from.version, from.catalog, from.helpers.len()), (version(1), CATALOG, 0));
        assert_eq!(from.stripes(), 1);
        let first = SourceShard {
            data_address: "source:0".to_owned(),
            export: ExportId(10 * source.number),
            generation: Generation(10),
            layout: ContentDigest([0; 16]),
        };
        let second = SourceShard {
            data_address: "source:1".to_owned(),
            export: ExportId(10 * source.number + 1),
            generation: Generation(11),
            layout: ContentDigest([1; 16]),
        };
        assert_eq!(*from.shards, [first, second]);
        let relay = server.books().assignment(&[reader], version(1));
        assert!(relay.in_flight);
        assert_eq!((relay.catalog, relay.shards[1].generation), (CATALOG, Generation(21)));
        let other = server.prop("other", 2);
        server.holds(other, version(1));
        let both = server.books().assignment(&[other, source], version(1));
        assert_eq!((both.sources(), both.in_flight), (vec!["other", "source"], false));
        let addresses: Vec<&str> = both.shards.iter().map(|s| s.data_address.as_str()).collect();
        assert_eq!(addresses, ["other:0", "other:1", "source:0", "source:1"]);
    }

    #[test]
    fn the_catalog_is_that_of_the_version() {
        let (mut server, source, reader) = pair();
        let held = server.at(source).held.as_mut().unwrap();
        held.catalog = ContentDigest([8; 16]);
        assert_eq!(server.groups[&source].catalog(version(1)), Some(ContentDigest([8; 16])));
        assert_eq!(server.groups[&reader].catalog(version(1)), Some(CATALOG), "as it was assigned");
        assert_eq!(server.groups[&source].catalog(version(2)), None);
        let next = Version { epoch: Epoch(1), number: 1 };
        assert_eq!(server.groups[&source].catalog(next), None);
    }

    #[test]
    fn a_shards_word_that_it_serves_counts_for_the_read_that_it_is_about() {
        let (mut server, _, reader) = pair();
        let transfer = server.groups.transfer(reader).unwrap();
        (transfer.since, transfer.attempt) = (Attempt(2), Attempt(4));
        let first = server.member(reader, 0);
        let heard = |server: &Server| server.groups[&reader].transfer().unwrap().filling.clone();
        for (seq, since) in [(SEQ.next(), 2), (OpSeq(2), 2), (SEQ, 1), (SEQ, 3), (SEQ, 4), (SEQ, 0)]
        {
            server.transfers().filling(first, seq, Attempt(since), Generation(20));
            assert!(heard(&server).is_empty(), "{seq}, {since}");
        }
        server.groups.transfer(reader).unwrap().void = true;
        server.transfers().filling(first, SEQ, Attempt(2), Generation(20));
        assert!(heard(&server).is_empty(), "it has to begin anew");
        server.groups.transfer(reader).unwrap().void = false;
        server.agenda.models.clear();
        server.transfers().filling(first, SEQ, Attempt(2), Generation(20));
        assert_eq!(heard(&server), [(0, Generation(20))].into());
        assert!(server.agenda.models.is_empty(), "nobody can read from half a group");
        let second = server.member(reader, 1);
        server.transfers().filling(second, SEQ, Attempt(2), Generation(30));
        assert_eq!(heard(&server), [(0, Generation(20)), (1, Generation(30))].into());
        assert!(server.agenda.models.contains("policy"), "who waits can read from it");
        // Before the first assignment nothing has been read.
        let transfer = server.groups.transfer(reader).unwrap();
        transfer.filling.clear();
        transfer.since = Attempt(0);
        server.transfers().filling(first, SEQ, Attempt(0), Generation(20));
        assert!(heard(&server).is_empty());
    }
}
