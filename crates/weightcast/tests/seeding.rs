//! Offload seeding through real sessions and sockets: an update does not wait for a crossing, and
//! exactly one copy crosses.

use std::time::{Duration, Instant};

use crate::gate::Gate;
use weightcast::plan::{DType, Layout, LayoutBuilder, Part};
use weightcast::transport::{Region, Way};
use weightcast::{
    Condition, LayoutSource, Options, Replica, Role, Selector, ServeConfig, Server, ShardHandle,
    Status, Updated, serve,
};

const SOON: Duration = Duration::from_secs(30);
const ROWS: u64 = 4_096;
const BYTES: u64 = ROWS * 2_048;
/// What requests and answers may add to the bytes that pass a gate.
const FRAMES: u64 = 64 << 10;

fn layout() -> Layout {
    let mut builder = LayoutBuilder::new();
    let part = vec![Part::new("mlp").shape([ROWS, 1_024])];
    builder.add("mlp", DType::BF16, &[ROWS, 1_024], part, 0);
    builder.build().unwrap()
}

fn content(version: u64) -> Vec<u8> {
    let words = (0..BYTES / 8).map(|i| (i ^ (version << 40)).wrapping_mul(0x9e37_79b9));
    words.flat_map(u64::to_le_bytes).collect()
}

/// A trainer in `us` behind a gate, rollouts in `eu` that hold version 1, and version 2 published.
struct Stage {
    trainer: ShardHandle,
    gate: Gate,
    rollouts: Vec<(ShardHandle, Region)>,
    server: Server,
}

impl Stage {
    fn new(rollouts: usize, offload_bytes: Option<u64>) -> Self {
        let server = serve(ServeConfig { paranoid: true, ..ServeConfig::default() }).unwrap();
        let gate = Gate::new();
        let options = Options {
            data_bind: Some(gate.bind()),
            data_advertise: Some(gate.advertise()),
            ..Options::new(Role::Trainer)
        };
        let (trainer, memory) = open(&server, "trainer", "us", options);
        memory.write_at(0, &content(1)).unwrap();
        trainer.publish(1, SOON).unwrap();
        let open = |number| {
            let name = format!("rollout-{number}");
            let options =
                Options { offload_seeding: true, offload_bytes, ..Options::new(Role::Rollout) };
            let (rollout, memory) = open(&server, &name, "eu", options);
            assert!(rollout.update(Selector::Latest, false, SOON).unwrap().changed);
            (rollout, memory)
        };
        let rollouts = (0..rollouts).map(open).collect();
        trainer.unpublish(SOON).unwrap();
        memory.write_at(0, &content(2)).unwrap();
        trainer.publish(2, SOON).unwrap();
        trainer.wait_sealed(SOON).unwrap();
        Self { trainer, gate, rollouts, server }
    }

    fn update(&self, rollout: usize) -> Updated {
        self.rollouts[rollout].0.update(Selector::Latest, false, SOON).unwrap()
    }

    fn status(&self) -> Status {
        let server = Some(self.server.address().to_owned());
        weightcast::status(&Options { server, ..Options::new(Role::Rollout) }).unwrap()
    }

    fn counter(&self, name: &str) -> u64 {
        self.status().counters[name]
    }

    /// Waits until this is so, looking whenever something is published, read or given up.
    fn wait_until(&self, so: impl Fn(&Status) -> bool) {
        let begun = Instant::now();
        let mut listing = self.trainer.list(SOON).unwrap();
        while !so(&self.status()) {
            assert!(begun.elapsed() < SOON, "it never comes: {:?}", self.status().counters);
            let changed = Condition::Changed { after: listing.revision };
            listing = self.trainer.wait(changed, Duration::from_millis(50)).unwrap_or(listing);
        }
    }
}

fn open(server: &Server, name: &str, place: &str, options: Options) -> (ShardHandle, Region) {
    let server = Some(server.address().to_owned());
    let options = Options { server, way: Way::Tcp, ..options };
    let replica = Replica { datacentre: place.to_owned(), ..Replica::new(name, 0, 1) };
    let handle = ShardHandle::open("model", replica, &options).unwrap();
    let region = Region::allocate(BYTES as usize).unwrap();
    handle.register(LayoutSource::Known(layout()), vec![region.clone()], SOON).unwrap();
    (handle, region)
}

fn seeds(status: &Status) -> usize {
    status.models[0].replicas.iter().filter(|replica| replica.role == "seed").count()
}

#[test]
fn updates_go_on_while_one_copy_crosses_and_then_read_it() {
    let stage = Stage::new(2, Some(BYTES));
    let (passed, crossings) = (stage.gate.passed(), stage.counter("crossings"));
    stage.gate.hold_after(BYTES / 2);
    assert!(!stage.update(0).changed);
    stage.gate.wait_held();
    // Half of it has crossed: nobody waits for the rest, and what they hold stays as it is.
    for rollout in [1, 0] {
        let updated = stage.update(rollout);
        assert_eq!((updated.changed, updated.version.map(|v| v.number)), (false, Some(1)));
        assert!(stage.rollouts[rollout].1.to_vec() == content(1));
    }
    stage.gate.open();
    stage.wait_until(|status| status.counters["seeds"] == 1);
    // Of the process, in which other tests may count as well.
    stage.wait_until(|_| weightcast::metrics(None)["weightcast/seeds"] >= 1.0);
    for rollout in [1, 0] {
        assert!(stage.update(rollout).changed);
        assert!(stage.rollouts[rollout].1.to_vec() == content(2));
    }
    // Nobody lacks it any more: the memory is free.
    stage.wait_until(|status| seeds(status) == 0);
    let crossed = stage.gate.passed() - passed;
    assert!((BYTES..BYTES + FRAMES).contains(&crossed), "{crossed} bytes crossed");
    assert_eq!(stage.counter("crossings") - crossings, 1);
    assert_eq!((stage.counter("seeds_released"), stage.counter("seeds_failed")), (1, 0));
}

#[test]
fn without_room_for_a_seed_the_next_update_crosses_by_itself() {
    let stage = Stage::new(1, Some(BYTES - 1));
    assert!(!stage.update(0).changed);
    stage.wait_until(|status| status.counters["seeds_failed"] >= 1);
    assert!(stage.update(0).changed);
    assert!(stage.rollouts[0].1.to_vec() == content(2));
    assert_eq!(stage.counter("seeds"), 0);
}

#[test]
fn a_seed_goes_with_the_handle_that_was_asked() {
    let stage = Stage::new(2, None);
    stage.gate.hold_after(BYTES / 2);
    assert!(!stage.update(0).changed);
    stage.gate.wait_held();
    stage.rollouts[0].0.close(SOON);
    stage.wait_until(|status| seeds(status) == 0);
    stage.gate.open();
    // The other one is asked then.
    assert!(!stage.update(1).changed);
    stage.wait_until(|status| status.counters["seeds"] == 1);
    assert!(stage.update(1).changed);
    assert!(stage.rollouts[1].1.to_vec() == content(2));
}
