//! What a sender with several grants says, and what it forgets.

use super::{TARGET, grant, version, written};
use crate::Safeguards;
use crate::limits::PUSH_TASKS;
use crate::push::SenderOutput::{Refuse, Tell, Write};
use crate::push::{
    PushGrant, PushNumber, PushSender, SendRefusal, SendRefused, SenderId, SenderOutput, TargetId,
};

const OTHER: TargetId = TargetId(8);

fn holding() -> PushSender {
    let mut sender = PushSender::new(SenderId(1), Safeguards::default());
    sender.hold(version(5));
    sender
}

fn outputs(sender: &mut PushSender) -> Vec<SenderOutput> {
    std::iter::from_fn(|| sender.poll_output()).collect()
}

fn refused(of: &PushGrant, refusal: SendRefusal) -> SenderOutput {
    let PushGrant { push, target, number, sender, .. } = *of;
    Refuse(SendRefused { push, target, grant: number, sender, refusal })
}

/// A grant of the other target, with the same number.
fn elsewhere() -> PushGrant {
    PushGrant { target: OTHER, ..grant(1, 1, &[0, 1]) }
}

#[test]
fn what_a_sender_wants_comes_in_the_order_in_which_it_was_wanted() {
    let mut sender = holding();
    let (first, second) = (grant(1, 1, &[0, 1]), grant(2, 1, &[2]));
    sender.handle_grant(first.clone());
    sender.handle_grant(second.clone());
    sender.handle_parcel(TARGET, 1, 0);
    sender.handle_parcel(TARGET, 2, 2);
    sender.handle_failed(TARGET, 1);
    sender.handle_grant(first.clone());
    assert_eq!(
        outputs(&mut sender),
        [
            Write(first.clone()),
            Write(second),
            Tell(written(1, 1, &[0])),
            Tell(written(2, 1, &[2])),
            refused(&first, SendRefusal::Failed),
            Write(first),
        ]
    );
}

/// They have grants of the same number, since each target counts its own.
#[test]
fn the_grants_of_two_targets_are_two() {
    let mut sender = holding();
    sender.handle_grant(grant(1, 1, &[0]));
    sender.handle_grant(elsewhere());
    outputs(&mut sender);
    sender.handle_parcel(OTHER, 1, 1);
    sender.handle_parcel(TARGET, 1, 1);
    let word = crate::push::ParcelsWritten { target: OTHER, ..written(1, 1, &[1]) };
    assert_eq!(outputs(&mut sender), [Tell(word.clone())]);
    sender.handle_failed(TARGET, 1);
    assert_eq!([TARGET, OTHER].map(|target| sender.may_write(target, 1)), [false, true]);
    outputs(&mut sender);
    sender.handle_grant(elsewhere());
    assert_eq!(outputs(&mut sender), [Tell(word)], "what it has written for that one");
}

/// What was written of a grant counts anew once the grant is begun anew.
#[test]
fn a_grant_that_is_begun_anew_has_nothing_written() {
    let mut sender = holding();
    sender.handle_grant(grant(1, 1, &[0, 1]));
    sender.handle_parcel(TARGET, 1, 0);
    sender.handle_failed(TARGET, 1);
    sender.handle_grant(grant(1, 1, &[0, 1]));
    outputs(&mut sender);
    sender.handle_grant(grant(1, 1, &[0, 1]));
    assert_eq!(outputs(&mut sender), [], "nothing is to be said yet");
    sender.handle_parcel(TARGET, 1, 1);
    assert_eq!(outputs(&mut sender), [Tell(written(1, 1, &[1]))]);
}

/// Memory that holds another version now has left the one before, whether or not anybody said so.
#[test]
fn a_sender_that_holds_another_version_refuses_what_it_had_begun() {
    let mut sender = holding();
    sender.handle_grant(grant(1, 1, &[0]));
    sender.handle_grant(elsewhere());
    outputs(&mut sender);
    sender.hold(version(6));
    let all = [grant(1, 1, &[0]), elsewhere()];
    let no = all.map(|grant| refused(&grant, SendRefusal::NotHeld));
    assert_eq!(outputs(&mut sender), no);
    assert!(![TARGET, OTHER].iter().any(|target| sender.may_write(*target, 1)));
    assert_eq!(sender.holds(), Some(version(6)));
    sender.withdraw();
    assert_eq!((outputs(&mut sender), sender.holds()), (vec![], None), "nothing is under way");
}

/// Whoever has withdrawn says so to every driver that asks: it has forgotten which push came last.
#[test]
fn a_sender_that_has_withdrawn_refuses_an_earlier_push_as_it_does_a_later_one() {
    let mut sender = holding();
    let push = PushNumber { driver: 1, number: 2 };
    sender.handle_grant(PushGrant { push, ..grant(1, 1, &[0]) });
    sender.withdraw();
    outputs(&mut sender);
    let earlier = grant(2, 1, &[0]);
    sender.handle_grant(earlier.clone());
    assert_eq!(outputs(&mut sender), [refused(&earlier, SendRefusal::NotHeld)]);
}

/// A place is free again once a grant is over.
#[test]
fn a_sender_that_was_busy_takes_a_grant_once_another_one_is_over() {
    let mut sender = holding();
    (0..PUSH_TASKS as u64).for_each(|number| sender.handle_grant(grant(number, 1, &[0])));
    let more = grant(PUSH_TASKS as u64, 1, &[0]);
    outputs(&mut sender);
    sender.handle_grant(more.clone());
    assert_eq!(outputs(&mut sender), [refused(&more, SendRefusal::Busy)]);
    assert!(!sender.may_write(TARGET, more.number));
    sender.handle_grant(grant(0, 1, &[0]));
    assert_eq!(outputs(&mut sender), [], "it has that one");
    sender.handle_failed(TARGET, 0);
    outputs(&mut sender);
    sender.handle_grant(more.clone());
    assert_eq!(outputs(&mut sender), [Write(more)]);
}
