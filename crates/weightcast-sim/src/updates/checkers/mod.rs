//! One checker per invariant of engine updates. Each sees every fact and keeps what it needs; none looks into a machine.

mod e1;
mod e2;
mod e3;
mod e4;
mod e5;
mod e6;
mod e7;
mod e8;
mod e9;

use weightcast_protocol::Time;
use weightcast_protocol::engine_update::{
    FleetEnd, FleetTransaction, FleetVerdict, StepOrder, UpdateAttempt, UpdateOutcome, UpdateStep,
};

use crate::updates::parts::queue::EngineLife;

/// What one worker brings to a token.
#[derive(Clone, Debug)]
pub(super) struct TokenPart {
    /// The version that all parameters are of, if they are of one.
    pub(super) weights: Option<u64>,
    /// The version that the worker says it holds.
    pub(super) stamp: Option<u64>,
    /// Versions that the sequence's cache was computed with.
    pub(super) cache: Vec<u64>,
}

/// Something that happened.
#[derive(Debug)]
pub(super) enum UpdateFact<'a> {
    /// An engine has generated a token; `own` are the versions of all tokens of its sequence. `fleet`: all engines serve one version; `mixed`: sequences of several versions are
    /// declared.
    Token { engine: usize, parts: &'a [TokenPart], own: &'a [u64], fleet: bool, mixed: bool },
    /// The register has first heard that a fleet goes on to this version, or back to it.
    Committed { version: u64 },
    /// No engine serves this version, and no register remembers that it was committed: the fleet is back at the one before.
    Forgotten { version: u64 },
    /// A worker starts; the register has numbered drivers up to `newest`.
    Started { at: EngineLife, worker: u32, newest: u64 },
    /// An order arrives at a worker of the life for which it is meant.
    Heard { at: EngineLife, worker: u32, attempt: UpdateAttempt },
    /// A step makes a change.
    Changed { at: EngineLife, worker: u32, order: &'a StepOrder },
    /// An update ends, and says what the engine is. `intact`: no step has begun since the engine's last token that writes its
    /// parameters. `disturbed`: the engine may have become something else since it was asked.
    Ended {
        engine: usize,
        outcome: &'a UpdateOutcome,
        version: Option<u64>,
        serves: bool,
        intact: bool,
        disturbed: bool,
    },
    /// A fleet's update ends; what the register says of it.
    FleetEnded { driver: usize, end: FleetEnd, verdict: Option<FleetVerdict> },
    /// A driver's work is not over, though its bound has passed.
    Overdue { driver: usize, what: &'a str, due: Time },
    /// An engine is in doubt for so long; it may be for as long as `bound`.
    Doubts { engine: usize, since: Time, bound: Time },
    /// An engine in doubt asks the register while it takes a step for which its driver waits.
    DoubtsEarly { engine: usize, step: UpdateStep },
    /// No driver has come for long after the faults, and an engine that could go on by itself has not.
    Abandoned { engine: usize, transaction: FleetTransaction },
    /// A router is told that it may send requests to an engine. `served`: every worker of the named life has served the
    /// version, whole, within the last lease. `fleet`: the version that all engines are to serve.
    Admitted { engine: &'a str, version: u64, served: bool, fleet: Option<u64> },
    /// The world is over: whether a router is told that it may send requests to an engine.
    OverRouted { engine: usize, admitted: bool },
    /// The world is over: what an engine serves, if it serves, and what it should.
    Over { engine: usize, serves: Option<u64>, wanted: u64, state: &'a str },
}

/// Checks one invariant.
pub(super) trait UpdateChecker {
    /// The invariant's name.
    fn name(&self) -> &'static str;

    /// Takes a fact in; returns what is wrong, if anything is.
    fn observe(&mut self, fact: &UpdateFact<'_>) -> Option<String>;
}

/// All of them.
pub(super) fn update_checkers() -> Vec<Box<dyn UpdateChecker>> {
    vec![
        Box::new(e1::WholeWeights),
        Box::new(e2::TrueStamp),
        Box::new(e3::OwnCache),
        Box::new(e4::OneVersion::default()),
        Box::new(e5::TrueOutcome),
        Box::new(e6::DoubtEnds),
        Box::new(e7::Fenced::default()),
        Box::new(e8::AdmittedWhole),
        Box::new(e9::KeptUntilWritten),
    ]
}
