//! Mutants of engine updates: the machines of `weightcast_protocol::engine_update` with something missing.

use weightcast_protocol::engine_update::{InstallMeans, PauseMode};
use weightcast_protocol::{Safeguard, Span};
use weightcast_sim::{InvariantViolation, UpdateFault, UpdateOptions};

/// An update protocol with something missing.
#[derive(Clone, Copy, Debug)]
pub struct UpdateMutant {
    /// As the command line has it.
    pub name: &'static str,
    /// What is switched off.
    pub what: &'static str,
    /// The invariants whose checkers must find it; one is enough.
    pub found_by: &'static [&'static str],
    off: &'static [Safeguard],
    /// Makes the world one in which it can show.
    scenario: fn(UpdateOptions) -> UpdateOptions,
}

impl UpdateMutant {
    /// The one of this name.
    pub fn named(name: &str) -> Option<&'static UpdateMutant> {
        UPDATE_MUTANTS.iter().find(|mutant| mutant.name == name)
    }

    /// Whether this is what had to be found.
    pub fn expects(&self, violation: &InvariantViolation) -> bool {
        self.found_by.contains(&violation.invariant.as_str())
    }

    /// The world in which this seed plays it.
    pub fn options(&self, seed: u64) -> UpdateOptions {
        let mut options = (self.scenario)(UpdateOptions::drawn(seed));
        options.safeguards = options.safeguards.without(self.off);
        options
    }
}

/// All of them.
pub const UPDATE_MUTANTS: &[UpdateMutant] = &[
    UpdateMutant {
        name: "first_worker_only",
        what: "a step counts as done once one worker has taken it",
        found_by: &["E5"],
        off: &[Safeguard::EveryWorker],
        scenario: workers,
    },
    UpdateMutant {
        name: "no_step_deadline",
        what: "a step may take for ever",
        found_by: &["E5", "E6"],
        off: &[Safeguard::StepDeadline],
        scenario: as_drawn,
    },
    UpdateMutant {
        name: "late_answers",
        what: "an answer to an earlier order counts for the present one",
        found_by: &["E5"],
        off: &[Safeguard::CurrentAnswers],
        scenario: as_drawn,
    },
    UpdateMutant {
        name: "back_after_commit",
        what: "an engine whose fleet has committed goes back when its install fails",
        found_by: &["E4"],
        off: &[Safeguard::NoReturn],
        scenario: failing_fleet,
    },
    UpdateMutant {
        name: "outcome_guessed",
        what: "an update whose last step is in doubt does not ask the engine what it is",
        found_by: &["E5"],
        off: &[Safeguard::OutcomeAsked],
        scenario: failing,
    },
    UpdateMutant {
        name: "orders_unfenced",
        what: "a worker obeys orders that are older than one it has heard",
        found_by: &["E7"],
        off: &[Safeguard::OrdersFenced],
        scenario: split,
    },
    UpdateMutant {
        name: "effects_unfenced",
        what: "a step goes on although a newer order was heard",
        found_by: &["E7"],
        off: &[Safeguard::EffectsFenced],
        scenario: as_drawn,
    },
    UpdateMutant {
        name: "start_unfenced",
        what: "an engine that starts obeys drivers that were lost before",
        found_by: &["E4", "E7"],
        off: &[Safeguard::StartFenced],
        scenario: overtaken,
    },
    UpdateMutant {
        name: "caches_kept",
        what: "caches outlive an update although sequences of several versions are not declared",
        found_by: &["E3"],
        off: &[Safeguard::DeclaredMix],
        scenario: unmixed,
    },
    UpdateMutant {
        name: "content_unverified",
        what: "parameters that differ from the version are served",
        found_by: &["E1"],
        off: &[Safeguard::ContentVerified],
        scenario: flipping,
    },
    UpdateMutant {
        name: "failed_fetch_tears",
        what: "what was fetched differs, so what is served counts as no version",
        found_by: &["E9"],
        off: &[Safeguard::FetchApart],
        scenario: failing_staged,
    },
    UpdateMutant {
        name: "fleet_in_part",
        what: "a fleet commits once one of its engines is prepared",
        found_by: &["E4"],
        off: &[Safeguard::FleetWhole],
        scenario: fleet,
    },
    UpdateMutant {
        name: "register_unasked",
        what: "a driver goes on before the register has decided",
        found_by: &["E4", "E5"],
        off: &[Safeguard::RegisterDecides],
        scenario: doubting,
    },
    UpdateMutant {
        name: "doubt_unasked",
        what: "an engine in doubt goes back without asking the register",
        found_by: &["E4"],
        off: &[Safeguard::DoubtAsks],
        scenario: doubting,
    },
    UpdateMutant {
        name: "doubt_goes_back",
        what: "an engine that can't reach the register goes back",
        found_by: &["E4"],
        off: &[Safeguard::DoubtLeaves],
        scenario: leaving,
    },
    UpdateMutant {
        name: "recovery_unasked",
        what: "a driver that takes over aborts whatever the register says",
        found_by: &["E4", "E5"],
        off: &[Safeguard::RecoveryAsks],
        scenario: recovering,
    },
    UpdateMutant {
        name: "last_verdict",
        what: "a verdict replaces an earlier one",
        found_by: &["E4"],
        off: &[Safeguard::FirstVerdict],
        scenario: doubting,
    },
    UpdateMutant {
        name: "late_commit",
        what: "a commit of a driver that has a successor counts",
        found_by: &["E4"],
        off: &[Safeguard::NewestCommits],
        scenario: forgetting,
    },
    UpdateMutant {
        name: "largest_version",
        what: "a fleet's version is the largest that was committed, though it went back",
        found_by: &["E4"],
        off: &[Safeguard::LastCommit],
        scenario: going_back,
    },
    UpdateMutant {
        name: "answers_outlive_sleep",
        what: "a step counts as done that sleep has undone",
        found_by: &["E5"],
        off: &[Safeguard::SleepForgets],
        scenario: sleeping,
    },
    UpdateMutant {
        name: "prefixes_kept",
        what: "new sequences begin with the old version's prefix caches, where sequences may be mixed",
        found_by: &["E3"],
        off: &[Safeguard::PrefixesForgotten],
        scenario: mixed,
    },
    UpdateMutant {
        name: "held_unverified",
        what: "an engine that starts or wakes is resumed with what it has, compared or not",
        found_by: &["E1"],
        off: &[Safeguard::HeldVerified],
        scenario: spoiling,
    },
    UpdateMutant {
        name: "failed_kept",
        what: "an engine whose install fails for good holds up its fleet's updates",
        found_by: &["E6"],
        off: &[Safeguard::LetsGo],
        scenario: failing_for_good,
    },
    UpdateMutant {
        name: "doubt_gives_up",
        what: "an engine in doubt that can't be resumed does not try again",
        found_by: &["E6"],
        off: &[Safeguard::DoubtRepeats],
        scenario: abandoned,
    },
    UpdateMutant {
        name: "busy_doubts",
        what: "an engine that takes a driver's step doubts the driver all the same",
        found_by: &["E6"],
        off: &[Safeguard::BusyTrusts],
        scenario: installing,
    },
    UpdateMutant {
        name: "any_life",
        what: "an order that is meant for another life of an engine is obeyed",
        found_by: &["E7"],
        off: &[Safeguard::OwnLife],
        scenario: waking,
    },
    UpdateMutant {
        name: "unstamped+resume_unready+torn_served",
        what: "an engine is resumed and serves without being told which version it holds",
        found_by: &["E2"],
        off: &[Safeguard::Stamped, Safeguard::ReadyResumed, Safeguard::WholeServed],
        scenario: as_drawn,
    },
    UpdateMutant {
        name: "fleet_unheld",
        what: "an engine of a fleet installs before the verdict",
        found_by: &["E4"],
        off: &[Safeguard::FleetHold],
        scenario: fleet,
    },
    UpdateMutant {
        name: "lost_register_denies",
        what: "a register that was lost says of a verdict that there was none",
        found_by: &["E4"],
        off: &[Safeguard::LostUnsaid, Safeguard::NewestCommits],
        scenario: forgotten,
    },
    UpdateMutant {
        name: "unadmitted+held_unverified",
        what: "an engine that starts or wakes serves what it has",
        found_by: &["E4"],
        off: &[Safeguard::AdmittedFirst, Safeguard::HeldVerified],
        scenario: waking,
    },
    UpdateMutant {
        name: "one_worker_routed",
        what: "a router is sent to an engine once one of its workers serves",
        found_by: &["E8"],
        off: &[Safeguard::AllWorkersServe],
        scenario: workers,
    },
    UpdateMutant {
        name: "routing_kept",
        what: "a router is sent to engines that have been dead for long",
        found_by: &["E8"],
        off: &[Safeguard::RoutingLapses],
        scenario: as_drawn,
    },
    UpdateMutant {
        name: "routed_behind",
        what: "a router is sent to engines with another version than the fleet's",
        found_by: &["E8"],
        off: &[Safeguard::FleetVersionRouted],
        scenario: fleet,
    },
    UpdateMutant {
        name: "former_life_routed",
        what: "what an engine's former life has said counts for its next one",
        found_by: &["E8"],
        off: &[Safeguard::RoutedOneLife],
        scenario: waking,
    },
    UpdateMutant {
        name: "first_worker_only+install_unfetched+content_unverified",
        what: "workers install what has not come yet, and nobody looks",
        found_by: &["E1"],
        off: &[Safeguard::EveryWorker, Safeguard::WholeStaging, Safeguard::ContentVerified],
        scenario: workers,
    },
    UpdateMutant {
        name: "first_worker_only+resume_unready+torn_served",
        what: "workers are resumed while they install, and serve",
        found_by: &["E1"],
        off: &[Safeguard::EveryWorker, Safeguard::ReadyResumed, Safeguard::WholeServed],
        scenario: workers,
    },
];

fn as_drawn(options: UpdateOptions) -> UpdateOptions {
    options
}

/// Several workers, of different speed.
fn workers(options: UpdateOptions) -> UpdateOptions {
    let workers = options.workers.max(2);
    UpdateOptions { workers, means: InstallMeans::Staged, ..options }
        .with(UpdateFault::WorkerSlow, 8)
}

/// Steps fail often.
fn failing(options: UpdateOptions) -> UpdateOptions {
    UpdateOptions { failing: 60, ..options }
}

/// The same, and what is fetched lies beside what is served.
fn failing_staged(options: UpdateOptions) -> UpdateOptions {
    UpdateOptions { means: InstallMeans::Staged, ..failing(options) }
}

fn fleet(options: UpdateOptions) -> UpdateOptions {
    let engines = options.engines.max(3);
    UpdateOptions { fleet: true, means: InstallMeans::Staged, engines, ..options }
}

fn failing_fleet(options: UpdateOptions) -> UpdateOptions {
    failing(fleet(options))
}

/// An engine that starts anew, and drivers that live beside their successors.
fn split(options: UpdateOptions) -> UpdateOptions {
    let options = UpdateOptions { engines: 1, joiners: 0, ..steady(options) };
    options.with(UpdateFault::DriverSplit, 12).with(UpdateFault::EngineDies, 12)
}

/// The same, with drivers that no engine has heard of while their predecessors live.
fn overtaken(options: UpdateOptions) -> UpdateOptions {
    let options =
        split(options).with(UpdateFault::DriverSplit, 24).with(UpdateFault::DriverCut, 24);
    options.with(UpdateFault::EngineRestarts, 24).with(UpdateFault::LinkCut, 24)
}

/// A fleet that is updated often, and only has the faults that a mutant needs.
fn steady(options: UpdateOptions) -> UpdateOptions {
    let publish_every = Span::from_millis(1_200);
    let mut options = UpdateOptions { publish_every, rollbacks: 0, install: 1, ..fleet(options) };
    options.faults.clear();
    options
}

/// Drivers are lost, and what was written down with them.
fn forgotten(options: UpdateOptions) -> UpdateOptions {
    let options = steady(options).with(UpdateFault::DriverDies, 12);
    options.with(UpdateFault::RegisterLost, 12).with(UpdateFault::LinkCut, 12)
}

/// Caches must not outlive an update.
fn unmixed(options: UpdateOptions) -> UpdateOptions {
    UpdateOptions { mode: PauseMode::Keep { mixed: false }, ..options }
}

fn mixed(options: UpdateOptions) -> UpdateOptions {
    UpdateOptions { mode: PauseMode::Keep { mixed: true }, ..options }
}

/// What was staged can't be installed.
fn failing_for_good(options: UpdateOptions) -> UpdateOptions {
    fleet(options).with(UpdateFault::StagingSpoiled, 8)
}

/// Drivers are lost, engines go on by themselves and fail, and no driver comes for long.
fn abandoned(options: UpdateOptions) -> UpdateOptions {
    let (lease, alone) = (Span::from_millis(600), Span::from_secs(16));
    let options = UpdateOptions { lease, alone, retries: 0, doubt_retries: 4, ..fleet(options) };
    let (publish_every, failing, joiners) = (Span::from_millis(900), 80, 0);
    let options = UpdateOptions { publish_every, failing, joiners, ..options };
    options.only(UpdateFault::DriverDies, 5).with(UpdateFault::LinkCut, 30)
}

/// Installs last longer than a lease, and orders are sent once.
fn installing(options: UpdateOptions) -> UpdateOptions {
    let (lease, patience) = (Span::from_millis(600), Span::from_secs(10));
    let mut options = UpdateOptions { lease, patience, install: 25, ..fleet(options) };
    options.deadlines.bytes = Span::from_secs(3);
    options
}

fn spoiling(options: UpdateOptions) -> UpdateOptions {
    waking(options).with(UpdateFault::WeightsSpoiled, 16)
}

/// Answers are lost, and engines sleep.
fn sleeping(options: UpdateOptions) -> UpdateOptions {
    UpdateOptions { lost: 350, workers: 1, ..options }.with(UpdateFault::EngineSleeps, 16)
}

fn flipping(options: UpdateOptions) -> UpdateOptions {
    options.with(UpdateFault::BitFlipped, 12)
}

/// Drivers die, and come before engines go on by themselves.
fn recovering(options: UpdateOptions) -> UpdateOptions {
    let options = UpdateOptions { lease: Span::from_millis(2_500), ..doubting(options) };
    options.with(UpdateFault::WorkerSlow, 16).with(UpdateFault::RegisterAway, 0)
}

/// Drivers die, and the register is out of reach.
fn doubting(options: UpdateOptions) -> UpdateOptions {
    let options = UpdateOptions { lease: Span::from_millis(600), ..steady(options) };
    let options = options.with(UpdateFault::DriverDies, 8).with(UpdateFault::LinkCut, 12);
    options.with(UpdateFault::RegisterAway, 6).with(UpdateFault::DriverSuspended, 4)
}

/// Engines prepare at once; then they lose their driver and the register, and soon give up.
fn leaving(options: UpdateOptions) -> UpdateOptions {
    let (lease, register_deadline) = (Span::from_millis(500), Span::from_millis(100));
    let options = UpdateOptions { lease, register_deadline, lost: 0, ..steady(options) };
    let (prefetch, mode, delay) = (true, PauseMode::Abort, Span::from_millis(150));
    let mut options = UpdateOptions { prefetch, mode, delay, failing: 0, ..options };
    options.deadlines.word = Span::from_millis(800);
    options.with(UpdateFault::LinkCut, 24).with(UpdateFault::RegisterAway, 8)
}

/// Jobs die while what drivers say to the register is under way, so that no engine remembers what was staged.
fn forgetting(options: UpdateOptions) -> UpdateOptions {
    let options = fleet(UpdateOptions { forgetful: true, failing: 0, lost: 0, ..options });
    let options = UpdateOptions { publish_every: Span::from_secs(6), ..options };
    options.only(UpdateFault::JobDies, 8)
}

/// Fleets go back to earlier versions, and engines start with any.
fn going_back(options: UpdateOptions) -> UpdateOptions {
    UpdateOptions { rollbacks: 500, ..waking(options) }
}

fn waking(options: UpdateOptions) -> UpdateOptions {
    fleet(options).with(UpdateFault::EngineDies, 6).with(UpdateFault::EngineSleeps, 6)
}
