//! The table of what can go wrong. A new kind is one row here and one arm in `faults`.

use std::collections::BTreeMap;

macro_rules! fault_kinds {
    ($($(#[$doc:meta])* $kind:ident: $name:literal, $usual:literal;)*) => {
        /// A kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum FaultKind {
            $($(#[$doc])* $kind,)*
        }

        impl FaultKind {
            /// Every kind.
            pub const ALL: &'static [FaultKind] = &[$(FaultKind::$kind),*];

            /// The kind's name in reports.
            pub fn name(self) -> &'static str {
                match self { $(FaultKind::$kind => $name),* }
            }

            /// Whether the kind strikes a server, not a process.
            pub(crate) fn is_of_servers(self) -> bool {
                use FaultKind::{Pretend, Rift, SealCrash, ServerCrash, ServerPause};
                matches!(self, ServerCrash | ServerPause | Rift | Pretend | SealCrash)
            }

            /// How often the kind strikes at most in a usual world.
            fn usual(self) -> u64 {
                match self { $(FaultKind::$kind => $usual),* }
            }
        }
    };
}

fault_kinds! {
    /// A stream breaks, and the messages on it are lost (F1).
    Break: "stream broken", 12;
    /// A process can't reach the server for a while, up to twice the lease (F2).
    Partition: "server cut off", 4;
    /// A process dies and is started again (F3, F4, F5).
    Crash: "process crashed", 4;
    /// A process is suspended, up to twice the lease (F6, F7).
    Pause: "process suspended", 6;
    /// A bit flips on the path of a read (F10).
    Flip: "bit flipped", 4;
    /// Messages of a stream arrive late, one way only, up to twice the lease (F2).
    Stall: "one way stalled", 4;
    /// The data port does not answer, though the session lives (F8).
    Mute: "data port silent", 4;
    /// Reads from a process take long (F9).
    Slow: "source slow", 3;
    /// The process is suspended and its clock stands still, so the process does not notice (F32).
    Freeze: "clock suspended", 3;
    /// Half of the processes die at once (F28).
    Storm: "half of all crashed", 1;
    /// A process closes its session in the middle of whatever it does (F30).
    Close: "closed at random", 3;
    /// A shard makes another call than its group (F19).
    Divert: "call diverged", 2;
    /// A shard does not call for long (F19).
    Dawdle: "shard did not call", 3;
    /// Memory changes while it is published, by the application or by itself (F10, F11).
    Spoil: "published memory changed", 2;
    /// A trainer publishes other content under the number of a version that has its content already
    /// (F15).
    Forge: "other content published", 3;
    /// A server dies, and is started again with nothing that it knew (F22, F24).
    ServerCrash: "server crashed", 2;
    /// A server is suspended, and goes on in a term that may be over by then (F22, F23).
    ServerPause: "server suspended", 2;
    /// Half of the processes do not reach one of the servers (F23).
    Rift: "cut off from one server", 3;
    /// A reader accuses an innocent source, or reports a read that has not finished (F33).
    Lie: "reader lied", 4;
    /// A client with the job's token makes up a past, or shows tickets of other clients (F33).
    Pretend: "past made up", 2;
    /// A server dies just before or just after it handles a message about a publication (F39).
    SealCrash: "server crashed while a version was sealed", 3;
    /// A reader shows the version's digests without having read a byte (F33).
    Claim: "copy claimed", 3;
}

/// How often each kind of fault happens at most in one world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultCounts(BTreeMap<FaultKind, u64>);

impl FaultCounts {
    /// The usual bound of every kind.
    pub fn usual() -> Self {
        Self(FaultKind::ALL.iter().map(|kind| (*kind, kind.usual())).collect())
    }

    /// No faults at all.
    pub fn none() -> Self {
        Self(BTreeMap::new())
    }

    /// The same, with another bound for one kind.
    pub fn with(mut self, kind: FaultKind, most: u64) -> Self {
        self.0.insert(kind, most);
        self
    }

    /// The same, with every bound scaled to so many thousandths, rounded up.
    pub fn scaled(&self, thousandths: u32) -> Self {
        let scaled = |most: u64| most.saturating_mul(thousandths.into()).div_ceil(1_000);
        Self(self.0.iter().map(|(kind, most)| (*kind, scaled(*most))).collect())
    }

    /// The bound of a kind.
    pub fn most(&self, kind: FaultKind) -> u64 {
        self.0.get(&kind).copied().unwrap_or_default()
    }
}
