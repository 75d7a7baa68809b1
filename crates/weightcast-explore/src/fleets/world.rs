//! A state of a fleet: drivers, engines, the register, what is on the wires, faults left.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use weightcast_protocol::engine_update::{
    DriverConfig, EngineGate, FleetDriver, FleetEnd, FleetQuestion, FleetRegister,
    FleetTransaction, FleetVerdict, InstallMeans, LOADED, PauseMode, StepDeadlines, StepOrder,
};
use weightcast_protocol::{Epoch, Span, Time, Version};

use super::FleetBounds;
use crate::hashed::Hashed;
use crate::invariants::Broken;

/// What parameters are that are of no version.
pub(super) const TORN: u64 = u64::MAX;

/// One state.
#[derive(Clone, Debug)]
pub struct FleetWorld {
    pub(super) drivers: Vec<Hashed<FleetDriverState>>,
    pub(super) engines: Vec<Hashed<FleetEngineState>>,
    pub(super) register: Hashed<FleetRegister>,
    /// How many registers there were.
    pub(super) register_lives: u32,
    /// By their hash: what is said twice is on its way once.
    pub(super) wires: BTreeMap<u64, Hashed<FleetWire>>,
    pub(super) left: FaultsLeft,
    /// Versions that a register has committed, and each first verdict.
    pub(super) committed: BTreeSet<u64>,
    pub(super) verdicts: BTreeMap<FleetTransaction, FleetVerdict>,
    /// What drivers have said of fleets' updates, and whether a driver has ended another one's.
    pub(super) ended: BTreeMap<FleetTransaction, FleetEnd>,
    pub(super) shows: FleetShows,
    /// The first invariant that broke.
    pub(super) broken: Option<Broken>,
}

/// Faults that may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FaultsLeft {
    pub(super) driver_deaths: u32,
    pub(super) splits: u32,
    pub(super) engine_deaths: u32,
    pub(super) register_losses: u32,
    pub(super) timeouts: u32,
    pub(super) losses: u32,
}

/// What has been seen on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct FleetShows {
    pub(super) recovered_commit: bool,
    pub(super) recovered_abort: bool,
    pub(super) superseded: bool,
    pub(super) in_doubt: bool,
}

/// A driver and its clock.
#[derive(Clone, Debug)]
pub(super) struct FleetDriverState {
    pub(super) machine: FleetDriver,
    pub(super) now: Time,
    pub(super) alive: bool,
    /// Has a successor.
    pub(super) followed: bool,
}

/// An engine of one worker.
#[derive(Clone, Debug)]
pub(super) struct FleetEngineState {
    pub(super) life: u64,
    pub(super) alive: bool,
    pub(super) gate: EngineGate,
    /// The number of the version that the parameters are of, or `TORN`.
    pub(super) weights: u64,
    pub(super) staged: Option<u64>,
    /// Installs that are under way: the order, who gave it, whether the first change is made.
    pub(super) installs: Vec<(StepOrder, usize, bool)>,
    /// Drivers that know of the last death.
    pub(super) known_by: BTreeSet<usize>,
}

/// What is on its way.
#[derive(Clone, Copy, Debug)]
pub(super) enum FleetWire {
    /// To an engine.
    Order { from: usize, engine: usize, order: StepOrder },
    /// To the register.
    Question { from: usize, question: FleetQuestion },
}

pub(super) fn version(number: u64) -> Version {
    match number {
        0 => LOADED,
        number => Version { epoch: Epoch(1), number },
    }
}

impl FleetWorld {
    /// All engines serve what they have loaded; the first driver begins to bring version 1.
    pub(super) fn new(bounds: &FleetBounds) -> Self {
        let engine = |_| {
            let gate = EngineGate::new(1, Some(LOADED), 0, bounds.safeguards).serving();
            Hashed::new(FleetEngineState::new(1, gate))
        };
        let mut world = Self {
            drivers: Vec::new(),
            engines: (0..bounds.engines).map(engine).collect(),
            register: Hashed::new(FleetRegister::new(1, bounds.safeguards)),
            register_lives: 1,
            wires: BTreeMap::new(),
            left: FaultsLeft {
                driver_deaths: bounds.driver_deaths,
                splits: bounds.splits,
                engine_deaths: bounds.engine_deaths,
                register_losses: bounds.register_losses,
                timeouts: bounds.timeouts,
                losses: bounds.losses,
            },
            committed: BTreeSet::new(),
            verdicts: BTreeMap::new(),
            ended: BTreeMap::new(),
            shows: FleetShows::default(),
            broken: None,
        };
        world.start_driver(bounds);
        world
    }

    /// A driver starts, and begins to bring its version.
    pub(super) fn start_driver(&mut self, bounds: &FleetBounds) {
        let number = self.drivers.len();
        let mut machine = FleetDriver::new(config(number as u64 + 1, bounds));
        let engines = (0..bounds.engines).map(|engine| (engine, 1)).collect();
        assert!(machine.bring(Time(0), Some(version(number as u64 + 1)), engines), "it is new");
        let state = FleetDriverState { machine, now: Time(0), alive: true, followed: false };
        self.drivers.push(Hashed::new(state));
        self.obey_driver(number);
    }

    pub(super) fn send(&mut self, wire: FleetWire) {
        let wire = Hashed::new(wire);
        let mut hasher = DefaultHasher::new();
        wire.hash(&mut hasher);
        self.wires.insert(hasher.finish(), wire);
    }
}

impl FleetEngineState {
    /// With what it has loaded.
    pub(super) fn new(life: u64, gate: EngineGate) -> Self {
        Self {
            life,
            alive: true,
            gate,
            weights: 0,
            staged: None,
            installs: Vec::new(),
            known_by: BTreeSet::new(),
        }
    }
}

fn config(key: u64, bounds: &FleetBounds) -> DriverConfig {
    DriverConfig {
        key: key * 1_000,
        fleet: true,
        means: InstallMeans::Staged,
        mode: PauseMode::Abort,
        prefetch: true,
        deadlines: StepDeadlines::default(),
        retries: 0,
        prepare: Span::from_secs(300),
        decide: Span::from_secs(3),
        reach: Span::from_secs(30),
        ask_every: Span::from_secs(3),
        safeguards: bounds.safeguards,
    }
}

impl PartialEq for FleetWorld {
    fn eq(&self, other: &Self) -> bool {
        hash(self) == hash(other)
    }
}

fn hash(world: &FleetWorld) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

impl Hash for FleetWorld {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.drivers, &self.engines, &self.register, self.register_lives).hash(state);
        self.wires.keys().for_each(|wire| wire.hash(state));
        (self.left, &self.committed, self.shows).hash(state);
        format!("{:?} {:?}", self.verdicts, self.ended).hash(state);
        self.broken.as_ref().map(|broken| broken.invariant).hash(state);
    }
}
