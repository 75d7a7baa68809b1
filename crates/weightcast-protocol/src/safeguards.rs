//! Safeguards that a test rig may switch off, to show that it notices. In a job all of them are on.
//!
//! The build of a job has no switch: without the feature `mutants` a [`Safeguards`] takes no space, and every question
//! to it is answered by the compiler. With the feature each server and session has a set of its own.

/// Something that keeps a promise of the protocol, and can be switched off alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Safeguard {
    /// `unpublish` is answered only once nobody reads the replica (S9).
    Drain,
    /// The shards of a group are answered as one (G1, G3).
    GroupTransaction,
    /// A replica commits only content that equals the publisher's (S6).
    DigestCheck,
    /// `unpublish` says that what was published had been refused (S7).
    TellRefusal,
    /// A replica commits only if its source still holds what was read (S5).
    CommitFence,
    /// A session stops serving a generation before its memory may change (S3).
    SourceFence,
    /// Readers take a source's progress only for the generation that they read (S4). The simulator
    /// alone looks at this one: its chunk loop stands for the transports.
    TaggedProgress,
    /// A replica commits only after the one that it read from (S5).
    DagOrder,
    /// Nobody reads, over others, from itself (D2).
    AcyclicChoice,
    /// A session throws away what it read from a source that was proved bad (D5).
    DropSuspect,
    /// A server stops acting when a client knows a later term, and sessions ignore earlier terms
    /// (T2, T3).
    TermOrder,
    /// A group goes on in a new term only if its shards were answered alike before (G1, G4).
    EqualRecovery,
    /// A server that takes over waits until its clients have announced what they hold (A5).
    RecoveryWindow,
    /// The last copy of a retained version is held until it is offloaded (A2).
    OffloadWait,
    /// A copy counts only once its shards have shown that they hold the bytes (A2).
    ProvedCopies,
    /// An offload replica is released only when somebody else holds its version (A3).
    OffloadNeeded,
    /// A group with offload seeding never waits for another datacentre (O1).
    SeedFirst,
    /// One group at a time is asked to seed (O2).
    OneSeed,
    /// A seed replica is released once nobody in its datacentre lacks its version (O3).
    SeedRelease,
    /// A staged version is copied into place only once the old one is given up (S2, S3).
    StagedInstall,
    /// All of the sources that one reader draws from have to stand (S5).
    EveryStripe,
    /// A reader that lets go of its further sources gives up their places (T5).
    StripeRelease,
    /// Nobody is accused of what a reader drew from several sources (T4).
    OneSourceAccused,
    /// A wait for all rollouts counts those that hold nothing (W1).
    EmptyReplicasWaitedFor,
    /// A version's content is what was sealed first (S7).
    OneContent,
    /// A replica is listed once all its shards have published (S8).
    WholePublish,
    /// A replica is unlisted as soon as one shard calls `unpublish` (S8).
    EarlyRetraction,
    /// A server that takes over counts revisions on from its predecessor's (S10).
    RevisionsGoOn,
    /// A copy leaves the listing under a new revision (S10).
    RetractionRevision,
    /// A transfer commits once all shards have read (G4).
    WholeCommit,
    /// What a shard says of an earlier assignment is ignored (G4).
    CurrentReports,
    /// An `unpublish` takes effect with the last shard's call (L8).
    WholeUnpublish,
    /// A call has all of its time (L1).
    FullDeadline,
    /// A call that is made again gets its recorded answer (G5).
    RepeatsAnswered,
    /// A source has a bounded number of readers (D1).
    Fanout,
    /// A source in one's own datacentre comes first (D3).
    NearFirst,
    /// A version crosses to a datacentre once at a time (D4).
    OneCrossing,
    /// Chains of replicas that are being filled are bounded (D6).
    DepthBound,
    /// Two readers must accuse a source, and never the last one (T4).
    TwoAccusers,
    /// A source that is free again is offered to those who wait (L2).
    Wakeup,
    /// Readers of a copy that is being given up have a deadline (L3).
    DrainDeadline,
    /// Who finds every source busy waits (A1).
    BusyIsWaitedFor,
    /// An offload replica is a copy to everybody else (A4).
    OffloadsCount,
    /// A shard that may have missed what became of its copy is told again (G1).
    VerdictRepeated,
    /// A call that is made again at the group's end gets its recorded answer (G5).
    RecordOverEnd,
    /// A source is not accused of what a reader drew before it was assigned (T4).
    ResumedNotAccused,
    /// Calls that all shards have gone past are forgotten (T5).
    CallsForgotten,
    /// Models that nobody is in are forgotten (L6).
    ModelsForgotten,
    /// Offload replicas are released (L6).
    OffloadRelease,
    /// A session that an acting server has refused for now makes no other server act (L5).
    RefusalIsAnswer,
    /// What was read when a call ran out of time is kept for the next one (L4).
    ReadsKept,
    /// A reader whose source is slow moves on (L2).
    SlowSourceLeft,
    /// Digests that could not be sent when they came are sent later (L7).
    SealRepeated,
    /// A lease counts from when its renewal was asked for (T1).
    LeaseFromAsking,
    /// A server that was told of another one that acts gives way for a while (L5).
    Deference,
    /// A server believes only tickets and terms that a server of the job has given (T6).
    TicketCheck,
    /// A shard announces no more than its ticket says that it held (T6).
    ClaimCheck,
}

/// Which safeguards are on: all, unless the feature `mutants` switches some off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Safeguards {
    #[cfg(feature = "mutants")]
    off: u64,
}

impl Safeguards {
    /// Whether this safeguard is on.
    #[cfg(not(feature = "mutants"))]
    #[inline(always)]
    pub const fn on(self, _safeguard: Safeguard) -> bool {
        true
    }

    /// Whether this safeguard is on.
    #[cfg(feature = "mutants")]
    pub fn on(self, safeguard: Safeguard) -> bool {
        std::hint::black_box(SWITCHABLE);
        self.off & (1 << safeguard as u32) == 0
    }

    /// The same set, with these switched off.
    #[cfg(feature = "mutants")]
    pub fn without(self, safeguards: &[Safeguard]) -> Self {
        let off = safeguards.iter().fold(self.off, |off, safeguard| off | 1 << *safeguard as u32);
        Self { off }
    }
}

/// In every program in which safeguards can be switched off, so that a test can look for these words in a file.
#[cfg(feature = "mutants")]
pub const SWITCHABLE: &str = "weightcast: safeguards can be switched off";

#[cfg(not(feature = "mutants"))]
const _: () = assert!(size_of::<Safeguards>() == 0);
