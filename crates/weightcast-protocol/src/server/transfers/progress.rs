//! Progress of the shards of a transfer, as their heartbeats report: figures for people. All that is decided by
//! these is whether it is too late for a further source (`striping`).

use crate::server::rooms::TransferHandler;
use crate::server::stores::progress::ShardProgress;
use crate::server::stores::sessions::MemberId;
use crate::server::stores::transaction::Phase;
use crate::{Attempt, OpSeq, Time};

impl TransferHandler<'_> {
    /// A shard reports progress. A report of another read than the group's present read is ignored.
    pub(in crate::server) fn progress(
        &mut self,
        now: Time,
        from: MemberId,
        (seq, attempt): (OpSeq, Attempt),
        arrived: u64,
        total: u64,
    ) {
        let Some(transfer) = self.groups.of_mut(&from.group).transfer_of_mut(seq) else { return };
        if transfer.phase != Phase::Reading || transfer.attempt != attempt {
            return;
        }
        let shards = transfer.progress.entry(from.shard);
        shards
            .and_modify(|progress| progress.report(now, arrived, total))
            .or_insert_with(|| ShardProgress::new(now, arrived, total));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Server;
    use crate::server::props::{SEQ, server, version};
    use crate::{Incarnation, Span};

    /// A reader of two shards, with its third assignment, which continues the second.
    fn reading() -> (Server, Incarnation) {
        let mut server = server();
        let [source, reader] = ["source", "reader"].map(|name| server.prop(name, 2));
        server.holds(source, version(1));
        server.reads(reader, version(1), &[source]);
        let transfer = server.groups.transfer(reader).expect("it reads");
        (transfer.since, transfer.attempt) = (Attempt(2), Attempt(3));
        (server, reader)
    }

    fn told(server: &Server, reader: Incarnation) -> Vec<(u32, u64, u64)> {
        let transfer = server.groups[&reader].transfer().expect("it reads");
        transfer.progress.iter().map(|(shard, p)| (*shard, p.arrived, p.total)).collect()
    }

    #[test]
    fn a_shards_word_counts_for_the_read_that_is_made_now() {
        let (mut server, reader) = reading();
        let [first, second] = [0, 1].map(|shard| server.member(reader, shard));
        for (seq, attempt) in [(SEQ.next(), 3), (OpSeq(0), 3), (SEQ, 2), (SEQ, 4), (SEQ, 0)] {
            server.transfers().progress(Time(1), first, (seq, Attempt(attempt)), 1, 8);
            assert_eq!(told(&server, reader), [], "{seq}, {attempt}");
        }
        server.transfers().progress(Time(1), first, (SEQ, Attempt(3)), 1, 8);
        server.transfers().progress(Time(2), second, (SEQ, Attempt(3)), 9, 8);
        server.transfers().progress(Time(3), first, (SEQ, Attempt(3)), 5, 9);
        assert_eq!(told(&server, reader), [(0, 5, 9), (1, 8, 8)]);
        for phase in [Phase::Waiting, Phase::Draining, Phase::Installing] {
            server.groups.transfer(reader).expect("it reads").phase = phase;
            server.transfers().progress(Time(4), first, (SEQ, Attempt(3)), 6, 9);
            assert_eq!(told(&server, reader)[0], (0, 5, 9), "{phase:?}");
        }
    }

    #[test]
    fn what_was_told_stays_while_the_shards_keep_what_they_have_read() {
        let (mut server, reader) = reading();
        let first = server.member(reader, 0);
        server.transfers().progress(Time(1), first, (SEQ, Attempt(3)), 5, 9);
        let mut kept = server.clone();
        kept.transfers().assign(reader);
        assert_eq!(told(&kept, reader), [(0, 5, 9)]);
        let mut anew = server.clone();
        anew.groups.transfer(reader).expect("it reads").void = true;
        anew.transfers().assign(reader);
        assert_eq!(told(&anew, reader), []);
        // All bytes are read; a staged read is put in place next.
        server.groups.transfer(reader).expect("it reads").staged = true;
        server.transfers().verified_beside(Time(0) + Span::from_secs(1), reader);
        assert_eq!(told(&server, reader), []);
    }
}
