//! What a fleet's update has its driver do, when, and in which order.

use std::collections::BTreeMap;

use super::fleet::{TRANSACTION, fleet_config};
use super::{LIFE, config, version};
use crate::engine_update::UpdateStep::*;
use crate::engine_update::{
    EngineReport, EngineState, FleetConfig, FleetEnd, FleetInput, FleetMember, FleetOutput,
    FleetUpdate, FleetVerdict, InstallMeans, StepAnswer, StepFailure, StepOrder, UpdateConfig,
    UpdateInput, UpdateStep,
};
use crate::{Span, Time};

const ASK: FleetOutput =
    FleetOutput::Decide { transaction: TRANSACTION, verdict: FleetVerdict::Abort };

/// Two engines, which have 25 s to prepare.
fn short() -> FleetConfig {
    let mut config = FleetConfig { prepare: Span::from_secs(25), ..fleet_config() };
    config.members.truncate(2);
    config
}

fn at(second: u64) -> Time {
    Time(0) + Span::from_secs(second)
}

/// A fleet's update, and the last order for each engine.
struct FleetHands {
    fleet: FleetUpdate,
    orders: BTreeMap<u32, StepOrder>,
}

impl FleetHands {
    fn of(fleet: FleetUpdate) -> Self {
        Self { fleet, orders: BTreeMap::new() }
    }

    fn wants(&mut self) -> Vec<FleetOutput> {
        let outputs: Vec<_> = std::iter::from_fn(|| self.fleet.poll_output()).collect();
        for output in &outputs {
            if let FleetOutput::Run { engine, order } = output {
                self.orders.insert(*engine, *order);
            }
        }
        outputs
    }

    fn give(&mut self, second: u64, input: FleetInput) -> Vec<FleetOutput> {
        self.fleet.handle(at(second), input);
        self.wants()
    }

    fn answers(&mut self, second: u64, engine: u32, answer: StepAnswer) -> Vec<FleetOutput> {
        let attempt = self.orders[&engine].attempt;
        let input = UpdateInput::Answered { worker: 0, attempt, answer };
        self.give(second, FleetInput::Engine { engine, input })
    }

    /// Both engines take their steps up to this one.
    fn go_to(&mut self, step: UpdateStep) {
        self.wants();
        for engine in [0, 1] {
            while self.orders[&engine].step != step {
                self.answers(0, engine, StepAnswer::Done);
            }
        }
    }

    fn prepare(&mut self) -> Vec<FleetOutput> {
        self.go_to(Pause);
        self.answers(0, 0, StepAnswer::Done);
        self.answers(0, 1, StepAnswer::Done)
    }
}

/// Each order of an output, as engine and step; `None`: another output.
fn steps(outputs: &[FleetOutput]) -> Vec<Option<(u32, UpdateStep, bool)>> {
    let of = |output: &FleetOutput| match output {
        FleetOutput::Run { engine, order } => Some((*engine, order.step, true)),
        FleetOutput::Abandon { engine, order } => Some((*engine, order.step, false)),
        FleetOutput::Decide { .. } | FleetOutput::Ended(_) => None,
    };
    outputs.iter().map(of).collect()
}

#[test]
fn a_fleet_has_so_long_to_prepare_and_is_aborted_at_the_end_of_that() {
    let mut hands = FleetHands::of(FleetUpdate::new(short(), at(0)));
    hands.go_to(Fetch);
    assert_eq!(hands.fleet.next_timeout(), Some(at(25)));
    hands.fleet.handle_timeout(Time(at(25).0 - 1));
    assert_eq!(hands.wants(), []);
    hands.fleet.handle_timeout(at(25));
    assert_eq!(hands.wants(), [ASK]);
}

/// It does not wait for the others to prepare.
#[test]
fn an_engine_that_takes_too_long_for_a_step_aborts_its_fleet_at_once() {
    let mut hands = FleetHands::of(FleetUpdate::new(short(), at(0)));
    hands.wants();
    hands.answers(2, 1, StepAnswer::Done);
    assert_eq!(hands.fleet.next_timeout(), Some(at(10)));
    hands.fleet.handle_timeout(at(10));
    let late = hands.wants();
    assert_eq!(steps(&late), [Some((0, Negotiate, false)), Some((0, Discard, true)), None]);
    assert_eq!(late[2], ASK);
}

#[test]
fn the_register_is_asked_again_and_not_for_longer_than_it_may_be_out_of_reach() {
    let config =
        FleetConfig { decide: Span::from_secs(7), ask_every: Span::from_secs(4), ..short() };
    let mut hands = FleetHands::of(FleetUpdate::new(config, at(0)));
    let verdict = FleetVerdict::Commit;
    let ask = FleetOutput::Decide { transaction: TRANSACTION, verdict };
    assert_eq!(hands.prepare(), std::slice::from_ref(&ask));
    assert_eq!(hands.fleet.next_timeout(), Some(at(4)));
    hands.fleet.handle_timeout(Time(at(4).0 - 1));
    assert_eq!(hands.wants(), []);
    hands.fleet.handle_timeout(at(4));
    assert_eq!(hands.wants(), [ask]);
    assert_eq!(hands.fleet.next_timeout(), Some(at(7)));
    hands.fleet.handle_timeout(at(7));
    // Engines are asked what they are at once, for a driver that is in doubt.
    assert_eq!(steps(&hands.wants()), [Some((0, Inspect, true)), Some((1, Inspect, true))]);
}

#[test]
fn what_a_fleets_update_wants_comes_in_the_order_in_which_it_was_wanted() {
    let mut hands = FleetHands::of(FleetUpdate::new(short(), at(0)));
    hands.wants();
    let (mut fleet, orders) = (hands.fleet, hands.orders);
    let attempt = orders[&0].attempt;
    let answer = StepAnswer::Failed(StepFailure::Layouts);
    let input = UpdateInput::Answered { worker: 0, attempt, answer };
    fleet.handle(at(1), FleetInput::Engine { engine: 0, input });
    let verdict = FleetVerdict::Abort;
    fleet.handle(at(1), FleetInput::Decided { transaction: TRANSACTION, verdict });
    for engine in [0, 1] {
        fleet.handle(at(1), FleetInput::Engine { engine, input: UpdateInput::Lost });
    }
    let all: Vec<_> = std::iter::from_fn(|| fleet.poll_output()).collect();
    assert_eq!(
        steps(&all),
        [
            Some((0, Negotiate, false)),
            Some((0, Discard, true)),
            None,
            Some((1, Negotiate, false)),
            Some((1, Discard, true)),
            Some((0, Discard, false)),
            Some((1, Discard, false)),
            None,
        ]
    );
    assert!(matches!((&all[2], &all[7]), (FleetOutput::Decide { .. }, FleetOutput::Ended(_))));
}

#[test]
fn a_fleets_update_that_is_over_says_so_once_and_hears_nothing_any_more() {
    let mut hands = FleetHands::of(FleetUpdate::new(short(), at(0)));
    assert!(!hands.fleet.is_over());
    hands.prepare();
    let verdict = FleetVerdict::Commit;
    let decided = FleetInput::Decided { transaction: TRANSACTION, verdict };
    hands.give(0, decided);
    hands.go_to(Resume);
    assert_eq!(hands.answers(0, 0, StepAnswer::Done), []);
    assert!(!hands.fleet.is_over());
    assert_eq!(hands.answers(0, 1, StepAnswer::Done).len(), 1);
    assert_eq!((hands.fleet.is_over(), hands.fleet.next_timeout()), (true, None));
    for input in [decided, FleetInput::Cancel, FleetInput::Unknown { transaction: TRANSACTION }] {
        assert_eq!(hands.give(99, input), []);
    }
    hands.fleet.handle_timeout(at(999));
    assert_eq!(hands.wants(), []);
    assert_eq!(hands.fleet.version(), version(2));
}

/// A verdict counts only from the register, once it was asked.
#[test]
fn a_verdict_that_nobody_asked_for_has_no_engine_install() {
    let mut hands = FleetHands::of(FleetUpdate::new(short(), at(0)));
    hands.wants();
    for verdict in [FleetVerdict::Commit, FleetVerdict::Abort] {
        assert_eq!(hands.give(1, FleetInput::Decided { transaction: TRANSACTION, verdict }), []);
    }
}

/// Bytes of a fleet are staged, whatever its engines do when they are updated alone.
#[test]
fn an_order_of_a_fleet_has_what_is_said_of_its_member() {
    let update =
        UpdateConfig { means: InstallMeans::InPlace, life: None, paused: true, ..config() };
    let member =
        FleetMember { engine: 4, life: LIFE, workers: 2, old: Some(version(7)), paused: false };
    let config = FleetConfig { update, members: vec![member], ..fleet_config() };
    let mut hands = FleetHands::of(FleetUpdate::new(config, at(0)));
    hands.wants();
    let order = hands.orders[&4];
    assert_eq!((order.life, order.old), (LIFE, Some(version(7))));
    let expected = (InstallMeans::Staged, Some(TRANSACTION), version(2));
    assert_eq!((order.means, order.transaction, order.version), expected);
    assert_eq!(hands.answers(1, 4, StepAnswer::Done), [], "worker 1 has not answered");
    hands.answers(1, 4, StepAnswer::Failed(StepFailure::Engine));
    let verdict = FleetVerdict::Abort;
    hands.give(1, FleetInput::Decided { transaction: TRANSACTION, verdict });
    assert_eq!(hands.orders[&4].step, Discard);
}

/// Whoever was paused before is resumed if the fleet's update comes to nothing.
#[test]
fn an_engine_that_stood_still_before_an_aborted_update_goes_on_as_the_others_do() {
    let mut config = short();
    config.members[1].paused = true;
    let mut hands = FleetHands::of(FleetUpdate::new(config, at(0)));
    hands.wants();
    hands.give(1, FleetInput::Cancel);
    let verdict = FleetVerdict::Abort;
    hands.give(1, FleetInput::Decided { transaction: TRANSACTION, verdict });
    for (engine, next) in [(0, Inspect), (1, Resume)] {
        let told = hands.answers(1, engine, StepAnswer::Done);
        assert_eq!(steps(&told), [Some((engine, next, true))]);
    }
}

/// What each engine is told first, by what it says of itself.
#[test]
fn what_a_lost_driver_has_left_is_finished_from_where_each_engine_is() {
    let (old, new) = (Some(version(1)), Some(version(2)));
    let asked = EngineReport {
        paused: true,
        old,
        transaction: Some(TRANSACTION),
        life: LIFE,
        ..Default::default()
    };
    use FleetVerdict::{Abort, Commit};
    for (report, verdict, step, about, back) in [
        (EngineReport { ready: new, ..asked }, Commit, Discard, new, new),
        (EngineReport { ready: new, staged: new, ..asked }, Commit, Discard, new, new),
        (EngineReport { ready: old, staged: new, ..asked }, Commit, Pause, new, old),
        (EngineReport { staged: Some(version(3)), ..asked }, Commit, Discard, new, None),
        (EngineReport { ready: old, ..asked }, Abort, Discard, old, old),
        (
            EngineReport { old: Some(version(9)), ..asked },
            Abort,
            Discard,
            Some(version(9)),
            Some(version(9)),
        ),
        (EngineReport { old: None, ..asked }, Abort, Discard, new, None),
    ] {
        let reports = (0..2).map(|engine| (engine, report)).collect();
        let mut hands = FleetHands::of(FleetUpdate::recover(short(), &reports, verdict, at(0)));
        let told = hands.wants();
        assert_eq!(steps(&told), [0, 1].map(|engine| Some((engine, step, true))), "{report:?}");
        let order = hands.orders[&0];
        assert_eq!((Some(order.version), order.old), (about, back), "{report:?}, {verdict:?}");
        assert_eq!((order.life, order.transaction), (LIFE, Some(TRANSACTION)));
    }
}

#[test]
fn an_engine_that_had_installed_what_was_committed_serves_it_after_the_recovery() {
    let new = Some(version(2));
    let report = EngineReport { ready: new, paused: true, life: LIFE, ..Default::default() };
    let reports = (0..2).map(|engine| (engine, report)).collect();
    let verdict = FleetVerdict::Commit;
    let mut hands = FleetHands::of(FleetUpdate::recover(short(), &reports, verdict, at(0)));
    hands.go_to(Resume);
    hands.answers(1, 0, StepAnswer::Done);
    let over = hands.answers(1, 1, StepAnswer::Done);
    let [FleetOutput::Ended(result)] = &over[..] else { panic!("{over:?}") };
    assert_eq!(result.end, FleetEnd::Committed);
    let states = result.engines.values().map(|outcome| (outcome.state, outcome.serving));
    assert!(states.eq([(EngineState::New(version(2)), true); 2]));
}
