//! Rare events that worlds of pushes must have reached.

macro_rules! push_points {
    ($($(#[$doc:meta])* $point:ident: $name:literal;)*) => {
        /// A rare event that worlds of pushes must have reached.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum PushPoint {
            $($(#[$doc])* $point,)*
        }

        impl PushPoint {
            /// Every point.
            pub const ALL: &'static [PushPoint] = &[$(PushPoint::$point),*];

            /// The point in words.
            pub fn name(self) -> &'static str {
                match self { $(PushPoint::$point => $name),* }
            }
        }
    };
}

push_points! {
    /// A target became ready.
    Pushed: "a target took a pushed version in";
    /// A parcel moved from a sender that was lost.
    LostMoved: "a lost sender's parcels moved";
    /// A parcel moved from a sender that lives.
    SlowMoved: "parcels of a sender that lives moved";
    /// A moved parcel's target became ready.
    ReadyAfterMove: "a target became ready after a parcel had moved";
    /// A write under a grant that was closed.
    ZombieRefused: "a write was refused, since its grant was closed";
    /// The same, after the target had begun to serve.
    ZombieAfterResume: "a write was refused while its target served";
    /// The same, while grants of a later generation were open.
    ZombieOfEarlierGeneration: "a write of an earlier generation was refused while a later one was written";
    /// A write reached another life of its target.
    WrongLife: "a write reached the next life of its target";
    /// A word about writes came after the grant was closed.
    LateWord: "a sender's word came after its grant was closed";
    /// An order of an earlier push or revision arrived.
    OldOrder: "an order came after a newer one";
    /// An order reached another life of its target.
    OrderWaited: "an order reached the next life of its target";
    /// The content differed.
    DifferenceFound: "a flipped bit was found, and written again";
    /// A target joined a running push.
    JoinedRunning: "a target joined a push that was running";
    /// A target left a running push.
    LeftRunning: "a target left a push that was running";
    /// A target slept with open grants.
    SleptOpen: "a target gave its memory away with grants open";
    /// A lease ran out.
    LeaseEnded: "a target closed its grants, since no driver was heard";
    /// A sender came to be a holder of a running push.
    HolderJoined: "a sender that had started joined a push that was running";
    /// A sender refused, since its memory had changed.
    NotHeld: "a sender no longer held the version";
    /// A push ended since nobody held a parcel.
    NoHolder: "a push ended, since nobody who lives held a parcel";
    /// A push ended by a deadline.
    DeadlinePassed: "a push ended at its deadline";
    /// A push ended silent.
    WentSilent: "a push ended, since its target was silent";
    /// A push was superseded.
    Superseded: "a target obeyed a later push";
}
