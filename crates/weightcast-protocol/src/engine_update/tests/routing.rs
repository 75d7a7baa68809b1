use super::version;
use crate::engine_update::{
    RoutingError, RoutingQuestion, RoutingState, RoutingTable, ServingNotice,
};
use crate::limits::{ROUTED_ENGINES, ROUTED_WORKERS};
use crate::{Safeguards, Span, Time, Version};

const LEASE: Span = Span::from_secs(5);

fn at(seconds: u64) -> Time {
    Time(0) + Span::from_secs(seconds)
}

/// What worker 0 of an engine of one worker says in life 1.
fn notice(engine: &str, serves: Option<Version>) -> ServingNotice {
    ServingNotice { engine: engine.to_owned(), life: 1, worker: 0, workers: 1, count: 1, serves }
}

struct TableRig {
    table: RoutingTable,
    now: Time,
    fleet: Option<Version>,
}

impl TableRig {
    fn new() -> Self {
        let table = RoutingTable::new(LEASE, Safeguards::default());
        Self { table, now: at(0), fleet: Some(version(2)) }
    }

    fn hear(&mut self, notice: ServingNotice) {
        let told =
            self.table.answer(self.now, self.fleet, RoutingQuestion::Serves(notice)).unwrap();
        assert_eq!((told.lease, told.engines.len()), (LEASE, 0));
    }

    fn states(&mut self) -> Vec<(String, RoutingState, Option<Version>)> {
        let told = self.table.answer(self.now, self.fleet, RoutingQuestion::Engines).unwrap();
        told.engines.into_iter().map(|lease| (lease.engine, lease.state, lease.version)).collect()
    }

    fn state(&mut self) -> Option<RoutingState> {
        self.states().first().map(|(_, state, _)| *state)
    }
}

#[test]
fn an_engine_is_admitted_once_all_of_its_workers_serve_the_fleets_version() {
    let mut rig = TableRig::new();
    let worker =
        |worker, count, serves| ServingNotice { worker, workers: 2, count, ..notice("a", serves) };
    let new = Some(version(2));
    for (told, state) in [
        (worker(0, 1, new), RoutingState::Joining),
        (worker(1, 1, None), RoutingState::Standing),
        (worker(1, 2, Some(version(1))), RoutingState::Standing),
        (worker(1, 3, new), RoutingState::Admitted),
        (worker(0, 2, None), RoutingState::Standing),
        (worker(0, 3, Some(version(1))), RoutingState::Standing),
        (worker(1, 4, Some(version(1))), RoutingState::Behind),
    ] {
        rig.hear(told);
        assert_eq!(rig.state(), Some(state));
    }
}

#[test]
fn only_the_fleets_version_is_admitted_and_the_newest_where_nobody_knows_the_fleets() {
    for (fleet, admitted) in [(Some(version(1)), 0), (Some(version(2)), 1), (None, 1)] {
        let mut rig = TableRig { fleet, ..TableRig::new() };
        rig.hear(notice("a", Some(version(1))));
        rig.hear(notice("b", Some(version(2))));
        rig.hear(notice("c", None));
        let mut states = [RoutingState::Behind; 2];
        states[admitted] = RoutingState::Admitted;
        assert_eq!(
            rig.states(),
            [
                ("a".to_owned(), states[0], Some(version(1))),
                ("b".to_owned(), states[1], Some(version(2))),
                ("c".to_owned(), RoutingState::Standing, None),
            ]
        );
    }
}

/// Of a worker that is not there any more nobody says so.
#[test]
fn what_a_worker_has_said_counts_for_a_lease() {
    let mut rig = TableRig::new();
    let worker = |worker, count| ServingNotice {
        worker,
        workers: 2,
        count,
        ..notice("a", Some(version(2)))
    };
    rig.hear(worker(0, 1));
    rig.now = at(3);
    rig.hear(worker(1, 1));
    let engines = rig.table.engines(rig.now, rig.fleet);
    assert_eq!((engines[0].state, engines[0].left), (RoutingState::Admitted, Span::from_secs(2)));
    rig.now = at(4);
    assert_eq!(rig.state(), Some(RoutingState::Admitted));
    rig.now = at(5);
    assert_eq!(rig.state(), Some(RoutingState::Joining));
    rig.hear(worker(0, 2));
    assert_eq!(rig.state(), Some(RoutingState::Admitted));
    rig.now = at(10);
    assert_eq!(rig.state(), None);
}

#[test]
fn another_life_begins_with_nothing_and_the_former_one_has_no_say() {
    let mut rig = TableRig::new();
    let worker = |life, worker, count| ServingNotice {
        life,
        worker,
        workers: 2,
        count,
        ..notice("a", Some(version(2)))
    };
    rig.hear(worker(1, 0, 7));
    rig.hear(worker(1, 1, 7));
    rig.hear(worker(2, 0, 1));
    assert_eq!(rig.state(), Some(RoutingState::Joining));
    rig.hear(worker(1, 1, 8));
    assert_eq!(rig.state(), Some(RoutingState::Joining));
    rig.hear(worker(2, 1, 1));
    let engines = rig.table.engines(rig.now, rig.fleet);
    assert_eq!((engines[0].state, engines[0].life), (RoutingState::Admitted, 2));
}

#[test]
fn a_late_notice_changes_nothing_and_does_not_prolong_a_lease() {
    let mut rig = TableRig::new();
    let told = |count, serves| ServingNotice { count, ..notice("a", serves) };
    rig.hear(told(2, None));
    rig.now = at(4);
    rig.hear(told(1, Some(version(2))));
    rig.hear(told(2, Some(version(2))));
    assert_eq!(rig.state(), Some(RoutingState::Standing));
    rig.now = at(5);
    assert_eq!(rig.state(), None);
}

#[test]
fn a_notice_that_contradicts_itself_or_does_not_fit_changes_nothing() {
    let mut rig = TableRig::new();
    for (worker, workers) in [(0, 0), (1, 1), (3, 2), (0, ROUTED_WORKERS + 1), (u32::MAX, u32::MAX)]
    {
        let wrong = ServingNotice { worker, workers, ..notice("a", None) };
        let refused = rig.table.hear(rig.now, wrong);
        assert_eq!(refused, Err(RoutingError::NoSuchWorker { worker, workers }));
    }
    for engine in 0..ROUTED_ENGINES {
        rig.hear(notice(&format!("{engine}"), Some(version(2))));
    }
    let one_more = rig.table.hear(rig.now, notice("one more", None));
    assert_eq!(one_more, Err(RoutingError::Full { limit: ROUTED_ENGINES }));
    rig.hear(ServingNotice { count: 2, ..notice("0", None) });
    assert_eq!(rig.states().len(), ROUTED_ENGINES);
    rig.now = at(5);
    rig.hear(notice("one more", None));
    assert_eq!(rig.states().len(), 1);
}

/// An engine may start with fewer workers than it had, or say so late.
#[test]
fn an_engine_has_as_many_workers_as_the_last_notice_says() {
    let mut rig = TableRig::new();
    let worker = |worker, workers, count| ServingNotice {
        worker,
        workers,
        count,
        ..notice("a", Some(version(2)))
    };
    for (told, state) in [
        (worker(0, 1, 1), RoutingState::Admitted),
        (worker(0, 2, 2), RoutingState::Joining),
        (worker(1, 2, 1), RoutingState::Admitted),
        (worker(1, 3, 2), RoutingState::Joining),
    ] {
        rig.hear(told);
        assert_eq!(rig.state(), Some(state));
    }
}

#[test]
fn an_engine_may_have_as_many_workers_as_a_table_takes() {
    let mut rig = TableRig::new();
    let workers = ROUTED_WORKERS;
    rig.hear(ServingNotice { worker: workers - 1, workers, ..notice("a", None) });
    assert_eq!(rig.state(), Some(RoutingState::Joining));
}

#[test]
fn a_state_is_called_what_programs_read() {
    for (state, name) in [
        (RoutingState::Admitted, "admitted"),
        (RoutingState::Behind, "behind"),
        (RoutingState::Standing, "standing"),
        (RoutingState::Joining, "joining"),
    ] {
        assert_eq!(state.name(), name);
    }
}
