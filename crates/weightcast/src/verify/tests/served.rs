//! Replicas whose shards are served by data ports of this process: what is compared, and at what cost.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weightcast_plan::{DType, LayoutBuilder, Part};
use weightcast_protocol::message::{Assignment, SourceShard};
use weightcast_protocol::{ContentDigest, Epoch, ExportId, Generation, Sum, Version};
use weightcast_transport::{Auth, DataServer, Region, Way};

use super::super::asker::Asker;
use super::super::meet::ComparedReplica;
use super::super::{MAX_TENSORS, Verdict, shards};
use super::*;
use crate::client::memory::registration::RegisteredShard;
use crate::client::reading::networks::Networks;
use crate::client::reading::route::Routes;
use crate::config::{Options, Role};
use crate::error::Error;

const SOON: Duration = Duration::from_secs(20);
/// Bytes of each tensor.
const BYTES: u64 = 32;
const GENERATION: u64 = 4;
/// Bytes of a question and its answer: two headers and a name; and bytes for each box.
const QUESTION: u64 = 32;
const BOX: u64 = 56 + 16;

fn auth() -> Auth {
    Auth { token: None, insecure: false }
}

/// One replica whose shards each hold the same share of each of so many tensors.
struct Served {
    name: &'static str,
    server: DataServer,
    shards: Vec<RegisteredShard>,
    layouts: Vec<Arc<Layout>>,
}

fn export(shard: usize, generation: u64) -> weightcast_transport::ExportId {
    weightcast_transport::ExportId(shard as u64 + 1).at(generation)
}

fn name(tensor: usize) -> String {
    format!("t{tensor:02}")
}

impl Served {
    /// A replica whose memory is filled, served and noted.
    fn new(called: &'static str, of: u64, tensors: usize) -> Self {
        let share = BYTES / of;
        let layout = |shard: u64| {
            let mut builder = LayoutBuilder::new();
            for tensor in 0..tensors {
                let part = Part::new(name(tensor)).shape([BYTES]).dim(0, shard, of);
                builder.add(name(tensor), DType::U8, &[share], vec![part], 0);
            }
            Arc::new(builder.build().unwrap())
        };
        let layouts: Vec<Arc<Layout>> = (0..of).map(layout).collect();
        let shard = |shard: usize| {
            let bytes = |tensor: usize| -> Vec<u8> {
                let first = shard as u64 * share;
                (first..first + share).map(|at| (tensor as u64 * 40 + at) as u8).collect()
            };
            let regions = (0..tensors).map(|tensor| Region::from_bytes(&bytes(tensor)).unwrap());
            RegisteredShard::new(&layouts, shard, regions.collect()).unwrap()
        };
        let shards: Vec<RegisteredShard> = (0..of as usize).map(shard).collect();
        let server = DataServer::bind("127.0.0.1:0".parse().unwrap(), auth()).unwrap();
        for (number, shard) in shards.iter().enumerate() {
            let id = export(number, GENERATION);
            server.exports().expose_as(id, GENERATION, shard.regions.clone());
            server.exports().annotate(id, &shard.note(&shard.digest_all())).unwrap();
        }
        Self { name: called, server, shards, layouts }
    }

    /// Changes one byte of a tensor, in the first shard.
    fn flip(&self, tensor: usize) {
        let region = &self.shards[0].regions[tensor];
        let mut byte = [0];
        region.read_at(1, &mut byte).unwrap();
        region.write_at(1, &[byte[0] ^ 8]).unwrap();
    }

    fn replica(&self, sealed: bool) -> ComparedReplica {
        let shard = |number: usize| SourceShard {
            data_address: self.server.addr().to_string(),
            export: ExportId(number as u64 + 1),
            generation: Generation(GENERATION),
            layout: ContentDigest([number as u8; 16]),
        };
        let source = Assignment {
            version: Version { epoch: Epoch(2), number: 9 },
            catalog: ContentDigest([1; 16]),
            replica: self.name.to_owned(),
            in_flight: false,
            staged: false,
            helpers: Vec::new(),
            shards: (0..self.shards.len()).map(shard).collect(),
        };
        let tensors = union(&self.layouts).unwrap();
        ComparedReplica { source, sealed, layouts: self.layouts.clone(), tensors }
    }
}

/// A caller that never gives up.
static GO_ON: fn(u64) -> bool = |_| true;

fn asker(replicas: &[ComparedReplica], time: Duration) -> Asker<'static> {
    let networks = Networks::new(&Options::new(Role::Rollout), "localhost:1", None).unwrap();
    let routes = Routes::new(auth(), Way::Tcp, networks, None);
    Asker::new(shards(replicas), routes, Instant::now() + time, 1_000, &GO_ON)
}

/// Compares the replicas; `as_published` is what the server says of each.
fn judged(
    replicas: &[ComparedReplica],
    as_published: &[Option<bool>],
) -> Result<(Verdict, (u64, u64)), Error> {
    let asker = asker(replicas, SOON);
    let asked: Mutex<Vec<String>> = Mutex::default();
    let says = |of: &ComparedReplica, _: Sum| {
        asked.lock().unwrap().push(of.source.replica.clone());
        let at = replicas.iter().position(|one| one.source.replica == of.source.replica);
        Ok(as_published[at.unwrap()])
    };
    let verdict = super::super::compare(replicas, &asker, &says)?;
    let names: Vec<String> = replicas.iter().map(|of| of.source.replica.clone()).collect();
    assert_eq!(*asked.lock().unwrap(), names);
    Ok((verdict, asker.cost()))
}

#[test]
fn what_was_compared_and_what_it_took_is_told() {
    let (one, other) = (Served::new("one", 2, 3), Served::new("other", 1, 3));
    let replicas = [one.replica(true), other.replica(true)];
    let (verdict, cost) = judged(&replicas, &[Some(true), Some(true)]).unwrap();
    assert!(verdict.equal && verdict.different.is_empty() && verdict.differences.is_empty());
    assert_eq!((verdict.epoch, verdict.version, verdict.tensors), (2, 9, 3));
    let told: Vec<_> = verdict
        .replicas
        .iter()
        .map(|of| (of.name.as_str(), of.shards, of.bytes, of.copies_agree, of.as_published))
        .collect();
    let each = 3 * BYTES;
    assert_eq!(told, [("one", 2, each, true, Some(true)), ("other", 1, each, true, Some(true))]);
    // One question to each shard, of a box for each tensor.
    assert_eq!(cost, (2 * each, 1_000 + 3 * QUESTION + 9 * BOX));
}

#[test]
fn many_tensors_that_differ_are_all_named_and_a_few_looked_at() {
    for differ in [1, MAX_TENSORS - 1, MAX_TENSORS, MAX_TENSORS + 1] {
        let tensors = MAX_TENSORS + 2;
        let (one, other) = (Served::new("one", 1, tensors), Served::new("other", 2, tensors));
        (0..differ).for_each(|tensor| other.flip(tensor));
        let replicas = [one.replica(true), other.replica(true)];
        let (verdict, _) = judged(&replicas, &[Some(true), Some(false)]).unwrap();
        assert!(!verdict.equal);
        let names: Vec<String> = (0..differ).map(name).collect();
        assert_eq!(verdict.different, names);
        let looked: Vec<String> = verdict.differences.iter().map(|d| d.tensor.clone()).collect();
        assert_eq!(looked, names[..differ.min(MAX_TENSORS)]);
        for difference in &verdict.differences {
            assert_eq!((difference.dtype, &difference.shape[..]), (DType::U8.name(), &[BYTES][..]));
            let [ref place] = difference.ranges[..] else { panic!("{difference:?}") };
            assert_eq!((place.slice.as_slice(), difference.more_ranges), (&[(1, 2)][..], 0));
            let mut held: Vec<_> = place
                .readings
                .iter()
                .map(|same| same.iter().map(|by| (&*by.replica, by.shard, by.as_published)))
                .map(Iterator::collect::<Vec<_>>)
                .collect();
            held.sort_unstable();
            assert_eq!(held, [[("one", 0, Some(true))], [("other", 0, Some(false))]]);
        }
        let published: Vec<_> = verdict.replicas.iter().map(|of| of.as_published).collect();
        assert_eq!(published, [Some(true), Some(false)]);
    }
}

#[test]
fn one_alone_is_compared_with_what_its_shards_have_noted() {
    for differ in [0, 2, MAX_TENSORS, MAX_TENSORS + 1] {
        let one = Served::new("one", 2, MAX_TENSORS + 2);
        (0..differ).for_each(|tensor| one.flip(tensor));
        let (verdict, _) = judged(&[one.replica(true)], &[Some(differ == 0)]).unwrap();
        assert_eq!(verdict.equal, differ == 0);
        assert_eq!(verdict.different, (0..differ).map(name).collect::<Vec<_>>());
        assert_eq!(verdict.differences.len(), differ.min(MAX_TENSORS));
        for place in verdict.differences.iter().flat_map(|difference| &difference.ranges) {
            assert_eq!(place.slice, [(0, BYTES / 2)], "all that the shard holds");
            let [ref same] = place.readings[..] else { panic!("{place:?}") };
            assert_eq!((same[0].shard, same[0].as_published), (0, Some(false)));
        }
    }
}

#[test]
fn what_is_not_sealed_is_equal_to_another_copy_or_to_nothing() {
    let (one, other) = (Served::new("one", 1, 2), Served::new("other", 2, 2));
    let (verdict, _) = judged(&[one.replica(false), other.replica(false)], &[None, None]).unwrap();
    assert!(verdict.equal);
    assert!(verdict.replicas.iter().all(|of| of.as_published.is_none()));
    let alone = judged(&[one.replica(false)], &[None]).unwrap_err();
    let Error::Unverified { replica, reason } = alone else { panic!("{alone}") };
    assert!(replica == "one" && reason.contains("not sealed yet"), "{reason}");
    assert!(judged(&[one.replica(true)], &[Some(true)]).unwrap().0.equal);
    // Both hold the same, and it is not what was sealed: neither knows where.
    let (verdict, _) =
        judged(&[one.replica(true), other.replica(true)], &[Some(false), Some(true)]).unwrap();
    assert!(!verdict.equal && verdict.different.is_empty());
}

#[test]
fn copies_within_a_replica_that_differ_are_not_what_was_published() {
    // Both shards hold all of it.
    let mut one = Served::new("one", 1, 2);
    let copy = Served::new("one", 1, 2);
    one.layouts.push(Arc::clone(&one.layouts[0]));
    let id = export(1, GENERATION);
    one.server.exports().expose_as(id, GENERATION, copy.shards[0].regions.clone());
    for (flipped, agree) in [(false, true), (true, false)] {
        if flipped {
            copy.flip(1);
        }
        let mut replica = one.replica(true);
        let first = replica.source.shards[0].clone();
        let second = SourceShard { export: ExportId(2), ..first.clone() };
        replica.source.shards = vec![first, second].into();
        // The server is asked for the counted sums, and those are right.
        let (verdict, _) = judged(&[replica], &[Some(true)]).unwrap();
        let told = &verdict.replicas[0];
        assert_eq!((told.copies_agree, told.as_published), (agree, Some(agree)));
        assert_eq!((told.shards, told.bytes), (2, 4 * BYTES));
        assert_eq!(verdict.equal, agree);
        let names: Vec<String> = if agree { vec![] } else { vec![name(1)] };
        assert_eq!(verdict.different, names);
    }
}

#[test]
fn elements_that_only_one_side_holds_are_an_error() {
    let (one, mut other) = (Served::new("one", 1, 1), Served::new("other", 2, 1));
    other.layouts.truncate(1);
    other.shards.truncate(1);
    for (replicas, lacking) in [
        ([one.replica(true), other.replica(true)], "other"),
        ([other.replica(true), one.replica(true)], "other"),
    ] {
        let error = judged(&replicas, &[Some(true), Some(true)]).unwrap_err();
        let Error::Call(weightcast_protocol::CallError::LayoutMismatch { replica, detail }) = error
        else {
            panic!("{error}")
        };
        assert_eq!(replica, lacking);
        assert!(detail.contains("it holds nothing of t00[16:32], which one holds"), "{detail}");
    }
}

#[test]
fn a_note_counts_as_moved_and_one_that_is_not_there_does_too() {
    let one = Served::new("one", 2, 3);
    let replicas = [one.replica(true)];
    let asker = asker(&replicas, SOON);
    let note = one.shards[1].note(&one.shards[1].digest_all());
    assert_eq!(asker.note(1).unwrap(), Some(one.shards[1].digest_all()));
    let moved = 1_000 + QUESTION + note.len() as u64;
    assert_eq!(asker.cost(), (0, moved));
    let id = export(0, GENERATION);
    one.server.exports().withdraw(id, Duration::ZERO);
    one.server.exports().expose_as(id, GENERATION, one.shards[0].regions.clone());
    assert_eq!(asker.note(0).unwrap(), None);
    assert_eq!(asker.cost(), (0, moved + QUESTION));
}

#[test]
fn a_shard_that_is_asked_too_late_or_has_moved_on_is_named() {
    let one = Served::new("one", 2, 1);
    let replicas = [one.replica(true)];
    let late = asker(&replicas, Duration::ZERO);
    one.server.exports().withdraw(export(1, GENERATION), Duration::ZERO);
    let soon = asker(&replicas, SOON);
    for (error, said) in [
        (late.note(0).unwrap_err(), "shard 0 at"),
        (late.note(0).unwrap_err(), "did not answer"),
        (soon.note(1).unwrap_err(), "it moved on"),
        (soon.digests(1, &one.shards[1].cells).unwrap_err(), "shard 1 at"),
        (soon.digests(1, &one.shards[1].cells).unwrap_err(), "it moved on"),
    ] {
        let Error::Unverified { replica, reason } = error else { panic!("{error}") };
        assert!(replica == "one" && reason.contains(said), "{reason}");
    }
    assert!(soon.note(0).is_ok(), "the other one is asked all the same");
}

#[test]
fn a_list_is_worked_through_in_order_until_one_fails() {
    let replicas: [ComparedReplica; 0] = [];
    let asker = asker(&replicas, SOON);
    let list: Vec<u64> = (0..100).collect();
    assert_eq!(
        asker.each(&list, |item| Ok(item * 3)).unwrap(),
        list.iter().map(|i| i * 3).collect::<Vec<_>>()
    );
    assert!(asker.each(&[], |item: &u64| Ok(*item)).unwrap().is_empty());
    let begun = AtomicU64::new(0);
    let failed = asker.each(&list, |item| {
        begun.fetch_add(1, Ordering::Relaxed);
        Err::<(), _>(Error::misuse(format!("item {item}")))
    });
    assert!(failed.unwrap_err().to_string().contains("item"));
    assert!(begun.load(Ordering::Relaxed) <= 8, "nobody goes on after it");
}

#[test]
fn a_server_to_which_no_worker_has_come_compares_nothing() {
    let config =
        crate::serve::ServeConfig { insecure: true, ..crate::serve::ServeConfig::default() };
    let server = crate::serve::serve(config).unwrap();
    let address = Some(server.address().to_owned());
    let options = Options { server: address, insecure: true, ..Options::new(Role::Rollout) };
    let what = crate::verify::Comparison {
        model: "m".to_owned(),
        replica: "one".to_owned(),
        other: crate::verify::Other::Any,
        version: None,
        deadline: SOON,
    };
    let error = crate::verify::verify(&what, &options, &|_| true).unwrap_err().to_string();
    assert!(error.contains("no worker has come to one yet"), "{error}");
}
