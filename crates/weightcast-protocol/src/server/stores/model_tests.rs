use super::*;
use crate::Term;

fn version(epoch: u64, number: u64) -> Version {
    Version { epoch: Epoch(epoch), number }
}

fn group(number: u64) -> Incarnation {
    Incarnation { term: Term(1), number }
}

fn content() -> Content {
    Content { catalog: ContentDigest::default(), sum: None, since: Observed(Time(0)) }
}

/// Draws numbers below a bound, the same in every run.
fn draws(mut seed: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    }
}

/// A model of a few versions of two runs: each is unknown, known, shown, or copied aside.
fn any_model(draw: &mut impl FnMut(u64) -> u64) -> Model {
    let mut model = Model { recovers: draw(4) == 0, ..Model::default() };
    let newest = draw(3);
    for epoch in 0..=newest {
        for number in 0..5 {
            let version = version(epoch, number);
            match draw(5) {
                0 => drop(model.known.insert(version, content())),
                1 => {
                    model.known.insert(version, content());
                    model.show(version, "holder", group(1));
                }
                2 => {
                    model.known.insert(version, content());
                    model.retention.asked.insert(version, group(2));
                }
                _ => {}
            }
        }
    }
    model.epoch = Epoch(newest + draw(2));
    model
}

/// A version that nobody lists is gone if it can't come any more. The numbers of a run only rise,
/// so a number that the newest run has passed is gone. No version of an older run comes. A version
/// that is being offloaded comes again, and after a failover any version may come.
#[test]
fn what_is_not_there_may_come_or_is_gone() {
    let mut draw = draws(3);
    let mut seen = BTreeSet::new();
    for _ in 0..3_000 {
        let model = any_model(&mut draw);
        let shown: Vec<Version> = model.visible.keys().copied().collect();
        let k = draw(6);
        for selector in [
            Selector::Exact(k),
            Selector::Latest,
            Selector::LatestMinus(k),
            Selector::NthLatest(k),
            Selector::AtLeast(k),
        ] {
            let of_run = |version: &&Version| version.epoch == model.epoch;
            let passed = model.known.keys().filter(of_run).any(|version| version.number >= k);
            let copied = model.retention.asked.contains_key(&version(model.epoch.0, k));
            let expected = match (selector.pick(&shown), selector) {
                (Some(version), _) => Resolution::Available(version),
                _ if model.recovers => Resolution::NotYet,
                (None, Selector::Exact(_)) if passed && !copied => Resolution::Gone,
                (None, Selector::LatestMinus(_)) if !shown.is_empty() => Resolution::Gone,
                _ => Resolution::NotYet,
            };
            assert_eq!(model.resolve(selector), expected, "{selector:?} {model:?}");
            seen.insert(format!("{:?}", std::mem::discriminant(&expected)));
        }
        let exactly = version(draw(3), k);
        let expected = match (shown.contains(&exactly), model.recovers) {
            (true, _) => Resolution::Available(exactly),
            (false, true) => Resolution::NotYet,
            (false, false) => Resolution::Gone,
        };
        assert_eq!(model.resolve_exactly(exactly), expected);
        assert_eq!(model.latest(), shown.last().copied());
        let of_number = model.known.keys().filter(|version| version.number == k);
        assert_eq!(model.newest_of(k), of_number.max().copied());
        assert_eq!(model.newest_known(), model.known.keys().max().copied());
        let begun = model.known.keys().any(|v| v.epoch == model.epoch);
        assert_eq!(model.run_has_begun(), begun);
    }
    assert_eq!(seen.len(), 3, "all of it happened");
}

#[test]
fn each_change_is_a_revision_and_who_is_shown_is_listed() {
    let mut model = Model::default();
    let listed = |model: &mut Model| -> Vec<(u64, Vec<String>)> {
        let listing = model.listing();
        assert_eq!(listing.revision, model.revision);
        let names = |names: &BTreeSet<String>| names.iter().cloned().collect();
        listing.versions.iter().map(|(v, of)| (v.number, names(of))).collect()
    };
    let (a, b) = (String::from("a"), String::from("b"));
    model.show(version(1, 1), "b", group(2));
    model.show(version(1, 1), "a", group(1));
    model.show(version(1, 2), "a", group(3));
    assert_eq!(model.revision.number, 3);
    let all = [(1, vec![a.clone(), b.clone()]), (2, vec![a.clone()])];
    assert_eq!(listed(&mut model), all);
    assert!(Arc::ptr_eq(&model.listing(), &model.listing()), "it is made once");
    let before = model.listing();
    model.hide(version(1, 1), "b");
    assert_eq!(model.revision.number, 4);
    assert_eq!(listed(&mut model), [(1, vec![a.clone()]), (2, vec![a.clone()])]);
    assert_eq!(before.versions.len(), 2, "what was answered stays as it was");
    model.hide(version(1, 1), "a");
    assert_eq!(model.revision.number, 5);
    assert_eq!(listed(&mut model), [(2, vec![a])]);
    assert!(!model.visible.contains_key(&version(1, 1)), "held by nobody, it is not there");
}

#[test]
fn the_last_few_that_have_left_are_remembered_in_order() {
    let mut model = Model::default();
    let held = |model: &Model| -> Vec<u64> { model.departed.iter().map(|d| d.1.number).collect() };
    for number in 1..=DEPARTED as u64 {
        model.depart("r", version(1, number));
    }
    assert_eq!(held(&model), [1, 2, 3, 4]);
    model.depart("last", version(1, 5));
    assert_eq!(held(&model), [2, 3, 4, 5]);
    assert_eq!(model.departed.back().unwrap().0, "last");
}
