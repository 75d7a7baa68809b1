use super::{PUSH, TARGET, config, needs, parcels, routes, version};
use crate::push::{
    PushCommand, PushConfig, PushDriver, PushGrant, PushInput, PushNumber, PushOrder, PushOutput,
    PushReport, PushResult, SendRefusal, SendRefused, SenderId, TargetEnd, TargetId, TargetOutcome,
    TargetState,
};
use crate::{Generation, Span, Time};

/// A driver under a virtual clock, with one target (unless a test has more) that says what the test says.
pub(super) struct PushRig {
    pub(super) driver: PushDriver,
    pub(super) now: Time,
    pub(super) orders: Vec<PushOrder>,
    pub(super) sent: Vec<PushGrant>,
    pub(super) result: Option<PushResult>,
    sequence: u64,
}

impl PushRig {
    pub(super) fn new(config: PushConfig) -> Self {
        let (orders, sent) = (Vec::new(), Vec::new());
        let driver = PushDriver::new(config);
        Self { driver, now: Time(0), orders, sent, result: None, sequence: 0 }
    }

    /// Two parcels that both senders hold, and one that sender 2 alone holds.
    pub(super) fn joined() -> Self {
        let mut rig = Self::new(config());
        rig.give(PushInput::Joins(vec![needs(7, &[(10, &[1, 2]), (10, &[1, 2]), (10, &[2])])]));
        rig
    }

    /// The same, with grants open.
    fn filling() -> Self {
        let mut rig = Self::joined();
        rig.report(|report| report);
        assert_eq!(rig.sent.len(), 2);
        rig
    }

    pub(super) fn give(&mut self, input: PushInput) {
        self.driver.handle(self.now, input);
        self.pump();
    }

    pub(super) fn pump(&mut self) {
        self.driver.validate().unwrap();
        while let Some(output) = self.driver.poll_output() {
            match output {
                PushOutput::Order(order) => self.orders.push(order),
                PushOutput::Send(grant) => self.sent.push(grant),
                PushOutput::Ended(result) => assert!(self.result.replace(result).is_none()),
            }
        }
    }

    pub(super) fn pass(&mut self, span: Span) {
        self.now = self.now + span;
        self.driver.handle_timeout(self.now);
        self.pump();
    }

    /// The target reports, with a grant for each of its senders.
    pub(super) fn report(&mut self, change: impl Fn(PushReport) -> PushReport) {
        self.sequence += 1;
        let routes = self.routes();
        let senders: std::collections::BTreeSet<_> = routes.iter().copied().collect();
        let of = |sender: &SenderId| {
            let all = (0..).zip(&routes).filter(|(_, by)| *by == sender);
            let parcels = all.map(|(number, _)| number).collect();
            PushGrant { sender: *sender, parcels, ..super::grant(sender.0, sender.0, &[]) }
        };
        let report = PushReport {
            target: TARGET,
            push: PUSH,
            revision: 1,
            sequence: self.sequence,
            generation: Generation(1),
            state: TargetState::Filling,
            written: parcels(&[]),
            differing: Default::default(),
            grants: senders.iter().map(of).collect(),
        };
        self.give(PushInput::Reported(change(report)));
    }

    pub(super) fn routes(&self) -> Vec<SenderId> {
        self.driver.routes(TARGET).unwrap().values().copied().collect()
    }

    fn routed(&self) -> Vec<u64> {
        self.routes().iter().map(|sender| sender.0).collect()
    }

    pub(super) fn outcome(&self) -> TargetOutcome {
        self.result.as_ref().expect("an end").targets[&TARGET].clone()
    }

    fn end(&self) -> TargetEnd {
        self.outcome().end
    }
}

fn written(of: &'static [u32]) -> impl Fn(PushReport) -> PushReport {
    move |report| PushReport { written: parcels(of), ..report }
}

fn state(state: TargetState) -> impl Fn(PushReport) -> PushReport {
    move |report| PushReport { state, ..report }
}

#[test]
fn a_push_goes_from_the_first_order_to_the_targets_word() {
    let mut rig = PushRig::joined();
    let [order] = &rig.orders[..] else { panic!("{:?}", rig.orders) };
    assert_eq!((order.revision, order.version, order.target), (1, version(5), TARGET));
    assert_eq!(order.command, PushCommand::Fill { routes: routes(&[1, 1, 2]) }, "by bytes");
    rig.report(|report| report);
    let grants: Vec<_> = rig.sent.iter().map(|grant| (grant.number, grant.sender.0)).collect();
    assert_eq!(grants, [(1, 1), (2, 2)]);
    rig.report(written(&[0, 1, 2]));
    assert!(rig.result.is_none(), "the content was not compared");
    rig.now = Time(3);
    rig.report(state(TargetState::Ready));
    let TargetOutcome { end, missing: _, unheld, moved, took } = rig.outcome();
    assert_eq!((end, unheld, moved, took), (TargetEnd::Ready, parcels(&[]), 0, Span(3)));
}

#[test]
fn orders_and_grants_come_again_until_all_is_written() {
    let mut rig = PushRig::filling();
    rig.pass(Span::from_secs(1));
    assert_eq!((rig.orders.len(), rig.sent.len()), (2, 4));
    assert_eq!(rig.orders[0], rig.orders[1]);
    rig.report(written(&[2]));
    rig.pass(Span::from_secs(1));
    assert_eq!((rig.orders.len(), rig.sent.len()), (3, 5), "sender 2 is done");
    assert_eq!(rig.sent[4].sender, SenderId(1));
    rig.pass(Span(999_999_999));
    assert_eq!(rig.orders.len(), 3);
    assert_eq!(rig.driver.next_timeout(), Some(rig.now + Span(1)));
}

#[test]
fn what_a_lost_sender_has_not_written_moves() {
    let mut rig = PushRig::filling();
    rig.report(written(&[0]));
    rig.give(PushInput::SenderLost { sender: SenderId(1) });
    assert_eq!(rig.routed(), [1, 2, 2], "what was written stays where it was");
    assert_eq!((rig.orders.len(), rig.orders[1].revision), (2, 2));
    rig.give(PushInput::SenderLost { sender: SenderId(2) });
    let TargetOutcome { end, missing, unheld, moved, .. } = rig.outcome();
    assert_eq!((end, moved), (TargetEnd::NoHolder, 1));
    assert_eq!(missing, [(SenderId(2), parcels(&[1, 2]))].into());
    assert_eq!(unheld, parcels(&[1, 2]));
    let last = rig.orders.last().unwrap();
    assert_eq!(last.command, PushCommand::Dismiss, "its grants are to be closed");
}

#[test]
fn a_sender_without_the_version_counts_as_lost() {
    let mut rig = PushRig::filling();
    let refusal = SendRefusal::NotHeld;
    let of = |push| SendRefused { push, target: TARGET, grant: 1, sender: SenderId(1), refusal };
    rig.give(PushInput::Refused(of(PushNumber { driver: 1, number: 0 })));
    assert_eq!(rig.routed(), [1, 1, 2], "of another push");
    rig.give(PushInput::Refused(of(PUSH)));
    assert_eq!(rig.routed(), [2, 2, 2]);
    let mut rig = PushRig::filling();
    let of = SendRefused { grant: 2, sender: SenderId(2), ..of(PUSH) };
    rig.give(PushInput::Refused(of));
    assert_eq!((rig.end(), rig.outcome().unheld), (TargetEnd::NoHolder, parcels(&[2])), "at once");
}

#[test]
fn a_sender_that_brings_nothing_yields_what_others_hold() {
    let mut rig = PushRig::filling();
    rig.now = rig.now + Span::from_secs(4);
    rig.report(written(&[0]));
    rig.now = rig.now + Span::from_secs(4);
    rig.report(written(&[0]));
    assert_eq!(rig.routed(), [1, 1, 2], "sender 1 has brought something, sender 2 is alone");
    rig.now = rig.now + Span::from_secs(1);
    rig.report(written(&[0]));
    assert_eq!(rig.routed(), [1, 2, 2]);
    rig.now = rig.now + Span::from_secs(5);
    rig.report(written(&[0]));
    assert_eq!(rig.routed(), [1, 1, 2], "and back, for want of others");
    rig.now = rig.now + Span::from_secs(50);
    rig.report(written(&[0]));
    assert_eq!(rig.routed(), [1, 1, 2], "not for ever");
}

#[test]
fn a_failed_write_moves_and_a_late_word_of_one_does_not() {
    let failed = |grant, sender| {
        let (sender, refusal) = (SenderId(sender), SendRefusal::Failed);
        PushInput::Refused(SendRefused { push: PUSH, target: TARGET, grant, sender, refusal })
    };
    let mut rig = PushRig::filling();
    rig.give(failed(9, 1));
    rig.give(failed(1, 2));
    assert_eq!(rig.routed(), [1, 1, 2], "no grant that is open");
    rig.give(failed(1, 1));
    assert_eq!(rig.routed(), [2, 2, 2]);
    rig.give(failed(2, 2));
    assert_eq!(rig.routed(), [1, 1, 2], "parcel 2 has no other holder");
}

#[test]
fn what_differs_is_written_by_another_holder_and_not_for_ever() {
    let mut rig = PushRig::filling();
    let differs = |generation: u64, of: u32, by: u64| {
        move |report| PushReport {
            written: [0, 1, 2].into_iter().filter(|parcel| *parcel != of).collect(),
            differing: [(of, SenderId(by))].into(),
            generation: Generation(generation),
            ..report
        }
    };
    rig.report(written(&[0, 1, 2]));
    rig.report(differs(2, 0, 1));
    rig.report(differs(2, 0, 1));
    assert_eq!((rig.routed(), rig.orders.len()), (vec![2, 1, 2], 2), "judged once");
    rig.report(differs(3, 2, 2));
    assert_eq!(rig.routed(), [2, 1, 2], "nobody else holds it");
    assert_eq!(rig.orders.last().unwrap().revision, 3, "it is granted anew all the same");
    rig.report(differs(4, 2, 2));
    rig.report(differs(5, 2, 2));
    assert_eq!((rig.end(), rig.outcome().missing.len()), (TargetEnd::Differs, 1));
}

#[test]
fn every_wait_has_an_end() {
    let mut rig = PushRig::filling();
    rig.pass(Span::from_secs(20));
    assert_eq!(rig.end(), TargetEnd::Silent);
    let mut rig = PushRig::filling();
    for _ in 0..6 {
        rig.pass(Span::from_secs(9));
        rig.report(|report| report);
    }
    assert!(rig.result.is_none());
    rig.pass(Span::from_secs(6));
    assert_eq!((rig.end(), rig.outcome().took), (TargetEnd::Deadline, Span::from_secs(60)));
    assert_eq!(rig.driver.next_timeout(), None);
}

#[test]
fn a_target_says_how_its_push_ended() {
    for (said, end) in [
        (TargetState::Asleep, TargetEnd::Asleep),
        (TargetState::Empty, TargetEnd::GaveUp),
        (TargetState::Ready, TargetEnd::Ready),
    ] {
        let mut rig = PushRig::filling();
        rig.report(state(said));
        assert_eq!(rig.end(), end);
    }
    let push = PushNumber { driver: 2, number: 0 };
    let mut rig = PushRig::filling();
    rig.report(|report| PushReport { push, state: TargetState::Ready, ..report });
    assert_eq!(rig.end(), TargetEnd::Superseded, "ready for another push");
    assert_eq!(rig.orders.len(), 1);
    let mut rig = PushRig::filling();
    let push = PushNumber { driver: 0, number: 9 };
    rig.report(|report| PushReport { push, state: TargetState::Ready, ..report });
    assert!(rig.result.is_none(), "our order is still under way");
}

#[test]
fn late_reports_and_reports_of_others_count_for_nothing() {
    let mut rig = PushRig::filling();
    rig.report(written(&[0]));
    let load = rig.driver.load(SenderId(1));
    for report in [
        |report| PushReport { sequence: 2, state: TargetState::Ready, ..report },
        |report| PushReport { target: TargetId(8), state: TargetState::Ready, ..report },
    ] {
        rig.report(report);
        assert_eq!((rig.result.is_none(), rig.driver.load(SenderId(1))), (true, load));
    }
}

#[test]
fn a_cancelled_push_is_over_at_once() {
    let mut rig = PushRig::filling();
    rig.give(PushInput::Cancel);
    assert_eq!(rig.end(), TargetEnd::Cancelled);
    assert_eq!(rig.outcome().missing.len(), 2);
    let last = rig.orders.last().unwrap();
    assert_eq!(last.command, PushCommand::Dismiss);
    assert!(last.revision > rig.orders[0].revision, "the target would take it for the same order");
    rig.give(PushInput::Joins(vec![needs(8, &[(1, &[1])])]));
    rig.report(state(TargetState::Ready));
    assert_eq!(rig.end(), TargetEnd::Cancelled);
    let mut rig = PushRig::new(config());
    rig.give(PushInput::Cancel);
    assert!(rig.result.is_some_and(|result| result.targets.is_empty()));
}
