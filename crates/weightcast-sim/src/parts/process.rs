//! A worker process: a session, memory, a data port, and a program that it runs.

use std::collections::BTreeMap;

use weightcast_protocol::message::{Assignment, Call, EpochPolicy, Location, Role};
use weightcast_protocol::session::Session;
use weightcast_protocol::{
    Attempt, ExportId, Generation, Incarnation, OpSeq, Revision, Span, Time, Version,
};
use weightcast_testkit::{TaggedMemory, VirtualHost};

use crate::base::clock::DriftingClock;
use crate::parts::chunk_loop::{ChunkLoop, Progress};
use crate::parts::queue::Life;

/// One shard's process. A new life has a new session and a new export; the place stays.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) replica: String,
    pub(crate) shard: u32,
    pub(crate) num_shards: u32,
    pub(crate) role: Role,
    pub(crate) epoch: EpochPolicy,
    /// Whether its updates leave crossings to seed replicas.
    pub(crate) offload_seeding: bool,
    pub(crate) life: u32,
    pub(crate) clock: DriftingClock,
    /// None while the process is down.
    pub(crate) session: Option<Session>,
    /// What its session has asked for.
    pub(crate) host: VirtualHost<ChunkRead, StagedMemory>,
    /// Streams asked for: only the last one counts.
    pub(crate) streams: u64,
    pub(crate) memory: TaggedMemory,
    pub(crate) location: Location,
    /// What it tells of its progress; there may be more of that generation, never less (F13).
    pub(crate) progress: Progress,
    pub(crate) export: ExportId,
    /// How many chunks of an unfinished read were there when they were fenced.
    pub(crate) left: u32,
    /// On whose behalf it is, if it is an offload or seed replica's.
    pub(crate) copy_of: Option<CopyOf>,
    /// Suspended until then.
    pub(crate) paused_until: Time,
    pub(crate) trouble: Trouble,
    /// When its session's timer was last planned for.
    pub(crate) timer_at: Option<Time>,
    pub(crate) program: ProgramState,
}

/// What is wrong with a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trouble {
    /// Can't reach any server until then.
    pub(crate) cut_off_until: Time,
    /// Can't reach these servers until then.
    pub(crate) rift_until: BTreeMap<usize, Time>,
    /// Its data port does not answer until then.
    pub(crate) mute_until: Time,
    /// Reads from it take long until then.
    pub(crate) slow_until: Time,
    /// It makes no call until then.
    pub(crate) dawdles_until: Time,
    /// It dies in the middle of what its session says next, for so long.
    pub(crate) dies_halfway: Option<Span>,
    /// Its next call is another than its group's.
    pub(crate) diverts: bool,
    /// It lies about its next read.
    pub(crate) lies: bool,
    /// It shows the digests of what it is to read next, and reads nothing.
    pub(crate) claims: bool,
    /// Its memory was changed under a version, on purpose: it is not to blame for its content.
    pub(crate) spoiled: bool,
}

/// How long the shards of a staged update may take to copy it into place.
pub(crate) const INSTALL_DEADLINE: Span = Span::from_millis(1_500);

/// A read that runs.
#[derive(Clone, Debug)]
pub(crate) struct ChunkRead {
    pub(crate) seq: OpSeq,
    pub(crate) attempt: Attempt,
    pub(crate) assignment: Assignment,
    pub(crate) chunks: ChunkLoop,
    /// When the last chunk came.
    pub(crate) moved_at: Time,
}

/// What a staged update reads into.
#[derive(Clone, Debug, Default)]
pub(crate) struct StagedMemory {
    pub(crate) memory: TaggedMemory,
    /// The first so many chunks are here.
    pub(crate) count: u32,
}

/// On whose behalf a process holds memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyOf {
    pub(crate) owner: Life,
    pub(crate) version: Version,
    /// The generation at which the owner held it.
    pub(crate) generation: Generation,
    /// What the owner was asked, if it is a seed.
    pub(crate) ask: Option<u64>,
    /// The owner has been told that nothing came of it: it is told of each copy's end once, as in the runtime.
    pub(crate) told: bool,
}

/// Where a process is in its program.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProgramState {
    /// This life is about another model than all others.
    pub(crate) stray: bool,
    /// Whether the memory is registered.
    pub(crate) registered: bool,
    /// Calls made in this life.
    pub(crate) position: u32,
    pub(crate) pending: Option<RunningCall>,
    /// The version that the memory still holds after it was unpublished.
    pub(crate) kept: Option<Version>,
    /// The server refused what was published, or `unpublish` did not end in time: it is next.
    pub(crate) must_unpublish: bool,
    /// The last revision seen.
    pub(crate) revision: Revision,
}

/// A call that runs.
#[derive(Clone, Debug)]
pub(crate) struct RunningCall {
    pub(crate) seq: OpSeq,
    pub(crate) call: Call,
    /// By when it must have ended, on the world's clock.
    pub(crate) due: Time,
}

impl Process {
    /// Replica and shard, for people.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.replica, self.shard)
    }

    pub(crate) fn incarnation(&self) -> Option<Incarnation> {
        self.session.as_ref()?.lease().map(|lease| lease.incarnation)
    }

    pub(crate) fn version(&self) -> Option<Version> {
        self.session.as_ref()?.version()
    }
}
