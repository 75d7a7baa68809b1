//! Coverage points: rare events that the worlds of a campaign must have reached; otherwise a clean
//! result says nothing. A new point is one row here and one insertion where the event happens.
//!
//! Besides the points of the table, every kind of fault must have struck, every call must have
//! ended well and in an error, and every error that a cluster can meet must have been seen.

use std::collections::{BTreeMap, BTreeSet};

use crate::settings::fault_kinds::FaultKind;

macro_rules! points {
    ($($point:ident: $meaning:literal;)*) => {
        /// Something that must happen sometimes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Point {
            $(#[doc = $meaning] $point,)*
        }

        impl Point {
            /// Every point of the table.
            pub const ALL: &'static [Point] = &[$(Point::$point),*];

            /// The point's meaning, in one line.
            pub fn meaning(self) -> &'static str {
                match self { $(Point::$point => $meaning),* }
            }
        }
    };
}

points! {
    SourceDiedAtFirstChunk: "a source process died before the first chunk of a read from it";
    SourceDiedInTheMiddle: "a source process died in the middle of a read from it";
    SourceDiedAtLastChunk: "a source process died before the last chunk of a read from it";
    ZombieFinishedReading: "a shard whose group the server had given up finished its read";
    RefusedBySourceFence: "a source refused a read of an older generation";
    RefusedByCommitFence: "the server refused what was read from a source that had gone";
    RefusedByDigest: "the server refused bytes that were not the publisher's";
    RefusedAfterEviction: "a session that had been evicted was refused";
    DrainWaited: "an owner waited for its readers before it could change its memory";
    DrainDeadlineCut: "a drain deadline passed, and the readers were cut off";
    ReaderLeftBehind: "an owner did not wait for a reader that had not been heard of for a while";
    AccusationIgnored: "a reader accused its source, which went on serving others";
    AnswerFromRecord: "the last shard got the answer decided before a publish in between";
    CallRepeated: "a call was sent again after its stream had broken";
    ReportOfOldAttempt: "a shard reported on a source that had been replaced meanwhile";
    SourceReplaced: "a transfer was given a second source";
    CommittedAfterSourceLoss: "a transfer that had lost a source was committed";
    ReadInFlight: "a replica was read while it was being filled";
    ReadResumed: "a transfer went on at another source and kept what it had";
    VersionCrossed: "a version crossed to another datacentre";
    UpdateSkipped: "an update did not wait for a seed that was still crossing";
    CommittedFromRollout: "a replica was filled from a rollout, not from a trainer";
    CopyShownAgain: "a replica kept its old copy when the source of the new one was lost";
    VersionJoined: "two trainer replicas held the same version, both sealed";
    ContentFenced: "a replica with other content than its version's was fenced";
    ReadBeforeSeal: "a version was being read before its digests were known";
    ClosedWhileRead: "a replica was closed while another read from it";
    LostWhileReading: "a group was given up in the middle of its transfer";
    PublishBroken: "a shard had called publish when its group broke";
    RepublishedSameVersion: "a replica published again the version that it had unpublished";
    EpochRaised: "a restarted trainer raised the epoch";
    NumberRegressed: "an update went over to a newer epoch's version of a lower number";
    RolledBack: "an update that allows it went back to an older version";
    WaitWoken: "a wait was answered by a change after its revision";
    BackupTookOver: "another server acted than the one before";
    ServerRestarted: "a server that had been lost acted again, in a later term";
    TwoServersActed: "servers acted in two terms at once, each with sessions";
    SupersededRefused: "a server that had not the latest term refused a session";
    ZombieUnheard: "a word of an earlier term came to a session that knew a later one";
    CopyCameOver: "a group came over to a later term, with its copy";
    RecoveryBroken: "a group did not come over whole and alike, and was given up";
    CallCameOver: "a call was made again in a later term";
    LostWhileDraining: "a server was lost in the middle of a drain";
    LostWhileOffloading: "a server was lost while a last copy was being offloaded";
    WindowHeldUnpublish: "the only known copy was not given up before all could have come over";
    WindowHeldRun: "a trainer waited until all could have come over";
    OffloadMade: "the last copy of a retained version was offloaded";
    OffloadReleased: "an offload replica was released";
    ReadFromOffload: "a replica was filled from an offload replica";
    RetentionLost: "a retained version could not be offloaded, and was lost";
    LastCopiesRaced: "the last two copies of a retained version were given up at once";
    OnlySpotLeft: "nobody held a retained version but replicas on spot instances";
    SeedMade: "a seed replica brought a version to its datacentre";
    SeedConsumed: "an update read what a seed had brought";
    SeedConsumedLate: "an update read what a seed had brought although something newer was far away";
    SeedReadInFlight: "a group that held nothing read a seed while it was being filled";
    SeedFailed: "a seed was refused, died, or took too long";
    SeedInVain: "a group crossed by itself after its seed had failed";
    SeedElectedTwice: "another group was asked for a seed after one had failed";
    SeedReleased: "a seed replica that had brought its version was let go of";
    SeedDropped: "a seed replica was given up before it held its version";
    SeedCameOver: "a seed replica came over to a later term";
    WaitedForVersion: "a wait was answered once the version had become available";
    WaitedForLaggards: "a wait was answered once the last rollout held the version";
    WaitedForSome: "a wait was answered once enough rollouts held the version";
    WaitedForFresh: "a wait was answered once no rollout was over-stale";
    StagedCommitted: "a staged update was committed";
    StagedKept: "a staged update failed, and the old version was still held";
    StagedReadMeanwhile: "the old version was read by others while a staged update read the new one";
    StagedDrained: "a staged update waited for the readers of the old version";
    StagedResumed: "a staged update went on at another source and kept what it had";
    StagedLostInstalling: "a group was given up while it put a staged version in place";
    StripedCommitted: "a transfer that drew from several sources to the end was committed";
    StripeLost: "one of several sources was lost in the middle of a read, and what had come was kept";
    StripedReadAgain: "wrong bytes that came from several sources were read again from one";
    HelperJoined: "a read went on with a further source, which published the version meanwhile";
    Unstriped: "a reader let go of a source that another one waited for";
    SiblingGave: "a shard took what several of its host hold from one that had brought it";
    SiblingFailed: "a shard of the same host gave nothing, and the source did";
    SiblingUnreachable: "a shard of the same host had gone, and the source gave its part";
    SiblingsReadAlone: "after wrong bytes each shard of a host read for itself";
    PastRefused: "a past that no server had written was refused";
    ClaimRefused: "a member that said that it held what it had not was given up";
    ServerDiedHalfway: "a server died with some of what it had to say in one event unsaid";
    ProcessDiedHalfway: "a process died with some of what its session had said undone";
    TooFarAhead: "a group was given up because one shard was too many calls ahead";
    ShardMissing: "a call timed out because a shard had not made it";
}

/// The calls, each of which must have ended well and in an error.
const CALLS: [&str; 11] = [
    "Register",
    "Unregister",
    "Publish",
    "Unpublish",
    "Replicate",
    "Update",
    "Describe",
    "Retain",
    "LetGo",
    "List",
    "Wait",
];

/// The errors that must have been seen. `Limit` is left to the tests of hostile peers.
const ERRORS: [&str; 11] = [
    "VersionUnavailable",
    "SourceLost",
    "DigestMismatch",
    "ContentMismatch",
    "LayoutMismatch",
    "GroupDiverged",
    "GroupBroken",
    "Timeout",
    "ServerUnreachable",
    "InDoubt",
    "Misuse",
];

/// Coverage points that were reached.
pub(crate) type Points = BTreeSet<Point>;

/// Which points were reached, of those that must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// Points reached.
    pub hit: usize,
    /// All points.
    pub total: usize,
    /// Names of the points that were not reached.
    pub missed: Vec<String>,
}

impl Coverage {
    /// Compares what worlds reached with all points. The names in `calls` are a call and its
    /// result.
    pub(crate) fn of(
        points: &BTreeSet<Point>,
        faults: &BTreeMap<&'static str, u64>,
        calls: &BTreeMap<String, u64>,
    ) -> Self {
        let ends: Vec<(&str, &str)> = calls.keys().filter_map(|key| key.split_once(' ')).collect();
        let failed = |end: &str| ERRORS.contains(&end) || end == "Limit";
        let point = |point: &Point| (format!("{point:?}"), points.contains(point));
        let fault = |kind: &FaultKind| {
            (format!("fault: {}", kind.name()), faults.contains_key(kind.name()))
        };
        let ended = |call: &&str, bad: bool| {
            ends.iter().any(|(name, end)| name == call && failed(end) == bad)
        };
        let well = |call: &&str| (format!("{call} ended well"), ended(call, false));
        let badly = |call: &&str| (format!("{call} ended in an error"), ended(call, true));
        let error =
            |error: &&str| (format!("error: {error}"), ends.iter().any(|(_, end)| end == error));
        let all: Vec<(String, bool)> = (Point::ALL.iter().map(point))
            .chain(FaultKind::ALL.iter().map(fault))
            .chain(CALLS.iter().flat_map(|call| [well(call), badly(call)]))
            .chain(ERRORS.iter().map(error))
            .collect();
        let total = all.len();
        let missed: Vec<String> =
            all.into_iter().filter(|(_, hit)| !hit).map(|(name, _)| name).collect();
        Self { hit: total - missed.len(), total, missed }
    }
}
