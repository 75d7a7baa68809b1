use std::collections::BTreeMap;

use super::version;
use crate::engine_update::{
    DriverConfig, DriverEnd, DriverInput, DriverOutput, EngineGate, FleetAnswer, FleetDriver,
    FleetEnd, FleetQuestion, FleetRegister, FleetTransaction, FleetVerdict, GateOutput,
    InstallMeans, LOADED, PauseMode, StepDeadlines, StepFailure, StepOrder, UpdateAttempt,
    UpdateInput, UpdateStep,
};
use crate::{Safeguards, Span, Time, Version};

pub(super) fn config(key: u64) -> DriverConfig {
    DriverConfig {
        key: key * 1_000,
        fleet: true,
        means: InstallMeans::Staged,
        mode: PauseMode::Abort,
        prefetch: true,
        deadlines: StepDeadlines::default(),
        retries: 1,
        prepare: Span::from_secs(300),
        decide: Span::from_secs(3),
        reach: Span::from_secs(30),
        ask_every: Span::from_secs(1),
        safeguards: Safeguards::default(),
    }
}

/// Engines of one worker each, a register, and drivers that come one after the other.
pub(super) struct DriverRig {
    pub(super) now: Time,
    pub(super) register: FleetRegister,
    gates: BTreeMap<u32, EngineGate>,
    /// Engines that hear nothing.
    cut: Vec<u32>,
    /// An engine that can't take a step.
    fails: Option<(u32, UpdateStep)>,
    /// The step before which the driver is lost.
    stop_at: Option<UpdateStep>,
    /// The step at which the caller cancels.
    cancel_at: Option<UpdateStep>,
    /// The register is lost when it is asked for a verdict, before or after it has written one; another takes its place.
    lost_at_verdict: Option<RegisterHeard>,
    /// Questions for a verdict that are still under way to the register, if they take long.
    held: Option<Vec<FleetQuestion>>,
    steps: Vec<(u32, UpdateStep)>,
    fleets: Vec<FleetEnd>,
}

/// What a register that is lost has heard of the last question.
#[derive(Clone, Copy, PartialEq)]
enum RegisterHeard {
    Nothing,
    Question,
}

impl DriverRig {
    pub(super) fn new(engines: u32) -> Self {
        let gate = |engine| {
            let gate = EngineGate::new(u64::from(engine), Some(LOADED), 0, Safeguards::default());
            (engine, gate.serving())
        };
        Self {
            now: Time(0),
            register: FleetRegister::new(7, Safeguards::default()),
            gates: (0..engines).map(gate).collect(),
            cut: Vec::new(),
            fails: None,
            stop_at: None,
            cancel_at: None,
            lost_at_verdict: None,
            held: None,
            steps: Vec::new(),
            fleets: Vec::new(),
        }
    }

    pub(super) fn serve(&self) -> Vec<Option<Version>> {
        let serves = |gate: &EngineGate| gate.may_serve().then(|| gate.report().ready).flatten();
        self.gates.values().map(serves).collect()
    }

    /// Has a driver bring all engines to a version; `None`: the driver was lost meanwhile.
    fn bring(&mut self, driver: &mut FleetDriver, wanted: Option<Version>) -> Option<DriverEnd> {
        let engines = self.gates.keys().map(|engine| (*engine, 1)).collect();
        assert!(driver.bring(self.now, wanted, engines));
        self.go_on(driver)
    }

    /// Until the driver is at its end, or lost, or has ended an update whose questions are still under way.
    fn go_on(&mut self, driver: &mut FleetDriver) -> Option<DriverEnd> {
        loop {
            driver.validate().unwrap();
            let Some(output) = driver.poll_output() else {
                self.now = driver.next_timeout().expect("a driver at work waits for something");
                driver.handle_timeout(self.now);
                continue;
            };
            match output {
                DriverOutput::Run { order, .. } if Some(order.step) == self.stop_at => return None,
                DriverOutput::Run { engine, order } => {
                    self.steps.push((engine, order.step));
                    if self.cancel_at == Some(order.step) {
                        driver.handle(self.now, DriverInput::Cancel);
                    }
                    self.obey(driver, engine, order);
                }
                DriverOutput::Abandon { .. } | DriverOutput::Apart { .. } => {}
                DriverOutput::Ask(asked @ FleetQuestion::Verdict { .. }) if self.held.is_some() => {
                    self.held.iter_mut().for_each(|held| held.push(asked));
                }
                DriverOutput::Ask(asked) => {
                    let lost = self
                        .lost_at_verdict
                        .filter(|_| matches!(asked, FleetQuestion::Verdict { .. }));
                    let heard = self.register.clone().answer(asked);
                    if lost.is_some() {
                        self.lost_at_verdict = None;
                        self.register = FleetRegister::new(8, Safeguards::default());
                    }
                    if lost == Some(RegisterHeard::Question) {
                        assert_eq!(heard.verdict, Some(FleetVerdict::Commit));
                        continue; // the answer is lost with the register
                    }
                    let answer = self.register.answer(asked);
                    driver.handle(self.now, DriverInput::Register { asked, answer });
                }
                DriverOutput::Fleet { result, .. } => {
                    self.fleets.push(result.end);
                    if self.held.is_some() {
                        return None;
                    }
                }
                DriverOutput::Ended(end) => return Some(end),
            }
        }
    }

    /// What can be done without time passing.
    fn pump(&mut self, driver: &mut FleetDriver) {
        while let Some(output) = driver.poll_output() {
            if let DriverOutput::Ask(asked) = output {
                let answer = self.register.answer(asked);
                driver.handle(self.now, DriverInput::Register { asked, answer });
            } else if let DriverOutput::Run { engine, order } = output {
                self.obey(driver, engine, order);
            }
        }
    }

    pub(super) fn obey(&mut self, driver: &mut FleetDriver, engine: u32, order: StepOrder) {
        if self.cut.contains(&engine) {
            return;
        }
        let gate = self.gates.get_mut(&engine).unwrap();
        gate.handle_order(order);
        while let Some(output) = gate.poll_output() {
            match output {
                GateOutput::Perform(order) => {
                    let fails = self.fails == Some((engine, order.step));
                    let result = if fails { Err(StepFailure::Engine) } else { Ok(()) };
                    gate.handle_performed(order.attempt, result);
                }
                GateOutput::Answer { attempt, answer } => {
                    let input = UpdateInput::Answered { worker: 0, attempt, answer };
                    driver.handle(self.now, DriverInput::Engine { engine, input });
                }
            }
        }
    }
}

#[test]
fn a_driver_takes_a_number_asks_engines_what_they_are_and_brings_all_of_them_to_a_version() {
    let mut rig = DriverRig::new(3);
    let mut driver = FleetDriver::new(config(1));
    assert_eq!(rig.serve(), [Some(LOADED); 3]);
    for number in [1, 2] {
        assert_eq!(rig.bring(&mut driver, Some(version(number))), Some(DriverEnd::Done));
        assert_eq!(rig.serve(), [Some(version(number)); 3]);
    }
    assert_eq!(rig.fleets, [FleetEnd::Committed; 2]);
    assert_eq!(rig.register.version(), Some(version(2)));
    assert_eq!(driver.number(), Some(rig.register.newest_driver()));
}

#[test]
fn a_fleet_that_is_there_already_is_left_alone_but_for_engines_that_are_late() {
    let mut rig = DriverRig::new(2);
    let mut driver = FleetDriver::new(config(1));
    rig.bring(&mut driver, Some(version(1)));
    rig.gates.insert(2, EngineGate::new(9, None, 0, Safeguards::default()));
    rig.steps.clear();
    for wanted in [Some(version(1)), None] {
        assert_eq!(rig.bring(&mut driver, wanted), Some(DriverEnd::Done));
        assert_eq!(rig.serve(), [Some(version(1)); 3]);
    }
    let touched = rig.steps.iter().filter(|(_, step)| *step != UpdateStep::Inspect);
    assert!(touched.clone().all(|(engine, _)| *engine == 2) && touched.count() > 0);
}

#[test]
fn a_driver_that_has_a_successor_stops() {
    let mut rig = DriverRig::new(2);
    let (mut first, mut second) = (FleetDriver::new(config(1)), FleetDriver::new(config(2)));
    rig.bring(&mut first, Some(version(1)));
    rig.bring(&mut second, Some(version(2)));
    assert_eq!(rig.bring(&mut first, Some(version(3))), Some(DriverEnd::Superseded));
    assert_eq!(rig.serve(), [Some(version(2)); 2]);
}

/// Its question for a number was late, and nobody has come.
#[test]
fn a_number_that_nobody_drives_by_stops_no_driver() {
    let mut rig = DriverRig::new(2);
    let mut driver = FleetDriver::new(config(1));
    rig.bring(&mut driver, Some(version(1)));
    let phantom = rig.register.next_driver(9, None).unwrap();
    rig.gates.insert(2, EngineGate::new(9, None, phantom, Safeguards::default()));
    assert_eq!(rig.bring(&mut driver, Some(version(2))), Some(DriverEnd::Done));
    assert_eq!(rig.serve(), [Some(version(2)); 3]);
    assert!(driver.number() > Some(phantom));
}

/// The next register says at once that it does not know, and nobody waits for the one that is lost.
#[test]
fn engines_do_not_stand_still_for_a_register_that_is_lost_at_the_verdict() {
    for heard in [RegisterHeard::Nothing, RegisterHeard::Question] {
        let mut rig = DriverRig::new(2);
        let mut driver = FleetDriver::new(config(1));
        rig.bring(&mut driver, Some(version(1)));
        rig.lost_at_verdict = Some(heard);
        let before = rig.now;
        assert_eq!(rig.bring(&mut driver, Some(version(2))), Some(DriverEnd::Done));
        assert_eq!(rig.serve(), [Some(version(2)); 2]);
        assert_eq!(rig.fleets[1..], [FleetEnd::InDoubt, FleetEnd::Aborted, FleetEnd::Committed]);
        let asks = if heard == RegisterHeard::Nothing { Span(0) } else { config(1).ask_every };
        assert_eq!(rig.now, before + asks);
    }
}

/// Numbers of the lost register are no hindrance, and neither is what it said of versions.
#[test]
fn a_driver_outlives_its_register() {
    let mut rig = DriverRig::new(2);
    let mut driver = FleetDriver::new(config(1));
    rig.bring(&mut driver, Some(version(1)));
    for (life, number) in [(8, 2), (9, 3)] {
        rig.register = FleetRegister::new(life, Safeguards::default());
        assert_eq!(rig.bring(&mut driver, Some(version(number))), Some(DriverEnd::Done));
        assert_eq!(rig.serve(), [Some(version(number)); 2]);
    }
    let mut late = FleetDriver::new(config(2));
    rig.register = FleetRegister::new(10, Safeguards::default());
    assert_eq!(rig.bring(&mut late, Some(version(4))), Some(DriverEnd::Done), "engines heard more");
    assert_eq!(rig.serve(), [Some(version(4)); 2]);
}

#[test]
fn what_a_lost_driver_has_left_is_ended_as_the_register_says() {
    for (stop_at, forget, found) in [
        (UpdateStep::Begin, false, FleetEnd::Committed),
        (UpdateStep::Pause, false, FleetEnd::Aborted),
        // Nobody serves the new version: without a register there is nothing to be found of the commit.
        (UpdateStep::Begin, true, FleetEnd::Aborted),
    ] {
        let mut rig = DriverRig::new(3);
        rig.bring(&mut FleetDriver::new(config(1)), Some(version(1)));
        rig.stop_at = Some(stop_at);
        assert_eq!(rig.bring(&mut FleetDriver::new(config(2)), Some(version(2))), None);
        rig.stop_at = None;
        if forget {
            rig.register = FleetRegister::new(8, Safeguards::default());
        }
        rig.fleets.clear();
        let mut last = FleetDriver::new(config(3));
        assert_eq!(rig.bring(&mut last, None), Some(DriverEnd::Done));
        assert_eq!(rig.fleets, [found]);
        let serves = if found == FleetEnd::Committed { version(2) } else { version(1) };
        assert_eq!(rig.serve(), [Some(serves); 3], "{stop_at}, {forget}");
    }
}

/// Its engines stand still: they go on, and nothing follows.
#[test]
fn what_a_lost_driver_has_left_is_ended_also_for_a_caller_that_cancels() {
    let mut rig = DriverRig::new(2);
    rig.stop_at = Some(UpdateStep::Begin);
    assert_eq!(rig.bring(&mut FleetDriver::new(config(1)), Some(version(1))), None);
    rig.stop_at = None;
    rig.cancel_at = Some(UpdateStep::Install);
    let mut driver = FleetDriver::new(config(2));
    assert_eq!(rig.bring(&mut driver, Some(version(2))), Some(DriverEnd::Cancelled));
    assert_eq!(rig.serve(), [Some(version(1)); 2]);
    rig.cancel_at = None;
    assert_eq!(rig.bring(&mut driver, Some(version(2))), Some(DriverEnd::Done));
    assert_eq!(rig.serve(), [Some(version(2)); 2], "what was cancelled is over");
}

/// One engine of the fleet serves the new version, so it was committed.
#[test]
fn what_a_lost_driver_has_left_is_ended_as_the_engines_say_where_no_register_remembers() {
    let mut rig = DriverRig::new(3);
    rig.bring(&mut FleetDriver::new(config(1)), Some(version(1)));
    rig.cut = vec![1, 2];
    rig.stop_at = Some(UpdateStep::Inspect);
    let mut lost = FleetDriver::new(config(2));
    assert_eq!(rig.bring(&mut lost, Some(version(2))), None);
    let transaction = FleetTransaction { driver: 99 << 32 | 7, number: 1 };
    let steps = [
        UpdateStep::Negotiate,
        UpdateStep::Fetch,
        UpdateStep::Pause,
        UpdateStep::Begin,
        UpdateStep::Install,
        UpdateStep::PostProcess,
        UpdateStep::Verify,
        UpdateStep::Invalidate,
        UpdateStep::Stamp,
        UpdateStep::Resume,
    ];
    for (engine, taken) in [(0, 10), (1, 3), (2, 3)] {
        for (number, step) in (1..).zip(&steps[..taken]) {
            let attempt = UpdateAttempt { number, ..UpdateAttempt::before(99 << 32 | 7, 1) };
            let order = StepOrder {
                attempt,
                life: Some(u64::from(engine)),
                step: *step,
                version: version(2),
                old: Some(version(1)),
                means: InstallMeans::Staged,
                keep_caches: false,
                deadline: Span::from_secs(1),
                transaction: Some(transaction),
            };
            let gate = rig.gates.get_mut(&engine).unwrap();
            gate.handle_order(order);
            gate.handle_performed(attempt, Ok(()));
            while gate.poll_output().is_some() {}
        }
    }
    assert_eq!(rig.serve(), [Some(version(2)), None, None]);
    (rig.cut, rig.stop_at) = (Vec::new(), None);
    rig.register = FleetRegister::new(8, Safeguards::default());
    rig.fleets.clear();
    assert_eq!(rig.bring(&mut FleetDriver::new(config(3)), None), Some(DriverEnd::Done));
    assert_eq!(
        (rig.fleets.as_slice(), rig.serve()),
        (&[FleetEnd::Committed][..], vec![Some(version(2)); 3])
    );
}

/// It may be serving: nothing is begun beside it.
#[test]
fn an_engine_that_says_nothing_and_is_not_known_to_be_dead_holds_its_fleet_up() {
    let mut rig = DriverRig::new(3);
    rig.cut = vec![1];
    let mut driver = FleetDriver::new(config(1));
    let end = rig.bring(&mut driver, Some(version(1)));
    assert_eq!(end, Some(DriverEnd::OutOfReach { engines: vec![1] }));
    assert_eq!(rig.serve(), [Some(LOADED); 3]);
    assert!(driver.bring(rig.now, Some(version(1)), (0..3).map(|engine| (engine, 1)).collect()));
    driver.handle(rig.now, DriverInput::Engine { engine: 1, input: UpdateInput::Lost });
    rig.gates.remove(&1);
    rig.pump(&mut driver);
    assert_eq!(rig.serve(), [Some(version(1)); 2]);
}

/// What it has said is no answer of another engine's.
#[test]
fn an_engine_that_answers_and_dies_does_not_stand_for_one_that_says_nothing() {
    let mut rig = DriverRig::new(2);
    rig.cut = vec![1];
    let mut driver = FleetDriver::new(config(1));
    assert!(driver.bring(rig.now, Some(version(1)), BTreeMap::from([(0, 1), (1, 1)])));
    rig.pump(&mut driver);
    driver.handle(rig.now, DriverInput::Engine { engine: 0, input: UpdateInput::Lost });
    rig.pump(&mut driver);
    assert!(!driver.is_idle(), "engine 1 may be serving");
    assert_eq!(driver.transaction(), None);
    assert_eq!(rig.go_on(&mut driver), Some(DriverEnd::OutOfReach { engines: vec![1] }));
}

/// Its old version is none that the fleet has: after an abort it would be served beside the fleet's.
#[test]
fn an_engine_that_has_another_version_than_its_fleet_does_not_go_back_to_it() {
    let mut rig = DriverRig::new(2);
    rig.bring(&mut FleetDriver::new(config(1)), Some(version(2)));
    let late = EngineGate::new(2, Some(version(1)), 0, Safeguards::default());
    rig.gates.insert(2, late.serving());
    rig.stop_at = Some(UpdateStep::Begin);
    assert_eq!(rig.bring(&mut FleetDriver::new(config(2)), Some(version(3))), None);
    assert_eq!(rig.serve(), [None; 3]);
    // With the register goes the commit.
    rig.register = FleetRegister::new(8, Safeguards::default());
    (rig.stop_at, rig.fleets) = (None, Vec::new());
    rig.steps.clear();
    assert_eq!(rig.bring(&mut FleetDriver::new(config(3)), None), Some(DriverEnd::Done));
    assert_eq!(rig.fleets, [FleetEnd::Aborted]);
    assert_eq!(rig.serve(), [Some(version(2)); 3], "it is brought along");
}

/// The fleet has gone on without the engine, which stands still: what it holds is none of the fleet's.
#[test]
fn an_engine_that_could_not_follow_its_fleet_does_not_go_back_either() {
    let mut rig = DriverRig::new(3);
    let mut driver = FleetDriver::new(config(1));
    rig.bring(&mut driver, Some(version(1)));
    rig.fails = Some((2, UpdateStep::Begin));
    assert_eq!(rig.bring(&mut driver, Some(version(2))), Some(DriverEnd::Done));
    assert_eq!(rig.gates[&2].report().ready, Some(version(1)), "whole, as it was");
    for step in [UpdateStep::Fetch, UpdateStep::Begin] {
        rig.fails = Some((2, step));
        assert_eq!(rig.bring(&mut driver, Some(version(2))), Some(DriverEnd::Done));
        assert_eq!(rig.serve(), [Some(version(2)), Some(version(2)), None], "{step:?}");
    }
    rig.fails = None;
    assert_eq!(rig.bring(&mut driver, Some(version(2))), Some(DriverEnd::Done));
    assert_eq!(rig.serve(), [Some(version(2)); 3]);
}

/// The engines have started anew, so none of them remembers the update, and nobody asks for an abort of it.
#[test]
fn a_commit_that_is_under_way_counts_for_nothing_once_its_driver_goes_on() {
    let mut rig = DriverRig::new(2);
    let mut driver = FleetDriver::new(config(1));
    rig.bring(&mut driver, Some(version(1)));
    rig.held = Some(Vec::new());
    assert_eq!(rig.bring(&mut driver, Some(version(2))), None);
    assert_eq!(rig.fleets.last(), Some(&FleetEnd::InDoubt));
    for (engine, gate) in &mut rig.gates {
        let (life, driver) = (u64::from(*engine) + 10, rig.register.newest_driver());
        *gate = EngineGate::new(life, Some(version(1)), driver, Safeguards::default());
    }
    let late = rig.held.take().expect("they were held")[0];
    assert_eq!(rig.go_on(&mut driver), Some(DriverEnd::Done));
    assert_eq!(rig.bring(&mut driver, Some(version(3))), Some(DriverEnd::Done));
    assert_eq!(rig.register.answer(late).verdict, Some(FleetVerdict::Abort));
    assert_eq!(rig.register.version(), Some(version(3)), "which engines serve");
}

#[test]
fn a_fleet_of_sleepers_is_left_alone() {
    let mut rig = DriverRig::new(2);
    rig.gates.values_mut().for_each(EngineGate::handle_slept);
    let mut driver = FleetDriver::new(config(1));
    assert_eq!(rig.bring(&mut driver, Some(version(1))), Some(DriverEnd::NobodyAwake));
    rig.gates.get_mut(&0).unwrap().handle_woken();
    assert_eq!(rig.bring(&mut driver, Some(version(1))), Some(DriverEnd::Done));
    assert_eq!(rig.serve(), [Some(version(1)), None]);
}

/// An answer that comes too late is no answer to the next question.
#[test]
fn only_the_answer_to_the_present_question_counts() {
    let mut driver = FleetDriver::new(config(1));
    driver.bring(Time(0), Some(version(1)), BTreeMap::from([(0, 1)]));
    let answer = FleetAnswer { driver: 5 << 32, ..FleetAnswer::default() };
    let other = FleetQuestion::Number { key: 99, heard: None };
    for asked in [FleetQuestion::State, other] {
        driver.handle(Time(1), DriverInput::Register { asked, answer });
        assert_eq!(driver.number(), None);
    }
    let asked = FleetQuestion::Number { key: 1_000, heard: None };
    driver.handle(Time(1), DriverInput::Register { asked, answer });
    assert_eq!(driver.number(), Some(5 << 32));
    let wanted = FleetVerdict::Commit;
    let transaction = Default::default();
    let asked = FleetQuestion::Verdict { transaction, wanted, version: version(1) };
    driver.handle(Time(1), DriverInput::Register { asked, answer });
    assert!(!driver.is_idle());
}
