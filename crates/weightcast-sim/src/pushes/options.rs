//! What a world of pushes is like.

use std::collections::BTreeMap;

use weightcast_protocol::{Safeguards, Span};
use weightcast_testkit::mix;

use crate::base::rng::Rng;

/// Writes of each parcel.
pub(crate) const CHUNKS: usize = 2;
/// What every push takes at most that nothing strikes.
const AMPLE: Span = Span::from_secs(5);

macro_rules! push_faults {
    ($($(#[$doc:meta])* $kind:ident: $name:literal, $usual:literal;)*) => {
        /// A kind of fault in a world of pushes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum PushFault {
            $($(#[$doc])* $kind,)*
        }

        impl PushFault {
            /// Every kind.
            pub const ALL: &'static [PushFault] = &[$(PushFault::$kind),*];

            /// The kind's name in reports.
            pub fn name(self) -> &'static str {
                match self { $(PushFault::$kind => $name),* }
            }

            /// How often the kind strikes at most in a usual world.
            fn usual(self) -> u64 {
                match self { $(PushFault::$kind => $usual),* }
            }
        }
    };
}

push_faults! {
    /// A sender dies, and is started again.
    SenderDies: "sender died", 2;
    /// A sender stands still in the middle of its writes, and then goes on.
    SenderSuspended: "sender suspended", 3;
    /// A sender takes long for each write.
    SenderSlow: "sender slow", 2;
    /// Writes of a sender fail at its end, and land long after.
    WritesLate: "writes late", 3;
    /// Nobody reaches a sender.
    SenderCut: "sender out of reach", 2;
    /// A sender's memory changes in the middle of its writes.
    VersionWithdrawn: "version withdrawn", 2;
    /// A bit flips in a write.
    WriteFlipped: "bit flipped in a write", 2;
    /// A target dies, and is started again.
    TargetDies: "target died", 2;
    /// A target gives its memory away for a while.
    TargetSleeps: "target slept", 2;
    /// A target leaves, and joins again later.
    TargetLeaves: "target left", 2;
    /// Nobody reaches a target.
    TargetCut: "target out of reach", 2;
    /// The driver dies, and another one starts.
    DriverDies: "driver of pushes died", 2;
    /// Another driver starts although the first one lives.
    DriverSplit: "two drivers of pushes", 2;
    /// A driver is suspended; another one starts; the first one goes on.
    DriverSuspended: "driver of pushes suspended", 2;
    /// The driver's caller does not want the push any more.
    Cancelled: "push cancelled", 1;
}

/// What a world of pushes is like.
#[derive(Clone, Debug)]
pub struct PushOptions {
    /// Targets.
    pub targets: u32,
    /// Of these, how many start late.
    pub joiners: u32,
    /// Senders.
    pub senders: u32,
    /// Parcels of each target at most.
    pub parcels: u32,
    /// How many of a thousand other senders hold a parcel too.
    pub shared: u64,
    /// How long one write takes at most, with its answer.
    pub write: Span,
    /// How long a target may take for a push.
    pub deadline: Span,
    /// How long a target may be silent.
    pub silence: Span,
    /// How long a sender may bring a target nothing.
    pub patience: Span,
    /// How long grants stay open without a word of the driver.
    pub lease: Span,
    /// How often targets are told again.
    pub ask_every: Span,
    /// How often a parcel may leave a sender that lives.
    pub moves: u32,
    /// How many of a thousand messages are lost, and how many come twice.
    pub lost: u64,
    /// How long a message takes at most.
    pub delay: Span,
    /// How long the trainer takes for a version at most.
    pub publish_every: Span,
    /// For how long faults strike.
    pub fault_time: Span,
    /// How long all may take to come right after that.
    pub quiet_time: Span,
    /// How long a fault lasts at most.
    pub longest: Span,
    /// How often each kind of fault strikes at most.
    pub faults: BTreeMap<PushFault, u64>,
    /// Of all machines.
    pub safeguards: Safeguards,
}

impl PushOptions {
    /// The world that a seed stands for.
    pub fn drawn(seed: u64) -> Self {
        let rng = &mut Rng::new(mix(&[seed, 0x0070_7573_6865]));
        let targets = rng.between(1, 6) as u32;
        Self {
            targets,
            joiners: rng.below(u64::from(targets)) as u32 * rng.below(2) as u32,
            senders: rng.between(1, 6) as u32,
            parcels: rng.between(1, 8) as u32,
            shared: [200, 500, 900][rng.below(3) as usize],
            write: Span::from_millis(rng.between(8, 60)),
            deadline: Span::from_millis(if rng.chance(250) {
                rng.between(600, 1_500)
            } else {
                rng.between(5_000, 8_000)
            }),
            silence: Span::from_millis(rng.between(1_200, 2_400)),
            patience: Span::from_millis(rng.between(400, 900)),
            lease: Span::from_millis(rng.between(500, 1_500)),
            ask_every: Span::from_millis(rng.between(80, 200)),
            moves: rng.between(1, 5) as u32,
            lost: if rng.chance(300) { 0 } else { rng.below(150) },
            delay: Span::from_millis(rng.between(2, 60)),
            publish_every: Span::from_millis(rng.between(1_000, 3_000)),
            fault_time: Span::from_millis(rng.between(4_000, 8_000)),
            quiet_time: Span::from_secs(14),
            longest: Span::from_millis(1_500),
            faults: faults(rng),
            safeguards: Safeguards::default(),
        }
    }

    /// How long a push takes at most that nothing strikes: every write of every target, a sender after the other that is
    /// found to be slow, and words that are lost.
    pub(crate) fn ample(&self) -> Span {
        let writes = CHUNKS as u64 * u64::from(self.parcels) * u64::from(self.targets);
        let writes = self.write.0.saturating_mul(writes * 2);
        let found = self.patience.0.saturating_mul(u64::from(self.senders));
        let words = Span::from_millis(700).0;
        Span(writes.saturating_add(found).saturating_add(words).min(AMPLE.0))
    }

    /// The same, with another bound for one kind of fault.
    pub fn with(mut self, kind: PushFault, most: u64) -> Self {
        self.faults.insert(kind, most);
        self
    }

    /// The same with one kind of fault.
    pub fn only(mut self, kind: PushFault, most: u64) -> Self {
        self.faults.clear();
        self.with(kind, most)
    }
}

/// About half of the kinds, some of them more often than usual.
fn faults(rng: &mut Rng) -> BTreeMap<PushFault, u64> {
    let draw = |kind: &PushFault| match rng.below(8) {
        0..4 => None,
        4..7 => Some((*kind, kind.usual())),
        _ => Some((*kind, kind.usual() * 3)),
    };
    PushFault::ALL.iter().filter_map(draw).collect()
}
