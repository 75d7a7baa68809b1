//! What is said of a refused publication: copies that differ, a holder that differs, shards that
//! say nothing.

use std::sync::mpsc;

use weightcast_plan::{DType, LayoutBuilder, Part};
use weightcast_protocol::ContentDigest;
use weightcast_protocol::message::SourceShard;
use weightcast_transport::Region;

use super::*;
use crate::client::memory::registration::RegisteredShard;
use crate::client::reading::route::tests::{GENERATION, RouteScene};

const TICK: Duration = Duration::from_millis(1);

#[test]
fn whoever_waits_hears_what_is_found_while_it_waits() {
    for found in [None, Some("w differs".to_owned())] {
        let refusal = FoundRefusal::default();
        let (waits, waited_for) = mpsc::channel();
        let (refusal, found) = (&refusal, &found);
        thread::scope(|scope| {
            scope.spawn(move || {
                waited_for.recv().expect("it waits");
                refusal.end(found.clone());
            });
            let still = move || waits.send(()).is_err();
            assert_eq!(refusal.wait(TICK, &still).unwrap(), *found);
        });
        // And at once whoever comes later.
        assert_eq!(refusal.wait(TICK, &|| panic!("it is known")).unwrap(), *found);
    }
}

#[test]
fn a_witness_that_has_nothing_yet_is_asked_again() {
    let long = Instant::now() + Duration::from_secs(60);
    let mut answers = [Ok(Err("nothing")), Ok(Err("nothing")), Ok(Ok(7))].into_iter();
    let mut ask = || answers.next().unwrap().map(|said| said.map_err(str::to_owned));
    assert_eq!(as_soon_as_there(long, &mut ask), Ok(7));
    let late = as_soon_as_there(Instant::now(), || Ok::<Result<(), _>, _>(Err("none".into())));
    assert_eq!(late, Err("none".to_owned()), "the last word, when time is up");
    let lost = as_soon_as_there(long, || Err::<Result<(), _>, _>("gone".to_owned()));
    assert_eq!(lost, Err("gone".to_owned()), "at once");
}

#[test]
fn whoever_is_interrupted_does_not_wait() {
    let refusal = FoundRefusal::default();
    let waited = refusal.wait(TICK, &|| true);
    assert!(matches!(waited, Err(Error::Interrupted)), "{waited:?}");
}

const SIZE: u64 = 8;

/// Shards that hold these tensors, each with one byte for all of it.
fn noted(name: &str, shards: &[Vec<(&str, u8)>]) -> ReplicaNotes {
    let layout = |of: &Vec<(&str, u8)>| {
        let mut builder = LayoutBuilder::new();
        for (tensor, _) in of {
            builder.add(*tensor, DType::U8, &[SIZE], vec![Part::new(*tensor).shape([SIZE])], 0);
        }
        Arc::new(builder.build().unwrap())
    };
    let layouts: Vec<Arc<Layout>> = shards.iter().map(layout).collect();
    let shards = shards.iter().enumerate().map(|(shard, of)| {
        let region = |(_, byte): &(&str, u8)| Region::from_bytes(&[*byte; SIZE as usize]).unwrap();
        let regions = of.iter().map(region).collect();
        let registration = RegisteredShard::new(&layouts, shard, regions).unwrap();
        let digests = registration.digest_all();
        (registration.cells, digests)
    });
    ReplicaNotes { name: name.to_owned(), cells: shards.collect(), layouts }
}

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// All six tensors; the first `others` of them have other bytes.
fn shard(others: usize) -> Vec<(&'static str, u8)> {
    let byte = |at: usize| if at < others { 99 } else { at as u8 };
    NAMES.iter().enumerate().map(|(at, name)| (*name, byte(at))).collect()
}

#[test]
fn the_first_copies_that_differ_are_named_and_the_others_counted() {
    let more = ["", " (and those of another tensor)", " (and those of 2 other tensors)"];
    for (differ, more) in more.into_iter().enumerate() {
        let copy = noted("copy", &[shard(0), shard(0), shard(differ + 1)]);
        let said = copies_differ(&copy).unwrap();
        let expected = format!("the copies of a[0:8] on shards 0 and 2 differ{more}");
        assert_eq!(said, Some(expected));
    }
    let same = noted("copy", &[shard(2), shard(2)]);
    assert_eq!(copies_differ(&same), Ok(None));
    assert_eq!(copies_differ(&noted("copy", &[shard(0)])), Ok(None), "there are no copies");
    // Of what only one shard holds there are none.
    let apart = noted("copy", &[vec![("a", 1), ("b", 2)], vec![("b", 3), ("c", 4)]]);
    let said = copies_differ(&apart).unwrap();
    assert_eq!(said.as_deref(), Some("the copies of b[0:8] on shards 0 and 1 differ"));
}

#[test]
fn of_copies_that_are_cut_otherwise_all_shards_are_named() {
    let mut copy = noted("copy", &[shard(0), shard(1), shard(0)]);
    // As if a fourth shard cut it elsewhere for each of them.
    for (shard, (cells, _)) in copy.cells.iter_mut().enumerate() {
        cells[0].slice = Slice::new([shard as u64], [4]);
    }
    let said = copies_differ(&copy).unwrap();
    assert_eq!(said.as_deref(), Some("the copies of a on shards 0, 1, 2 differ"));
}

#[test]
fn a_few_tensors_that_differ_from_a_good_copy_are_named_and_the_others_counted() {
    let holder = noted("holder", &[shard(0)]);
    for (differ, said) in [
        (1, "a differ"),
        (2, "a, b differ"),
        (3, "a, b, c differ"),
        (4, "a, b, c and 1 more tensors differ"),
        (6, "a, b, c and 3 more tensors differ"),
    ] {
        let copy = noted("copy", &[shard(differ)]);
        let expected = format!("{said} from what holder holds");
        assert_eq!(differs(&copy, &holder), Ok(Some(expected)));
    }
    assert_eq!(differs(&noted("copy", &[shard(0)]), &holder), Ok(None));
}

/// A source whose second shard serves a note; the first is this shard itself.
fn asked(generation: u64, fenced: bool, patience: Duration) -> Result<ReplicaNotes, String> {
    let scene = RouteScene::reading("a");
    scene.serve(1, 7);
    scene.served(0).regions[0].write_at(0, &[1]).unwrap();
    let notes = [0, 1].map(|shard| {
        let served = scene.served(shard);
        served.note(&served.digest_all())
    });
    scene.note(1, &notes[1]);
    let of = scene.assignment_at(generation);
    let own = OwnPublication { export: ExportId(of.shards[0].export.0), note: notes[0].clone() };
    let layouts = scene.layouts().to_vec();
    let deadline = Instant::now() + patience;
    let found = ReplicaNotes::ask(&scene.routes, &own, of, layouts, fenced, deadline)?;
    for shard in 0..2 {
        let served = scene.served(shard);
        assert_eq!(found.cells[shard], (served.cells.clone(), served.digest_all()));
    }
    Ok(found)
}

#[test]
fn a_note_is_asked_for_where_it_is_and_ones_own_is_known() {
    let long = Duration::from_secs(20);
    assert_eq!(asked(GENERATION, false, long).unwrap().name, "trainer");
    // What was fenced has its record one later.
    assert!(asked(GENERATION - 1, true, long).is_ok());
    for (generation, fenced) in [(GENERATION, true), (GENERATION - 1, false)] {
        assert!(asked(generation, fenced, AGAIN).is_err(), "nothing is served there");
    }
}

/// The holder's note is where its memory is served, and not behind a fence as that of the publication.
#[tokio::test]
async fn what_was_published_is_compared_with_what_a_holder_has() {
    let shared = HandleState::alone(None, None);
    let [scene, other] = [7, 8].map(|byte| {
        let scene = RouteScene::reading("a");
        scene.serve(0, byte);
        scene
    });
    let note = |of: &RouteScene| of.served(0).note(&of.served(0).digest_all());
    scene.note(0, &note(&scene));
    let all = scene.assignment_at(GENERATION);
    let (replica, shards) = ("holder".to_owned(), all.shards[..1].into());
    let holder = Assignment { replica, shards, ..all };
    shared.layouts.lock().unwrap().keep(holder.shards[0].layout, &scene.layouts()[0]);
    let own = OwnPublication { export: ExportId(77), note: note(&other) };
    let export = weightcast_protocol::ExportId(own.export.0);
    let published = SourceShard { export, ..holder.shards[0].clone() };
    let copy = Assignment { shards: [published].into(), ..holder.clone() };
    let witnesses = Witnesses { copy: Some(copy), holder: Some(holder) };
    let refusal = Arc::<FoundRefusal>::default();
    let connection = ServerConnection::new("127.0.0.1:1", None).unwrap();
    look(connection, shared, own, witnesses, Arc::clone(&refusal)).await;
    let found = refusal.found.lock().unwrap().clone().expect("it is over");
    assert_eq!(found.as_deref(), Some("a differ from what holder holds"));
}

/// A note that makes no sense ends the search at once, not after its longest time.
#[tokio::test]
async fn a_search_that_fails_ends_too() {
    let shared = HandleState::alone(None, None);
    let name = ContentDigest([7; 16]);
    let layout = Arc::clone(&noted("copy", &[shard(0)]).layouts[0]);
    shared.layouts.lock().unwrap().keep(name, &layout);
    let scene = RouteScene::reading("a").assignment_at(GENERATION);
    let own = OwnPublication { export: ExportId(scene.shards[0].export.0), note: vec![1, 2, 3] };
    let at = SourceShard { layout: name, ..scene.shards[0].clone() };
    let witnesses =
        Witnesses { copy: Some(Assignment { shards: [at].into(), ..scene }), holder: None };
    let refusal = Arc::<FoundRefusal>::default();
    let connection = ServerConnection::new("127.0.0.1:1", None).unwrap();
    look(connection, shared, own, witnesses, Arc::clone(&refusal)).await;
    assert_eq!(*refusal.found.lock().unwrap(), Some(None), "it is over");
}
