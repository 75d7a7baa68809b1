//! Safeguards that a test rig may switch off, to show that it notices. In a job all of them are on.
//!
//! The build of a job has no switch: without the feature `mutants` a [`Safeguards`] takes no space,
//! and the compiler answers every question to it. With the feature each server and session has a
//! set of its own.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A step that keeps an invariant, and can be switched off alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Safeguard {
    /// `unpublish` is answered only once the replica has no readers (S9).
    Drain,
    /// The shards of a group get one common answer (G1, G3).
    GroupTransaction,
    /// A replica commits only content that equals the publisher's (S6).
    DigestCheck,
    /// `unpublish` reports that the publication had been refused (S7).
    TellRefusal,
    /// A replica commits only if its source still holds what was read (S5).
    CommitFence,
    /// A session stops serving a generation before its memory may change (S3).
    SourceFence,
    /// Readers take a source's progress only for the generation that they read (S4). Only the
    /// simulator uses this safeguard: its chunk loop stands for the transports.
    TaggedProgress,
    /// A replica commits only after its source has committed (S5).
    DagOrder,
    /// The read graph is acyclic (D2).
    AcyclicChoice,
    /// A session discards what it read from a source that was proved bad (D5).
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
    /// An offload replica is released only when another copy of its version counts (A3).
    OffloadNeeded,
    /// An update of a group with offload seeding leaves a crossing to a seed (O1).
    SeedFirst,
    /// A datacentre is asked for one seed at a time (O2).
    OneSeed,
    /// A seed replica is released once no rollout of its datacentre lacks its version (O3).
    SeedRelease,
    /// A staged version is copied into place only once the old one is given up (S2, S3).
    StagedInstall,
    /// Every source that one reader draws from has to hold the version at the commit (S5).
    EveryStripe,
    /// A reader that releases its further sources frees their places (T5).
    StripeRelease,
    /// No source is accused of what a reader drew from several sources (T4).
    OneSourceAccused,
    /// A wait for all rollouts counts rollouts that hold nothing (W1).
    EmptyReplicasWaitedFor,
    /// A version's content is the content that was sealed first (S7).
    OneContent,
    /// Runs of a server that knows of none have numbers of their own (S7).
    RunsApart,
    /// A replica is listed once all its shards have published (S8).
    WholePublish,
    /// A replica is unlisted as soon as one shard calls `unpublish` (S8).
    EarlyRetraction,
    /// Revisions of a new term come after those of earlier terms (S10).
    RevisionsGoOn,
    /// A copy leaves the listing under a new revision (S10).
    RetractionRevision,
    /// A transfer commits once all shards have read (G4).
    WholeCommit,
    /// A report on an earlier assignment is ignored (G4).
    CurrentReports,
    /// An `unpublish` takes effect with the last shard's call (L8).
    WholeUnpublish,
    /// A call has its whole deadline (L1).
    FullDeadline,
    /// A call that is made again gets its recorded answer (G5).
    RepeatsAnswered,
    /// A source has a bounded number of readers (D1).
    Fanout,
    /// Sources in the reader's own datacentre come first (D3).
    NearFirst,
    /// Sources on the reader's own host come first (D7).
    HostFirst,
    /// A version crosses to a datacentre once at a time (D4).
    OneCrossing,
    /// Chains of replicas that are being filled are bounded (D6).
    DepthBound,
    /// A source is fenced only if two replicas accuse it, and never the last holder (T4).
    TwoAccusers,
    /// Readers that wait are told when a source is free again (L2).
    Wakeup,
    /// Readers of a copy that is being given up have a deadline (L3).
    DrainDeadline,
    /// A reader that finds every source busy waits (A1).
    BusyIsWaitedFor,
    /// Offload replicas count as copies (A4).
    OffloadsCount,
    /// A shard that may have missed the verdict on its copy is told again (G1).
    VerdictRepeated,
    /// A call that is made again after the group's end gets its recorded answer (G5).
    RecordOverEnd,
    /// A source is not accused of what a reader drew before it was assigned (T4).
    ResumedNotAccused,
    /// Calls that all shards have passed are forgotten (T5).
    CallsForgotten,
    /// Models without groups are forgotten (L6).
    ModelsForgotten,
    /// Offload replicas are released (L6).
    OffloadRelease,
    /// A session that an acting server refused for now makes no other server act (L5).
    RefusalIsAnswer,
    /// Bytes that were read when a call ran out of time are kept for the next call (L4).
    ReadsKept,
    /// A reader whose source is slow moves on (L2).
    SlowSourceLeft,
    /// Digests that could not be sent when they came are sent later (L7).
    SealRepeated,
    /// A lease counts from when its renewal was sent (T1).
    LeaseFromAsking,
    /// A server that was told of another acting server gives way for a while (L5).
    Deference,
    /// A server believes only tickets and terms that a server of the job has given (T6).
    TicketCheck,
    /// A shard can't announce more than its ticket says (T6).
    ClaimCheck,
    /// A step of an engine's update is done once all workers have taken it (E1).
    EveryWorker,
    /// A step ends at its deadline (E5).
    StepDeadline,
    /// Answers to an earlier order are ignored (E5).
    CurrentAnswers,
    /// An engine whose parameters may have changed does not go back (E5).
    NoReturn,
    /// An engine is asked what it is before an update says so (E5).
    OutcomeAsked,
    /// A worker obeys no order that is older than one it has heard (E7).
    OrdersFenced,
    /// A step makes no change once a newer order was heard (E7).
    EffectsFenced,
    /// Only what was fetched whole is installed (E1).
    WholeStaging,
    /// An engine is resumed only with a version that is installed, verified and stamped (E1).
    ReadyResumed,
    /// A forward pass needs parameters that are a version (E1).
    WholeServed,
    /// Caches outlive an update only if sequences of several versions are declared (E3).
    DeclaredMix,
    /// Parameters that differ from the version are not served (E1).
    ContentVerified,
    /// A fleet commits only if all engines are prepared (E4).
    FleetWhole,
    /// Engines go on only after the register's verdict (E4).
    RegisterDecides,
    /// An engine in doubt asks the register (E4).
    DoubtAsks,
    /// An engine that can't reach the register stays paused (E4).
    DoubtLeaves,
    /// A driver that takes over does what the register says (E4).
    RecoveryAsks,
    /// The first verdict counts (E4).
    FirstVerdict,
    /// An engine of a fleet installs only after the verdict (E4).
    FleetHold,
    /// An engine that starts or wakes serves only once a driver resumes it (E4).
    AdmittedFirst,
    /// An engine that starts obeys no driver before the newest (E4).
    StartFenced,
    /// A driver that has a successor commits nothing (E4).
    NewestCommits,
    /// A register says nothing of what it cannot know (E4).
    LostUnsaid,
    /// The fleet's version is that of the last commit, not the largest (E4).
    LastCommit,
    /// An answer that was kept for a repeated order does not outlive a sleep (E5).
    SleepForgets,
    /// A new sequence does not begin with the caches of other weights (E3).
    PrefixesForgotten,
    /// What an engine has loaded, or has after it woke, is verified before it is resumed (E1).
    HeldVerified,
    /// An engine that fails for good does not hold up its fleet's next update (E6).
    LetsGo,
    /// An engine in doubt that could not do what the register says tries again (E6).
    DoubtRepeats,
    /// An engine that takes a driver's step doubts the driver only after the step's deadline (E6).
    BusyTrusts,
    /// An order for another life of an engine has no effect (E7).
    OwnLife,
    /// An engine is told which version it holds (E2).
    Stamped,
    /// An engine is admitted only if all of its workers serve the same version (E8).
    AllWorkersServe,
    /// What a worker has said counts for a lease (E8).
    RoutingLapses,
    /// An engine is admitted only with the fleet's version (E8).
    FleetVersionRouted,
    /// Workers of an engine count only in its present life (E8).
    RoutedOneLife,
    /// An order for another target has no effect (P7).
    OwnTarget,
    /// A target obeys no order that is older than one it has heard (P7).
    NewestOrder,
    /// Only what was written under an open grant counts (P2).
    OpenGrantsCount,
    /// All grants are closed before the content is compared (P2).
    AllClosed,
    /// A target that gives its memory away closes its grants first (P2).
    SleepCloses,
    /// A grant is closed before another sender gets one of its parcels (P3).
    MovedClosed,
    /// Pushed content that differs from the version is not served (P1).
    PushVerified,
    /// A sender writes nothing more once its memory may change (P3).
    SenderStops,
    /// Routes of a target do not change when another target joins or leaves (P4).
    RoutesKept,
    /// A push ends at its deadline (P5).
    PushDeadline,
    /// A push is over at a target once the target says that it is ready (P5).
    ReadyAwaited,
    /// Grants end when no driver is heard (P5).
    GrantsEnd,
    /// Parcels of a lost sender move to another holder (P6).
    LostMoved,
    /// Parcels of a sender that brings nothing move to another holder (P6).
    SlowMoved,
    /// What can't be fetched costs an engine nothing of what it serves (E9).
    FetchApart,
    /// What a group has had kept by name is retained (A2).
    ExactRetained,
    /// Nothing is kept for groups at their end (T5).
    KeptUntilEnd,
    /// A shard brings over what is kept for its group (L8).
    KeptBroughtOver,
    /// No source is accused of what shards of one host have brought each other (T4).
    SharedNotAccused,
    /// Once bytes were wrong, shards of one host bring each other nothing (T4).
    DoubtedAlone,
    /// Nobody takes from a shard's memory once that may change (S3).
    SharingCloses,
    /// What siblings take is of one call, one beginning and one version (S11).
    OpeningNamed,
    /// Of what shards of one host hold alike, each brings its part (D8).
    HostEnteredOnce,
}

/// Which safeguards are on: all, unless the feature `mutants` switches some off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Safeguards {
    #[cfg(feature = "mutants")]
    off: u128,
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

/// Part of every program in which safeguards can be switched off, so that a test can search a file
/// for these words.
#[cfg(feature = "mutants")]
pub const SWITCHABLE: &str = "weightcast: safeguards can be switched off";

/// A build in which all safeguards are on reads no recording of one in which some were off.
impl Serialize for Safeguards {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[cfg(feature = "mutants")]
        let off = self.off;
        #[cfg(not(feature = "mutants"))]
        let off = 0u128;
        off.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Safeguards {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let off = u128::deserialize(from)?;
        #[cfg(feature = "mutants")]
        return Ok(Self { off });
        #[cfg(not(feature = "mutants"))]
        match off {
            0 => Ok(Self {}),
            _ => Err(serde::de::Error::custom("safeguards were off")),
        }
    }
}

#[cfg(not(feature = "mutants"))]
const _: () = assert!(size_of::<Safeguards>() == 0);
