use prost::Message;
use tokio::sync::oneshot;
use weightcast_plan::{DType, LayoutBuilder, Part};
use weightcast_protocol::{Epoch, Generation, Term};
use weightcast_transport::{Auth, DataServer, Region, Way};

use super::*;
use crate::client::connection::tests::{FakePort, Said, to, whole as reply};
use crate::client::reading::networks::Networks;
use crate::client::reading::route::Routes;
use crate::config::{Options, Role};
use crate::convert::{Inspected, inspect_reply};

const VERSION: Version = Version { epoch: Epoch(1), number: 7 };
const NAME: ContentDigest = ContentDigest([3; 16]);

/// A holder of two shards of eight bytes, in this process, and a client that may view what this process shares.
struct ViewScene {
    holder: DataServer,
    shards: Vec<SourceShard>,
    layout: Arc<Layout>,
}

impl ViewScene {
    fn new(lens: [usize; 2]) -> Self {
        let holder = DataServer::bind(([127, 0, 0, 1], 0).into(), Auth::default()).unwrap();
        let mut builder = LayoutBuilder::new();
        builder.add("w", DType::U8, &[8], vec![Part::new("w").shape([8])], 0);
        let shard = |(number, len): (u64, usize)| {
            let region = Region::allocate_shared(len).unwrap();
            region.write_at(0, &[number as u8]).unwrap();
            holder.exports().expose_as(ExportId(number).at(4), 4, vec![region]);
            SourceShard {
                data_address: holder.addr().to_string(),
                export: weightcast_protocol::ExportId(number),
                generation: Generation(4),
                layout: NAME,
            }
        };
        let shards = (10..).zip(lens).map(shard).collect();
        Self { holder, shards, layout: Arc::new(builder.build().unwrap()) }
    }

    fn copy(&self, version: Version) -> Said {
        let copy = Assignment {
            version,
            catalog: ContentDigest::default(),
            replica: "holder".to_owned(),
            in_flight: false,
            staged: false,
            helpers: Vec::new(),
            shards: self.shards.iter().cloned().collect(),
        };
        let copy = Some(copy);
        let of = Inspected { term: Term(1), state: String::new(), copy, as_published: None };
        reply(&inspect_reply(of).encode_to_vec())
    }

    /// What a client finds that the server tells this.
    fn viewed(
        &self,
        shard: Option<u32>,
        said: Said,
    ) -> Result<Result<Vec<ShardView>, String>, Error> {
        let mut state = HandleState::alone(None, None);
        let networks = Networks::new(&Options::new(Role::Rollout), "localhost:1", None).unwrap();
        let own = Arc::get_mut(&mut state).expect("nobody else has it yet");
        own.routes = Routes::new(Auth::default(), Way::Shared, networks, None);
        state.layouts.lock().unwrap().keep(NAME, &self.layout);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        state.push.connect(to([FakePort::saying([said])]), runtime.handle().clone());
        let (_runs, ends) = oneshot::channel::<()>(); // the runtime ends with the first
        std::thread::spawn(move || runtime.block_on(ends));
        let until = Instant::now() + Duration::from_secs(20);
        Wanted { version: VERSION, shard, until }.of(&state, "policy", "holder")
    }
}

#[test]
fn all_shards_are_mapped_or_the_one_that_was_asked_for() {
    let scene = ViewScene::new([8, 8]);
    for (asked, expected) in [(None, &[0, 1][..]), (Some(0), &[0]), (Some(1), &[1])] {
        let shards = scene.viewed(asked, scene.copy(VERSION)).unwrap().unwrap();
        let found: Vec<_> = shards.iter().map(ShardView::number).collect();
        assert_eq!(found, expected);
        for shard in &shards {
            let bytes = shard.memory().regions()[0].to_vec();
            assert_eq!((bytes[0], bytes.len()), (10 + shard.number() as u8, 8));
            assert_eq!(shard.layout(), &*scene.layout);
        }
    }
}

#[test]
fn a_view_is_whole_as_long_as_each_of_its_shards_is() {
    let scene = ViewScene::new([8, 8]);
    let shards = scene.viewed(None, scene.copy(VERSION)).unwrap().unwrap();
    let view = VersionView { version: VERSION, replica: "holder".to_owned(), shards };
    let one = VersionView { shards: view.shards[..1].to_vec(), ..view.clone() };
    assert!(view.is_whole() && one.is_whole());
    assert_eq!((view.version(), view.replica(), view.shards().len()), (VERSION, "holder", 2));
    scene.holder.exports().fence(ExportId(11).at(4));
    assert!(!view.is_whole() && one.is_whole());
}

#[test]
fn what_is_not_there_as_the_server_says_is_not_mapped() {
    let scene = ViewScene::new([8, 7]);
    let other = Version { epoch: Epoch(2), ..VERSION };
    for (shard, version, why) in [
        (None, other, "gives the version up"),
        (Some(2), VERSION, "has 2 shards, and no shard 2"),
        (Some(1), VERSION, "its memory is not what its layout says"),
        (None, VERSION, "its memory is not what its layout says"),
    ] {
        let refused = scene.viewed(shard, scene.copy(version)).unwrap().unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    scene.holder.exports().fence(ExportId(10).at(4));
    let fenced = scene.viewed(Some(0), scene.copy(VERSION)).unwrap().unwrap_err();
    assert!(fenced.contains("fenced"), "{fenced}");
}
