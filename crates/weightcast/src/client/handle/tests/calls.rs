//! Each call says what it was asked, and counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use weightcast_protocol::{Condition, ContentDigest, Revision};

use super::*;
use crate::client::handle::measured;
use crate::metrics::process::HandleFigures;

const SECOND: Duration = Duration::from_secs(1);
const OLDER: Version = Version { epoch: Epoch(1), number: 4 };

fn listing() -> Listing {
    let versions = [OLDER, VERSION].map(|version| (version, Default::default())).into();
    Listing { revision: Revision::default(), versions }
}

#[test]
fn a_call_asks_what_it_was_asked_for() {
    let selector = Selector::Exact(5);
    type Ask = fn(&ShardHandle) -> Result<Option<Version>, Error>;
    let cases: [(Ask, Call, Answer); 5] = [
        (
            |handle| handle.retain(Selector::Exact(5), LONG).map(Some),
            Call::Retain { selector },
            Answer::Retained { version: VERSION },
        ),
        (|handle| handle.let_go(5, LONG).map(|()| None), Call::LetGo { version: 5 }, Answer::LetGo),
        (|handle| handle.unpublish(LONG).map(|()| None), Call::Unpublish, Answer::Unpublished),
        (
            |handle| handle.list(LONG).map(|of| of.versions.keys().next_back().copied()),
            Call::List,
            Answer::Listed(Arc::new(listing())),
        ),
        (
            |handle| {
                let until = Condition::Available(Selector::Exact(5));
                handle.wait(until, LONG).map(|of| of.versions.keys().next_back().copied())
            },
            Call::Wait { until: Condition::Available(selector) },
            Answer::Listed(Arc::new(listing())),
        ),
    ];
    for (ask, call, answer) in cases {
        let scene = saying(answer.clone());
        let told = ask(&scene.handle).unwrap();
        assert_eq!(
            told,
            match call {
                Call::LetGo { .. } | Call::Unpublish => None,
                _ => Some(VERSION),
            }
        );
        assert_eq!(scene.heard(), [HeardCall::Call(call.clone(), span(LONG))]);
        let figures = scene.own().shared.figures.count(|model| model.clone());
        assert_eq!(counted(&figures, call.name()), [("ok", 1)]);
        if !matches!(call, Call::LetGo { .. } | Call::Unpublish) {
            let other = saying(Answer::LetGo);
            assert!(matches!(ask(&other.handle), Err(Error::Bug(_))), "{call:?}");
        }
    }
}

#[test]
fn the_fleet_is_that_of_the_handles_model() {
    let scene = saying(committed());
    assert_eq!(scene.handle.ask_fleet(FleetQuestion::State, LONG).unwrap().driver, 9);
    let routes = scene.handle.ask_routing(RoutingQuestion::Engines, LONG).unwrap();
    assert_eq!(routes.lease, Span(9));
    let model = || "policy".to_owned();
    let asked = [
        HeardCall::Fleet(model(), FleetQuestion::State, LONG),
        HeardCall::Routing(model(), RoutingQuestion::Engines, LONG),
    ];
    assert_eq!(scene.heard(), asked);
}

/// Before anybody is waited for.
#[test]
fn memory_that_cannot_be_written_accepts_no_push() {
    let scene = saying(committed()).holding(&region().read_only());
    let refused = scene.handle.accept(&mut |_| true, LONG).unwrap_err().to_string();
    assert!(refused.contains("read-only") && scene.heard().is_empty(), "{refused}");
    let gone = saying(committed());
    let refused = gone.handle.accept(&mut |_| true, LONG).unwrap_err().to_string();
    assert!(refused.contains("register memory"), "{refused}");
}

#[test]
fn what_is_registered_is_published_at_its_generation() {
    let published = || Answer::Published { version: VERSION };
    let bare = saying(published());
    let refused = bare.handle.publish(5, LONG).unwrap_err().to_string();
    assert!(refused.contains("call register first") && bare.heard().is_empty(), "{refused}");
    let scene = saying(published()).holding(&region());
    let view = SessionView { held: None, generation: Generation(3) };
    *scene.own().shared.view.lock().unwrap() = view;
    assert_eq!(scene.handle.publish(5, LONG).unwrap(), VERSION);
    let (registration, _) = scene.own().shared.current().unwrap();
    let (catalog, generation) = (registration.catalog, Generation(3));
    assert_ne!(catalog, ContentDigest::default());
    let heard = scene.heard();
    let [HeardCall::Call(call, deadline)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(*call, Call::Publish { version: 5, catalog, generation });
    assert!(*deadline < span(LONG) && deadline.0 > span(LONG).0 / 2, "{deadline:?}");
    let other = saying(Answer::LetGo).holding(&region());
    assert!(matches!(other.handle.publish(5, LONG), Err(Error::Bug(_))));
}

#[test]
fn a_watched_call_is_the_same_call() {
    let scene = saying(committed());
    let watch: ReadWatch<'_> = &|_, _| true;
    scene.handle.replicate_watched(Selector::Exact(5), LONG, watch).unwrap();
    for (allow_rollback, staged) in [(false, false), (true, false), (false, true)] {
        let selector = Selector::Latest;
        scene.handle.update_watched(selector, allow_rollback, staged, LONG, watch).unwrap();
        let expected = Call::Update { selector, allow_rollback, staged };
        assert_eq!(scene.calls().last(), Some(&expected));
    }
}

/// A watch that wants no more ends the call, with its read.
#[test]
fn a_watch_ends_its_call() {
    let scene = saying(committed());
    let latest = &scene.own().shared.latest_read;
    let ends = |arrived: u64, _| {
        assert_eq!(arrived, 11);
        false
    };
    let watch = WatchedCall::begin(&ends, latest);
    *latest.lock().unwrap() = LatestRead::at(11, 4);
    let (_sender, answer) = channel();
    let ended = scene.handle.answered(&answer, Instant::now() + LONG, &watch);
    assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
}

/// Its last bytes may come after it was asked for the last time.
#[test]
fn a_call_that_ends_well_tells_of_all_its_bytes() {
    for well in [true, false] {
        let state = Arc::new(std::sync::OnceLock::<Arc<HandleState>>::new());
        let of_call = Arc::clone(&state);
        let scene = HandleScene::new(1, Vec::new(), move |_| {
            let state = of_call.get().expect("it is open");
            *state.latest_read.lock().unwrap() = LatestRead::at(BYTES, 0);
            let refused = CallError::Misuse { detail: "no".to_owned() };
            if well { Ok(committed()) } else { Err(refused) }
        });
        state.set(Arc::clone(&scene.own().shared)).ok().unwrap();
        let told = Mutex::new(Vec::new());
        let watch = |arrived, total| {
            told.lock().unwrap().push((arrived, total));
            true
        };
        let ended = scene.handle.replicate_watched(Selector::Latest, LONG, &watch);
        assert_eq!(ended.is_ok(), well);
        let told = told.into_inner().unwrap();
        assert!(told.len() <= 1 && told.iter().all(|of| *of == (BYTES, BYTES)), "{told:?}");
        assert!(!well || told.len() == 1);
    }
}

#[test]
fn a_seal_that_comes_is_told_and_so_is_a_refusal() {
    let refused = CallError::ContentMismatch {
        version: VERSION,
        replica: "b".to_owned(),
        detail: "x".to_owned(),
    };
    for result in [Ok(()), Err(refused.clone())] {
        let scene = saying(committed());
        let waited = thread::scope(|scope| {
            let waits = scope.spawn(|| scene.handle.wait_sealed(LONG));
            let waiter = loop {
                if let Some(waiter) = scene.waits.lock().unwrap().pop() {
                    break waiter;
                }
                thread::yield_now();
            };
            waiter.send(result.clone().map_err(FailedCall::from)).unwrap();
            waits.join().unwrap()
        });
        match (&result, waited) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(Error::Call(told))) => assert_eq!(told, *error),
            (_, other) => panic!("{other:?}"),
        }
        let calls = scene.own().shared.figures.count(|model| model.clone());
        let outcome = if result.is_ok() { "ok" } else { "content_mismatch" };
        assert_eq!(counted(&calls, "wait_sealed"), [(outcome, 1)]);
    }
}

/// How often a call has ended so.
fn counted(
    figures: &crate::metrics::figures::ModelFigures,
    call: &str,
) -> Vec<(&'static str, u64)> {
    figures.ended(call)
}

#[test]
fn each_call_counts_with_how_it_ended() {
    let figures = HandleFigures::apart();
    let transfer = Transfer {
        shared: 16,
        direct: 1,
        tcp: 2,
        unchanged: 4,
        seconds: 8.0,
        plan_seconds: 2.0,
        install_seconds: 0.5,
        ..Transfer::default()
    };
    let started = Instant::now() - SECOND;
    let call = |name, result| measured::call(&figures, name, started, &result);
    call("update", Ok((committed(), transfer.clone())));
    call("update", Ok((Answer::Unchanged { held: Some(VERSION) }, transfer.clone())));
    call("publish", Ok((Answer::Published { version: OLDER }, transfer)));
    call("publish", Err(Error::misuse("no")));
    let counts = figures.count(|model| model.clone());
    assert_eq!(counted(&counts, "update"), [("ok", 1), ("unchanged", 1)]);
    assert_eq!(counted(&counts, "publish"), [("misuse", 1), ("ok", 1)]);
    assert_eq!(
        counts.brought(),
        [16.0, 1.0, 2.0, 4.0, 8.0, 2.0, 0.5],
        "of the read that was committed"
    );
    assert!(counts.last_update_took().is_some_and(|took| took >= SECOND && took < LONG));
}

#[test]
fn the_newest_version_that_an_answer_names_is_heard_of() {
    let unavailable = |latest| CallError::VersionUnavailable {
        model: "policy".to_owned(),
        selector: Selector::Latest,
        latest,
    };
    let ok = |answer| Ok((answer, Transfer::default()));
    let layouts: Arc<[ContentDigest]> = [].into();
    let empty = Listing { revision: Revision::default(), versions: BTreeMap::new() };
    for (result, heard) in [
        (ok(committed()), Some(VERSION)),
        (ok(Answer::Published { version: VERSION }), Some(VERSION)),
        (ok(Answer::Retained { version: VERSION }), Some(VERSION)),
        (ok(Answer::Described { version: VERSION, layouts: Arc::clone(&layouts) }), Some(VERSION)),
        (ok(Answer::Unchanged { held: Some(OLDER) }), Some(OLDER)),
        (ok(Answer::Unchanged { held: None }), None),
        (ok(Answer::Listed(Arc::new(listing()))), Some(VERSION)),
        (ok(Answer::Listed(Arc::new(empty))), None),
        (ok(Answer::Registered { layouts, siblings: [].into() }), None),
        (ok(Answer::LetGo), None),
        (ok(Answer::Unpublished), None),
        (ok(Answer::Unregistered), None),
        (Err(unavailable(Some(VERSION)).into()), Some(VERSION)),
        (Err(unavailable(None).into()), None),
        (Err(Error::misuse("no")), None),
    ] {
        assert_eq!(measured::heard_of(&result), heard, "{result:?}");
    }
}
