//! A group: the shards that opened one replica together, in one life.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::claims::Trust;
use super::kept::Kept;
use super::transaction::{Phase, Transaction, Transfer, name_shards};
use crate::message::{Announcement, Location, Registration, Role};
use crate::{
    CallError, ContentDigest, Epoch, Generation, Incarnation, OpSeq, Proved, SessionId, ShardSums,
    Time, Version,
};

/// One life of one group.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) incarnation: Incarnation,
    pub(super) model: String,
    pub(super) replica: String,
    pub(super) role: Role,
    /// The run that it publishes into.
    pub(super) epoch: Epoch,
    pub(super) num_shards: u32,
    /// Whether its updates leave crossings to a seed replica.
    pub(super) offload_seeding: bool,
    /// The seed that it was asked for last did not come: its next update crosses by itself.
    pub(super) seed_failed: bool,
    pub(super) members: BTreeMap<u32, Member>,
    /// Whether all shards have registered their memory.
    pub(super) registered: bool,
    /// The copy that it holds.
    pub(super) held: Option<Held>,
    /// What it replicated last: what a rollout means when it publishes this number again.
    pub(super) replicated: Option<Version>,
    /// Calls that not every shard has gone past, by number.
    pub(super) transactions: BTreeMap<OpSeq, Transaction>,
    /// The one that has no result yet; a shard goes on only after its answer, so there is one.
    pub(super) active: Option<OpSeq>,
    /// Its place among those that wait, left by a transfer that ran out of time: the next one takes
    /// it. Else short deadlines pass a turn on for ever: each has it when it is too late (L4).
    pub(super) place: Option<u64>,
    /// Sources that it has left because they were slow, and the bytes a second that it got there.
    pub(super) slow: BTreeMap<Incarnation, u64>,
    /// What its last transfer had read when it ran out of time.
    pub(super) kept: Option<Kept>,
    /// When its readers are cut off, if it is being drained.
    pub(super) drain_until: Option<Time>,
    /// How long its copy may be held back for an offload, if it is being given up.
    pub(super) hold_until: Option<Time>,
    /// An offload replica that was told to go.
    pub(super) released: bool,
    /// Set once the group is at its end: nothing is served, no call starts any more.
    pub(super) over: Option<Over>,
    /// It comes over from an earlier term, and does nothing until all its shards are here.
    pub(super) recovering: bool,
}

/// The end of a group.
#[derive(Clone, Debug)]
pub(super) struct Over {
    /// What calls fail with from now on.
    pub(super) error: CallError,
    /// Left by `close`: members are not told and readers are drained. Else broken: members are
    /// told and readers are moved at once.
    pub(super) closing: bool,
}

/// One shard of a group.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) session: SessionId,
    pub(super) location: Location,
    pub(super) data_address: String,
    pub(super) registration: Option<Registration>,
    /// Its newest call.
    pub(super) last_seq: OpSeq,
    /// It has asked to leave, and waits for readers to be drained.
    pub(super) closing: bool,
    /// What it brought from an earlier term.
    pub(super) announced: Option<Announcement>,
    /// What its group held last, as a server has seen it.
    pub(super) proved: Option<Proved>,
}

/// The copy that a group holds.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) version: Version,
    pub(super) catalog: ContentDigest,
    /// At which each shard serves, in order.
    pub(super) generations: Vec<Generation>,
    /// Digests of the shards that have sealed.
    pub(super) sums: BTreeMap<u32, ShardSums>,
    /// All shards have sealed, and the content is that of the version.
    pub(super) sealed: bool,
    /// A trainer published it here, of its own: it is what defines the version, if it is the first.
    pub(super) authored: bool,
    /// Whether its shards have shown that they hold the bytes.
    pub(super) trust: Trust,
    /// Replicas that have read other bytes from it than the publisher's (T4).
    pub(super) accusers: BTreeSet<String>,
    /// Its content is not that of the version, or its shards disagree.
    pub(super) fenced: Option<CallError>,
    /// Why it can't be offloaded, once that has been tried.
    pub(super) offload_failed: Option<String>,
    /// Listed, and read by others.
    pub(super) visible: bool,
}

impl Held {
    /// Whether the shards have finished digesting: only then may the memory change.
    pub(super) fn settled(&self) -> bool {
        self.sealed || self.fenced.is_some()
    }
}

impl Group {
    /// Whether all shards have joined.
    pub(super) fn complete(&self) -> bool {
        self.members.len() == self.num_shards as usize
    }

    /// The shards that have not joined, for whoever waits for them.
    pub(super) fn waits_to_open(&self) -> String {
        let absent: Vec<u32> =
            (0..self.num_shards).filter(|shard| !self.members.contains_key(shard)).collect();
        let absent = name_shards(&absent).unwrap_or_default();
        let (replica, of) = (&self.replica, self.num_shards);
        format!("{absent} of replica {replica} to open: the others say that num_shards is {of}")
    }

    /// Where it runs: where its first shard does.
    pub(super) fn location(&self) -> Option<&Location> {
        self.members.values().next().map(|member| &member.location)
    }

    /// All layouts that its shards are registered with, or are about to be.
    pub(super) fn named_layouts(&self) -> impl Iterator<Item = ContentDigest> {
        let registered = self.members.values().filter_map(|m| m.registration.map(|r| r.layout));
        let active = self.active.and_then(|seq| self.transactions.get(&seq));
        registered.chain(active.into_iter().flat_map(Transaction::pinned))
    }

    /// Layouts of its shards, in order; empty if they are not registered.
    pub(super) fn layouts(&self) -> Arc<[ContentDigest]> {
        self.members.values().filter_map(|m| m.registration.map(|r| r.layout)).collect()
    }

    /// Whether its shards' layouts are those of another group's, one by one.
    pub(super) fn same_layouts(&self, other: &Group) -> bool {
        fn layouts(group: &Group) -> impl Iterator<Item = Option<ContentDigest>> {
            group.members.values().map(|member| member.registration.map(|r| r.layout))
        }
        self.num_shards == other.num_shards && layouts(self).eq(layouts(other))
    }

    /// The version that it holds to be read.
    pub(super) fn holds(&self, version: Version) -> bool {
        self.held.as_ref().is_some_and(|held| held.version == version && held.fenced.is_none())
    }

    /// Where it runs, empty if there is only one datacentre.
    pub(super) fn datacentre(&self) -> &str {
        self.location().map_or("", |location| &location.datacentre)
    }

    /// The transfer of the call that has no result yet.
    pub(super) fn transfer(&self) -> Option<&Transfer> {
        self.transactions.get(&self.active?)?.transfer.as_ref()
    }

    /// What it holds, and what it reads or puts in place.
    pub(super) fn versions(&self) -> impl Iterator<Item = Version> {
        let held = self.held.as_ref().map(|held| held.version);
        let read = self.transfer().and_then(|transfer| transfer.version);
        held.into_iter().chain(read)
    }

    /// Whether its shards put a staged version in place.
    pub(super) fn installs(&self) -> bool {
        self.transfer().is_some_and(|transfer| transfer.phase == Phase::Installing)
    }

    /// The call that has no result yet.
    pub(super) fn active_transaction(&mut self) -> Option<&mut Transaction> {
        let seq = self.active?;
        self.transactions.get_mut(&seq)
    }
}
