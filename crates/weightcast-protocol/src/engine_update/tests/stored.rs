//! Machines that are written down in the middle of their course, and go on from what was written.

use std::collections::BTreeMap;

use super::driver::{self, DriverRig};
use super::fleet::{TRANSACTION, fleet_config};
use super::gate::{order, serving};
use super::*;
use crate::engine_update::{
    DoubtConfig, DoubtInput, DriverInput, DriverOutput, EngineDoubt, EngineGate, FleetDriver,
    FleetInput, FleetOutput, FleetQuestion, FleetRegister, FleetUpdate, FleetVerdict, GateOutput,
    RoutingTable, ServingNotice, StepFailure,
};
use crate::recording::{plays_on_alike, stored};
use crate::{Safeguards, Span};

/// An update whose first order was given.
fn begun(mut update: EngineUpdate) -> EngineUpdate {
    while update.poll_output().is_some() {}
    update
}

/// Answers of both workers to orders with these numbers.
fn answers(numbers: &[(u64, StepAnswer)]) -> Vec<UpdateInput> {
    let of = |(number, answer): &(u64, StepAnswer)| {
        let attempt = UpdateAttempt { number: *number, ..UpdateAttempt::before(1, 1) };
        [0, 1].map(|worker| UpdateInput::Answered { worker, attempt, answer: *answer })
    };
    numbers.iter().flat_map(of).collect()
}

#[test]
fn an_update_goes_on_from_what_was_stored_of_it() {
    let (done, failed) = (StepAnswer::Done, StepAnswer::Failed(StepFailure::Engine));
    let well: Vec<_> = (1..=10).map(|number| (number, done)).collect();
    let repeated: Vec<_> = (1..=5).map(|number| (number, done)).chain([(6, failed)]).collect();
    let rest: Vec<_> = (7..=13).map(|number| (number, done)).collect();
    for numbers in [well, [repeated, rest].concat(), vec![(1, done), (2, failed), (3, done)]] {
        let mut inputs = answers(&numbers);
        inputs.push(UpdateInput::Lost);
        plays_on_alike(begun(EngineUpdate::new(config(), Time(0))), &inputs, |update, input| {
            update.handle(Time(7), input);
            let outputs: Vec<_> = std::iter::from_fn(|| update.poll_output()).collect();
            (outputs, update.next_timeout(), update.is_over())
        });
    }
    let admit = begun(EngineUpdate::admit(config(), Time(0)));
    plays_on_alike(admit, &answers(&[(1, done), (2, done), (3, done)]), |update, input| {
        update.handle(Time(7), input);
        std::iter::from_fn(|| update.poll_output()).collect::<Vec<_>>()
    });
}

#[test]
fn a_gate_goes_on_from_what_was_stored_of_it() {
    use UpdateStep::*;
    let steps = [
        Negotiate,
        Fetch,
        Pause,
        Begin,
        Install,
        PostProcess,
        Verify,
        Verify,
        Invalidate,
        Stamp,
        Inspect,
        Resume,
        Stamp,
        Inspect,
    ];
    let orders: Vec<_> = (1..)
        .zip(steps)
        .map(|(number, step)| StepOrder {
            transaction: Some(TRANSACTION),
            ..order(step, number, InstallMeans::Staged)
        })
        .flat_map(|order| [Some(order), None, Some(order)])
        .collect();
    let play = |gate: &mut EngineGate, order: Option<StepOrder>| {
        match order {
            Some(order) => gate.handle_order(order),
            None if gate.busy() == Span(0) => {}
            None => gate.handle_performed(gate.report().seen, Ok(())),
        }
        let outputs: Vec<GateOutput> = std::iter::from_fn(|| gate.poll_output()).collect();
        (outputs, gate.report(), gate.busy(), gate.stamp(), gate.may_serve())
    };
    plays_on_alike(serving(), &orders, play);
    let mut asleep = serving();
    asleep.handle_slept();
    plays_on_alike(asleep, &orders[..9], play);
}

#[test]
fn a_fleets_update_goes_on_from_what_was_stored_of_it() {
    let answers = |number| {
        (0..3).map(move |engine| {
            let attempt = UpdateAttempt { number, ..UpdateAttempt::before(1, 1) };
            let answer = StepAnswer::Done;
            let input = UpdateInput::Answered { worker: 0, attempt, answer };
            FleetInput::Engine { engine, input }
        })
    };
    let verdict = FleetVerdict::Commit;
    let decided = FleetInput::Decided { transaction: TRANSACTION, verdict };
    let lost = FleetInput::Engine { engine: 1, input: UpdateInput::Lost };
    let first = (1..=3).flat_map(answers).chain([decided, lost]);
    let inputs: Vec<_> = first.chain((4..=10).flat_map(answers)).collect();
    let mut fleet = FleetUpdate::new(fleet_config(), Time(0));
    while fleet.poll_output().is_some() {}
    plays_on_alike(fleet, &inputs, |fleet, input| {
        fleet.handle(Time(7), input);
        let outputs: Vec<FleetOutput> = std::iter::from_fn(|| fleet.poll_output()).collect();
        (outputs, fleet.next_timeout(), fleet.is_over())
    });
}

/// Each life of the driver's work, from the first number on: what it was told before is not forgotten.
#[test]
fn a_driver_goes_on_from_what_was_stored_of_it() {
    let play = |stores: bool| {
        let mut rig = DriverRig::new(2);
        let mut driver = FleetDriver::new(driver::config(1));
        let mut all = Vec::new();
        for wanted in [1, 2, 2] {
            let engines = BTreeMap::from([(0, 1), (1, 1)]);
            assert!(driver.bring(rig.now, Some(version(wanted)), engines));
            while !driver.is_idle() {
                let Some(output) = driver.poll_output() else { panic!("it stands still") };
                // What it wants is not written down: it is done first.
                let more: Vec<_> = std::iter::from_fn(|| driver.poll_output()).collect();
                if stores {
                    driver = stored(&driver);
                }
                for output in [vec![output], more].concat() {
                    match &output {
                        DriverOutput::Run { engine, order } => {
                            rig.obey(&mut driver, *engine, *order)
                        }
                        DriverOutput::Ask(asked) => {
                            let (asked, answer) = (*asked, rig.register.answer(*asked));
                            driver.handle(rig.now, DriverInput::Register { asked, answer });
                        }
                        _ => {}
                    }
                    all.push(output);
                }
            }
            all.extend(std::iter::from_fn(|| driver.poll_output()));
        }
        assert_eq!(rig.serve(), [Some(version(2)); 2]);
        all
    };
    assert_eq!(play(true), play(false));
}

#[test]
fn an_engine_in_doubt_goes_on_from_what_was_stored_of_it() {
    let doubt = EngineDoubt::new(DoubtConfig {
        lease: Span(10),
        ask_every: Span(4),
        deadline: Span(7),
        retries: 1,
        safeguards: Safeguards::default(),
    });
    let paused = DoubtInput::Heard { paused_in: Some(TRANSACTION), busy: Span(0) };
    let verdict = FleetVerdict::Commit;
    let decided = DoubtInput::Decided { transaction: TRANSACTION, verdict };
    let went = DoubtInput::Went { serving: false };
    let inputs =
        [(0, paused), (10, went), (11, decided), (11, went), (30, went), (31, decided), (31, went)];
    plays_on_alike(doubt, &inputs, |doubt, (now, input)| {
        doubt.handle(Time(now), input);
        let outputs: Vec<_> = std::iter::from_fn(|| doubt.poll_output()).collect();
        (outputs, doubt.next_timeout(), doubt.has_left(), doubt.in_doubt())
    });
}

#[test]
fn a_register_and_a_table_go_on_from_what_was_stored_of_them() {
    let mut first = FleetRegister::new(7, Safeguards::default());
    let driver = first.next_driver(1, None).unwrap();
    let transaction = |number| crate::engine_update::FleetTransaction { driver, number };
    let verdict = |number, wanted| FleetQuestion::Verdict {
        transaction: transaction(number),
        wanted,
        version: version(number),
    };
    let mut questions: Vec<_> =
        (1..=260).map(|number| verdict(number, FleetVerdict::Commit)).collect();
    questions.extend([1, 4, 5, 260].map(|number| verdict(number, FleetVerdict::Abort)));
    questions.extend([
        FleetQuestion::PushNumber { key: 1, heard: None },
        FleetQuestion::Number { key: 1, heard: None },
        FleetQuestion::Number { key: 2, heard: None },
        FleetQuestion::PushNumber { key: 1, heard: None },
        FleetQuestion::State,
    ]);
    plays_on_alike(first, &questions, |register, question| register.answer(question));
    let notice = |life, worker, count| ServingNotice {
        engine: "a".to_owned(),
        life,
        worker,
        workers: 2,
        count,
        serves: Some(version(1)),
    };
    let told =
        [notice(1, 0, 1), notice(1, 1, 1), notice(2, 0, 1), notice(1, 1, 2), notice(2, 1, 1)];
    let table = RoutingTable::new(Span(10), Safeguards::default());
    plays_on_alike(table, &told, |table, notice| {
        table.hear(Time(3), notice).unwrap();
        (table.engines(Time(4), None), table.engines(Time(13), None))
    });
}
