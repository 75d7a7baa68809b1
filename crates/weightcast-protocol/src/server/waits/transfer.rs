//! `replicate` and `update`: what keeps a transfer from going on, by its phase.

use super::{NAMED, WaitCause, WaitGraph};
use crate::server::contexts::TransferCtx;
use crate::server::stores::group::Group;
use crate::server::stores::transaction::{Phase, name_shards};
use crate::{CallError, Incarnation, Version};

impl WaitGraph<'_> {
    pub(super) fn transfer_cause(self, incarnation: Incarnation) -> WaitCause {
        let reader = self.books.transfer(incarnation);
        let (group, transfer) = (reader.group, reader.transfer);
        let Some(version) = transfer.version else { return self.version_cause(incarnation) };
        let unread: Vec<u32> =
            (0..group.num_shards).filter(|shard| !transfer.prepared.contains_key(shard)).collect();
        match (transfer.phase, name_shards(&unread)) {
            (Phase::Waiting, _) if group.unheard => {
                WaitCause::new(format!("replica {} to open its streams again", group.replica))
                    .fact("most likely a process of it has died: then its lease ends the wait")
            }
            (Phase::Waiting, _) => self.source_cause(reader, version),
            (Phase::Draining, _) if reader.is_held_back() => self.held_back_cause(incarnation),
            (Phase::Draining, _) => self.old_copy_cause(incarnation),
            (Phase::Installing, _) => {
                let installed = |shard: &u32| transfer.installed.contains_key(shard);
                let shards = (0..group.num_shards).filter(|shard| !installed(shard)).collect();
                let waits_for = format!("the shards to put version {version} in place");
                WaitCause { shards, ..WaitCause::new(waits_for) }
            }
            (Phase::Reading, Some(named)) => {
                let cause = WaitCause::new(format!("{named} to read version {version}"));
                WaitCause { shards: unread, ..self.reading(reader, cause) }
            }
            (Phase::Reading, None) => self.verdict_cause(incarnation, version),
        }
    }

    /// No source is free: holders have as many readers as they may have, or have failed.
    fn source_cause(self, reader: TransferCtx<'_>, version: Version) -> WaitCause {
        let mut cause = WaitCause::new(format!("a free source of version {version}"));
        for holder in reader.holders(version) {
            let readers = self.readers(holder.incarnation);
            cause.groups.extend(&readers);
            let name = &holder.replica;
            let fact = match (reader.transfer.failures.get(&holder.incarnation), readers.as_slice())
            {
                (Some(times), _) => {
                    format!("{name} has failed {times} times{}", last_error(reader))
                }
                (None, []) if !reader.is_near(holder) => {
                    format!(
                        "{name} is in datacentre {:?}, and one replica at a time crosses",
                        holder.datacentre()
                    )
                }
                (None, []) => format!("{name} is free"),
                (None, readers) => {
                    let readers: Vec<_> =
                        readers.iter().take(NAMED).map(|of| self.name(*of)).collect();
                    let beside = reader.is_beside(holder) && holder.held.is_some();
                    let option = if beside { "--host-fanout" } else { "--fanout" };
                    format!(
                        "{name} serves {}, and {option} allows {}",
                        readers.join(", "),
                        self.books.config.places(beside)
                    )
                }
            };
            if cause.facts.len() < NAMED {
                cause = cause.fact(fact);
            }
        }
        let coming = reader.coming(version, |_| true).chain(reader.landing(version));
        let coming: Vec<Incarnation> = coming.map(|group| group.incarnation).collect();
        if let Some(first) = coming.first() {
            cause = cause.fact(format!("{} is being filled with the version", self.name(*first)));
        }
        cause.groups.extend(coming);
        cause
    }

    /// Readers of the copy that the group is about to give up.
    fn old_copy_cause(self, incarnation: Incarnation) -> WaitCause {
        let group = self.of(incarnation).group;
        let cause = WaitCause::new(format!("readers of replica {}", group.replica));
        let cause = WaitCause { groups: self.readers(incarnation), ..cause };
        match group.drain_until {
            Some(until) => cause.fact(format!("readers are cut off in {}", until - self.now)),
            None => cause,
        }
    }

    /// From whom the shards read, and what has gone wrong so far.
    fn reading(self, reader: TransferCtx<'_>, cause: WaitCause) -> WaitCause {
        let sources = self.books.edges.sources_of(reader.group.incarnation);
        let named: Vec<String> = sources.iter().take(NAMED).map(|of| self.source(*of)).collect();
        let failures: u32 = reader.transfer.failures.values().sum();
        let failed = match failures {
            0 => String::new(),
            failures => format!(", after {failures} failed reads{}", last_error(reader)),
        };
        let cause = cause.fact(format!("the source is {}{failed}", named.join(" and ")));
        // A source that is filled itself is as slow as its own source.
        let filled = |group: &&Incarnation| self.of(**group).group.transfer().is_some();
        let groups = sources.iter().filter(filled).copied().collect();
        WaitCause { groups, ..cause }
    }

    /// All shards have read: the source has not committed, or the version is not sealed.
    fn verdict_cause(self, incarnation: Incarnation, version: Version) -> WaitCause {
        let waits_for =
            format!("the publisher's digests of version {version}, or its source to commit");
        let cause = WaitCause::new(waits_for);
        let sources = self.books.edges.sources_of(incarnation);
        let filled = sources.iter().find(|source| !self.of(**source).group.holds(version));
        if let Some(source) = filled {
            let fact = format!("{} has not committed the version", self.name(*source));
            return WaitCause { groups: vec![*source], ..cause.fact(fact) };
        }
        let holders = self.of(incarnation).holders(version);
        let unsealed = holders.filter_map(|holder: &Group| {
            let missing = name_shards(&self.of(holder.incarnation).undigested())?;
            Some((
                holder.incarnation,
                format!("the digests of {missing} of {} are missing", holder.replica),
            ))
        });
        let (groups, facts): (Vec<_>, Vec<_>) = unsealed.take(NAMED).unzip();
        WaitCause { groups, facts, ..cause }
    }

    fn readers(self, source: Incarnation) -> Vec<Incarnation> {
        self.books.edges.readers_of(source).collect()
    }
}

/// What the last read failed with, as the end of a clause.
fn last_error(reader: TransferCtx<'_>) -> String {
    match &reader.transfer.last_error {
        Some(CallError::SourceLost { reason, .. }) => format!(", the last time because {reason}"),
        Some(error) => format!(", the last time because {error}"),
        None => String::new(),
    }
}
