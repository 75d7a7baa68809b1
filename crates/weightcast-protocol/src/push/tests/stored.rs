//! Machines that are written down in the middle of their course, and go on from what was written.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{PUSH, TARGET, config, fill, grant, needs, parcels, written};
use crate::push::{
    PushDriver, PushInput, PushReport, PushSender, PushTarget, SenderId, TargetId, TargetState,
};
use crate::recording::stored;
use crate::{Generation, Safeguards, Time};

/// Plays a machine twice, once with each state stored and read again; both say the same.
fn alike<M, O: PartialEq + Debug>(machine: M, turns: &[&dyn Fn(&mut M)], says: impl Fn(&mut M) -> O)
where
    M: Clone + Serialize + DeserializeOwned,
{
    let (mut plain, mut written) = (machine.clone(), machine);
    for (number, turn) in turns.iter().enumerate() {
        written = stored(&written);
        turn(&mut written);
        turn(&mut plain);
        assert_eq!(says(&mut written), says(&mut plain), "turn {number}");
    }
}

#[test]
fn a_target_goes_on_from_what_was_stored_of_it() {
    let target = PushTarget::new(TARGET, Generation(3), Safeguards::default());
    alike(
        target,
        &[
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
        ],
        |target| {
            let outputs: Vec<_> = std::iter::from_fn(|| target.poll_output()).collect();
            (outputs, target.report(), target.ready(), target.next_timeout())
        },
    );
}

#[test]
fn a_sender_goes_on_from_what_was_stored_of_it() {
    let sender = PushSender::new(SenderId(1), Safeguards::default());
    alike(
        sender,
        &[
            &|sender| sender.hold(super::version(5)),
            &|sender| sender.handle_grant(grant(1, 1, &[0, 1])),
            &|sender| sender.handle_parcel(TARGET, 1, 1),
            &|sender| sender.handle_grant(grant(1, 1, &[0, 1])),
            &|sender| sender.handle_grant(grant(1, 2, &[0, 1])),
            &PushSender::withdraw,
        ],
        |sender| {
            let outputs: Vec<_> = std::iter::from_fn(|| sender.poll_output()).collect();
            (outputs, sender.holds(), sender.may_write(TARGET, 1))
        },
    );
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
    alike(
        PushDriver::new(config()),
        &[
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
        ],
        |driver| {
            let outputs: Vec<_> = std::iter::from_fn(|| driver.poll_output()).collect();
            let loads = [1, 2].map(|sender| driver.load(SenderId(sender)));
            (outputs, loads, driver.next_timeout(), driver.routes(TARGET).cloned())
        },
    );
}
