//! Reads of one source that says what it likes of its slices.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use weightcast_plan::{DType, Layout, LayoutBuilder, Part};
use weightcast_protocol::message::SourceShard;
use weightcast_protocol::{ContentDigest, Epoch, Generation, Version};
use weightcast_transport::{Auth, DataServer, ExportId, Filling, Peer, Region, Way};

use super::*;
use crate::client::memory::registration::RegisteredShard;
use crate::client::reading::networks::Networks;
use crate::client::reading::pace::ReadPace;
use crate::client::reading::read::Comparing;
use crate::client::reading::route::{ArrivedRead, Routes};
use crate::config::{Options, Role};

/// Two tensors of so many bytes; the second has two names.
const TENSOR: usize = 200_000;
const SOURCE: ExportId = ExportId(7);

fn layout() -> Arc<Layout> {
    let part = |name: &str| vec![Part::new(name).shape([TENSOR as u64])];
    let mut builder = LayoutBuilder::new();
    builder.add("a", DType::U8, &[TENSOR as u64], part("a"), 0);
    builder.add("b", DType::U8, &[TENSOR as u64], part("b"), 0).also(part("tied"), 0);
    Arc::new(builder.build().unwrap())
}

fn shard() -> Arc<RegisteredShard> {
    let regions = (0..2).map(|_| Region::allocate(TENSOR).unwrap()).collect();
    Arc::new(RegisteredShard::new(&[layout()], 0, regions).unwrap())
}

/// A source and a reader of one layout, and what the reader fills if that is not its memory.
struct CompareScene {
    routes: Routes,
    server: DataServer,
    source: Arc<RegisteredShard>,
    registration: Arc<RegisteredShard>,
    staged: Option<Arc<RegisteredShard>>,
    generation: u64,
    cancel: Arc<AtomicBool>,
    memory: Mutex<()>,
}

impl CompareScene {
    /// The reader has read a version of ones and twos.
    fn held() -> Self {
        let auth = Auth { token: None, insecure: false };
        let networks = Networks::new(&Options::new(Role::Rollout), "localhost:1", None).unwrap();
        let mut scene = Self {
            routes: Routes::new(auth.clone(), Way::Auto, networks, None),
            server: DataServer::bind("127.0.0.1:0".parse().unwrap(), auth).unwrap(),
            source: shard(),
            registration: shard(),
            staged: None,
            generation: 0,
            cancel: Arc::default(),
            memory: Mutex::default(),
        };
        scene.publish([1, 2]);
        scene.note(&scene.true_note());
        scene.commit();
        scene
    }

    /// Publishes tensors filled with these bytes, without a note.
    fn publish(&mut self, bytes: [u8; 2]) {
        self.server.exports().withdraw(SOURCE.at(self.generation), Duration::ZERO);
        self.generation += 1;
        for (region, byte) in self.source.regions.iter().zip(bytes) {
            region.write_at(0, &vec![byte; TENSOR]).unwrap();
        }
        let regions = self.source.regions.clone();
        let id = SOURCE.at(self.generation);
        self.server.exports().expose_as(id, self.generation, regions);
    }

    fn true_note(&self) -> Vec<u8> {
        self.source.note(&self.source.digest_all())
    }

    fn note(&self, note: &[u8]) {
        self.server.exports().annotate(SOURCE.at(self.generation), note).unwrap();
    }

    fn assignment(&self) -> Assignment {
        let shard = SourceShard {
            data_address: self.server.addr().to_string(),
            export: weightcast_protocol::ExportId(SOURCE.0),
            generation: Generation(self.generation),
            layout: ContentDigest([1; 16]),
        };
        Assignment {
            version: Version { epoch: Epoch(0), number: self.generation },
            catalog: self.registration.catalog,
            replica: "trainer".to_owned(),
            in_flight: false,
            staged: self.staged.is_some(),
            helpers: Vec::new(),
            shards: [shard].into(),
        }
    }

    fn read_with(&self, comparing: Comparing<'_>, filling: Option<Arc<Filling>>) -> ArrivedRead {
        let filled = self.staged.as_ref().unwrap_or(&self.registration);
        let read = self.routes.read(&Read {
            registration: filled,
            assignment: &self.assignment(),
            sources: &[layout()],
            deadline: Instant::now() + Duration::from_secs(60),
            cancel: Arc::clone(&self.cancel),
            pace: ReadPace::default(),
            filling,
            entering: None,
            memory: &self.memory,
            comparing: Comparing {
                live: self.staged.is_some().then_some(&*self.registration),
                ..comparing
            },
        });
        read.map_err(|failure| format!("{failure:?}")).unwrap()
    }

    fn read(&self) -> ArrivedRead {
        self.read_with(Comparing::default(), None)
    }

    /// Reads, and the server has the reader commit.
    fn commit(&self) -> ArrivedRead {
        let arrival = self.read();
        self.routes.remember(arrival.content.clone());
        arrival
    }

    /// The bytes that the tensors of a shard are filled with.
    fn filled(of: &RegisteredShard) -> [u8; 2] {
        [0, 1].map(|tensor: usize| {
            let bytes = of.regions[tensor].to_vec();
            assert!(bytes.iter().all(|byte| *byte == bytes[0]), "tensor {tensor} is torn");
            bytes[0]
        })
    }

    /// Whether the server would find these sums to be the source's.
    fn is_accepted(&self, arrival: &ArrivedRead) -> bool {
        arrival.sums == self.source.fold(&self.source.digest_all())
    }
}

const T: u64 = TENSOR as u64;

#[test]
fn what_is_left_out_is_digested_under_all_its_names() {
    let mut scene = CompareScene::held();
    for (bytes, unchanged) in [([1, 3], T), ([4, 3], T), ([4, 3], 2 * T), ([5, 6], 0)] {
        scene.publish(bytes);
        scene.note(&scene.true_note());
        let arrival = scene.commit();
        assert_eq!(arrival.transfer.unchanged, unchanged, "{bytes:?}");
        assert_eq!(arrival.transfer.direct + arrival.transfer.tcp, 2 * T - unchanged);
        assert!(scene.is_accepted(&arrival));
        assert_eq!(CompareScene::filled(&scene.registration), bytes);
        assert_eq!(arrival.note, scene.true_note());
    }
}

/// It leaves out what the source calls unchanged. The sums are of what the memory holds, so they are not
/// the version's.
#[test]
fn a_source_that_lies_is_found_by_the_sums() {
    let mut scene = CompareScene::held();
    let old = scene.true_note();
    scene.publish([1, 3]);
    scene.note(&old);
    let arrival = scene.read();
    assert_eq!(arrival.transfer.unchanged, 2 * T);
    assert!(!scene.is_accepted(&arrival));
    // The call goes on with a read that moves everything, or fails: then the next one does.
    let again = scene.read_with(Comparing { moves_all: true, ..Comparing::default() }, None);
    assert!(again.transfer.unchanged == 0 && scene.is_accepted(&again));
    scene.routes.forget_content();
    let next = scene.read();
    assert!(next.transfer.unchanged == 0 && scene.is_accepted(&next));
}

#[test]
fn nothing_is_known_of_memory_that_was_registered_anew() {
    let mut scene = CompareScene::held();
    assert!(scene.routes.knows_content());
    scene.routes.forget_plans();
    assert!(!scene.routes.knows_content());
    scene.publish([1, 2]);
    scene.note(&scene.true_note());
    assert_eq!(scene.read().transfer.unchanged, 0);
}

/// Of memory with other cells nothing is known either.
#[test]
fn what_is_known_of_other_cells_is_not_compared_with() {
    let mut scene = CompareScene::held();
    scene.publish([1, 2]);
    scene.note(&scene.true_note());
    let known = (*scene.routes.content().unwrap()).clone();
    for cells in [known.cells[..1].to_vec(), [&known.cells[..], &known.cells].concat()] {
        scene.routes.remember(KnownContent { cells, ..known.clone() });
        let arrival = scene.read();
        assert!(arrival.transfer.unchanged == 0 && scene.is_accepted(&arrival));
    }
}

/// What earlier reads have saved is not forgotten for that.
#[test]
fn a_read_of_which_nobody_tells_anything_says_nothing_of_the_next() {
    let mut scene = CompareScene::held();
    for (noted, unchanged) in [(true, 2 * T), (false, 0)] {
        scene.publish([1, 2]);
        if noted {
            scene.note(&scene.true_note());
        }
        let arrival = scene.commit();
        assert_eq!(arrival.transfer.unchanged, unchanged);
        assert_eq!(arrival.content.experience.unchanged, 2 * T, "noted: {noted}");
    }
}

/// Of a cell that two sources give, one has the same half as before.
#[test]
fn what_is_new_of_a_cell_is_moved_though_the_cell_is_as_it_was() {
    let share = |index: u64, of: u64| {
        let mut builder = LayoutBuilder::new();
        let part = Part::new("w").shape([8]).dim(0, index, of);
        builder.add("w", DType::U8, &[8 / of], vec![part], 0);
        Arc::new(builder.build().unwrap())
    };
    let sources = [share(0, 2), share(1, 2)];
    let region = Region::from_bytes(&[1; 8]).unwrap();
    let registration = Arc::new(RegisteredShard::new(&[share(0, 1)], 0, vec![region]).unwrap());
    let (layout, cells) = (&registration.layout, &registration.cells);
    let plan = weightcast_plan::plan(layout, cells, &[&*sources[0], &*sources[1]]).unwrap();
    let scene = CompareScene::held();
    let read = Read {
        registration: &registration,
        assignment: &scene.assignment(),
        sources: &sources,
        deadline: Instant::now() + Duration::from_secs(60),
        cancel: Arc::default(),
        pace: ReadPace::default(),
        filling: None,
        entering: None,
        memory: &scene.memory,
        comparing: Comparing::default(),
    };
    let held = registration.digest_all();
    for copies in [[true, false], [false, true]] {
        let found = Unchanged { copies: copies.to_vec(), cells: vec![None] };
        let look = || look::look(&read, &plan, &found, &held);
        let left_out = look().expect("it goes on");
        assert_eq!([0, 1].map(|copy| left_out.has(copy)), copies);
        read.cancel.store(true, Ordering::Release);
        assert!(look().is_none(), "it is cancelled");
        read.cancel.store(false, Ordering::Release);
    }
}

/// What a source says of tensors that are not read here takes no room.
#[test]
fn of_a_source_only_what_is_read_is_remembered() {
    let mut scene = CompareScene::held();
    let mut builder = LayoutBuilder::new();
    builder.add("a", DType::U8, &[T], vec![Part::new("a").shape([T])], 0);
    let own = Arc::new(builder.build().unwrap());
    let made = RegisteredShard::new(&[own], 0, vec![Region::allocate(TENSOR).unwrap()]).unwrap();
    scene.registration = Arc::new(made);
    scene.routes.forget_plans();
    let known = scene.read().content.entries;
    let known = &known[&ContentDigest([1; 16])];
    assert!(known.get(0).is_some() && known.len() == 1);
}

#[test]
fn notes_that_are_none_leave_nothing_out() {
    for note in [&b""[..], b"\xff\xff", b"digests", &[10, 16, 1, 2, 3]] {
        let mut scene = CompareScene::held();
        scene.publish([1, 2]);
        scene.note(note);
        let arrival = scene.read();
        assert_eq!(arrival.transfer.unchanged, 0, "{note:?}");
        assert!(scene.is_accepted(&arrival));
    }
}

/// The first byte of a tensor, the last, and one in the middle.
#[test]
fn memory_that_is_not_as_it_was_is_moved() {
    for place in [0, TENSOR / 2, TENSOR - 1] {
        let mut scene = CompareScene::held();
        scene.publish([1, 2]);
        scene.note(&scene.true_note());
        scene.registration.regions[1].write_at(place, &[9]).unwrap();
        let arrival = scene.read();
        assert_eq!(arrival.transfer.unchanged, T, "byte {place}");
        assert!(scene.is_accepted(&arrival));
        assert_eq!(CompareScene::filled(&scene.registration), [1, 2]);
    }
}

/// Unchanged slices come from the registered memory, if they are there.
#[test]
fn a_staged_read_fills_the_memory_beside_and_leaves_the_other_alone() {
    let mut scene = CompareScene::held();
    scene.staged = Some(shard());
    scene.publish([1, 3]);
    scene.note(&scene.true_note());
    let arrival = scene.read();
    assert_eq!(arrival.transfer.unchanged, T);
    assert!(scene.is_accepted(&arrival) && !arrival.in_place);
    assert_eq!(CompareScene::filled(scene.staged.as_ref().unwrap()), [1, 3]);
    assert_eq!(CompareScene::filled(&scene.registration), [1, 2]);
    scene.registration.regions[0].write_at(5, &[9]).unwrap();
    scene.staged = Some(shard());
    let arrival = scene.read();
    assert_eq!(arrival.transfer.unchanged, 0);
    assert!(scene.is_accepted(&arrival));
    assert_eq!(CompareScene::filled(scene.staged.as_ref().unwrap()), [1, 3]);
}

/// Where most bytes were unchanged before, digests that are not there yet are waited for.
#[test]
fn digests_are_waited_for_where_they_have_saved_most_before() {
    let mut scene = CompareScene::held();
    scene.publish([1, 3]);
    let first = scene.read();
    assert_eq!(first.transfer.unchanged, 0, "there was no note, and no reason to wait");
    scene.note(&scene.true_note());
    let known = scene.commit();
    assert_eq!(known.content.experience.unchanged, T);
    // Moving took no time, so nothing would be waited for.
    let whole = Duration::from_secs(60);
    let experience = Experience { whole, ..known.content.experience };
    scene.routes.remember(KnownContent { experience, ..known.content });
    scene.publish([1, 4]);
    let note = scene.true_note();
    // The reader connects anew, so its coming is seen: however slow it is, the digests come after that, and soon.
    scene.routes.forget_peer(&scene.server.addr().to_string());
    let come = |any: bool| {
        while (scene.server.connections() > 0) != any {
            thread::yield_now();
        }
    };
    come(false);
    let arrival = thread::scope(|scope| {
        let reads = scope.spawn(|| scene.read());
        come(true);
        scene.note(&note);
        reads.join().unwrap()
    });
    assert_eq!(arrival.transfer.unchanged, T);
    assert!(scene.is_accepted(&arrival));
}

/// A read that moved everything because the digests came late has learnt what it could have left out.
#[test]
fn a_read_that_could_not_be_compared_in_time_is_compared_at_its_end() {
    let mut scene = CompareScene::held();
    scene.publish([1, 3]);
    let note = scene.true_note();
    let server = &scene.server;
    let id = SOURCE.at(scene.generation);
    let come = std::sync::Once::new();
    let (exports, told) = (Arc::clone(server.exports()), note.clone());
    let holds = weightcast_transport::Holds::new(move |point| {
        if point == weightcast_transport::HoldPoint::Telling {
            come.call_once(|| exports.annotate(id, &told).unwrap());
        }
    });
    scene.routes.holds = holds;
    let arrival = scene.commit();
    assert_eq!(arrival.transfer.unchanged, 0);
    assert_eq!(arrival.content.experience.unchanged, T);
    // The tied tensor's further name has no copies, so its digest is of no use.
    assert_eq!(arrival.content.entries[&ContentDigest([1; 16])].len(), 2);
}

#[test]
fn a_cancelled_read_waits_for_no_digests() {
    let mut scene = CompareScene::held();
    let whole = Duration::from_secs(60);
    let experience = Experience { bytes: 1, unchanged: 1, whole };
    let content = (*scene.routes.content().unwrap()).clone();
    scene.routes.remember(KnownContent { experience, ..content });
    scene.publish([1, 3]);
    scene.cancel.store(true, Ordering::Release);
    let read = std::panic::AssertUnwindSafe(|| scene.read());
    assert!(std::panic::catch_unwind(read).is_err(), "it failed as cancelled");
    assert_eq!(CompareScene::filled(&scene.registration), [1, 2]);
}

/// Its readers are told before the first byte moves, and told of nothing that is not known.
#[test]
fn a_relay_tells_what_it_knows_of_the_version_before_it_has_it() {
    let mut scene = CompareScene::held();
    let told = |scene: &CompareScene| {
        let relay = DataServer::bind(([127, 0, 0, 1], 0).into(), Auth::default()).unwrap();
        let filling = Arc::new(Filling::new(&scene.registration.regions));
        let (id, regions) = (ExportId(9), scene.registration.regions.clone());
        relay.exports().expose_filling(id, 1, regions, Arc::clone(&filling));
        let comparing = Comparing { serving: Some((relay.exports(), id)), ..Comparing::default() };
        let arrival = scene.read_with(comparing, Some(filling));
        assert!(scene.is_accepted(&arrival));
        let soon = Instant::now() + Duration::from_secs(20);
        let peer = Peer::connect(relay.addr(), &Auth::default(), soon).unwrap();
        assert_eq!(peer.note(id, 1, soon), Ok(None));
        let note = peer.early_note(id, 1, Duration::ZERO, soon, &scene.cancel).unwrap().unwrap();
        manifest::decode_early(&note, 3).unwrap()
    };
    scene.publish([1, 3]);
    assert_eq!(told(&scene), [None; 3], "the source knows nothing yet");
    scene.note(&scene.true_note());
    scene.routes.remember(scene.routes.content().map(|c| (*c).clone()).unwrap());
    let all = manifest::decode_early(&scene.true_note(), 3).unwrap();
    // The further name of the tied tensor has no copies, and nobody asks for it.
    assert_eq!(told(&scene), [all[0], all[1], None]);
}

/// Two shards of one manifest say different things: one of them is wrong, so neither is remembered.
#[test]
fn what_two_sources_say_differently_is_not_remembered() {
    let scene = CompareScene::held();
    let assignment = scene.assignment();
    let twice = [&assignment.shards[0]; 2].map(Clone::clone);
    let assignment = Assignment { shards: twice.into(), ..assignment };
    let digests = |second| EntryDigests::from_iter([(0, Digest([1, 1])), (1, Digest([second, 1]))]);
    let known = named(&assignment, vec![digests(2), digests(3)]);
    assert_eq!(known[&ContentDigest([1; 16])], EntryDigests::from_iter([(0, Digest([1, 1]))]));
    let known = named(&assignment, vec![EntryDigests::new(), digests(3)]);
    assert_eq!(known[&ContentDigest([1; 16])], digests(3));
}

/// Two sources hold one tensor, under different numbers: what is told of the one is not what is told of the other.
#[test]
fn each_plan_has_a_comparison_of_its_own_made_once() {
    let layout = |names: &[&str]| {
        let mut builder = LayoutBuilder::new();
        for name in names {
            builder.add(*name, DType::U8, &[T], vec![Part::new(*name).shape([T])], 0);
        }
        Arc::new(builder.build().unwrap())
    };
    let (own, more) = (layout(&["b"]), layout(&["a", "b"]));
    let memory = vec![Region::allocate(TENSOR).unwrap()];
    let registration = RegisteredShard::new(&[Arc::clone(&own)], 0, memory).unwrap();
    let plans = super::super::plans::Plans::new(None);
    let comparison = |number: u8, source: &Arc<_>| {
        let sources = [Arc::clone(source)];
        let (plan, _) =
            plans.get(&registration, &[ContentDigest([number; 16])], &sources, None).unwrap();
        assert_eq!(plan.copies.len(), 1);
        plans.comparison(&plan, &registration, &sources)
    };
    let (of_own, of_more) = (comparison(1, &own), comparison(2, &more));
    let entry = |comparison: &weightcast_plan::PlanComparison| {
        let all = comparison.of_use(0, Some);
        (0..2).find(|entry| all.get(*entry).is_some())
    };
    assert_eq!((entry(&of_own), entry(&of_more)), (Some(0), Some(1)));
    assert!(Arc::ptr_eq(&of_own, &comparison(1, &own)));
    assert!(Arc::ptr_eq(&of_more, &comparison(2, &more)));
}
