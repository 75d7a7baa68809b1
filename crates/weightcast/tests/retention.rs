//! The last copy of a retained version is kept in CPU memory, through real sessions and sockets.

use std::time::{Duration, Instant};

use weightcast::plan::{DType, Layout, LayoutBuilder, Part};
use weightcast::transport::Region;
use weightcast::{
    Condition, LayoutSource, Options, Replica, Role, Selector, ServeConfig, Server, ShardHandle,
    Status, serve,
};

const SOON: Duration = Duration::from_secs(30);
const ROWS: u64 = 4_096;
const BYTES: usize = 4_096 * 2_048;

fn layout() -> Layout {
    let mut builder = LayoutBuilder::new();
    let part = vec![Part::new("mlp").shape([ROWS, 1_024])];
    builder.add("mlp", DType::BF16, &[ROWS, 1_024], part, 0);
    builder.build().unwrap()
}

fn content(version: u64) -> Vec<u8> {
    let words = (0..BYTES as u64 / 8).map(|i| (i ^ (version << 40)).wrapping_mul(0x9e37_79b9));
    words.flat_map(u64::to_le_bytes).collect()
}

fn open(server: &Server, name: &str, options: Options) -> (ShardHandle, Region) {
    let options = Options { server: Some(server.address().to_owned()), ..options };
    let handle = ShardHandle::open("model", Replica::new(name, 0, 1), &options).unwrap();
    let region = Region::allocate(BYTES).unwrap();
    handle.register(LayoutSource::Known(layout()), vec![region.clone()], SOON).unwrap();
    (handle, region)
}

fn status(server: &Server) -> Status {
    let server = Some(server.address().to_owned());
    weightcast::status(&Options { server, ..Options::new(Role::Rollout) }).unwrap()
}

fn server() -> Server {
    serve(ServeConfig { paranoid: true, ..ServeConfig::default() }).unwrap()
}

#[test]
fn a_rollout_that_comes_late_reads_the_offload_and_frees_it() {
    let server = server();
    let options = Options { retain: 1, ..Options::new(Role::Trainer) };
    let (trainer, memory) = open(&server, "trainer", options);
    memory.write_at(0, &content(1)).unwrap();
    let version = trainer.publish(1, SOON).unwrap();
    trainer.unpublish(SOON).unwrap();
    memory.write_at(0, &content(2)).unwrap();
    let aside = format!("trainer~offload-{}.1", version.epoch);
    assert_eq!(status(&server).models[0].versions[0].replicas, [aside.as_str()]);

    let (rollout, copy) = open(&server, "rollout", Options::new(Role::Rollout));
    let updated = rollout.replicate(Selector::Latest, SOON).unwrap();
    assert_eq!(updated.source, Some(aside));
    assert!(copy.to_vec() == content(1));

    let begun = Instant::now();
    while weightcast::metrics(None)["weightcast/offloads"] < 1.0 {
        assert!(begun.elapsed() < SOON, "the copy is not counted");
        std::thread::yield_now();
    }

    // It goes, since somebody else has the version now: wait for its session to leave.
    let mut listing = rollout.list(SOON).unwrap();
    while status(&server).models[0].replicas.iter().any(|replica| replica.role == "offload") {
        let changed = Condition::Changed { after: listing.revision };
        listing = rollout.wait(changed, Duration::from_millis(50)).unwrap_or(listing);
    }
    let counters = status(&server).counters;
    assert_eq!((counters["offloads"], counters["offloads_released"]), (1, 1));
    assert_eq!(counters["retention_lost"], 0);
}

#[test]
fn without_room_the_version_is_lost_and_nobody_waits() {
    let server = server();
    let limit = Some(BYTES as u64 - 1);
    let options = Options { retain: 1, offload_bytes: limit, ..Options::new(Role::Trainer) };
    let (trainer, memory) = open(&server, "trainer", options);
    memory.write_at(0, &content(1)).unwrap();
    trainer.publish(1, SOON).unwrap();
    trainer.unpublish(SOON).unwrap();
    let status = status(&server);
    assert_eq!(status.counters["retention_lost"], 1);
    let loss = &status.losses[0];
    assert!(loss.reason.contains("offload_bytes"), "{}", loss.reason);
    assert_eq!((loss.version, loss.replica.as_str()), (1, "trainer"));
}
