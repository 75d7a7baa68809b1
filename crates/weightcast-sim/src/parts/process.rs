//! A worker process: a session, memory, a data port, and a program that it runs.

use std::collections::BTreeMap;

use weightcast_protocol::message::{Assignment, Call, EpochPolicy, Location, Role};
use weightcast_protocol::recording::RecordedMachine;
use weightcast_protocol::session::Session;
use weightcast_protocol::{
    Attempt, ExportId, Generation, Incarnation, OpSeq, Revision, Span, Time, Version,
};
use weightcast_testkit::{TaggedMemory, VirtualHost};

use crate::base::clock::DriftingClock;
use crate::parts::chunk_loop::{ChunkLoop, Progress};
use crate::parts::queue::Life;
use crate::parts::siblings::SiblingChunks;

/// One shard's process. A new life has a new session and a new export; the place stays.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) replica: String,
    pub(crate) shard: u32,
    pub(crate) num_shards: u32,
    pub(crate) role: Role,
    pub(crate) epoch: EpochPolicy,
    /// Whether updates of the process leave crossings to seed replicas.
    pub(crate) offload_seeding: bool,
    pub(crate) life: u32,
    pub(crate) clock: DriftingClock,
    /// None while the process is down.
    pub(crate) session: Option<RecordedMachine<Session>>,
    /// What the session has asked for.
    pub(crate) host: VirtualHost<ChunkRead, StagedMemory>,
    /// How many streams the session has asked for. Only the last one counts.
    pub(crate) streams: u64,
    pub(crate) memory: TaggedMemory,
    pub(crate) location: Location,
    /// The progress that readers are told. There may be more of that generation, never less (F13).
    pub(crate) progress: Progress,
    pub(crate) export: ExportId,
    /// How many chunks are kept in memory that is not served: those of the last fence, and those
    /// that the running read has added.
    pub(crate) left: u32,
    /// What the process was made for, if it belongs to an offload or seed replica.
    pub(crate) copy_of: Option<CopyOf>,
    /// The process is suspended until then.
    pub(crate) paused_until: Time,
    pub(crate) trouble: Trouble,
    /// When the session's timer was last planned for.
    pub(crate) timer_at: Option<Time>,
    pub(crate) program: ProgramState,
    pub(crate) siblings: SiblingChunks,
}

/// What is wrong with a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trouble {
    /// The process can't reach any server until then.
    pub(crate) cut_off_until: Time,
    /// The process can't reach these servers until then.
    pub(crate) rift_until: BTreeMap<usize, Time>,
    /// The data port does not answer until then.
    pub(crate) mute_until: Time,
    /// Reads from the process are slow until then.
    pub(crate) slow_until: Time,
    /// The program makes no call until then.
    pub(crate) dawdles_until: Time,
    /// The process dies between two outputs of its session's next event, and stays down for this
    /// long.
    pub(crate) dies_halfway: Option<Span>,
    /// The next call differs from the group's.
    pub(crate) diverts: bool,
    /// The process lies about its next read.
    pub(crate) lies: bool,
    /// The process reports its next read with the right digests, and reads nothing.
    pub(crate) claims: bool,
    /// The memory was changed on purpose while a version was held: its content is not weightcast's
    /// fault.
    pub(crate) spoiled: bool,
}

/// How long the shards of a staged update may take to install.
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
    /// How many chunks are here: the first ones.
    pub(crate) count: u32,
}

/// The owner of the memory that an offload or seed process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyOf {
    pub(crate) owner: Life,
    pub(crate) version: Version,
    /// The generation at which the owner held the version.
    pub(crate) generation: Generation,
    /// The number of the server's request to the owner, if this is a seed.
    pub(crate) ask: Option<u64>,
    /// The owner's session has been told of the failure. The session is told of the end of each
    /// copy once, as in the runtime.
    pub(crate) told: bool,
}

/// Where a process is in its program.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProgramState {
    /// This life uses a model of its own, not the common one.
    pub(crate) stray: bool,
    /// Whether the memory is registered.
    pub(crate) registered: bool,
    /// Calls made in this life.
    pub(crate) position: u32,
    pub(crate) pending: Option<RunningCall>,
    /// The last version that was published or committed, as long as the memory still has its bytes,
    /// even after `unpublish`.
    pub(crate) kept: Option<Version>,
    /// The next action is `unpublish`: the server refused the copy, an `unpublish` timed out, or
    /// the group's memory was spoiled.
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

    /// The number of the first version that is kept for the group by name.
    pub(crate) fn kept_first(&self) -> Option<u64> {
        self.session.as_ref()?.retains().first().map(|version| version.number)
    }
}
