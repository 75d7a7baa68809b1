//! A driver: what a trainer's side runs to bring versions to engines.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::Time;
use weightcast_protocol::engine_update::{
    EngineReport, EngineUpdate, FleetTransaction, FleetUpdate, StepOrder,
};

use crate::updates::parts::queue::EngineLife;

/// What a driver is doing.
#[derive(Debug)]
pub(crate) enum DriverWork {
    /// It needs a number from the register.
    Numberless,
    /// Nothing, until then.
    Idle(Time),
    /// It asks all engines what they are.
    RollCall,
    /// It asks the register for the verdict on the update of a lost driver.
    Settles(FleetTransaction),
    /// It updates a fleet; or finishes the update of a lost driver.
    Fleet(Box<FleetUpdate>),
    /// It updates engines, each by itself.
    Apart,
}

/// A machine for one engine.
#[derive(Debug)]
pub(crate) struct DrivenUpdate {
    pub(crate) update: EngineUpdate,
    pub(crate) life: EngineLife,
    pub(crate) version: u64,
}

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
    pub(crate) number: u64,
    pub(crate) alive: bool,
    pub(crate) started: Time,
    pub(crate) suspended_until: Time,
    /// Was suspended: what it does may last longer than it should.
    pub(crate) disturbed: bool,
    pub(crate) work: DriverWork,
    pub(crate) round: u64,
    pub(crate) transactions: u64,
    /// Machines of single engines, by engine.
    pub(crate) updates: BTreeMap<u32, DrivenUpdate>,
    /// What engines have said in this roll call.
    pub(crate) reports: BTreeMap<u32, EngineReport>,
    /// Orders that are sent again until they are answered, by engine.
    pub(crate) orders: BTreeMap<u32, GivenOrder>,
    /// The engines that the present work is about, and their lives, as they have said.
    pub(crate) lives: BTreeMap<u32, u32>,
    /// When the present work began, and by when it must be over.
    pub(crate) began: Time,
    pub(crate) bound: Option<Time>,
    /// Engines that were told to install, in the present work.
    pub(crate) installs: BTreeSet<u32>,
    pub(crate) resend_at: Time,
    /// The fleet's update, and its version.
    pub(crate) transaction: FleetTransaction,
    pub(crate) version: u64,
}

impl SimDriver {
    pub(crate) fn new(started: Time) -> Self {
        Self {
            number: 0,
            alive: true,
            started,
            suspended_until: Time(0),
            disturbed: false,
            work: DriverWork::Numberless,
            round: 0,
            transactions: 0,
            updates: BTreeMap::new(),
            reports: BTreeMap::new(),
            orders: BTreeMap::new(),
            lives: BTreeMap::new(),
            began: Time(0),
            bound: None,
            installs: BTreeSet::new(),
            resend_at: Time(0),
            transaction: FleetTransaction::default(),
            version: 0,
        }
    }
}
