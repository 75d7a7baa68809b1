use super::{TARGET, grant, version, written};
use crate::Safeguards;
use crate::limits::PUSH_TASKS;
use crate::push::SenderOutput::{Refuse, Tell, Write};
use crate::push::{
    PushGrant, PushNumber, PushSender, SendRefusal, SendRefused, SenderId, SenderOutput, TargetId,
};

fn holding() -> PushSender {
    let mut sender = PushSender::new(SenderId(1), Safeguards::default());
    sender.hold(version(5));
    sender
}

fn pump(sender: &mut PushSender) -> Vec<SenderOutput> {
    std::iter::from_fn(|| sender.poll_output()).collect()
}

fn refused(number: u64, refusal: SendRefusal) -> SenderOutput {
    let PushGrant { push, target, sender, .. } = grant(number, 1, &[0]);
    Refuse(SendRefused { push, target, grant: number, sender, refusal })
}

#[test]
fn a_sender_writes_what_a_grant_has_and_says_so_again_when_asked() {
    let mut sender = holding();
    sender.handle_grant(grant(1, 1, &[0, 2]));
    assert_eq!(pump(&mut sender), [Write(grant(1, 1, &[0, 2]))]);
    sender.handle_grant(grant(1, 1, &[0, 2]));
    assert_eq!(pump(&mut sender), [], "it writes already, and nothing is written");
    sender.handle_parcel(TARGET, 1, 2);
    sender.handle_parcel(TARGET, 1, 2);
    sender.handle_parcel(TARGET, 1, 1);
    sender.handle_parcel(TARGET, 9, 0);
    assert_eq!(pump(&mut sender), [Tell(written(1, 1, &[2]))]);
    sender.handle_parcel(TARGET, 1, 0);
    sender.handle_grant(grant(1, 1, &[0, 2]));
    let all = Tell(written(1, 1, &[0, 2]));
    assert_eq!(pump(&mut sender), [all.clone(), all]);
}

#[test]
fn a_sender_whose_memory_changes_stops_and_says_so() {
    let mut sender = holding();
    sender.handle_grant(grant(1, 1, &[0]));
    pump(&mut sender);
    assert!(sender.may_write(TARGET, 1));
    sender.withdraw();
    assert!(!sender.may_write(TARGET, 1));
    sender.handle_parcel(TARGET, 1, 0);
    assert_eq!(pump(&mut sender), [refused(1, SendRefusal::NotHeld)]);
    sender.handle_grant(grant(1, 1, &[0]));
    sender.hold(version(6));
    sender.handle_grant(grant(1, 1, &[0]));
    let no = refused(1, SendRefusal::NotHeld);
    assert_eq!(pump(&mut sender), [no.clone(), no], "neither before nor with another version");
    assert_eq!(sender.holds(), Some(version(6)));
}

#[test]
fn a_failed_write_is_tried_anew_only_when_the_driver_says_so() {
    let mut sender = holding();
    sender.handle_grant(grant(1, 1, &[0]));
    sender.handle_parcel(TARGET, 1, 0);
    pump(&mut sender);
    sender.handle_failed(TARGET, 1);
    sender.handle_failed(TARGET, 1);
    assert_eq!(pump(&mut sender), [refused(1, SendRefusal::Failed)]);
    assert!(!sender.may_write(TARGET, 1));
    sender.handle_grant(grant(1, 1, &[0]));
    assert_eq!(pump(&mut sender), [Write(grant(1, 1, &[0]))], "from its beginning");
}

#[test]
fn a_later_push_of_a_target_ends_the_earlier_one_there_only() {
    let mut sender = holding();
    let push = PushNumber { driver: 1, number: 2 };
    let other = PushGrant { target: TargetId(8), ..grant(1, 1, &[0]) };
    sender.handle_grant(grant(1, 1, &[0]));
    sender.handle_grant(other);
    sender.handle_grant(PushGrant { push, ..grant(2, 1, &[0]) });
    pump(&mut sender);
    let may = [1, 2].map(|number| sender.may_write(TARGET, number));
    assert_eq!((may, sender.may_write(TargetId(8), 1)), ([false, true], true));
    sender.handle_grant(grant(3, 1, &[0]));
    assert_eq!(pump(&mut sender), [], "the earlier push is over");
}

#[test]
fn a_grant_for_another_sender_is_left_alone() {
    let mut sender = holding();
    sender.handle_grant(grant(1, 2, &[0]));
    assert_eq!(pump(&mut sender), []);
    assert!(!sender.may_write(TARGET, 1));
}

#[test]
fn grants_are_bounded() {
    let mut sender = holding();
    (0..=PUSH_TASKS as u64).for_each(|number| sender.handle_grant(grant(number, 1, &[0])));
    let outputs = pump(&mut sender);
    assert_eq!(outputs.last(), Some(&refused(PUSH_TASKS as u64, SendRefusal::Busy)));
    assert_eq!(outputs.iter().filter(|output| matches!(output, Write(_))).count(), PUSH_TASKS);
}
