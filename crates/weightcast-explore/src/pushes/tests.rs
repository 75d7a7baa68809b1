//! Whether the checks notice what they are there for, and whether faults do what they say. The searches of `tests/pushes.rs`
//! break rules only where a safeguard is off, and there the machines' own rules often break first.

use std::collections::BTreeSet;

use weightcast_protocol::push::{PushDriver, PushGrant, PushInput, SenderId, TargetEnd, TargetId};
use weightcast_protocol::{Generation, Time};

use super::parts::{PushWire, PushWrite, sender_id};
use super::world::{PushState, version};
use super::{PushBounds, PushFaults};

fn bounds() -> PushBounds {
    PushBounds { targets: 2, senders: 2, ..PushBounds::quiet() }
}

/// The first target is being filled by the first sender, who has begun to write.
fn filling() -> PushState {
    let mut state = PushState::new(&bounds());
    state.join(0, 0);
    deliver(&mut state);
    state.pause(0);
    deliver(&mut state);
    state.write(0, 0);
    assert!(state.broken.is_none() && state.targets[0].port.len() == 1);
    state
}

/// All words arrive, and what is answered to them; no write.
fn deliver(state: &mut PushState) {
    let word = |state: &PushState| {
        let mut wires = state.wires.iter();
        wires.find(|(_, wire)| !matches!(***wire, PushWire::Write(_))).map(|(hash, _)| *hash)
    };
    while let Some(hash) = word(state) {
        let wire = state.wires.remove(&hash).expect("it is on its way");
        state.arrive((*wire).clone());
    }
}

fn write_under_way(state: &PushState) -> (u64, PushWrite) {
    let write = state.wires.iter().find_map(|(hash, wire)| match &**wire {
        PushWire::Write(write) => Some((*hash, write.clone())),
        _ => None,
    });
    write.expect("a write is under way")
}

fn land(state: &mut PushState) {
    let (hash, write) = write_under_way(state);
    state.wires.remove(&hash);
    state.land(write);
}

fn broken(state: &PushState) -> Option<&'static str> {
    state.broken.as_ref().map(|broken| broken.invariant)
}

fn first(state: &PushState) -> TargetId {
    state.targets[0].id
}

#[test]
fn what_serves_other_bytes_breaks_p1() {
    let mut state = PushState::new(&bounds());
    state.check_served();
    assert_eq!(broken(&state), None);
    state.targets[1].change(|it| it.memory[0] = 1);
    state.check_served();
    assert_eq!(broken(&state), Some("P1"));
}

#[test]
fn a_grant_that_is_open_while_a_target_serves_breaks_p2() {
    let mut state = filling();
    state.targets[0].change(|it| it.serves = Some(0));
    state.check_served();
    assert_eq!(broken(&state), Some("P2"));
}

#[test]
fn a_parcel_that_two_senders_may_write_breaks_p3() {
    let mut state = filling();
    let grant = state.targets[0].port.values().next().cloned().expect("one is open");
    state.check_opened(0, &PushGrant { number: 2, ..grant.clone() });
    assert_eq!(broken(&state), None);
    state.check_opened(0, &PushGrant { number: 2, sender: SenderId(2), ..grant });
    assert_eq!(broken(&state), Some("P3"));
}

#[test]
fn a_write_of_another_version_sender_or_generation_breaks_p3() {
    let (_, write) = write_under_way(&filling());
    let others = [
        PushWrite { content: 2, ..write.clone() },
        PushWrite { from: 1, ..write.clone() },
        PushWrite { generation: Generation(9), ..write.clone() },
    ];
    let mut state = filling();
    state.check_written(0, &write);
    assert_eq!(broken(&state), None);
    for other in others {
        let mut state = filling();
        state.check_written(0, &other);
        assert_eq!(broken(&state), Some("P3"), "{other:?}");
    }
}

#[test]
fn routes_that_change_for_another_reason_break_p4() {
    let moves_for = |cause: Option<PushInput>| {
        let mut state = filling();
        let target = first(&state);
        state.check_moved(cause.as_ref(), target, &[(0, sender_id(0))]);
        broken(&state)
    };
    let report = |place: usize| {
        let report = filling().targets[place].machine.report();
        Some(PushInput::Reported(report))
    };
    let lost = |place| Some(PushInput::SenderLost { sender: sender_id(place) });
    assert_eq!((moves_for(report(0)), moves_for(lost(0))), (None, None));
    let wrong = [report(1), lost(1), None, Some(PushInput::Cancel), Some(PushInput::Joins(vec![]))];
    for cause in wrong {
        assert_eq!(moves_for(cause.clone()), Some("P4"), "{cause:?}");
    }
}

#[test]
fn a_push_that_waits_for_nothing_breaks_p5() {
    let mut state = filling();
    assert!(!state.breaks_now(&bounds(), "P5"));
    let config = state.drivers[0].machine.as_ref().expect("it pushes").config().clone();
    let ids = [first(&state), state.targets[1].id];
    state = PushState::new(&bounds());
    state.drivers[0].change(|it| it.machine = Some(PushDriver::new(config)));
    state.drivers[0].change(|it| it.joined.extend(ids.map(|id| (id, Time(0)))));
    assert!(state.breaks_now(&bounds(), "P5"));
    assert!(!state.breaks_now(&PushBounds { only: Some("P1"), ..bounds() }, "P5"));
}

#[test]
fn a_push_that_fails_needs_a_reason() {
    let excused = |state: &PushState, end| state.is_excused(0, first(state), 1, end);
    let state = filling();
    assert!(excused(&state, TargetEnd::Ready));
    let all = [
        TargetEnd::Left,
        TargetEnd::Lost,
        TargetEnd::Asleep,
        TargetEnd::Superseded,
        TargetEnd::NoHolder,
        TargetEnd::Differs,
        TargetEnd::Cancelled,
        TargetEnd::Silent,
        TargetEnd::Deadline,
        TargetEnd::GaveUp,
    ];
    for end in all {
        assert!(!excused(&state, end), "{end:?}");
    }
    let mut dead = filling();
    dead.kill_sender(0);
    assert!(!excused(&dead, TargetEnd::NoHolder) && !excused(&dead, TargetEnd::Deadline));
    dead.kill_sender(1);
    assert!(excused(&dead, TargetEnd::NoHolder) && excused(&dead, TargetEnd::Deadline));
    let mut lossy = filling();
    lossy.spent = PushFaults { losses: 1, ..PushFaults::default() };
    assert!(!excused(&lossy, TargetEnd::Silent));
    lossy.spent = PushFaults { losses: 2, ..PushFaults::default() };
    assert!(excused(&lossy, TargetEnd::Silent));
}

#[test]
fn a_write_that_was_given_up_may_land_and_is_not_answered() {
    let mut state = filling();
    let (hash, _) = write_under_way(&state);
    state.give_up(hash);
    assert!(!write_under_way(&state).1.answered && state.senders[0].jobs.is_empty());
    land(&mut state);
    assert_eq!(state.targets[0].memory, [1]);
    let words = state.wires.values().filter(|wire| matches!(***wire, PushWire::Word(_)));
    assert_eq!(words.count(), 0, "the sender does not know");
}

#[test]
fn a_sender_that_goes_on_hears_how_its_writes_went() {
    let mut state = filling();
    state.stall(0);
    land(&mut state);
    assert_eq!(state.senders[0].answers.len(), 1);
    state.go_on(0);
    deliver(&mut state);
    assert!(state.senders[0].answers.is_empty() && state.targets[0].port.is_empty());
    assert_eq!(state.targets[0].compared.values().collect::<Vec<_>>(), [&BTreeSet::new()]);
}

#[test]
fn a_write_under_a_grant_that_was_closed_is_refused() {
    let mut state = filling();
    state.sleep(0);
    let memory = state.targets[0].memory.clone();
    land(&mut state);
    assert_eq!((&state.targets[0].memory, broken(&state)), (&memory, None));
    assert!(state.seen.contains("a write was refused, since its grant was closed"));
}

#[test]
fn what_moves_on_holds_the_next_version_alone() {
    let mut state = filling();
    state.move_on(0, false);
    assert!(state.holds(0, 2) && !state.holds(0, 1));
    assert_eq!(state.senders[0].machine.holds(), Some(version(2)));
}
