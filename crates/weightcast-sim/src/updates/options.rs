//! What a world of updates is like.

use std::collections::BTreeMap;

use weightcast_protocol::engine_update::{InstallMeans, PauseMode, StepDeadlines};
use weightcast_protocol::{Safeguards, Span};
use weightcast_testkit::mix;

use crate::base::rng::Rng;

macro_rules! update_faults {
    ($($(#[$doc:meta])* $kind:ident: $name:literal, $usual:literal;)*) => {
        /// A kind of fault in a world of updates.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum UpdateFault {
            $($(#[$doc])* $kind,)*
        }

        impl UpdateFault {
            /// Every kind.
            pub const ALL: &'static [UpdateFault] = &[$(UpdateFault::$kind),*];

            /// The kind's name in reports.
            pub fn name(self) -> &'static str {
                match self { $(UpdateFault::$kind => $name),* }
            }

            /// How often the kind strikes at most in a usual world.
            fn usual(self) -> u64 {
                match self { $(UpdateFault::$kind => $usual),* }
            }
        }
    };
}

update_faults! {
    /// An engine dies, and is started again.
    EngineDies: "engine died", 2;
    /// An engine dies, and is started again before anybody has noticed.
    EngineRestarts: "engine started again at once", 2;
    /// All engines and drivers die once the driver has sent a commit, which is late; then they are started again.
    JobDies: "job died with a commit under way", 1;
    /// All engines die once the driver has sent a commit, which is late; then they are started again. The driver lives.
    EnginesDie: "engines died with a commit under way", 1;
    /// A worker stands still in the middle of whatever it does.
    WorkerWedged: "worker wedged", 4;
    /// A worker takes long for each step.
    WorkerSlow: "worker slow", 3;
    /// An engine gives its memory away for a while.
    EngineSleeps: "engine slept", 2;
    /// The driver dies, and another one starts.
    DriverDies: "driver died", 3;
    /// Another driver starts although the first one lives.
    DriverSplit: "two drivers", 2;
    /// A driver is suspended; another one starts; the first one goes on.
    DriverSuspended: "driver suspended", 2;
    /// The newest driver and the engines do not reach each other; its predecessors and the engines may.
    DriverCut: "driver out of reach of engines", 2;
    /// Nobody reaches the register.
    RegisterAway: "register out of reach", 2;
    /// The register is lost; the next one knows nothing.
    RegisterLost: "register lost", 1;
    /// What is said to the register waits on the way, for longer than some drivers live.
    RegisterSlow: "words to the register late", 2;
    /// An engine and all drivers do not reach each other.
    LinkCut: "engine out of reach", 3;
    /// A bit flips while bytes are installed.
    BitFlipped: "bit flipped in an install", 3;
    /// Weights are not what they were once an engine has slept, or is started.
    WeightsSpoiled: "weights spoiled asleep", 3;
    /// A bit flips in what was staged, so that every install of it fails.
    StagingSpoiled: "bit flipped in staging", 2;
    /// The driver's caller does not want the update any more.
    Cancelled: "update cancelled", 2;
    /// The same, once the driver has sent a commit, which may be late.
    CancelledLate: "update cancelled with a commit under way", 2;
}

/// What a world of updates is like.
#[derive(Clone, Debug)]
pub struct UpdateOptions {
    /// Engines.
    pub engines: u32,
    /// Workers of each engine.
    pub workers: u32,
    /// All engines are updated as one. Otherwise each by itself.
    pub fleet: bool,
    /// Where bytes land; in a fleet always beside the live parameters.
    pub means: InstallMeans,
    /// What becomes of sequences.
    pub mode: PauseMode,
    /// Bytes are fetched while engines generate.
    pub prefetch: bool,
    /// Deadlines of steps.
    pub deadlines: StepDeadlines,
    /// How many times longer an install takes than a fetch.
    pub install: u64,
    /// How long an order is waited for before it is sent again.
    pub patience: Span,
    /// How often an install is repeated.
    pub retries: u32,
    /// How long a driver may be silent.
    pub lease: Span,
    /// How often an engine in doubt tries again.
    pub doubt_retries: u32,
    /// How long the register may be out of reach.
    pub register_deadline: Span,
    /// How many of a thousand messages are lost, and how many come twice.
    pub lost: u64,
    /// How long a message takes at most.
    pub delay: Span,
    /// How many of a thousand steps fail.
    pub failing: u64,
    /// Engines that start late.
    pub joiners: u32,
    /// How long the trainer takes for a version at most.
    pub publish_every: Span,
    /// How many of a thousand times the trainer goes back to an earlier version.
    pub rollbacks: u64,
    /// A driver that starts is told of no version before the next one is published; until then it keeps to the fleet's.
    pub forgetful: bool,
    /// How long no driver comes after the faults.
    pub alone: Span,
    /// For how long faults strike.
    pub fault_time: Span,
    /// How long all may take to come right after that.
    pub quiet_time: Span,
    /// How often each kind of fault strikes at most.
    pub faults: BTreeMap<UpdateFault, u64>,
    /// Of all machines.
    pub safeguards: Safeguards,
}

impl UpdateOptions {
    /// The world that a seed stands for.
    pub fn drawn(seed: u64) -> Self {
        let rng = &mut Rng::new(mix(&[seed, 0x0075_7064_6174]));
        let fleet = rng.chance(650);
        let staged = fleet || rng.chance(500);
        let engines = rng.between(1, 6) as u32;
        let install = if rng.chance(150) { 25 } else { 1 };
        Self {
            engines,
            workers: rng.between(1, 4) as u32,
            fleet,
            means: if staged { InstallMeans::Staged } else { InstallMeans::InPlace },
            mode: mode(rng),
            prefetch: staged && rng.chance(500),
            deadlines: StepDeadlines {
                bytes: Span::from_millis(rng.between(400, 900) + (install - 1) * 80),
                // As long as a sequence, at least.
                pause: Span::from_millis(rng.between(800, 1_100)),
                parameters: Span::from_millis(rng.between(250, 500)),
                word: Span::from_millis(rng.between(200, 400)),
            },
            install,
            patience: Span::from_millis(if rng.chance(300) { 10_000 } else { 0 }),
            retries: rng.between(0, 3) as u32,
            lease: Span::from_millis(rng.between(600, 2_500)),
            doubt_retries: rng.between(0, 3) as u32,
            register_deadline: Span::from_millis(rng.between(300, 1_500)),
            lost: if rng.chance(300) { 0 } else { rng.below(150) },
            delay: Span::from_millis(rng.between(2, 60)),
            failing: if rng.chance(400) { 0 } else { rng.below(40) },
            joiners: rng.below(u64::from(engines)) as u32 * rng.below(2) as u32,
            publish_every: Span::from_millis(rng.between(1_500, 3_500)),
            rollbacks: if rng.chance(500) { 0 } else { rng.between(100, 500) },
            forgetful: rng.chance(300),
            alone: Span::from_millis(if fleet && rng.chance(250) { 16_000 } else { 100 }),
            fault_time: Span::from_millis(rng.between(4_000, 9_000)),
            quiet_time: Span::from_secs(14),
            faults: faults(rng),
            safeguards: Safeguards::default(),
        }
    }

    /// The same with one kind of fault.
    pub fn only(mut self, kind: UpdateFault, most: u64) -> Self {
        self.faults.clear();
        self.with(kind, most)
    }

    /// The same, with another bound for one kind of fault.
    pub fn with(mut self, kind: UpdateFault, most: u64) -> Self {
        self.faults.insert(kind, most);
        self
    }
}

fn mode(rng: &mut Rng) -> PauseMode {
    match rng.below(4) {
        0 => PauseMode::Abort,
        1 => PauseMode::Wait,
        2 => PauseMode::Keep { mixed: false },
        _ => PauseMode::Keep { mixed: true },
    }
}

/// About half of the kinds, some of them more often than usual.
fn faults(rng: &mut Rng) -> BTreeMap<UpdateFault, u64> {
    let draw = |kind: &UpdateFault| match rng.below(8) {
        0..4 => None,
        4..7 => Some((*kind, kind.usual())),
        _ => Some((*kind, kind.usual() * 3)),
    };
    UpdateFault::ALL.iter().filter_map(draw).collect()
}
