//! Machines that are written down in the middle of their course, and go on from what was written.

use super::{PUSH, TARGET, config, fill, grant, needs, parcels, written};
use crate::push::{
    PushDriver, PushInput, PushReport, PushSender, PushTarget, SenderId, TargetId, TargetState,
};
use crate::recording::plays_on_alike;
use crate::{Generation, Safeguards, Time};

/// What happens to a machine.
type Turn<'a, M> = &'a dyn Fn(&mut M);

#[test]
fn a_target_goes_on_from_what_was_stored_of_it() {
    let target = PushTarget::new(TARGET, Generation(3), Safeguards::default());
    let turns: &[Turn<PushTarget>] = &[
        &|target| target.handle_order(Time(1), fill(1, &[1, 1, 2])),
        &PushTarget::handle_paused,
        &|target| target.handle_written(&written(1, 1, &[0])),
        &|target| target.handle_written(&written(1, 1, &[0, 1])),
        &|target| target.handle_written(&written(2, 2, &[2])),
        &|target| target.handle_verified(Generation(4), &parcels(&[1])),
        &|target| target.handle_order(Time(5), fill(2, &[1, 2, 2])),
        &|target| target.handle_written(&written(3, 2, &[1])),
        &|target| target.handle_verified(Generation(5), &parcels(&[])),
        &|target| target.handle_order(Time(9), fill(2, &[1, 2, 2])),
        &PushTarget::handle_slept,
        &PushTarget::handle_woken,
    ];
    plays_on_alike(target, turns, |target, turn| {
        turn(target);
        let outputs: Vec<_> = std::iter::from_fn(|| target.poll_output()).collect();
        (outputs, target.report(), target.ready(), target.next_timeout())
    });
}

#[test]
fn a_sender_goes_on_from_what_was_stored_of_it() {
    let sender = PushSender::new(SenderId(1), Safeguards::default());
    let turns: &[Turn<PushSender>] = &[
        &|sender| sender.hold(super::version(5)),
        &|sender| sender.handle_grant(grant(1, 1, &[0, 1])),
        &|sender| sender.handle_parcel(TARGET, 1, 1),
        &|sender| sender.handle_grant(grant(1, 1, &[0, 1])),
        &|sender| sender.handle_grant(grant(1, 2, &[0, 1])),
        &PushSender::withdraw,
    ];
    plays_on_alike(sender, turns, |sender, turn| {
        turn(sender);
        let outputs: Vec<_> = std::iter::from_fn(|| sender.poll_output()).collect();
        (outputs, sender.holds(), sender.may_write(TARGET, 1))
    });
}

#[test]
fn a_push_goes_on_from_what_was_stored_of_it() {
    let report = |sequence, of: &[u32], state| PushReport {
        target: TARGET,
        push: PUSH,
        revision: 1,
        sequence,
        generation: Generation(1),
        state,
        written: parcels(of),
        differing: [].into(),
        grants: vec![grant(1, 1, &[0, 1]), grant(2, 2, &[2])],
    };
    let reports = |sequence, of: &'static [u32]| {
        move |driver: &mut PushDriver| {
            let report = report(sequence, of, TargetState::Filling);
            driver.handle(Time(sequence * 4_000_000_000), PushInput::Reported(report));
        }
    };
    let all: &[(u64, &[u64])] = &[(10, &[1, 2]), (10, &[1, 2]), (10, &[2])];
    let turns: &[Turn<PushDriver>] = &[
        &|driver| driver.handle(Time(0), PushInput::Joins(vec![needs(7, all)])),
        &reports(1, &[]),
        &reports(2, &[0]),
        &|driver| driver.handle(Time(9), PushInput::Joins(vec![needs(8, all)])),
        &reports(4, &[0]),
        &reports(3, &[0, 1, 2]),
        &|driver| driver.handle(Time(9), PushInput::SenderLost { sender: SenderId(1) }),
        &|driver| driver.handle(Time(9), PushInput::Leaves { target: TargetId(8) }),
        &|driver| driver.handle_timeout(Time(17_000_000_000)),
        &|driver| {
            let ready = report(9, &[0, 1, 2], TargetState::Ready);
            driver.handle(Time(18_000_000_000), PushInput::Reported(ready));
        },
        &|driver| driver.handle(Time(9), PushInput::Cancel),
    ];
    plays_on_alike(PushDriver::new(config()), turns, |driver, turn| {
        turn(driver);
        let outputs: Vec<_> = std::iter::from_fn(|| driver.poll_output()).collect();
        let loads = [1, 2].map(|sender| driver.load(SenderId(sender)));
        (outputs, loads, driver.next_timeout(), driver.routes(TARGET).cloned())
    });
}
