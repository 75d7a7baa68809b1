//! When a driver works, and at what.

use std::collections::BTreeMap;

use weightcast_protocol::engine_update::{DriverConfig, DriverEnd};
use weightcast_protocol::{Span, Version};

use crate::updates::coverage::UpdatePoint;
use crate::updates::world::{TICK, UpdateWorld, version};

/// What a driver knows of an engine that it has not heard.
const NO_LIFE: u32 = 0;

impl UpdateWorld {
    /// A driver that has rested brings the engines that may be alive to the version that it knows of.
    pub(super) fn plan_work(&mut self, driver: usize) {
        let it = &self.drivers[driver];
        if !it.alive || !it.machine.is_idle() || it.rests_until > self.now {
            return;
        }
        let engines = self.engines.iter().zip(0..);
        let maybe = engines.filter(|(engine, _)| engine.alive || engine.dead_known > self.now);
        let engines: BTreeMap<u32, u32> =
            maybe.map(|(_, number)| (number, self.options.workers)).collect();
        let lives = engines.keys().map(|engine| (*engine, NO_LIFE)).collect();
        let (now, target) = (self.now, self.target_of(driver));
        let it = &mut self.drivers[driver];
        (it.lives, it.bound, it.busy) = (lives, None, false);
        it.orders.clear();
        it.installs.clear();
        it.machine.bring(now, target, engines);
    }

    /// The version to which a driver brings engines; a driver that was told of none keeps to the fleet's.
    fn target_of(&self, driver: usize) -> Option<Version> {
        let told = self.published_at >= self.drivers[driver].started || !self.options.forgetful;
        (told || !self.options.fleet).then(|| version(self.target))
    }

    /// A driver has done what it could.
    pub(super) fn driver_ended(&mut self, driver: usize, end: &DriverEnd) {
        if *end == DriverEnd::Superseded {
            self.reach(UpdatePoint::SteppedDown);
            return self.end_driver(driver);
        }
        let it = &mut self.drivers[driver];
        let rest = if it.busy { Span(0) } else { Span::from_millis(300) };
        (it.rests_until, it.bound) = (self.now + rest, None);
        it.orders.clear();
    }

    /// The driver's present work has to be over by the time that it says, and what its timers and wires are late.
    pub(super) fn note_bound(&mut self, driver: usize) {
        // Each step may end a tick late, and be begun a tick later.
        let steps = 36 * (u64::from(self.options.retries) + 1) + 4;
        let slack = Span(2 * TICK.0 * steps);
        let now = self.now;
        let it = &mut self.drivers[driver];
        let due = it.machine.due().map(|due| due + slack);
        if due != it.bound {
            (it.bound, it.busy) = (due, it.busy || due.is_some());
            it.began = now;
        }
    }

    /// What the updates of a driver have in common.
    pub(super) fn driver_config(&mut self) -> DriverConfig {
        let key = self.rng.below(1 << 40) << 20;
        let options = &self.options;
        DriverConfig {
            key,
            fleet: options.fleet,
            means: options.means,
            mode: options.mode,
            prefetch: options.prefetch,
            deadlines: options.deadlines,
            retries: options.retries,
            prepare: Span::from_millis(1_500),
            decide: options.register_deadline,
            reach: Span::from_secs(5),
            ask_every: Span::from_millis(100),
            safeguards: options.safeguards,
        }
    }
}
