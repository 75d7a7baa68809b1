use std::collections::BTreeMap;

use super::{LIFE, config, version};
use crate::engine_update::{
    EngineReport, EngineState, FleetConfig, FleetEnd, FleetInput, FleetMember, FleetOutput,
    FleetResult, FleetTransaction, FleetUpdate, FleetVerdict, StepAnswer, StepDeadlines,
    StepFailure, StepOrder, UpdateConfig, UpdateInput, UpdateStep,
};
use crate::{Span, Time};

pub(super) const TRANSACTION: FleetTransaction = FleetTransaction { driver: 1, number: 1 };

pub(super) fn fleet_config() -> FleetConfig {
    let member = |engine| FleetMember {
        engine,
        life: LIFE,
        workers: 1,
        old: Some(version(1)),
        paused: false,
    };
    FleetConfig {
        update: config(),
        transaction: TRANSACTION,
        members: (0..3).map(member).collect(),
        prepare: Span::from_secs(300),
        decide: Span::from_secs(3),
        ask_every: Span::from_secs(1),
    }
}

/// A fleet whose engines do what they are told, but for what a test says.
struct FleetRig {
    fleet: FleetUpdate,
    now: Time,
    orders: BTreeMap<u32, StepOrder>,
    /// Steps that each engine was told to take.
    steps: Vec<(u32, UpdateStep)>,
    wanted: Option<FleetVerdict>,
    result: Option<FleetResult>,
}

impl FleetRig {
    fn of(fleet: FleetUpdate) -> Self {
        let (orders, steps) = (BTreeMap::new(), Vec::new());
        let mut rig = Self { fleet, now: Time(0), orders, steps, wanted: None, result: None };
        rig.pump();
        rig
    }

    fn new() -> Self {
        Self::of(FleetUpdate::new(fleet_config(), Time(0)))
    }

    fn pump(&mut self) {
        self.fleet.validate().unwrap();
        while let Some(output) = self.fleet.poll_output() {
            match output {
                FleetOutput::Run { engine, order } => {
                    self.steps.push((engine, order.step));
                    self.orders.insert(engine, order);
                }
                FleetOutput::Abandon { engine, .. } => drop(self.orders.remove(&engine)),
                FleetOutput::Decide { verdict, .. } => self.wanted = Some(verdict),
                FleetOutput::Ended(result) => self.result = Some(result),
            }
        }
    }

    fn give(&mut self, input: FleetInput) {
        self.fleet.handle(self.now, input);
        self.pump();
    }

    fn answer(&mut self, engine: u32, answer: StepAnswer) {
        let attempt = self.orders.remove(&engine).expect("an order").attempt;
        let input = UpdateInput::Answered { worker: 0, attempt, answer };
        self.give(FleetInput::Engine { engine, input });
    }

    /// Engines do all that they are told; `fails` takes no such step.
    fn run(&mut self, fails: Option<(u32, UpdateStep)>) {
        while let Some((engine, order)) = self.orders.iter().next().map(|(e, o)| (*e, *o)) {
            let answer = match order.step {
                step if fails == Some((engine, step)) => StepAnswer::Failed(StepFailure::Engine),
                UpdateStep::Inspect => {
                    StepAnswer::Inspected(EngineReport { life: LIFE, ..EngineReport::default() })
                }
                _ => StepAnswer::Done,
            };
            self.answer(engine, answer);
        }
    }

    fn decide(&mut self, verdict: FleetVerdict) {
        self.give(FleetInput::Decided { transaction: TRANSACTION, verdict });
    }

    fn installed(&self) -> bool {
        self.steps.iter().any(|(_, step)| *step == UpdateStep::Install)
    }

    fn states(&self) -> Vec<(EngineState, bool)> {
        let result = self.result.as_ref().expect("it is over");
        result.engines.values().map(|outcome| (outcome.state, outcome.serving)).collect()
    }
}

#[test]
fn nothing_is_installed_before_the_register_has_decided() {
    for verdict in [FleetVerdict::Commit, FleetVerdict::Abort] {
        let mut rig = FleetRig::new();
        rig.run(None);
        assert_eq!((rig.wanted, rig.installed()), (Some(FleetVerdict::Commit), false));
        // Somebody else may have been first.
        rig.decide(verdict);
        rig.run(None);
        let (state, end) = match verdict {
            FleetVerdict::Commit => (EngineState::New(version(2)), FleetEnd::Committed),
            FleetVerdict::Abort => (EngineState::Old(version(1)), FleetEnd::Aborted),
        };
        assert_eq!(rig.states(), [(state, true); 3]);
        assert_eq!(rig.result.unwrap().end, end);
    }
}

#[test]
fn an_engine_that_cannot_prepare_aborts_the_fleet() {
    for step in [UpdateStep::Negotiate, UpdateStep::Fetch, UpdateStep::Pause] {
        let mut rig = FleetRig::new();
        rig.run(Some((1, step)));
        assert_eq!(rig.wanted, Some(FleetVerdict::Abort), "{step}");
        rig.decide(FleetVerdict::Abort);
        rig.run(None);
        assert!(!rig.installed());
        assert_eq!(rig.result.unwrap().end, FleetEnd::Aborted);
    }
}

#[test]
fn an_engine_that_dies_after_the_commit_is_out_and_the_others_go_on() {
    let mut rig = FleetRig::new();
    rig.run(None);
    rig.decide(FleetVerdict::Commit);
    rig.give(FleetInput::Engine { engine: 2, input: UpdateInput::Lost });
    rig.orders.remove(&2);
    rig.run(None);
    let new = (EngineState::New(version(2)), true);
    assert_eq!(rig.states(), [new, new, (EngineState::Gone, false)]);
}

#[test]
fn without_a_register_a_driver_aborts_or_is_in_doubt() {
    // It has asked for a commit: who knows whether it was heard.
    let mut rig = FleetRig::new();
    rig.run(None);
    while rig.result.is_none() {
        rig.now = rig.fleet.next_timeout().expect("it is bounded");
        rig.fleet.handle_timeout(rig.now);
        rig.pump();
        rig.run(None);
    }
    assert_eq!(rig.result.as_ref().unwrap().end, FleetEnd::InDoubt);
    assert!(!rig.steps.iter().any(|(_, step)| *step == UpdateStep::Resume));
    // It has not: nobody else commits.
    let mut rig = FleetRig::new();
    rig.give(FleetInput::Cancel);
    assert_eq!(rig.wanted, Some(FleetVerdict::Abort));
    while rig.result.is_none() {
        rig.run(None);
        rig.now = rig.fleet.next_timeout().unwrap_or(rig.now);
        rig.fleet.handle_timeout(rig.now);
        rig.pump();
    }
    assert_eq!(rig.result.unwrap().end, FleetEnd::Aborted);
}

/// Who knows whether the register has heard of the commit: an abort of the driver's own would part the fleet.
#[test]
fn a_caller_that_cancels_once_a_commit_was_asked_for_changes_nothing() {
    for verdict in [None, Some(FleetVerdict::Commit), Some(FleetVerdict::Abort)] {
        let mut rig = FleetRig::new();
        rig.run(None);
        assert_eq!(rig.wanted.take(), Some(FleetVerdict::Commit));
        rig.give(FleetInput::Cancel);
        assert_eq!(rig.wanted, None, "the register is asked for nothing else");
        verdict.into_iter().for_each(|verdict| rig.decide(verdict));
        while rig.result.is_none() {
            rig.run(None);
            rig.now = rig.fleet.next_timeout().unwrap_or(rig.now);
            rig.fleet.handle_timeout(rig.now);
            rig.pump();
        }
        let end = match verdict {
            None => FleetEnd::InDoubt,
            Some(FleetVerdict::Commit) => FleetEnd::Committed,
            Some(FleetVerdict::Abort) => FleetEnd::Aborted,
        };
        let resumed = rig.steps.iter().any(|(_, step)| *step == UpdateStep::Resume);
        assert_eq!((rig.result.unwrap().end, resumed), (end, verdict.is_some()));
    }
}

#[test]
fn a_register_that_does_not_know_the_update_is_not_asked_on() {
    let other = FleetTransaction { driver: 1, number: 2 };
    for (wanted, end) in
        [(FleetVerdict::Commit, FleetEnd::InDoubt), (FleetVerdict::Abort, FleetEnd::Aborted)]
    {
        let mut rig = FleetRig::new();
        // Nobody has been asked yet.
        rig.give(FleetInput::Unknown { transaction: TRANSACTION });
        assert_eq!(rig.wanted, None);
        if wanted == FleetVerdict::Abort {
            rig.give(FleetInput::Cancel);
        } else {
            rig.run(None);
        }
        assert_eq!(rig.wanted, Some(wanted));
        rig.give(FleetInput::Unknown { transaction: other });
        assert!(rig.result.is_none());
        rig.give(FleetInput::Unknown { transaction: TRANSACTION });
        rig.run(None);
        assert!(!rig.installed());
        assert_eq!(rig.result.expect("it is over, and no time has passed").end, end);
    }
}

/// What a driver that takes over has each engine do, by what the engine says and the register.
#[test]
fn a_driver_that_takes_over_finishes_what_was_decided() {
    let (old, new) = (Some(version(1)), Some(version(2)));
    let asked = EngineReport {
        paused: true,
        old,
        transaction: Some(TRANSACTION),
        life: LIFE,
        ..Default::default()
    };
    for (report, verdict, steps) in [
        (
            EngineReport { ready: old, staged: new, ..asked },
            FleetVerdict::Commit,
            UpdateStep::Install,
        ),
        (EngineReport { staged: new, ..asked }, FleetVerdict::Commit, UpdateStep::Install),
        (EngineReport { ready: new, ..asked }, FleetVerdict::Commit, UpdateStep::Resume),
        (EngineReport { ..asked }, FleetVerdict::Commit, UpdateStep::Inspect),
        (
            EngineReport { ready: old, staged: new, ..asked },
            FleetVerdict::Abort,
            UpdateStep::Resume,
        ),
        (EngineReport { ready: old, old: None, ..asked }, FleetVerdict::Abort, UpdateStep::Inspect),
    ] {
        let reports = (0..3).map(|engine| (engine, report)).collect();
        let fleet = FleetUpdate::recover(fleet_config(), &reports, verdict, Time(0));
        let mut rig = FleetRig::of(fleet);
        rig.run(None);
        let of_first = rig.steps.iter().filter(|(engine, _)| *engine == 0);
        let of_first: Vec<UpdateStep> = of_first.map(|(_, step)| *step).collect();
        assert!(of_first.contains(&steps), "{of_first:?}");
        let installs = verdict == FleetVerdict::Commit && report.staged.is_some();
        assert_eq!(rig.installed(), installs);
        assert!(rig.result.is_some());
    }
}

/// A fleet may go back to an earlier version: what is offered is known by its update, not by its number.
#[test]
fn workers_of_two_updates_are_in_the_later_one() {
    let of = |number| FleetTransaction { driver: 1, number };
    let report = |number, offered| EngineReport {
        transaction: Some(of(number)),
        offered: Some(version(offered)),
        life: LIFE,
        ..EngineReport::default()
    };
    let joined = EngineReport::of_all(&[report(1, 3), report(2, 2), report(1, 3)]);
    assert_eq!((joined.transaction, joined.offered), (Some(of(2)), Some(version(2))));
}

#[test]
fn a_fleet_of_nobody_commits_nothing() {
    let config = FleetConfig { members: Vec::new(), ..fleet_config() };
    let mut rig = FleetRig::of(FleetUpdate::new(config, Time(0)));
    assert_eq!(rig.wanted, Some(FleetVerdict::Abort));
    rig.decide(FleetVerdict::Abort);
    assert_eq!(rig.result.unwrap().end, FleetEnd::Aborted);
}

/// Only the register's verdict has engines install.
#[test]
fn nobody_but_the_fleet_tells_an_engine_what_to_do_next() {
    let mut rig = FleetRig::new();
    rig.run(None);
    for input in [UpdateInput::Proceed, UpdateInput::Abort, UpdateInput::Leave, UpdateInput::Cancel]
    {
        rig.give(FleetInput::Engine { engine: 0, input });
    }
    let other = FleetTransaction { driver: 1, number: 2 };
    rig.give(FleetInput::Decided { transaction: other, verdict: FleetVerdict::Commit });
    rig.give(FleetInput::Engine { engine: 9, input: UpdateInput::Lost });
    assert!(rig.orders.is_empty() && rig.result.is_none());
}

#[test]
fn a_bound_is_no_overflow() {
    let deadlines =
        StepDeadlines { bytes: Span(u64::MAX), pause: Span(u64::MAX), ..Default::default() };
    let update = UpdateConfig { deadlines, retries: u32::MAX, ..config() };
    let config = FleetConfig { update, prepare: Span(u64::MAX), ..fleet_config() };
    assert_eq!(config.bound(), Span(u64::MAX));
}
