//! Reads of sources of several shards, of which some give nothing.

use std::sync::atomic::AtomicBool;

use weightcast_plan::{DType, Layout, LayoutBuilder, Part};
use weightcast_protocol::message::SourceShard;
use weightcast_protocol::{ContentDigest, Epoch, Generation, Version};
use weightcast_transport::{DataServer, Region};

use super::super::pace::ReadPace;
use super::super::plans::PlanFrom;
use super::super::read::Comparing;
use super::*;
use crate::client::memory::registration::RegisteredShard;
use crate::config::{Options, Role};

mod full;
mod siblings;

pub(in crate::client) const BYTES: u64 = 300_000;

fn auth() -> Auth {
    Auth { token: None, insecure: false }
}

/// The routes of a client of these servers.
fn routes(servers: &str) -> Routes {
    routes_by(Way::Auto, servers)
}

fn routes_by(way: Way, servers: &str) -> Routes {
    let networks = Networks::new(&Options::new(Role::Rollout), servers, None).unwrap();
    Routes::new(auth(), way, networks, None)
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn layout_of(name: &str) -> Arc<Layout> {
    let mut builder = LayoutBuilder::new();
    builder.add(name, DType::U8, &[BYTES], vec![Part::new(name).shape([BYTES])], 0);
    Arc::new(builder.build().unwrap())
}

fn fresh() -> Region {
    Region::allocate(BYTES as usize).unwrap()
}

fn registered(tensor: &str, region: Region) -> RegisteredShard {
    RegisteredShard::new(&[layout_of(tensor)], 0, vec![region]).unwrap()
}

/// A source whose shards hold a tensor each, `a` and `b`; and a reader of one of them.
pub(in crate::client) struct RouteScene {
    pub(in crate::client) routes: Routes,
    servers: [DataServer; 2],
    /// What the shards serve.
    served: [Arc<RegisteredShard>; 2],
    pub(in crate::client) registration: Arc<RegisteredShard>,
    layouts: Vec<Arc<Layout>>,
    cancel: Arc<AtomicBool>,
    memory: Mutex<()>,
}

impl RouteScene {
    pub(in crate::client) fn reading(tensor: &str) -> Self {
        Self::into(tensor, fresh())
    }

    /// A reader of both tensors, in a buffer each.
    fn reading_both() -> Self {
        let mut builder = LayoutBuilder::new();
        for name in ["a", "b"] {
            builder.add(name, DType::U8, &[BYTES], vec![Part::new(name).shape([BYTES])], 0);
        }
        let layout = Arc::new(builder.build().unwrap());
        let made = RegisteredShard::new(&[layout], 0, vec![fresh(), fresh()]).unwrap();
        Self { registration: Arc::new(made), ..Self::reading("a") }
    }

    fn into(tensor: &str, target: Region) -> Self {
        let bind = |_| DataServer::bind("127.0.0.1:0".parse().unwrap(), auth()).unwrap();
        Self {
            routes: routes("localhost:1"),
            servers: [(), ()].map(bind),
            served: ["a", "b"].map(|name| Arc::new(registered(name, fresh()))),
            registration: Arc::new(registered(tensor, target)),
            layouts: ["a", "b"].map(layout_of).to_vec(),
            cancel: Arc::default(),
            memory: Mutex::default(),
        }
    }

    /// Serves all of a shard from now on, filled with this byte, and without a note.
    pub(in crate::client) fn serve(&self, shard: usize, byte: u8) {
        let regions = self.served[shard].regions.clone();
        regions[0].write_at(0, &vec![byte; BYTES as usize]).unwrap();
        self.withdraw(shard);
        let id = export(shard, GENERATION);
        self.servers[shard].exports().expose_as(id, GENERATION, regions);
    }

    pub(in crate::client) fn withdraw(&self, shard: usize) {
        let id = export(shard, GENERATION);
        self.servers[shard].exports().withdraw(id, Duration::ZERO);
    }

    /// Attaches a note to what a shard serves.
    pub(in crate::client) fn note(&self, shard: usize, note: &[u8]) {
        self.servers[shard].exports().annotate(export(shard, GENERATION), note).unwrap();
    }

    pub(in crate::client) fn served(&self, shard: usize) -> &RegisteredShard {
        &self.served[shard]
    }

    pub(in crate::client) fn layouts(&self) -> &[Arc<Layout>] {
        &self.layouts
    }

    /// An assignment that names another generation than the served one.
    pub(in crate::client) fn assignment_at(&self, generation: u64) -> Assignment {
        let assignment = self.assignment(1);
        let at = |shard: &SourceShard| SourceShard {
            generation: Generation(generation),
            ..shard.clone()
        };
        let shards = assignment.shards.iter().map(at).collect();
        Assignment { shards, ..assignment }
    }

    fn assignment(&self, name: u8) -> Assignment {
        let shard = |(shard, server): (usize, &DataServer)| SourceShard {
            data_address: server.addr().to_string(),
            export: weightcast_protocol::ExportId(shard as u64 + 1),
            generation: Generation(GENERATION),
            layout: ContentDigest([name + shard as u8; 16]),
        };
        Assignment {
            version: Version { epoch: Epoch(0), number: 1 },
            catalog: self.registration.catalog,
            replica: "trainer".to_owned(),
            in_flight: false,
            staged: false,
            helpers: Vec::new(),
            shards: self.servers.iter().enumerate().map(shard).collect(),
        }
    }

    pub(in crate::client) fn read(&self) -> Result<ArrivedRead, ReadFailure> {
        self.read_named(1, &ReadPace::default())
    }

    /// Reads from shards with layouts of these names.
    fn read_named(&self, name: u8, pace: &ReadPace) -> Result<ArrivedRead, ReadFailure> {
        self.routes.read(&Read {
            registration: &self.registration,
            assignment: &self.assignment(name),
            sources: &self.layouts,
            deadline: soon(),
            cancel: Arc::clone(&self.cancel),
            pace: pace.clone(),
            filling: None,
            entering: None,
            memory: &self.memory,
            comparing: Comparing::default(),
        })
    }

    fn held(&self) -> Vec<u8> {
        self.registration.regions[0].to_vec()
    }
}

pub(in crate::client) const GENERATION: u64 = 3;

fn export(shard: usize, generation: u64) -> ExportId {
    ExportId(shard as u64 + 1).at(generation)
}

#[test]
fn the_shard_that_fails_is_named_and_it_alone_is_asked() {
    for (place, tensor) in ["a", "b"].into_iter().enumerate() {
        let scene = RouteScene::reading(tensor);
        scene.serve(1 - place, 9);
        match scene.read() {
            Err(ReadFailure::Source { shard, .. }) => assert_eq!(shard as usize, place),
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("it is not served"),
        }
        assert_eq!(scene.servers[1 - place].connections(), 0);
        scene.serve(place, 7);
        let pace = ReadPace::default();
        let arrival = scene.read_named(1, &pace).map_err(|e| format!("{e:?}")).unwrap();
        assert!(scene.held() == vec![7; BYTES as usize]);
        assert_eq!((arrival.transfer.bytes, arrival.transfer.verified), (BYTES, BYTES));
        assert_eq!(arrival.sums, scene.registration.fold(&scene.registration.digest_all()));
        assert!(arrival.in_place);
        let told = pace.look().expect("bytes have moved");
        assert_eq!((told.arrived, told.left, told.shard as usize), (BYTES, 0, place));
    }
}

/// It may be another process by now. What is connected to the others stays.
#[test]
fn a_source_that_fails_is_connected_to_anew() {
    let scene = RouteScene::reading("b");
    scene.serve(1, 7);
    let peers = || {
        [0, 1].map(|shard: usize| {
            let at = scene.servers[shard].addr().to_string();
            scene.routes.peer(&at, soon()).unwrap()
        })
    };
    let before = peers();
    assert!(scene.read().is_ok());
    assert!(before.iter().zip(&peers()).all(|(one, other)| Arc::ptr_eq(one, other)));
    scene.withdraw(1);
    assert!(scene.read().is_err());
    let after = peers();
    assert!(Arc::ptr_eq(&before[0], &after[0]) && !Arc::ptr_eq(&before[1], &after[1]));
}

/// The read's own way is that of its first source.
#[test]
fn what_came_by_each_way_is_told() {
    let served = |mut scene: RouteScene, shared: usize| {
        let region = Region::allocate_shared(BYTES as usize).unwrap();
        scene.served[shared] = Arc::new(registered(["a", "b"][shared], region));
        scene.routes = routes_by(Way::Shared, "localhost:1");
        (0..2).for_each(|shard| scene.serve(shard, 7));
        scene.read().map_err(|e| format!("{e:?}")).unwrap().transfer
    };
    for shared in [0, 1] {
        let moved = served(RouteScene::reading("a"), shared);
        let lent = if shared == 0 { BYTES } else { 0 };
        assert_eq!((moved.shared, moved.direct + moved.tcp), (lent, BYTES - lent));
        assert!(moved.seconds >= moved.plan_seconds && moved.plan_seconds > 0.0, "{moved:?}");
        let moved = served(RouteScene::reading_both(), shared);
        assert_eq!((moved.shared, moved.direct + moved.tcp), (BYTES, BYTES));
        assert_eq!(
            (moved.way == "shared", moved.way_reason.contains("not in shared memory")),
            (shared == 0, shared == 1),
            "{}: {}",
            moved.way,
            moved.way_reason
        );
    }
}

/// Replicas of two shards each.
#[test]
fn bytes_count_for_the_replica_whose_shard_has_given_them() {
    let own = RouteScene::reading("a").assignment(1);
    let shards = own.shards.iter().chain(own.shards.iter()).cloned().collect();
    let both = Assignment { helpers: vec!["other".to_owned()], shards, ..own };
    for (given, expected) in [
        (&[(0, 1), (1, 2), (2, 4), (3, 8)][..], [3, 12]),
        (&[(1, 2), (3, 8)], [2, 8]),
        (&[(3, 8)], [0, 8]),
    ] {
        assert_eq!(by_replica(&both, given.iter().copied()), expected);
    }
}

/// So many connections are kept; the next one begins anew.
#[test]
fn the_number_of_connections_is_bounded() {
    let scene = RouteScene::reading("a");
    let at = |shard: usize| scene.servers[shard].addr().to_string();
    let first = scene.routes.peer(&at(0), soon()).unwrap();
    let known = |scene: &RouteScene| scene.routes.peers.lock().unwrap().len();
    for number in 1..CACHED_PEERS - 1 {
        let mut peers = scene.routes.peers.lock().unwrap();
        peers.insert(format!("10.0.0.1:{number}"), Arc::clone(&first));
    }
    let second = scene.routes.peer(&at(1), soon()).unwrap();
    assert_eq!(known(&scene), CACHED_PEERS);
    assert!(Arc::ptr_eq(&second, &scene.routes.peer(&at(1), soon()).unwrap()));
    scene.routes.forget_peer(&at(0));
    scene.routes.peers.lock().unwrap().insert("10.0.0.1:0".to_owned(), first);
    drop(scene.routes.peer(&at(0), soon()).unwrap());
    assert_eq!(known(&scene), 1);
}

/// Jobs are known by their sources' places, and a source of which nothing is moved is asked whether it stands.
#[test]
fn a_source_of_which_everything_is_left_out_has_a_job_too() {
    let scene = RouteScene::reading("a");
    scene.serve(0, 7);
    let assignment = scene.assignment(1);
    let read = Read {
        registration: &scene.registration,
        assignment: &assignment,
        sources: &scene.layouts,
        deadline: soon(),
        cancel: Arc::default(),
        pace: ReadPace::default(),
        filling: None,
        entering: None,
        memory: &scene.memory,
        comparing: Comparing::default(),
    };
    let found =
        scene.routes.plans.get(read.registration, &read.assignment.layouts(), read.sources, None);
    let (plan, _) = found.map_err(|e| format!("{e:?}")).unwrap();
    let bound = scene.routes.bind(&plan, &read).map_err(|e| format!("{e:?}")).unwrap();
    let jobs = jobs(&plan, &LeftOut::everything(&plan), &bound, None);
    assert_eq!((bound.len(), jobs.len(), jobs.iter().map(bytes).sum::<u64>()), (1, 1, 0));
}

/// Where all shards of a source hold the same, a relay's shard is read by its like, and a holder's by whoever.
#[test]
fn a_plan_of_one_shard_alone_takes_all_from_there() {
    let scene = RouteScene::reading("a");
    let (names, sources) =
        ([5, 6, 7].map(|name| ContentDigest([name; 16])), vec![layout_of("a"); 3]);
    for (only, expected) in [(None, 0), (Some(2), 2), (Some(1), 1), (None, 0), (Some(2), 2)] {
        let found = scene.routes.plans.get(&scene.registration, &names, &sources, only);
        let (plan, _) = found.map_err(|e| format!("{e:?}")).unwrap();
        assert!(plan.copies.iter().all(|copy| copy.source == expected), "{only:?}: {plan:?}");
        assert_eq!(plan.bytes(), BYTES);
    }
}

#[test]
fn memory_that_cannot_be_written_is_the_readers_own_trouble() {
    let target = fresh().read_only();
    let scene = RouteScene::into("a", target);
    scene.serve(0, 7);
    assert!(matches!(scene.read(), Err(ReadFailure::Layout { .. })));
}

#[test]
fn what_was_cancelled_before_it_began_writes_nothing() {
    let scene = RouteScene::reading("a");
    scene.serve(0, 7);
    scene.cancel.store(true, Ordering::Release);
    assert!(scene.read().is_err());
    assert!(scene.held() == vec![0; BYTES as usize]);
}

#[test]
fn other_tensors_than_the_groups_are_not_read() {
    let scene = RouteScene::reading("a");
    scene.serve(0, 7);
    let assignment = Assignment { catalog: ContentDigest([0; 16]), ..scene.assignment(1) };
    let pace = ReadPace::default();
    let refused = scene.routes.read(&Read {
        registration: &scene.registration,
        assignment: &assignment,
        sources: &scene.layouts,
        deadline: soon(),
        cancel: Arc::default(),
        pace,
        filling: None,
        entering: None,
        memory: &scene.memory,
        comparing: Comparing::default(),
    });
    let Err(ReadFailure::Layout { detail }) = refused else { panic!("it is refused") };
    assert!(detail.contains("tensors that no shard here registers: b"), "{detail}");
    assert!(scene.held() == vec![0; BYTES as usize]);
}

#[test]
fn the_newest_plans_are_remembered_until_they_are_forgotten() {
    let scene = RouteScene::reading("a");
    scene.serve(0, 7);
    let from = |name| {
        let read = scene.read_named(name, &ReadPace::default());
        read.map_err(|e| format!("{e:?}")).unwrap().transfer.plan_from
    };
    let names = |of: std::ops::Range<usize>| of.map(|name| 2 * name as u8);
    for name in names(0..crate::limits::CACHED_PLANS) {
        assert_eq!((from(name), from(name)), (PlanFrom::Planner, PlanFrom::Memory));
    }
    assert_eq!(from(200), PlanFrom::Planner);
    for name in names(1..crate::limits::CACHED_PLANS) {
        assert_eq!(from(name), PlanFrom::Memory, "{name}");
    }
    assert_eq!(from(0), PlanFrom::Planner, "the oldest has gone");
    scene.routes.forget_plans();
    assert_eq!(from(200), PlanFrom::Planner);
}

#[test]
fn sources_of_one_layout_are_read_by_one_plan_together_or_alone() {
    let scene = RouteScene::reading("a");
    (0..2).for_each(|shard| scene.serve(shard, 7));
    // Two replicas of one shard each, with one layout; or only one of them.
    let layout =
        |shard: &SourceShard| SourceShard { layout: ContentDigest([1; 16]), ..shard.clone() };
    let both = scene.assignment(1);
    let both = Assignment {
        helpers: vec!["other".to_owned()],
        shards: both.shards.iter().map(layout).collect(),
        ..both
    };
    let alone = |shard: usize| Assignment {
        helpers: Vec::new(),
        shards: both.shards[shard..=shard].into(),
        ..both.clone()
    };
    let each = [both.clone(), alone(0), both.clone(), alone(1)];
    for (number, assignment) in each.into_iter().enumerate() {
        scene.registration.regions[0].write_at(0, &vec![0; BYTES as usize]).unwrap();
        let read = scene.routes.read(&Read {
            registration: &scene.registration,
            assignment: &assignment,
            sources: &vec![layout_of("a"); assignment.shards.len()],
            deadline: soon(),
            cancel: Arc::default(),
            pace: ReadPace::default(),
            filling: None,
            entering: None,
            memory: &scene.memory,
            comparing: Comparing::default(),
        });
        let arrival = read.map_err(|e| format!("{e:?}")).unwrap();
        let from = if number == 0 { PlanFrom::Planner } else { PlanFrom::Memory };
        let Transfer { plan_from, helpers, given, .. } = arrival.transfer;
        assert_eq!(plan_from, from);
        assert_eq!((helpers.len() + 1, given.iter().sum()), (given.len(), BYTES));
        assert!(scene.held() == vec![7; BYTES as usize]);
    }
    assert!(scene.servers.iter().all(|server| server.connections() > 0), "both were asked");
}

#[test]
fn a_port_where_no_source_of_the_job_is_is_not_connected_to() {
    let server = DataServer::bind("127.0.0.1:0".parse().unwrap(), auth()).unwrap();
    let here = server.addr().to_string();
    let elsewhere = routes("http://10.1.2.3:7700");
    let link_local = "169.254.169.254:80".to_owned();
    for (address, said) in [(&here, "this very host"), (&link_local, "link-local")] {
        let refused = elsewhere.peer(address, soon()).map(drop).unwrap_err();
        assert!(refused.contains(said), "{refused}");
    }
    assert_eq!(server.connections(), 0);
    let local = routes("localhost:1");
    let (first, again) = (local.peer(&here, soon()).unwrap(), local.peer(&here, soon()).unwrap());
    assert!(Arc::ptr_eq(&first, &again), "it stays connected");
}
