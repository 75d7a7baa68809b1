use std::collections::BTreeSet;

use super::{TARGET, fill, grant, parcels, version, written};
use crate::push::TargetOutput::{Close, Open, Pause, Resume, Tell, Verify};
use crate::push::{PushCommand, PushNumber, PushOrder, PushReport, PushTarget, TargetOutput};
use crate::push::{TargetId, TargetState};
use crate::{Generation, Safeguards, Span, Time};

struct TargetRig {
    target: PushTarget,
    now: Time,
}

impl TargetRig {
    fn new() -> Self {
        let target = PushTarget::new(TARGET, Generation(0), Safeguards::default());
        Self { target, now: Time(1) }
    }

    /// A target that is being filled: parcels 0 and 1 by sender 1, parcel 2 by sender 2.
    fn filling() -> Self {
        let mut rig = Self::new();
        assert_eq!(rig.order(fill(1, &[1, 1, 2])), [Pause]);
        let opened = rig.paused();
        assert_eq!(opened, [Open(grant(1, 1, &[0, 1])), Open(grant(2, 2, &[2]))]);
        rig
    }

    /// A target that holds version 5.
    fn ready() -> Self {
        let mut rig = Self::filling();
        rig.write(1, 1, &[0, 1]);
        rig.write(2, 2, &[2]);
        let resumed = rig.verified(1, &[]);
        assert_eq!(resumed, [Resume { version: version(5) }]);
        rig
    }

    /// What is to be done, but for what is told.
    fn pump(&mut self) -> Vec<TargetOutput> {
        let outputs: Vec<_> = std::iter::from_fn(|| self.target.poll_output()).collect();
        self.target.validate().unwrap();
        outputs.into_iter().filter(|output| !matches!(output, Tell { .. })).collect()
    }

    fn order(&mut self, order: PushOrder) -> Vec<TargetOutput> {
        self.target.handle_order(self.now, order);
        self.pump()
    }

    fn paused(&mut self) -> Vec<TargetOutput> {
        self.target.handle_paused();
        self.pump()
    }

    fn write(&mut self, grant: u64, sender: u64, of: &[u32]) -> Vec<TargetOutput> {
        self.target.handle_written(&written(grant, sender, of));
        self.pump()
    }

    fn verified(&mut self, generation: u64, differing: &[u32]) -> Vec<TargetOutput> {
        self.target.handle_verified(Generation(generation), &parcels(differing));
        self.pump()
    }

    fn report(&self) -> PushReport {
        self.target.report()
    }

    fn counted(&self) -> BTreeSet<u32> {
        self.report().written
    }
}

fn verify(generation: u64) -> TargetOutput {
    Verify { generation: Generation(generation), version: version(5) }
}

#[test]
fn all_grants_are_closed_before_the_content_is_compared() {
    let mut rig = TargetRig::filling();
    assert_eq!(rig.write(1, 1, &[0]), []);
    assert_eq!(rig.write(2, 2, &[2]), []);
    let closed = rig.write(1, 1, &[0, 1]);
    assert_eq!(closed, [Close { grant: 1 }, Close { grant: 2 }, verify(1)]);
    assert_eq!((rig.target.ready(), rig.report().grants), (None, vec![]));
    assert_eq!(rig.verified(1, &[]), [Resume { version: version(5) }]);
    assert_eq!(rig.target.ready(), Some(version(5)));
    assert_eq!(rig.target.next_timeout(), None, "what is ready stays");
}

#[test]
fn a_word_counts_under_the_senders_own_open_grant_only() {
    let mut rig = TargetRig::filling();
    for (grant, sender, of) in [(1, 2, &[0][..]), (3, 1, &[0]), (2, 2, &[0, 1]), (2, 1, &[2])] {
        assert_eq!(rig.write(grant, sender, of), []);
        assert!(rig.counted().is_empty(), "{grant} {sender} {of:?}");
    }
    let elsewhere = written(1, 1, &[0]);
    rig.target.handle_written(&crate::push::ParcelsWritten { target: TargetId(8), ..elsewhere });
    assert!(rig.counted().is_empty());
    rig.write(2, 2, &[1, 2]);
    assert_eq!(rig.counted(), parcels(&[2]), "no more than the grant has");
}

#[test]
fn a_parcel_that_moves_is_closed_to_its_sender_before_another_gets_it() {
    let mut rig = TargetRig::filling();
    rig.write(1, 1, &[0]);
    let moved = rig.order(fill(2, &[1, 3, 2]));
    assert_eq!(moved, [Close { grant: 1 }, Open(grant(3, 3, &[1]))], "sender 2 goes on");
    rig.write(1, 1, &[0, 1]);
    assert_eq!(rig.counted(), parcels(&[0]), "a late word of the sender that lost it");
    rig.write(2, 2, &[2]);
    assert_eq!(rig.write(3, 3, &[1]), [Close { grant: 2 }, Close { grant: 3 }, verify(1)]);
}

#[test]
fn what_a_sender_keeps_is_granted_anew_when_a_part_moves() {
    let mut rig = TargetRig::filling();
    let moved = rig.order(fill(2, &[2, 1, 2]));
    let opened = [Open(grant(3, 1, &[1])), Open(grant(4, 2, &[0]))];
    assert_eq!(moved[0], Close { grant: 1 });
    assert_eq!(moved[1..], opened, "sender 2 gets a further grant");
}

#[test]
fn earlier_orders_and_orders_for_others_have_no_effect() {
    let mut rig = TargetRig::filling();
    rig.order(fill(3, &[1, 3, 2]));
    for order in [
        fill(2, &[1, 1, 1]),
        fill(3, &[2, 2, 2]),
        PushOrder { target: TargetId(8), ..fill(4, &[2, 2, 2]) },
        PushOrder { push: PushNumber { driver: 0, number: 9 }, ..fill(9, &[2, 2, 2]) },
    ] {
        let before = rig.report().grants;
        assert_eq!(rig.order(order.clone()), [], "{order:?}");
        assert_eq!(rig.report().grants, before);
    }
}

#[test]
fn an_earlier_driver_learns_of_the_later_one() {
    let mut rig = TargetRig::filling();
    let push = PushNumber { driver: 0, number: 9 };
    rig.target.handle_order(rig.now, PushOrder { push, ..fill(1, &[2, 2, 2]) });
    let told = rig.target.poll_output();
    let Some(Tell { driver, report }) = told else { panic!("{told:?}") };
    assert_eq!((driver, report.push, report.revision), (0, super::PUSH, 1));
}

#[test]
fn what_differs_is_written_again_in_a_later_generation() {
    let mut rig = TargetRig::filling();
    rig.write(1, 1, &[0, 1]);
    rig.write(2, 2, &[2]);
    assert_eq!(rig.verified(0, &[]), [], "another generation was compared");
    assert_eq!(rig.verified(1, &[1]), []);
    let report = rig.report();
    assert_eq!((report.state, report.written), (TargetState::Filling, parcels(&[0, 2])));
    assert_eq!(report.differing, [(1, crate::push::SenderId(1))].into());
    let again = super::PushGrant { generation: Generation(2), ..grant(3, 2, &[1]) };
    assert_eq!(rig.order(fill(2, &[1, 2, 2])), [Open(again)]);
    assert_eq!(rig.write(3, 2, &[1]), [Close { grant: 3 }, verify(2)]);
}

#[test]
fn a_silent_driver_closes_all_grants_and_a_word_of_it_keeps_them() {
    let mut rig = TargetRig::filling();
    rig.now = rig.now + Span::from_secs(9);
    assert_eq!(rig.target.open_for(rig.now), Some(Span::from_secs(1)));
    rig.order(fill(1, &[1, 1, 2]));
    rig.now = rig.now + Span::from_secs(9);
    rig.target.handle_timeout(rig.now);
    assert_eq!(rig.pump(), []);
    rig.now = rig.now + Span::from_secs(1);
    rig.target.handle_timeout(rig.now);
    assert_eq!(rig.pump(), [Close { grant: 1 }, Close { grant: 2 }]);
    assert_eq!((rig.target.state(), rig.target.next_timeout()), (TargetState::Empty, None));
    rig.write(1, 1, &[0, 1]);
    assert_eq!(rig.order(fill(2, &[1, 1, 2])), [], "the push is over here");
    assert!(rig.counted().is_empty());
}

#[test]
fn a_dismissed_target_closes_its_grants_and_a_ready_one_stays() {
    let dismiss = |revision| PushOrder { command: PushCommand::Dismiss, ..fill(revision, &[]) };
    let mut rig = TargetRig::filling();
    assert_eq!(rig.order(dismiss(2)), [Close { grant: 1 }, Close { grant: 2 }]);
    assert_eq!(rig.target.state(), TargetState::Empty);
    let mut rig = TargetRig::ready();
    assert_eq!(rig.order(dismiss(2)), []);
    assert_eq!(rig.target.ready(), Some(version(5)));
}

#[test]
fn a_target_that_sleeps_is_closed_and_is_no_version_when_it_wakes() {
    for mut rig in [TargetRig::filling(), TargetRig::ready()] {
        let open = rig.report().grants.len();
        rig.target.handle_slept();
        assert_eq!(rig.pump().len(), open);
        assert_eq!(rig.order(PushOrder { push: later(), ..fill(1, &[1, 1, 2]) }), []);
        assert_eq!((rig.target.ready(), rig.report().state), (None, TargetState::Asleep));
        rig.target.handle_woken();
        assert_eq!((rig.target.ready(), rig.report().state), (None, TargetState::Empty));
        assert_eq!(rig.verified(1, &[]), [], "of before the sleep");
    }
}

fn later() -> PushNumber {
    PushNumber { driver: 2, number: 1 }
}

#[test]
fn a_later_push_ends_the_serving_of_an_earlier_one() {
    let mut rig = TargetRig::ready();
    let order = PushOrder { push: later(), version: version(6), ..fill(1, &[1, 1, 1]) };
    assert_eq!(rig.order(order), [Pause]);
    assert_eq!(rig.target.ready(), None);
    let opened = rig.paused();
    let [Open(grant)] = &opened[..] else { panic!("{opened:?}") };
    assert_eq!((grant.push, grant.version, grant.generation), (later(), version(6), Generation(2)));
    assert_eq!(rig.write(2, 2, &[2]), [], "of the earlier push");
    assert!(rig.counted().is_empty());
}

#[test]
fn a_target_without_parcels_is_compared_at_once() {
    let mut rig = TargetRig::new();
    rig.order(fill(1, &[]));
    assert_eq!(rig.paused(), [verify(1)]);
    assert_eq!(rig.verified(1, &[]), [Resume { version: version(5) }]);
}

#[test]
fn reports_are_numbered() {
    let mut rig = TargetRig::new();
    let mut told = Vec::new();
    rig.target.handle_order(rig.now, fill(1, &[1]));
    rig.target.handle_paused();
    rig.target.handle_written(&written(1, 1, &[0]));
    while let Some(output) = rig.target.poll_output() {
        if let Tell { report, .. } = output {
            told.push((report.sequence, report.state));
        }
    }
    use TargetState::{Filling, Pausing, Verifying};
    assert_eq!(told, [(1, Pausing), (2, Filling), (3, Verifying)]);
}
