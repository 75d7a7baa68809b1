use crate::engine_update::{
    DoubtConfig, DoubtInput, DoubtOutput, EngineDoubt, FleetTransaction, FleetVerdict,
};
use crate::{Safeguards, Span, Time};

const TRANSACTION: FleetTransaction = FleetTransaction { driver: 1, number: 1 };

fn paused() -> EngineDoubt {
    let mut doubt = EngineDoubt::new(DoubtConfig {
        lease: Span::from_secs(2),
        ask_every: Span::from_secs(1),
        deadline: Span::from_secs(3),
        retries: 2,
        safeguards: Safeguards::default(),
    });
    doubt.handle(Time(0), DoubtInput::Heard { paused_in: Some(TRANSACTION), busy: Span(0) });
    assert_eq!(doubt.poll_output(), None);
    doubt
}

fn pass(doubt: &mut EngineDoubt) -> Vec<DoubtOutput> {
    let due = doubt.next_timeout().expect("it waits");
    doubt.handle_timeout(due);
    std::iter::from_fn(|| doubt.poll_output()).collect()
}

#[test]
fn a_silent_driver_is_waited_for_then_the_register_is_asked() {
    let mut doubt = paused();
    let ask = DoubtOutput::Ask { transaction: TRANSACTION };
    assert_eq!(doubt.next_timeout(), Some(Time(0) + Span::from_secs(2)));
    assert_eq!(pass(&mut doubt), [ask]);
    assert_eq!(pass(&mut doubt), [ask], "again");
    for verdict in [FleetVerdict::Commit, FleetVerdict::Abort] {
        let mut doubt = doubt.clone();
        let other = FleetTransaction { driver: 1, number: 2 };
        doubt.handle(Time(1), DoubtInput::Decided { transaction: other, verdict });
        assert_eq!((doubt.poll_output(), doubt.in_doubt()), (None, Some(TRANSACTION)));
        doubt.handle(Time(1), DoubtInput::Decided { transaction: TRANSACTION, verdict });
        let go = DoubtOutput::Go { transaction: TRANSACTION, verdict };
        assert_eq!((doubt.poll_output(), doubt.next_timeout()), (Some(go), None));
    }
}

#[test]
fn an_engine_that_cannot_learn_the_verdict_leaves_and_comes_back_with_a_driver() {
    let mut doubt = paused();
    let mut outputs = Vec::new();
    while doubt.next_timeout().is_some() {
        outputs.extend(pass(&mut doubt));
    }
    assert_eq!(outputs.last(), Some(&DoubtOutput::Leave { transaction: TRANSACTION }));
    assert!(doubt.has_left());
    doubt.handle(Time(9), DoubtInput::Heard { paused_in: None, busy: Span(0) });
    assert!(!doubt.has_left());
}

#[test]
fn a_driver_that_speaks_is_trusted() {
    let mut doubt = paused();
    let later = Time(0) + Span::from_secs(1);
    doubt.handle(later, DoubtInput::Heard { paused_in: Some(TRANSACTION), busy: Span(0) });
    assert_eq!(doubt.next_timeout(), Some(later + Span::from_secs(2)));
    doubt.handle(later, DoubtInput::Heard { paused_in: None, busy: Span(0) });
    assert_eq!(doubt.next_timeout(), None);
}

#[test]
fn an_engine_that_cannot_do_what_the_register_says_tries_again_for_a_while() {
    let went = DoubtInput::Went { serving: false };
    let go = DoubtOutput::Go { transaction: TRANSACTION, verdict: FleetVerdict::Commit };
    let mut doubt = paused();
    for again in [true, true, false] {
        pass(&mut doubt);
        let verdict = FleetVerdict::Commit;
        doubt.handle(Time(1), DoubtInput::Decided { transaction: TRANSACTION, verdict });
        assert_eq!((doubt.poll_output(), doubt.next_timeout()), (Some(go), None));
        doubt.handle(Time(1), went);
        assert_eq!((doubt.next_timeout().is_some(), doubt.has_left()), (again, !again));
    }
    assert_eq!(doubt.poll_output(), Some(DoubtOutput::Leave { transaction: TRANSACTION }));
    for ends in [DoubtInput::Went { serving: true }, DoubtInput::Slept] {
        let mut doubt = paused();
        pass(&mut doubt);
        let verdict = FleetVerdict::Abort;
        doubt.handle(Time(1), DoubtInput::Decided { transaction: TRANSACTION, verdict });
        doubt.handle(Time(1), ends);
        assert_eq!((doubt.next_timeout(), doubt.has_left()), (None, false));
    }
}

#[test]
fn a_driver_that_waits_for_a_step_is_not_doubted_before_its_deadline() {
    let mut doubt = paused();
    let paused_in = Some(TRANSACTION);
    doubt.handle(Time(0), DoubtInput::Heard { paused_in, busy: Span::from_secs(60) });
    assert_eq!(doubt.next_timeout(), Some(Time(0) + Span::from_secs(62)));
    let done = Time(0) + Span::from_secs(5);
    doubt.handle(done, DoubtInput::Heard { paused_in, busy: Span(0) });
    assert_eq!(doubt.next_timeout(), Some(done + Span::from_secs(2)));
}
