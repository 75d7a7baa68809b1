//! Progress of a replica's read, summed over its shards.

use crate::server::stores::group::Group;
use crate::server::stores::transaction::Phase;
use crate::{Span, Time, Version};

/// A replica's read, as its shards report. A shard without a report counts with the bytes that the shard has registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadingSnapshot {
    /// The version.
    pub version: Version,
    /// Bytes that have arrived, on all shards.
    pub arrived: u64,
    /// Bytes in all, on all shards.
    pub total: u64,
    /// Bytes a second of late, on all shards that have reported twice and still read.
    pub bytes_per_s: Option<u64>,
    /// How long the slowest shard still takes at its rate. `None` while the rate of a shard is not known.
    pub remaining: Option<Span>,
    /// Time since the first report of a shard.
    pub age: Option<Span>,
}

impl ReadingSnapshot {
    /// The read of a group that reads, or that has read in part and waits for a further source.
    pub(super) fn of(now: Time, group: &Group) -> Option<Self> {
        let transfer = group.transfer()?;
        let reads = transfer.phase == Phase::Reading || !transfer.progress.is_empty();
        let mut reading = Self {
            version: transfer.version.filter(|_| reads)?,
            arrived: 0,
            total: 0,
            bytes_per_s: None,
            remaining: Some(Span(0)),
            age: None,
        };
        for (shard, member) in &group.members {
            let told = transfer.progress.get(shard);
            let registered = member.registration.map_or(0, |registration| registration.bytes);
            let total = told.map_or(registered, |told| told.total);
            reading.total = reading.total.saturating_add(total);
            reading.age = reading.age.max(told.map(|told| now - told.since));
            if transfer.prepared.contains_key(shard) {
                reading.arrived = reading.arrived.saturating_add(total);
                continue;
            }
            let arrived = told.map_or(0, |told| told.arrived);
            reading.arrived = reading.arrived.saturating_add(arrived);
            if let Some(rate) = told.and_then(|told| told.bytes_per_s(now)) {
                reading.bytes_per_s = Some(reading.bytes_per_s.unwrap_or(0).saturating_add(rate));
            }
            let remaining = told.and_then(|told| told.remaining(now));
            reading.remaining = reading.remaining.zip(remaining).map(|(a, b)| a.max(b));
        }
        Some(reading)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Server;
    use crate::server::props::{SEQ, server, version};
    use crate::{Attempt, Generation, Incarnation, ShardSums};

    /// A reader of three shards, each of 8 registered bytes.
    fn reading() -> (Server, Incarnation) {
        let mut server = server();
        let [source, reader] = ["source", "reader"].map(|name| server.prop(name, 3));
        server.holds(source, version(4));
        server.reads(reader, version(4), &[source]);
        (server, reader)
    }

    fn at(seconds: u64) -> Time {
        Time(0) + Span::from_secs(seconds)
    }

    fn tells(server: &mut Server, reader: Incarnation, shard: u32, second: u64, bytes: [u64; 2]) {
        let (member, attempt) = (server.member(reader, shard), Attempt(1));
        server.transfers().progress(at(second), member, (SEQ, attempt), bytes[0], bytes[1]);
    }

    fn of(server: &Server, second: u64, reader: Incarnation) -> Option<ReadingSnapshot> {
        ReadingSnapshot::of(at(second), &server.groups[&reader])
    }

    #[test]
    fn shards_are_summed_and_the_slowest_says_how_long() {
        let (mut server, reader) = reading();
        let none = ReadingSnapshot {
            version: version(4),
            arrived: 0,
            total: 24,
            bytes_per_s: None,
            remaining: None,
            age: None,
        };
        assert_eq!(of(&server, 1, reader), Some(none));
        tells(&mut server, reader, 0, 1, [100, 1_000]);
        tells(&mut server, reader, 1, 2, [0, 500]);
        let told =
            ReadingSnapshot { arrived: 100, total: 1_508, age: Some(Span::from_secs(1)), ..none };
        assert_eq!(of(&server, 2, reader), Some(told), "nothing of shard 2, no rate");
        tells(&mut server, reader, 0, 3, [500, 1_000]);
        tells(&mut server, reader, 1, 3, [100, 500]);
        let rates = ReadingSnapshot {
            arrived: 600,
            bytes_per_s: Some(300),
            age: Some(Span::from_secs(2)),
            ..told
        };
        assert_eq!(of(&server, 3, reader), Some(rates));
        // Shard 2 was so quick that it reported only its end.
        let prepared = (Generation(1), ShardSums::default());
        server.groups.transfer(reader).expect("it reads").prepared.insert(2, prepared);
        let remaining = Some(Span::from_secs(4));
        let known = ReadingSnapshot { arrived: 608, remaining, ..rates };
        assert_eq!(of(&server, 3, reader), Some(known), "shard 1: 400 bytes at 100 a second");
        for shard in 0..2 {
            server.groups.transfer(reader).expect("it reads").prepared.insert(shard, prepared);
        }
        let (arrived, remaining) = (1_508, Some(Span(0)));
        let all = ReadingSnapshot { arrived, remaining, bytes_per_s: None, ..known };
        assert_eq!(of(&server, 3, reader), Some(all));
    }

    #[test]
    fn nobody_s_nonsense_overflows() {
        let (mut server, reader) = reading();
        for shard in 0..3 {
            for second in 1..3 {
                tells(&mut server, reader, shard, second, [u64::MAX - second, u64::MAX]);
            }
        }
        let reading = of(&server, 3, reader).expect("it reads");
        assert_eq!((reading.arrived, reading.total), (u64::MAX, u64::MAX));
    }

    #[test]
    fn a_read_is_shown_until_another_source_is_found_and_not_before_or_after() {
        let (mut server, reader) = reading();
        let phase = |server: &mut Server, phase| {
            server.groups.transfer(reader).expect("it reads").phase = phase;
        };
        phase(&mut server, Phase::Waiting);
        assert_eq!(of(&server, 2, reader), None, "it waits for its first source");
        phase(&mut server, Phase::Reading);
        tells(&mut server, reader, 0, 1, [5, 9]);
        phase(&mut server, Phase::Waiting);
        assert_eq!(of(&server, 2, reader).map(|reading| reading.arrived), Some(5));
        server.at(reader).active = None;
        assert_eq!(of(&server, 2, reader), None);
    }
}
