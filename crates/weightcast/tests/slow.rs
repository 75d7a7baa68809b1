//! Sources that give little or join late, and reads that run out of time, over real sockets: counted in bytes.

use std::time::Duration;

use crate::gate::Gate;
use weightcast::plan::{DType, Layout, LayoutBuilder, Part};
use weightcast::transport::{Region, Way};
use weightcast::{
    CallError, Error, LayoutSource, Options, Replica, Role, Selector, ServeConfig, Server,
    ShardHandle, serve,
};

const SOON: Duration = Duration::from_secs(60);
const ROWS: u64 = 4_096;
const BYTES: u64 = ROWS * 2_048;
/// What requests and answers, and what was on its way, may add to the bytes that pass a gate.
const FRAMES: u64 = 512 << 10;

fn layout() -> Layout {
    let mut builder = LayoutBuilder::new();
    let part = vec![Part::new("w").shape([ROWS, 1_024])];
    builder.add("w", DType::BF16, &[ROWS, 1_024], part, 0);
    builder.build().unwrap()
}

fn content() -> Vec<u8> {
    let words = (0..BYTES / 8).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    words.flat_map(u64::to_le_bytes).collect()
}

/// A replica of one shard, its data port behind a gate.
struct Member {
    handle: ShardHandle,
    region: Region,
    gate: Gate,
}

fn member(server: &Server, name: &str, role: Role) -> Member {
    let gate = Gate::new();
    let options = Options {
        server: Some(server.address().to_owned()),
        data_bind: Some(gate.bind()),
        data_advertise: Some(gate.advertise()),
        way: Way::Tcp,
        ..Options::new(role)
    };
    let handle = ShardHandle::open("model", Replica::new(name, 0, 1), &options).unwrap();
    let region = Region::allocate(BYTES as usize).unwrap();
    handle.register(LayoutSource::Known(layout()), vec![region.clone()], SOON).unwrap();
    Member { handle, region, gate }
}

fn counter(server: &Server, name: &str) -> u64 {
    let server = Some(server.address().to_owned());
    let options = Options { server, ..Options::new(Role::Rollout) };
    weightcast::status(&options).unwrap().counters[name]
}

/// A server whose readers draw from so many sources, and a trainer that has published version 1.
fn stage(stripes: u32) -> (Server, Member) {
    let config =
        ServeConfig { paranoid: true, stripes, joins_from: BYTES, ..ServeConfig::default() };
    let server = serve(config).unwrap();
    let trainer = member(&server, "trainer", Role::Trainer);
    trainer.region.write_at(0, &content()).unwrap();
    trainer.handle.publish(1, SOON).unwrap();
    trainer.handle.wait_sealed(SOON).unwrap();
    (server, trainer)
}

/// A reader finds `copy` slow: it has all, and most of it from the trainer.
fn leaves_the_slow_one(stripes: u32) {
    let (server, trainer) = stage(stripes);
    let copy = member(&server, "copy", Role::Rollout);
    copy.handle.replicate(Selector::Latest, SOON).unwrap();
    let (before, reader) = (trainer.gate.passed(), member(&server, "reader", Role::Rollout));
    copy.gate.slow_down();
    let updated = reader.handle.replicate(Selector::Latest, SOON).unwrap();
    assert_eq!(updated.source.as_deref(), Some("trainer"));
    assert!(reader.region.to_vec() == content());
    assert!(copy.gate.passed() > 0, "it was the first");
    assert!(copy.gate.passed() < BYTES / 2, "{}", copy.gate.passed());
    assert!(trainer.gate.passed() - before > BYTES / 2);
    assert_eq!((counter(&server, "moved_on"), counter(&server, "accusations")), (1, 0));
    // Of the process, in which other tests may count as well.
    assert!(weightcast::metrics(None)["weightcast/retries"] >= 1.0);
}

#[test]
fn a_source_that_trickles_is_left_for_a_free_one() {
    leaves_the_slow_one(1);
}

#[test]
fn a_stripe_that_trickles_is_left_to_the_others() {
    leaves_the_slow_one(2);
}

#[test]
fn who_publishes_while_a_reader_waits_for_another_gives_the_rest_with_it() {
    let (server, trainer) = stage(2);
    let [other, reader] = [("other", Role::Trainer), ("reader", Role::Rollout)]
        .map(|(name, role)| member(&server, name, role));
    trainer.gate.hold_after(BYTES / 4);
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| reader.handle.replicate(Selector::Latest, SOON).unwrap());
        trainer.gate.wait_held();
        other.region.write_at(0, &content()).unwrap();
        other.handle.publish(1, SOON).unwrap();
        while counter(&server, "joined") == 0 {
            std::thread::yield_now();
        }
        trainer.gate.open();
        let updated = reads.join().unwrap();
        assert_eq!(updated.source.as_deref(), Some("trainer"));
        assert_eq!(updated.transfer.helpers, ["other"]);
    });
    assert!(reader.region.to_vec() == content());
    let passed = trainer.gate.passed() + other.gate.passed();
    assert!(passed < BYTES + BYTES / 4, "what had come was kept: {passed} of {BYTES}");
}

/// A reader whose call has run out of time when half of the bytes were there, and what had passed.
fn cut_off() -> (Server, Member, Member, u64) {
    let (server, trainer) = stage(1);
    let reader = member(&server, "reader", Role::Rollout);
    trainer.gate.hold_after(BYTES / 2);
    let cut = reader.handle.replicate(Selector::Latest, Duration::from_secs(2));
    assert!(matches!(cut, Err(Error::Call(CallError::Timeout { .. }))), "{cut:?}");
    assert_eq!(reader.handle.version(), None);
    let passed = trainer.gate.passed();
    trainer.gate.open();
    (server, trainer, reader, passed)
}

#[test]
fn what_was_read_when_a_call_ran_out_of_time_is_not_read_again() {
    let (_server, trainer, reader, before) = cut_off();
    reader.handle.replicate(Selector::Latest, SOON).unwrap();
    assert!(reader.region.to_vec() == content());
    let passed = trainer.gate.passed() - before;
    assert!(passed < BYTES / 2 + FRAMES, "{passed} of {BYTES}");
}

#[test]
fn unless_the_user_has_written_to_it_and_then_nobody_is_blamed() {
    let (server, trainer, reader, before) = cut_off();
    reader.region.write_at(4_096, &[0x5a; 64]).unwrap();
    let updated = reader.handle.replicate(Selector::Latest, SOON).unwrap();
    assert_eq!(updated.source.as_deref(), Some("trainer"));
    assert!(reader.region.to_vec() == content());
    assert!(trainer.gate.passed() - before > BYTES);
    assert_eq!((counter(&server, "digest_mismatches"), counter(&server, "accusations")), (1, 0));
}
