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
        safeguards: Safeguards::default(),
    });
    doubt.handle(Time(0), DoubtInput::Heard { paused_in: Some(TRANSACTION) });
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
    doubt.handle(Time(9), DoubtInput::Heard { paused_in: None });
    assert!(!doubt.has_left());
}

#[test]
fn a_driver_that_speaks_is_trusted() {
    let mut doubt = paused();
    let later = Time(0) + Span::from_secs(1);
    doubt.handle(later, DoubtInput::Heard { paused_in: Some(TRANSACTION) });
    assert_eq!(doubt.next_timeout(), Some(later + Span::from_secs(2)));
    doubt.handle(later, DoubtInput::Heard { paused_in: None });
    assert_eq!(doubt.next_timeout(), None);
}
