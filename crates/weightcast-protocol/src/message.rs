//! What client sessions and the reference server say to each other.
//!
//! Weight bytes never pass here, and neither do tensors: layouts are named by their digest, and
//! their manifests travel as opaque blobs beside this stream.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::{
    Attempt, CallError, Condition, ContentDigest, Epoch, ExportId, Generation, Incarnation, OpSeq,
    Revision, Selector, SessionId, ShardSums, Span, Term, Version,
};

/// What a session may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Publishes new versions.
    Trainer,
    /// Replicates versions, and publishes again only what it replicated.
    Rollout,
    /// Holds a copy of this version in CPU memory, on behalf of a replica that had to give up the
    /// last one; opened only when the server asks for it ([`ServerMessage::Offload`]).
    Offload(Version),
    /// Brings this version to its datacentre, into CPU memory, on behalf of a replica that did not
    /// wait for it; opened only when the server asks for it ([`ServerMessage::Seed`]).
    Seed(Version),
}

/// Whether opening starts a new training run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochPolicy {
    /// Join the run that there is.
    Current,
    /// Start a new run: every version published from now on is newer than all before (F16).
    New,
}

/// Where a shard runs. Labels for the choice of a source; the server reads nothing else into them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// Datacentre, empty if there is only one.
    pub datacentre: String,
    /// Host.
    pub host: String,
    /// May be taken away at any time; never counts for retention.
    pub spot: bool,
}

/// First message on every stream: opens a session, or resumes it after the stream broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// Version of this protocol that the client speaks ([`crate::PROTOCOL`]).
    pub protocol: u32,
    /// Names this process life.
    pub session: SessionId,
    /// The term that the client knew last, zero at first.
    pub term: Term,
    /// The model.
    pub model: String,
    /// The replica that this shard is a part of.
    pub replica: String,
    /// Which part, from 0.
    pub shard: u32,
    /// Of how many.
    pub num_shards: u32,
    /// What the session may do.
    pub role: Role,
    /// Whether this group starts a new run.
    pub epoch: EpochPolicy,
    /// Of a trainer: how many of the newest versions are retained. The largest of a run counts.
    pub retain: u32,
    /// Whether an `update` is answered at once rather than read from another datacentre, while the
    /// version crosses in the background. The same on all shards of a group.
    pub offload_seeding: bool,
    /// Where it runs.
    pub location: Location,
    /// `host:port` of this shard's data port.
    pub data_address: String,
    /// The group that it is a member of, wherever that was founded.
    pub incarnation: Option<Incarnation>,
    /// No other server of the client's list is active: one that is not may take over.
    pub activate: bool,
}

/// What a shard tells a server of a newer term, so that its group goes on there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The last call that was answered to it.
    pub answered: OpSeq,
    /// The run that its group publishes into.
    pub epoch: Epoch,
    /// Moved when the shard lost its server: what it serves now, it serves at this one.
    pub generation: Generation,
    /// Its memory, if it is registered.
    pub registration: Option<Registration>,
    /// What the memory holds, unchanged since.
    pub held: Option<Holding>,
}

/// A shard's memory, as `register` declared it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Name of its layout.
    pub layout: ContentDigest,
    /// Name under which its data port serves it.
    pub export: ExportId,
    /// Bytes held.
    pub bytes: u64,
}

/// A version in a shard's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The version.
    pub version: Version,
    /// Name of its logical tensors.
    pub catalog: ContentDigest,
    /// The shard's digests, once they are computed.
    pub sums: Option<ShardSums>,
    /// A server has refused the content: it is not to be shown again.
    pub refused: bool,
    /// `unpublish` was called: it is not to be shown again either.
    pub withdrawn: bool,
}

/// From a session to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientMessage {
    /// Opens or resumes.
    Open(Open),
    /// Brings the shard's part of its group to a server of a newer term, once it is open there.
    Announce(Announcement),
    /// A call. Sent again with the same `seq` after a stream broke (G5).
    Call {
        /// Its place in the group's sequence of calls, from 1.
        seq: OpSeq,
        /// Time left for it when it was sent.
        deadline: Span,
        /// What is called.
        call: Call,
    },
    /// The shard has digested what it published at `generation`: announced becomes sealed.
    Sealed {
        /// Generation of the publish.
        generation: Generation,
        /// The shard's digests.
        sums: ShardSums,
    },
    /// The shard has begun to read anew, and serves what it has so far: with all its shards, the
    /// group can be read while it is being filled.
    Filling {
        /// The `replicate` or `update`.
        seq: OpSeq,
        /// The assignment with which it began anew.
        since: Attempt,
        /// Generation at which it serves, now and once committed.
        generation: Generation,
    },
    /// The shard has read and digested all its slices, and exposes them at `generation`.
    Prepared {
        /// The `replicate` or `update`.
        seq: OpSeq,
        /// The assignment that was read.
        attempt: Attempt,
        /// Generation at which it will serve once committed.
        generation: Generation,
        /// The shard's digests.
        sums: ShardSums,
    },
    /// The shard has copied what it read beside its memory into it, as [`ServerMessage::Install`]
    /// said, and exposes it.
    Installed {
        /// The `update`.
        seq: OpSeq,
        /// The assignment that was read.
        attempt: Attempt,
        /// Generation at which it will serve once committed.
        generation: Generation,
    },
    /// Reading from the assigned source failed.
    ReadFailed {
        /// The `replicate` or `update`.
        seq: OpSeq,
        /// The assignment that failed.
        attempt: Attempt,
        /// What was seen.
        failure: ReadFailure,
    },
    /// The shard can't offload its copy of this version as it was asked to.
    OffloadFailed {
        /// The version.
        version: Version,
        /// The generation at which it was held when it was asked for.
        generation: Generation,
        /// Why, for people; cut to [`crate::limits::DETAIL_CHARS`].
        reason: String,
    },
    /// The shard can't bring a version to its datacentre as it was asked to.
    SeedFailed {
        /// What it was asked.
        ask: u64,
    },
    /// Renews the lease.
    Heartbeat {
        /// The client's own clock, returned as it is (T1).
        sent_at: u64,
    },
    /// Leaves the group: unpublishes and unregisters for the whole group.
    Close {
        /// Time left to drain readers.
        deadline: Span,
    },
}

/// What a shard saw while it read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadFailure {
    /// A source shard did not answer, or moved on; another source may do.
    Source {
        /// The source's shard, by its place in the assignment.
        shard: u32,
        /// What was seen.
        reason: String,
    },
    /// The source's layout does not cover this shard's; no other source will do.
    Layout {
        /// Names the tensor and the missing box.
        detail: String,
    },
}

/// A call of Table 2 of the paper. All shards of a group make the same ones in the same order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Declares the shard's memory. The arguments may differ between shards.
    Register {
        /// Name of its layout; the manifest was stored before.
        layout: ContentDigest,
        /// Name under which its data port serves it.
        export: ExportId,
        /// Bytes held.
        bytes: u64,
    },
    /// Takes that back.
    Unregister,
    /// Makes the registered memory visible as a version, with a promise not to change it.
    Publish {
        /// The version's number.
        version: u64,
        /// Name of the group's logical tensors: names, dtypes, shapes.
        catalog: ContentDigest,
        /// Generation at which the shard serves. The only argument that may differ.
        generation: Generation,
    },
    /// Revokes it; answered when nobody reads any more, or the drain deadline has passed.
    Unpublish,
    /// Fills the registered memory with a version; waits for it until the deadline.
    Replicate {
        /// The version.
        selector: Selector,
    },
    /// Goes over to a version if it is available and newer than the one held.
    Update {
        /// The version.
        selector: Selector,
        /// Whether an older version than the one held will do too.
        allow_rollback: bool,
        /// Reads beside the memory, which goes on being held and served until the new version is
        /// there and verified on all shards. Means nothing to a group that holds nothing.
        staged: bool,
    },
    /// Waits for a version and names the layouts that hold it.
    Describe {
        /// The version.
        selector: Selector,
    },
    /// Which replicas hold which versions.
    List,
    /// Waits until a condition holds; answered with the listing at which it did.
    Wait {
        /// The condition.
        until: Condition,
    },
    /// This shard can't make the call that its group makes now, for a reason of its own. Takes the
    /// place of any call and ends it for all shards, with `LayoutMismatch`; nothing is changed.
    Decline {
        /// What is wrong with this shard, for people; cut to [`crate::limits::DETAIL_CHARS`].
        detail: String,
    },
}

/// From the server to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerMessage {
    /// The session is open.
    Opened {
        /// This server's term.
        term: Term,
        /// The life of the group that was joined.
        incarnation: Incarnation,
        /// Length of the lease: `ttl` of T1.
        lease: Span,
        /// Epoch of the run.
        epoch: Epoch,
    },
    /// The session could not be opened; nothing was changed. `retry`: it may work later.
    Refused {
        /// Why.
        error: CallError,
        /// Whether to try again until the deadline (the shard's last process still has a lease).
        retry: bool,
    },
    /// This server is not active, or not any more: another one of the list is, or none yet.
    Superseded,
    /// All shards of the group have announced the same: it goes on in this server's term.
    Recovered,
    /// Read from this source. A higher attempt replaces a lower one.
    Assigned {
        /// The `replicate` or `update`.
        seq: OpSeq,
        /// Number of this assignment.
        attempt: Attempt,
        /// What was read from this attempt on is good, and kept; all before it is void. So a shard
        /// that missed an assignment never keeps what another one made void.
        since: Attempt,
        /// What to read and where.
        assignment: Assignment,
    },
    /// All shards have read the assigned version beside their memory, it is verified, and nobody
    /// reads the old one any more: fence, copy it into the memory, and expose that.
    Install {
        /// The `update`.
        seq: OpSeq,
        /// The assignment that was read.
        attempt: Attempt,
        /// Time for it; the call's own deadline may be nearer, and does not count any more.
        deadline: Span,
    },
    /// A call has ended.
    Answered {
        /// Which.
        seq: OpSeq,
        /// How.
        result: Result<Answer, CallError>,
    },
    /// What this shard published is no longer served; its memory is still not to be changed
    /// before `unpublish`. The next call fails with the error.
    Fenced {
        /// The generation that was published.
        generation: Generation,
        /// Why.
        error: CallError,
    },
    /// The group holds the last copy of a retained version, and wants to give it up: copy the
    /// memory aside, and open an offload replica with it ([`crate::server::offload_name`]).
    Offload {
        /// The version.
        version: Version,
        /// Generation at which the shard holds it.
        generation: Generation,
    },
    /// An `update` was answered as unchanged, and what it would have read is to cross in the
    /// background: open a seed replica with CPU memory of this shard's layout
    /// ([`crate::server::seed_name`]), and let it replicate the version.
    Seed {
        /// The version.
        version: Version,
        /// Tells this from any other time that this group was asked.
        ask: u64,
        /// How long it may take.
        deadline: Span,
    },
    /// To an offload or seed replica: it is not needed any more. Close, and free the memory.
    Release {
        /// Time for readers to finish.
        deadline: Span,
    },
    /// The group is gone. The session fences itself; every call fails with the error.
    Broken {
        /// Why.
        error: CallError,
    },
    /// The lease was renewed.
    HeartbeatAck {
        /// As it was sent.
        sent_at: u64,
    },
    /// The session has left; nobody reads from it any more.
    Closed,
}

/// A route's source: a replica, and how to reach its shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The version.
    pub version: Version,
    /// Name of the version's logical tensors.
    pub catalog: ContentDigest,
    /// The source replica.
    pub replica: String,
    /// The source is being filled itself, and has the reader's layout: read each shard's progress,
    /// and no chunk beyond it.
    pub in_flight: bool,
    /// The reader keeps what it holds until it is told to [`ServerMessage::Install`] this: read
    /// into other memory.
    pub staged: bool,
    /// Further sources of the same layout, all of which hold the version: the reader draws different
    /// ranges from each.
    pub helpers: Vec<String>,
    /// Their shards, in order: all of `replica`, then all of each helper.
    pub shards: Vec<SourceShard>,
}

impl Assignment {
    /// How many sources there are: 1 or more.
    pub fn stripes(&self) -> usize {
        1 + self.helpers.len()
    }

    /// How many shards each of them has.
    pub fn shards_each(&self) -> usize {
        self.shards.len() / self.stripes()
    }

    /// Which of the sources a place in `shards` belongs to, and which of its shards it is. Whatever
    /// the place, it is one of them.
    pub fn at(&self, place: u32) -> (usize, u32) {
        let each = self.shards_each().max(1) as u32;
        ((place / each).min(self.helpers.len() as u32) as usize, place % each)
    }

    /// Their names, in order.
    pub fn sources(&self) -> Vec<&str> {
        std::iter::once(&self.replica).chain(&self.helpers).map(String::as_str).collect()
    }
}

/// One shard of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceShard {
    /// `host:port` of its data port.
    pub data_address: String,
    /// Name under which it serves.
    pub export: ExportId,
    /// Generation at which it serves.
    pub generation: Generation,
    /// Its layout.
    pub layout: ContentDigest,
}

/// A call's good end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All shards are registered.
    Registered {
        /// Their layouts, in order of shard.
        layouts: Vec<ContentDigest>,
    },
    /// Nothing is registered any more.
    Unregistered,
    /// The version is visible.
    Published {
        /// With its epoch.
        version: Version,
    },
    /// The memory may be changed, once the session has fenced it.
    Unpublished,
    /// All shards hold the version, verified.
    Committed {
        /// The version.
        version: Version,
        /// The replica it was read from.
        source: String,
    },
    /// `update` found nothing newer, or nothing at all.
    Unchanged {
        /// What the group holds, if anything.
        held: Option<Version>,
    },
    /// A version and the layouts of one replica that holds it.
    Described {
        /// The version.
        version: Version,
        /// Layouts of its shards.
        layouts: Vec<ContentDigest>,
    },
    /// What there is. One listing of a revision is shared by all answers.
    Listed(Arc<Listing>),
}

/// All visible versions of a model at one revision (S10).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// When.
    pub revision: Revision,
    /// Which replicas hold which version.
    pub versions: BTreeMap<Version, BTreeSet<String>>,
}
