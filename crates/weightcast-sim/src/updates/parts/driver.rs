//! A driver: what a trainer's side runs to bring versions to engines.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::Time;
use weightcast_protocol::engine_update::{DriverConfig, FleetDriver, StepOrder, UpdateAttempt};

use crate::updates::parts::queue::EngineLife;

/// An order that a driver has given.
#[derive(Clone, Debug)]
pub(crate) struct GivenOrder {
    pub(crate) to: EngineLife,
    pub(crate) order: StepOrder,
    /// Workers that have not answered.
    pub(crate) waiting: BTreeSet<u32>,
    pub(crate) since: Time,
    /// When the first answer that counts left its worker.
    pub(crate) told: Time,
}

/// A driver.
#[derive(Debug)]
pub(crate) struct SimDriver {
    pub(crate) machine: FleetDriver,
    pub(crate) alive: bool,
    pub(crate) started: Time,
    pub(crate) suspended_until: Time,
    /// It and the engines do not reach each other until then.
    pub(crate) cut_until: Time,
    /// Was suspended: what it does may last longer than it should.
    pub(crate) disturbed: bool,
    /// It has nothing to do until then.
    pub(crate) rests_until: Time,
    /// It has updated something since it last rested.
    pub(crate) busy: bool,
    /// Orders that are sent again until they are answered, by engine.
    pub(crate) orders: BTreeMap<u32, GivenOrder>,
    pub(crate) resend_at: Time,
    /// The last order that each engine was given.
    pub(crate) last: BTreeMap<u32, UpdateAttempt>,
    /// The engines that the present work is about, and their lives, as they have said.
    pub(crate) lives: BTreeMap<u32, u32>,
    /// When the present work began, and by when it must be over.
    pub(crate) began: Time,
    pub(crate) bound: Option<Time>,
    /// Engines that were told to install, in the present work.
    pub(crate) installs: BTreeSet<u32>,
}

impl SimDriver {
    pub(crate) fn new(config: DriverConfig, started: Time) -> Self {
        Self {
            machine: FleetDriver::new(config),
            alive: true,
            started,
            suspended_until: Time(0),
            cut_until: Time(0),
            disturbed: false,
            rests_until: Time(0),
            busy: false,
            orders: BTreeMap::new(),
            resend_at: Time(0),
            last: BTreeMap::new(),
            lives: BTreeMap::new(),
            began: Time(0),
            bound: None,
            installs: BTreeSet::new(),
        }
    }
}
