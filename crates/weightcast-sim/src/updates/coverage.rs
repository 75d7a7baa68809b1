//! Rare events that worlds of updates must have reached.

macro_rules! update_points {
    ($($(#[$doc:meta])* $point:ident: $name:literal;)*) => {
        /// A rare event that worlds of updates must have reached.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum UpdatePoint {
            $($(#[$doc])* $point,)*
        }

        impl UpdatePoint {
            /// Every point.
            pub const ALL: &'static [UpdatePoint] = &[$(UpdatePoint::$point),*];

            /// The point in words.
            pub fn name(self) -> &'static str {
                match self { $(UpdatePoint::$point => $name),* }
            }
        }
    };
}

update_points! {
    /// An update went well.
    Updated: "an engine took a new version in";
    /// A failed install went well from staging.
    InstalledAgain: "an install failed, and was repeated from staging";
    /// An engine went back and served.
    WentBack: "an engine went back to its old version, and served it";
    /// An engine ended empty.
    EndedEmpty: "an engine ended empty";
    /// An engine ended gone.
    EndedGone: "an engine was out of reach at the end of its update";
    /// A step's deadline passed.
    DeadlinePassed: "a step's deadline passed";
    /// An answer to an earlier order came late.
    LateAnswer: "an answer came to an order that was abandoned";
    /// A worker refused an order as fenced.
    OrderFenced: "an order of a lost driver was refused";
    /// A step was fenced between two changes.
    StepFenced: "a step was fenced between two changes";
    /// `Verify` found a difference.
    DifferenceFound: "verify found a flipped bit";
    /// What an engine had after a sleep, or had loaded, was not the version.
    SpoiledFound: "an engine that had woken or started was not admitted with what it had";
    /// An engine that had failed for good was let go.
    LetGo: "an engine that could not install was let out of its fleet's update";
    /// An order reached another life of an engine.
    OrderWaited: "an order that had waited for an engine's address reached its next life";
    /// A driver found that there is a later one.
    SteppedDown: "a driver found a later driver, and stopped";
    /// A fleet committed.
    Committed: "a fleet committed";
    /// A commit of an earlier driver came too late.
    CommitTooLate: "a commit of a lost driver was refused";
    /// A fleet went back to an earlier version.
    RolledBack: "a fleet went back to an earlier version";
    /// A fleet aborted.
    Aborted: "a fleet aborted";
    /// The driver of a fleet ended in doubt.
    DriverInDoubt: "a driver could not reach the register in time";
    /// A driver that took over found a commit.
    RecoveredCommit: "a driver took over after the commit";
    /// A driver that took over wrote an abort.
    RecoveredAbort: "a driver took over before the commit";
    /// A register did not know a verdict.
    VerdictLost: "a register was asked for a verdict of which it cannot know";
    /// A lost driver's update was ended as committed, by what engines say.
    ReportsCommit: "a driver took over after the commit, and the register was lost";
    /// The same, as aborted.
    ReportsAbort: "a driver took over, and the register was lost";
    /// An engine asked the register.
    EngineAsked: "an engine in doubt asked the register";
    /// An engine went back by itself.
    BackByItself: "an engine in doubt went back by itself";
    /// An engine installed by itself.
    ForwardByItself: "an engine in doubt installed by itself";
    /// An engine tried again.
    FailedByItself: "an engine in doubt could not do what the register says";
    /// An engine left its fleet.
    LeftFleet: "an engine left its fleet, since the register was out of reach";
    /// An engine that started or woke was admitted.
    Admitted: "an engine that had started or woken was admitted";
    /// An engine died after the commit.
    DiedCommitted: "an engine died between the commit and its resume";
    /// A sequence has tokens of two versions.
    MixedSequence: "a sequence went on with another version, as declared";
    /// Sequences of before were computed anew.
    Recomputed: "a sequence went on with new weights and a new cache";
    /// A router was sent to an engine.
    RoutedTo: "a router was sent to an engine";
    /// An engine served another version than the fleet's.
    RoutedBehind: "an engine was behind, and no router was sent there";
    /// An engine stood still.
    RoutedStanding: "an engine stood still, and no router was sent there";
    /// Not all workers had spoken.
    RoutedJoining: "not all workers of an engine had said what they serve";
    /// An update was cancelled in time.
    CancelledInTime: "an update was cancelled, and went back";
}
