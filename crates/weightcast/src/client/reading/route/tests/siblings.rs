//! Reads that take a part from a shard of the same host, which gives it or does not.

use weightcast_plan::cells;
use weightcast_protocol::message::Sibling;
use weightcast_protocol::session::{Opening, ReadOrder};
use weightcast_protocol::{Attempt, OpSeq, Time};
use weightcast_transport::Filling;

use super::*;
use crate::client::memory::siblings::taken_from;
use crate::client::reading::entering::EnteringBytes;

/// Turns of two shards, two of each.
const TABLE: u64 = 4 << 20;
const MEMORY: [ExportId; 2] = [ExportId(11), ExportId(12)];

/// A source of a table, and the first of two shards on another host which both hold the table whole.
struct SharingScene {
    source: DataServer,
    sibling: DataServer,
    layout: Arc<Layout>,
    registration: Arc<RegisteredShard>,
    entering: EnteringBytes,
    routes: Routes,
}

impl SharingScene {
    fn new() -> Self {
        let bind = || DataServer::bind("127.0.0.1:0".parse().unwrap(), auth()).unwrap();
        let (source, sibling) = (bind(), bind());
        let mut builder = LayoutBuilder::new();
        builder.add("table", DType::U8, &[TABLE], vec![Part::new("table").shape([TABLE])], 0);
        let layout = Arc::new(builder.build().unwrap());
        let region = || Region::allocate(TABLE as usize).unwrap();
        let served = region();
        served.write_at(0, &vec![7; TABLE as usize]).unwrap();
        source.exports().expose_as(export(0, GENERATION), GENERATION, vec![served]);
        let told = [0, 1].map(|shard| Sibling {
            shard,
            host: 0,
            data_address: sibling.addr().to_string(),
            export: weightcast_protocol::ExportId(MEMORY[shard as usize].0),
        });
        let group = vec![Arc::clone(&layout); 2];
        let registration = RegisteredShard::new(&group, 0, vec![region()]).unwrap();
        let registration = Arc::new(registration.beside(&group, 0, &told));
        let order = ReadOrder {
            seq: OpSeq(5),
            attempt: Attempt::FIRST,
            since: Attempt::FIRST,
            assignment: Self::assignment_of(&source, &registration),
            keep: false,
            deadline: Time(0),
        };
        let opening = registration.siblings.as_ref().unwrap().sharing().begin(&order).unwrap();
        let filling = Arc::new(Filling::new(&registration.regions));
        let entering = EnteringBytes { opening, filling };
        let routes = routes_by(Way::Tcp, "localhost:1");
        Self { source, sibling, layout, registration, entering, routes }
    }

    fn assignment_of(source: &DataServer, registration: &RegisteredShard) -> Assignment {
        let shard = SourceShard {
            data_address: source.addr().to_string(),
            export: weightcast_protocol::ExportId(1),
            generation: Generation(GENERATION),
            layout: ContentDigest([1; 16]),
        };
        Assignment {
            version: Version { epoch: Epoch(0), number: 1 },
            catalog: registration.catalog,
            replica: "trainer".to_owned(),
            in_flight: false,
            staged: false,
            helpers: Vec::new(),
            shards: [shard].into(),
        }
    }

    /// The name under which the sibling gives its part.
    fn given(&self, opening: Opening) -> ExportId {
        taken_from(MEMORY[1], opening)
    }

    /// What comes from the source and from the sibling.
    fn read(&self) -> (u64, u64) {
        let read = self.routes.read(&Read {
            registration: &self.registration,
            assignment: &Self::assignment_of(&self.source, &self.registration),
            sources: std::slice::from_ref(&self.layout),
            deadline: soon(),
            cancel: Arc::default(),
            pace: ReadPace::default(),
            filling: None,
            entering: Some(&self.entering),
            memory: &Mutex::default(),
            comparing: Comparing::default(),
        });
        let arrival = read.map_err(|e| format!("{e:?}")).unwrap();
        assert!(self.registration.regions[0].to_vec() == vec![7; TABLE as usize]);
        let digests = self.registration.digest_all();
        assert_eq!(arrival.sums, self.registration.fold(&digests));
        (arrival.transfer.given.iter().sum(), arrival.transfer.siblings)
    }

    /// Of the table, what the second shard brings.
    fn brought_by_sibling(&self) -> u64 {
        let layouts = [&*self.layout; 2];
        let cells = cells(&layouts, 0);
        assert_eq!(cells.len(), 1);
        let shares = &self.registration.siblings.as_ref().unwrap().shares;
        shares.taken().iter().flat_map(|of| &of.copies).map(|copy| copy.rows * copy.row_bytes).sum()
    }
}

#[test]
fn a_sibling_gives_its_part() {
    let scene = SharingScene::new();
    let region = Region::allocate(TABLE as usize).unwrap();
    region.write_at(0, &vec![7; TABLE as usize]).unwrap();
    let id = scene.given(scene.entering.opening);
    scene.sibling.exports().expose_as(id, 1, vec![region]);
    let taken = scene.brought_by_sibling();
    assert_eq!(taken, TABLE / 2);
    assert_eq!(scene.read(), (TABLE - taken, taken));
}

/// The source gives the sibling's part instead, and the next read meets the sibling again.
#[test]
fn a_sibling_that_breaks_off_costs_its_part_alone() {
    let scene = SharingScene::new();
    let id = scene.given(scene.entering.opening);
    let regions = vec![Region::allocate(TABLE as usize).unwrap()];
    let filling = Arc::new(Filling::new(&regions));
    scene.sibling.exports().expose_filling(id, 1, regions, filling);
    let read = std::thread::scope(|scope| {
        let read = scope.spawn(|| scene.read());
        // It has met the sibling, and waits for bytes that never come.
        while scene.entering.filling.progress().0 == 0 && !read.is_finished() {
            std::thread::yield_now();
        }
        scene.sibling.exports().withdraw(id, Duration::ZERO);
        read.join().unwrap()
    });
    assert_eq!(read, (TABLE, 0));
    let sharing = scene.registration.siblings.as_ref().unwrap();
    let division = sharing.sharing().divide(false);
    assert_eq!(division, weightcast_protocol::session::Division::Shared);
}

/// It is not asked again until memory is registered anew.
#[test]
fn a_sibling_that_is_out_of_reach_is_left_alone() {
    let mut scene = SharingScene::new();
    let gone = DataServer::bind("127.0.0.1:0".parse().unwrap(), auth()).unwrap();
    scene.sibling = gone; // the port of before is closed
    assert_eq!(scene.read(), (TABLE, 0));
    let sharing = scene.registration.siblings.as_ref().unwrap();
    let division = sharing.sharing().divide(false);
    assert_eq!(division, weightcast_protocol::session::Division::Alone);
}
