//! What can happen next to a fleet.

use stateright::{Model, Property};

use super::FleetBounds;
use super::invariants::properties;
use super::world::{FleetWire, FleetWorld};
use crate::invariants::Broken;
use crate::search::ExploredWorld;
use crate::story::first;

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetStep {
    /// What has this hash arrives.
    Arrive(u64),
    /// It is lost.
    Lose(u64),
    /// The engine makes the next change of an install.
    Install(usize),
    /// The driver's next timer goes off.
    TimeOut(usize),
    /// The driver dies.
    DriverDies(usize),
    /// The newest driver, which has died or lives on, gets a successor.
    DriverComes,
    /// The engine dies.
    EngineDies(usize),
    /// The dead engine is started again.
    EngineStarts(usize),
    /// The driver learns that the engine is dead.
    Learn(usize, usize),
    /// The register is lost.
    RegisterLost,
}

impl FleetBounds {
    fn steps(&self, world: &FleetWorld) -> Vec<FleetStep> {
        let (left, mut steps) = (world.left, Vec::new());
        if world.broken.is_some() {
            return steps;
        }
        for (hash, wire) in &world.wires {
            // An order waits for whoever comes to the engine's address.
            let arrives = match **wire {
                FleetWire::Order { engine, .. } => world.engines[engine].alive,
                FleetWire::Question { .. } => true,
            };
            steps.extend(arrives.then_some(FleetStep::Arrive(*hash)));
            steps.extend((left.losses > 0).then_some(FleetStep::Lose(*hash)));
        }
        for (engine, it) in world.engines.iter().enumerate() {
            steps.extend((!it.installs.is_empty()).then_some(FleetStep::Install(engine)));
            let dies = it.alive && left.engine_deaths > 0;
            steps.extend(dies.then_some(FleetStep::EngineDies(engine)));
            steps.extend((!it.alive).then_some(FleetStep::EngineStarts(engine)));
        }
        for (driver, it) in world.drivers.iter().enumerate().filter(|(_, it)| it.alive) {
            let times_out = left.timeouts > 0 && it.machine.next_timeout().is_some();
            steps.extend(times_out.then_some(FleetStep::TimeOut(driver)));
            let dies = left.driver_deaths > 0 && !it.followed;
            steps.extend(dies.then_some(FleetStep::DriverDies(driver)));
            let dead = world.engines.iter().enumerate();
            let dead = dead.filter(|(_, of)| !of.alive && !of.known_by.contains(&driver));
            steps.extend(dead.map(|(engine, _)| FleetStep::Learn(driver, engine)));
        }
        let newest = world.drivers.last().expect("there is a first one");
        let comes = !newest.alive || left.splits > 0;
        steps.extend(comes.then_some(FleetStep::DriverComes));
        steps.extend((left.register_losses > 0).then_some(FleetStep::RegisterLost));
        steps
    }

    fn take(&self, world: &FleetWorld, step: FleetStep) -> FleetWorld {
        let mut next = world.clone();
        match step {
            FleetStep::Arrive(hash) => {
                let wire = next.wires.remove(&hash).expect("it is on its way");
                next.arrive(*wire);
            }
            FleetStep::Lose(hash) => {
                next.left.losses -= 1;
                next.wires.remove(&hash);
            }
            FleetStep::Install(engine) => next.install(engine),
            FleetStep::TimeOut(driver) => {
                next.left.timeouts -= 1;
                next.time_out(driver);
            }
            FleetStep::DriverDies(driver) => {
                next.left.driver_deaths -= 1;
                next.end_driver(driver);
            }
            FleetStep::DriverComes => {
                let newest = next.drivers.len() - 1;
                if next.drivers[newest].alive {
                    next.left.splits -= 1;
                }
                next.drivers[newest].change(|it| it.followed = true);
                next.start_driver(self);
            }
            FleetStep::EngineDies(engine) => {
                next.left.engine_deaths -= 1;
                next.kill(engine);
            }
            FleetStep::EngineStarts(engine) => next.start_engine(engine, self),
            FleetStep::Learn(driver, engine) => next.tell_of_death(driver, engine),
            FleetStep::RegisterLost => {
                next.left.register_losses -= 1;
                next.lose_register(self);
            }
        }
        next.check_served();
        let other = |broken: &Broken| self.only.is_some_and(|only| only != broken.invariant);
        next.broken = next.broken.filter(|broken| !other(broken));
        next
    }
}

impl Model for FleetBounds {
    type State = FleetWorld;
    type Action = FleetStep;

    fn init_states(&self) -> Vec<FleetWorld> {
        vec![FleetWorld::new(self)]
    }

    fn actions(&self, state: &FleetWorld, actions: &mut Vec<FleetStep>) {
        actions.extend(self.steps(state));
    }

    fn next_state(&self, state: &FleetWorld, step: FleetStep) -> Option<FleetWorld> {
        Some(self.take(state, step))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties()
    }
}

impl ExploredWorld for FleetBounds {
    fn broken(state: &FleetWorld) -> Option<&Broken> {
        state.broken.as_ref()
    }

    fn breaks_now(&self, state: &FleetWorld, invariant: &str) -> bool {
        state.broken.as_ref().is_some_and(|broken| broken.invariant == invariant)
    }

    fn line(&self, before: &FleetWorld, step: FleetStep, _after: &FleetWorld) -> String {
        let wire = |hash| match before.wires.get(&hash).map(|wire| **wire) {
            Some(FleetWire::Order { from, engine, order }) => {
                let (step, attempt) = (order.step, order.attempt);
                format!("{step} ({attempt}) of driver {from} for engine {engine}")
            }
            Some(FleetWire::Question { from, question }) => {
                format!("a question of driver {from}: {}", first(Some(question)))
            }
            None => "nothing".to_owned(),
        };
        match step {
            FleetStep::Arrive(hash) => format!("there arrives {}", wire(hash)),
            FleetStep::Lose(hash) => format!("lost: {}", wire(hash)),
            FleetStep::Install(engine) => {
                let begun = before.engines[engine].installs.first().is_some_and(|of| of.2);
                let what = if begun { "goes on with" } else { "begins" };
                format!("engine {engine} {what} an install")
            }
            FleetStep::TimeOut(driver) => format!("a timer of driver {driver} goes off"),
            FleetStep::DriverDies(driver) => format!("driver {driver} dies"),
            FleetStep::DriverComes => format!("driver {} comes", before.drivers.len()),
            FleetStep::EngineDies(engine) => format!("engine {engine} dies"),
            FleetStep::EngineStarts(engine) => format!("engine {engine} is started again"),
            FleetStep::Learn(driver, engine) => {
                format!("driver {driver} learns that engine {engine} is dead")
            }
            FleetStep::RegisterLost => "the register is lost".to_owned(),
        }
    }
}
