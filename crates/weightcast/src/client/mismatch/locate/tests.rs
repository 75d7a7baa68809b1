//! Who is blamed for a difference, and where it is said to be.

use std::time::Duration;

use weightcast_plan::{DType, Entry};

use super::*;
use crate::client::reading::route::tests::{BYTES, RouteScene};

/// Where a byte is changed, and the range around it that is compared for itself.
const CHANGED: usize = 200_000;
const AROUND: (u64, u64) = (3 * FINE_BYTES, 4 * FINE_BYTES);

/// A read of tensor `b` from the second shard, which has noted what it serves.
fn read() -> (RouteScene, Evidence) {
    let scene = RouteScene::reading("b");
    scene.serve(1, 7);
    let digests = scene.served(1).digest_all();
    scene.note(1, &scene.served(1).note(&digests));
    let arrival = scene.read().map_err(|e| format!("{e:?}")).unwrap();
    (scene, arrival.evidence)
}

fn search(scene: &RouteScene, evidence: &Evidence) -> Result<Place, String> {
    search_for(scene, evidence, Duration::from_secs(20), false)
}

fn search_for(
    scene: &RouteScene,
    evidence: &Evidence,
    time: Duration,
    interrupted: bool,
) -> Result<Place, String> {
    let deadline = Instant::now() + time;
    let interrupted = &|| interrupted;
    MismatchSearch { evidence, routes: &scene.routes, deadline, interrupted }.run()
}

fn flip(region: &weightcast_transport::Region) {
    let mut byte = [0];
    region.read_at(CHANGED, &mut byte).unwrap();
    region.write_at(CHANGED, &[byte[0] ^ 1]).unwrap();
}

#[track_caller]
fn blamed(place: Result<Place, String>, cause: Cause, shard: Option<u32>, at: (u64, u64)) {
    let place = place.unwrap();
    assert_eq!((place.tensor.as_str(), place.cause, place.source_shard), ("b", cause, shard));
    let slice = (place.slice.start[0], place.slice.end(0));
    assert_eq!(slice, at, "{}", place.said);
    assert!(place.said.starts_with(&format!("b[{}:{}]", at.0, at.1)), "{}", place.said);
}

#[test]
fn who_changed_it_is_blamed() {
    let whole = (0, BYTES);
    // The source has, and that was read.
    let (scene, evidence) = read();
    let [there, here] = [&scene.served(1).regions[0], &scene.registration.regions[0]];
    flip(there);
    flip(here);
    blamed(search(&scene, &evidence), Cause::Source, Some(1), whole);
    // It has since, or while it was read.
    flip(here);
    blamed(search(&scene, &evidence), Cause::Source, Some(1), AROUND);
    // The reader has, or somebody on the way.
    flip(there);
    flip(here);
    blamed(search(&scene, &evidence), Cause::Transfer, Some(1), AROUND);
    // Nobody has.
    flip(here);
    let nobody = search(&scene, &evidence).unwrap_err();
    assert!(nobody.starts_with("all that this shard has read is as the source"), "{nobody}");
    // The reader had, when it arrived.
    let mut evidence = evidence;
    evidence.digests[0] = Digest([1, 2]);
    blamed(search(&scene, &evidence), Cause::Reader, None, whole);
}

#[test]
fn of_several_sources_the_one_that_gave_the_bytes_is_named() {
    let (scene, mut evidence) = read();
    // The two shards are one each of two replicas.
    evidence.assignment.helpers = vec!["second".to_owned()];
    let [there, here] = [&scene.served(1).regions[0], &scene.registration.regions[0]];
    flip(there);
    flip(here);
    let place = search(&scene, &evidence).unwrap();
    assert!(place.said.contains("shard 0 of second"), "{}", place.said);
    assert_eq!((place.cause, place.source_shard), (Cause::Source, Some(0)));
}

/// Nobody notes who gave which bytes: a helper may be to blame whom no copy of the plan names.
#[test]
fn a_helper_that_no_longer_holds_what_it_published_is_found() {
    let (scene, mut evidence) = read();
    scene.serve(0, 7);
    scene.note(0, &scene.served(0).note(&scene.served(0).digest_all()));
    flip(&scene.served(0).regions[0]);
    flip(&scene.registration.regions[0]);
    let [source, helper] = [1, 0].map(|shard: usize| evidence.assignment.shards[shard].clone());
    evidence.assignment.shards = [source, helper].into();
    evidence.assignment.helpers = vec!["second".to_owned()];
    evidence.sources = vec![Arc::clone(&scene.layouts()[1]); 2];
    let plan = Arc::make_mut(&mut evidence.plan);
    plan.copies.iter_mut().for_each(|copy| copy.source = 0);
    let place = search(&scene, &evidence).unwrap();
    assert_eq!((place.cause, place.source_shard), (Cause::Source, Some(0)));
    assert!(place.said.contains("shard 0 of second"), "{}", place.said);
}

#[test]
fn a_search_ends_when_it_must() {
    let (scene, evidence) = read();
    flip(&scene.registration.regions[0]);
    let late = search_for(&scene, &evidence, Duration::ZERO, false).unwrap_err();
    let stopped = search_for(&scene, &evidence, Duration::from_secs(20), true).unwrap_err();
    for said in [late, stopped] {
        assert!(said.contains("not found in the time that was left"), "{said}");
    }
    evidence.overwritten.store(true, Ordering::Release);
    let overwritten = search(&scene, &evidence).unwrap_err();
    assert!(overwritten.contains("the memory is in use again"), "{overwritten}");
}

#[test]
fn nothing_is_said_of_a_source_that_says_nothing() {
    let (scene, evidence) = read();
    scene.serve(1, 7);
    scene.note(1, &[0xff; 3]);
    let unfound = search(&scene, &evidence).unwrap_err();
    assert!(unfound.contains("makes no sense"), "{unfound}");
    scene.serve(1, 7);
    let unfound = search(&scene, &evidence).unwrap_err();
    assert!(unfound.contains("has no note"), "{unfound}");
    scene.withdraw(1);
    let unfound = search(&scene, &evidence).unwrap_err();
    assert!(unfound.starts_with("the place was not found"), "{unfound}");
}

/// Boxes of matrices of 6 x 4 bytes, in the order given: the tensor's name, and what it holds.
fn boxes(of: &[(&str, [u64; 2], [u64; 2])]) -> Layout {
    let mut names: Vec<&str> = of.iter().map(|(name, ..)| *name).collect();
    names.dedup();
    let tensor = |name: &&str| Tensor::new(*name, DType::U8, [6, 4]).unwrap();
    let tensors = names.iter().map(tensor).collect();
    let mut offset = 0;
    let entries = of.iter().map(|(name, start, len)| {
        let number = names.iter().position(|known| known == name).unwrap() as u32;
        let (slice, strides) = (Slice::new(*start, *len), vec![len[1], 1]);
        let entry = Entry { tensor: number, slice, buffer: 0, offset, strides };
        offset += len[0] * len[1];
        entry
    });
    let entries = entries.collect();
    Layout::new(vec![offset], tensors, entries).unwrap()
}

#[test]
fn a_source_is_asked_for_what_the_reader_holds_and_for_nothing_else() {
    let source = boxes(&[
        ("a", [0, 0], [2, 4]),
        ("a", [2, 0], [2, 2]),
        ("a", [2, 2], [4, 2]),
        ("b", [0, 0], [6, 4]),
        ("d", [0, 0], [1, 1]),
    ]);
    let asked = |reader: &Layout, tensors: &[Tensor]| -> Vec<u32> {
        let cells = touched(&source, reader, tensors);
        for cell in &cells {
            assert_eq!(cell.slice, source.entry(cell.entry).slice, "whole, as it was noted");
        }
        cells.iter().map(|cell| cell.entry).collect()
    };
    for (held, expected) in [
        (vec![("a", [0, 0], [6, 4])], vec![0, 1, 2]),
        (vec![("a", [0, 0], [2, 4])], vec![0]),
        (vec![("a", [1, 1], [2, 1])], vec![0, 1]),
        (vec![("a", [4, 0], [2, 2])], vec![]),
        (vec![("a", [4, 0], [2, 3])], vec![2]),
        (vec![("a", [0, 0], [1, 1]), ("a", [5, 3], [1, 1])], vec![0, 2]),
        (vec![("a", [3, 1], [1, 1]), ("b", [5, 3], [1, 1])], vec![1, 3]),
        (vec![("c", [0, 0], [6, 4]), ("d", [1, 0], [5, 4])], vec![]),
    ] {
        let reader = boxes(&held);
        assert_eq!(asked(&reader, reader.tensors()), expected, "{held:?}");
        assert_eq!(asked(&reader, &[]), [0; 0]);
    }
    // Of several tensors only those that are looked at.
    let reader = boxes(&[("a", [0, 0], [6, 4]), ("b", [0, 0], [6, 4])]);
    assert_eq!(asked(&reader, &reader.tensors()[1..]), [3]);
}

#[test]
fn a_box_is_shown_as_its_ranges() {
    assert_eq!(shown(&Slice::new([0, 8], [4, 8])), "[0:4, 8:16]");
    assert_eq!(shown(&Slice::new([3], [1])), "[3:4]");
    assert_eq!(shown(&Slice::full(&[])), "");
}
