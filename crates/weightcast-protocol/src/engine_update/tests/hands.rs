//! A driver of a fleet in the hands of a test: nothing happens that the test does not say.

use std::collections::BTreeMap;

use super::version;
use crate::engine_update::{
    DriverConfig, DriverEnd, DriverInput, DriverOutput, EngineReport, FleetAnswer, FleetDriver,
    FleetQuestion, FleetVerdict, LOADED, StepAnswer, StepFailure, StepOrder, UpdateInput,
    UpdateStep,
};
use crate::{Span, Time, Version};

/// The number that the register gives.
pub(super) const NUMBER: u64 = 5 << 32 | 7;
/// What the register is asked first.
pub(super) const FIRST_QUESTION: FleetQuestion = FleetQuestion::Number { key: 1_000, heard: None };

pub(super) struct DriverHands {
    pub(super) driver: FleetDriver,
    pub(super) now: Time,
    /// The last order for each engine, unless it was abandoned.
    pub(super) orders: BTreeMap<u32, StepOrder>,
}

/// What an output is, without its fields: for their order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Run(u32, UpdateStep),
    Abandon(u32, UpdateStep),
    Ask(FleetQuestion),
    Fleet,
    Apart(u32),
    Ended(DriverEnd),
}

impl DriverHands {
    /// A driver that was told to bring engines, with so many workers each, to a version at second 10.
    pub(super) fn new(config: DriverConfig, wanted: Option<Version>, workers: &[u32]) -> Self {
        let now = Time(0) + Span::from_secs(10);
        let mut driver = FleetDriver::new(config);
        assert!(driver.bring(now, wanted, (0..).zip(workers.iter().copied()).collect()));
        Self { driver, now, orders: BTreeMap::new() }
    }

    /// The same, with a number; the register says that this is the fleet's version.
    pub(super) fn numbered(
        config: DriverConfig,
        wanted: Option<Version>,
        fleet: Option<Version>,
        workers: &[u32],
    ) -> Self {
        let mut hands = Self::new(config, wanted, workers);
        hands.wants();
        hands.says(FIRST_QUESTION, answer(fleet, None));
        hands
    }

    /// What the driver wants, in order.
    pub(super) fn wants(&mut self) -> Vec<DriverOutput> {
        self.driver.validate().unwrap();
        let outputs: Vec<_> = std::iter::from_fn(|| self.driver.poll_output()).collect();
        for output in &outputs {
            match output {
                DriverOutput::Run { engine, order } => drop(self.orders.insert(*engine, *order)),
                DriverOutput::Abandon { engine, .. } => drop(self.orders.remove(engine)),
                _ => {}
            }
        }
        outputs
    }

    pub(super) fn give(&mut self, input: DriverInput) -> Vec<DriverOutput> {
        self.driver.handle(self.now, input);
        self.wants()
    }

    pub(super) fn says(&mut self, asked: FleetQuestion, answer: FleetAnswer) -> Vec<DriverOutput> {
        self.give(DriverInput::Register { asked, answer })
    }

    /// Worker 0 of an engine answers its present order.
    pub(super) fn answers(&mut self, engine: u32, answer: StepAnswer) -> Vec<DriverOutput> {
        self.worker_answers(engine, 0, answer)
    }

    pub(super) fn worker_answers(
        &mut self,
        engine: u32,
        worker: u32,
        answer: StepAnswer,
    ) -> Vec<DriverOutput> {
        let attempt = self.orders[&engine].attempt;
        let input = UpdateInput::Answered { worker, attempt, answer };
        self.give(DriverInput::Engine { engine, input })
    }

    pub(super) fn reports(&mut self, engine: u32, report: EngineReport) -> Vec<DriverOutput> {
        self.answers(engine, StepAnswer::Inspected(report))
    }

    pub(super) fn loses(&mut self, engine: u32) -> Vec<DriverOutput> {
        self.give(DriverInput::Engine { engine, input: UpdateInput::Lost })
    }

    pub(super) fn fails(&mut self, engine: u32) -> Vec<DriverOutput> {
        self.answers(engine, StepAnswer::Failed(StepFailure::Engine))
    }

    /// Time passes up to this second.
    pub(super) fn waits_until(&mut self, second: u64) -> Vec<DriverOutput> {
        self.now = Time(0) + Span::from_secs(second);
        self.driver.handle_timeout(self.now);
        self.wants()
    }

    /// One worker of each of these engines takes the steps that it is told, up to this one.
    pub(super) fn go_to(&mut self, engines: &[u32], step: UpdateStep) {
        for engine in engines {
            while self.orders[engine].step != step {
                assert!(!self.answers(*engine, StepAnswer::Done).is_empty(), "{engine}");
            }
        }
    }
}

/// What a register says that knows this driver alone.
pub(super) fn answer(version: Option<Version>, verdict: Option<FleetVerdict>) -> FleetAnswer {
    FleetAnswer { driver: NUMBER, superseded: false, version, verdict }
}

/// An engine that serves a version.
pub(super) fn serves(number: u64) -> EngineReport {
    let held = Some(version(number));
    EngineReport { life: Some(3), ready: held, held, serving: true, ..EngineReport::default() }
}

/// An engine that stands still with a version.
pub(super) fn stands(number: u64) -> EngineReport {
    EngineReport { paused: true, serving: false, ..serves(number) }
}

/// An engine that has just started without weights.
pub(super) fn empty() -> EngineReport {
    EngineReport { paused: true, life: Some(3), ..EngineReport::default() }
}

pub(super) fn told(outputs: &[DriverOutput]) -> Vec<Wish> {
    let of = |output: &DriverOutput| match output {
        DriverOutput::Run { engine, order } => Wish::Run(*engine, order.step),
        DriverOutput::Abandon { engine, order } => Wish::Abandon(*engine, order.step),
        DriverOutput::Ask(question) => Wish::Ask(*question),
        DriverOutput::Fleet { .. } => Wish::Fleet,
        DriverOutput::Apart { engine, .. } => Wish::Apart(*engine),
        DriverOutput::Ended(end) => Wish::Ended(end.clone()),
    };
    outputs.iter().map(of).collect()
}

/// The version that a question of the roll call names where no version is wanted.
pub(super) const NONE_WANTED: Version = LOADED;
