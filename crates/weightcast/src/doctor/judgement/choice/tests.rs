//! Each choice, and each reason for it.

use weightcast_protocol::{Epoch, Version};

use super::*;
use crate::doctor::check::CheckVerdict::{NotApplicable, Ok, Problem};
use crate::doctor::check::{CheckVerdict, assert_check};

fn preview() -> Preview {
    Preview {
        version: Version { epoch: Epoch(2), number: 7 },
        held: false,
        near: true,
        may_cross: false,
        has_room: true,
        below: false,
        registered: true,
        same_layouts: true,
        drawbacks: Drawbacks::default(),
        chosen: chosen("trainer", Drawbacks::default()),
    }
}

fn chosen(name: &str, drawbacks: Drawbacks) -> PreviewedChoice {
    PreviewedChoice::Replica { name: name.to_owned(), drawbacks }
}

fn facts(preview: Previewed, tried: TriedWay) -> ChoiceFacts {
    let place = |host: &str, datacentre: &str| Whereabouts {
        host: host.to_owned(),
        datacentre: datacentre.to_owned(),
    };
    let pair = FoundPair {
        source_state: "published".to_owned(),
        preview,
        source_at: place("one", "us"),
        reader_at: place("two", "eu"),
        tried,
    };
    ChoiceFacts {
        source: "trainer".to_owned(),
        reader: "rollout".to_owned(),
        pair: NamedPair::Found(Box::new(pair)),
    }
}

fn reached() -> TriedWay {
    TriedWay::Reached { way: "TCP".to_owned(), why: "another host".to_owned() }
}

#[test]
fn each_choice_is_told_with_its_reason() {
    let other = |of: Drawbacks, chosen: Drawbacks| Preview {
        drawbacks: of,
        chosen: self::chosen("relay", chosen),
        ..preview()
    };
    let none = Drawbacks::default();
    let table: [(Preview, CheckVerdict, &[&str]); 15] = [
        (preview(), Ok, &["rollout would read version 7 of run 2 from trainer", "datacentre eu"]),
        (
            Preview { near: false, may_cross: true, ..preview() },
            Ok,
            &["from trainer: across datacentres", "nobody in eu"],
        ),
        (Preview { held: true, ..preview() }, Ok, &["nothing is read", "holds version 7"]),
        (
            Preview { near: false, chosen: PreviewedChoice::Busy, ..preview() },
            Ok,
            &["would wait", "another datacentre (us)", "rollout (eu)"],
        ),
        (
            Preview { has_room: false, chosen: PreviewedChoice::Busy, ..preview() },
            Ok,
            &["would wait", "trainer has no place", "--fanout"],
        ),
        (
            Preview { below: true, ..other(none, none) },
            Ok,
            &["from relay, not trainer: trainer reads from rollout itself"],
        ),
        (Preview { chosen: PreviewedChoice::Busy, ..preview() }, Ok, &["would wait", "busy"]),
        (Preview { chosen: PreviewedChoice::Nobody, ..preview() }, Problem, &["from nobody"]),
        (
            other(Drawbacks { accusers: 2, ..none }, none),
            Ok,
            &["from relay", "2 replicas have read"],
        ),
        (other(Drawbacks { slow: true, ..none }, none), Ok, &["it was slow"]),
        (
            other(Drawbacks { depth: 3, readers: 0, ..none }, Drawbacks { readers: 9, ..none }),
            Ok,
            &["through 3 replicas, to relay through 0"],
        ),
        (other(Drawbacks { readers: 2, ..none }, none), Ok, &["it has 2 readers, relay has 0"]),
        (
            other(Drawbacks { other_host: true, ..none }, none),
            Ok,
            &["relay is on the reader's host"],
        ),
        (
            other(Drawbacks { trainer: true, ..none }, none),
            Ok,
            &["it is a trainer, whose link is spared, and relay is none"],
        ),
        (other(none, none), Ok, &["the name decides"]),
    ];
    for (preview, verdict, words) in table {
        let checks = judge(&facts(Previewed::Told(preview), reached()));
        assert_check(&checks[0], "choice.source", verdict, words);
        assert_eq!(checks.len(), 3);
    }
}

#[test]
fn layouts_are_equal_or_planned_or_not_known_yet() {
    for (registered, same_layouts, verdict, word) in [
        (true, true, Ok, "equal"),
        (true, false, Ok, "a plan"),
        (false, false, NotApplicable, "has not registered"),
        (false, true, NotApplicable, "has not registered"),
    ] {
        let preview = Preview { registered, same_layouts, ..preview() };
        let checks = judge(&facts(Previewed::Told(preview), reached()));
        assert_check(&checks[1], "choice.layouts", verdict, &[word]);
    }
}

#[test]
fn the_way_is_the_one_that_was_tried_or_is_not_known() {
    let unreached = TriedWay::Unreached("which is link-local".to_owned());
    let table: [(TriedWay, CheckVerdict, &[&str]); 3] = [
        (reached(), Ok, &["by TCP: another host"]),
        (unreached, Problem, &["which is link-local", "WEIGHTCAST_DATA_BIND"]),
        (TriedWay::NotHere, NotApplicable, &["TCP, from one to two"]),
    ];
    for (tried, verdict, words) in table {
        let checks = judge(&facts(Previewed::Told(preview()), tried));
        assert_check(&checks[2], "choice.way", verdict, words);
    }
    let mut beside = facts(Previewed::Told(preview()), TriedWay::NotHere);
    let NamedPair::Found(pair) = &mut beside.pair else { unreachable!() };
    pair.source_at = pair.reader_at.clone();
    assert_check(&judge(&beside)[2], "choice.way", NotApplicable, &["both are on two", "direct"]);
}

#[test]
fn who_is_not_there_or_holds_nothing_is_told() {
    let missing = ChoiceFacts {
        pair: NamedPair::Missing("no replica x".to_owned()),
        ..facts(Previewed::NothingHeld, reached())
    };
    let checks = judge(&missing);
    assert_check(&checks[0], "choice", Problem, &["no replica x", "weightcast status"]);
    assert_eq!(checks.len(), 1);
    for (preview, word) in [
        (Previewed::NothingHeld, "trainer (published) holds no version"),
        (Previewed::Unknown("it is older".to_owned()), "it is older"),
    ] {
        let checks = judge(&facts(preview, reached()));
        assert_check(&checks[0], "choice.source", NotApplicable, &[word]);
        assert_check(&checks[1], "choice.way", Ok, &[]);
    }
}
