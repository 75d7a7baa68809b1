//! Replicas that are read while they are being filled, through real sessions and sockets.

use std::thread;
use std::time::{Duration, Instant};

use crate::gate::Gate;
use weightcast::plan::{DType, Layout, LayoutBuilder, Part};
use weightcast::transport::{Region, Way};
use weightcast::{
    CallError, Cause, Error, LayoutSource, Options, Replica, Role, Selector, ServeConfig, Server,
    ShardHandle, Updated, serve,
};

const SOON: Duration = Duration::from_secs(30);
/// Two tensors of as many rows of 2 KiB; the first has two names.
const ROWS: u64 = 2_048;
const TENSOR: u64 = ROWS * 2_048;
const BYTES: u64 = 2 * TENSOR;
/// What requests and answers may add to the bytes that pass a gate.
const FRAMES: u64 = 64 << 10;

fn layout() -> Layout {
    let part = |name| vec![Part::new(name).shape([ROWS, 1_024])];
    let mut builder = LayoutBuilder::new();
    builder.add("embed", DType::BF16, &[ROWS, 1_024], part("embed"), 0).also(part("head"), 0);
    builder.add("mlp", DType::BF16, &[ROWS, 1_024], part("mlp"), 0);
    builder.build().unwrap()
}

/// All bytes of a version.
fn content(version: u64) -> Vec<u8> {
    let words = (0..BYTES / 8).map(|i| (i ^ (version << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    words.flat_map(u64::to_le_bytes).collect()
}

/// A server, a trainer far away that has published version 1, and rollouts near each other.
struct Stage {
    trainer: Member,
    server: Server,
}

/// A replica of one shard, its data port behind a gate.
struct Member {
    handle: ShardHandle,
    regions: Vec<Region>,
    gate: Gate,
}

impl Stage {
    fn new() -> Self {
        // Replicas read from each other, though all of them lie on this host.
        let config = ServeConfig {
            host_fanout: 1,
            lease: Duration::from_secs(5),
            paranoid: true,
            ..ServeConfig::default()
        };
        let server = serve(config).unwrap();
        let trainer = member(&server, "trainer", Role::Trainer, "far");
        let (embed, mlp) = (content(1), &content(1)[TENSOR as usize..]);
        trainer.regions[0].write_at(0, &embed[..TENSOR as usize]).unwrap();
        trainer.regions[1].write_at(0, mlp).unwrap();
        trainer.handle.publish(1, SOON).unwrap();
        trainer.handle.wait_sealed(SOON).unwrap();
        Self { trainer, server }
    }

    fn rollout(&self, name: &str) -> Member {
        member(&self.server, name, Role::Rollout, "near")
    }

    fn counter(&self, name: &str) -> u64 {
        let server = Some(self.server.address().to_owned());
        let options = Options { server, ..Options::new(Role::Rollout) };
        weightcast::status(&options).unwrap().counters[name]
    }
}

fn member(server: &Server, name: &str, role: Role, datacentre: &str) -> Member {
    let gate = Gate::new();
    let options = Options {
        server: Some(server.address().to_owned()),
        data_bind: Some(gate.bind()),
        data_advertise: Some(gate.advertise()),
        way: Way::Tcp,
        ..Options::new(role)
    };
    let replica = Replica { datacentre: datacentre.to_owned(), ..Replica::new(name, 0, 1) };
    let handle = ShardHandle::open("model", replica, &options).unwrap();
    let regions: Vec<_> = (0..2).map(|_| Region::allocate(TENSOR as usize).unwrap()).collect();
    handle.register(LayoutSource::Known(layout()), regions.clone(), SOON).unwrap();
    Member { handle, regions, gate }
}

impl Member {
    fn replicate(&self) -> Result<Updated, Error> {
        self.handle.replicate(Selector::Exact(1), SOON)
    }

    /// The name of the replica that it has read from last.
    fn source(updated: Result<Updated, Error>) -> String {
        updated.unwrap().source.unwrap()
    }

    fn memory(&self) -> Vec<u8> {
        self.regions.iter().flat_map(Region::to_vec).collect()
    }

    /// Changes the last byte of the second tensor behind everybody's back.
    fn corrupt(&self) {
        let last = TENSOR as usize - 1;
        self.regions[1].write_at(last, &[!self.regions[1].to_vec()[last]]).unwrap();
    }

    /// Waits until something of the running read has arrived. How much may come from a source that is
    /// itself held depends on how far each of its streams has got.
    fn wait_begun(&self) {
        let until = Instant::now() + SOON;
        while self.handle.progress() == 0 {
            assert!(Instant::now() < until, "no byte arrived");
            thread::yield_now();
        }
    }
}

/// Opens gates when dropped, so that a failed assertion ends the readers it would wait for.
struct Release<'a>(&'a [&'a Gate]);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|gate| gate.open());
    }
}

#[test]
fn a_chain_reads_what_is_still_coming() {
    let stage = Stage::new();
    let chain = ["r1", "r2", "r3"].map(|name| stage.rollout(name));
    let source = &stage.trainer.gate;
    source.hold_after(BYTES / 2);
    thread::scope(|scope| {
        let release = Release(&[source]);
        let mut reads = vec![scope.spawn(|| chain[0].replicate())];
        source.wait_held();
        for reader in &chain[1..] {
            reads.push(scope.spawn(|| reader.replicate()));
            reader.wait_begun();
        }
        assert!(source.passed() <= BYTES / 2);
        drop(release);
        let sources = reads.into_iter().map(|read| Member::source(read.join().unwrap()));
        assert_eq!(sources.collect::<Vec<_>>(), ["trainer", "r1", "r2"]);
    });
    for reader in &chain {
        assert!(reader.memory() == content(1));
    }
    for gate in [source, &chain[0].gate, &chain[1].gate] {
        assert!((BYTES..BYTES + FRAMES).contains(&gate.passed()), "{}", gate.passed());
    }
    assert_eq!(stage.counter("relays"), 2);
}

/// `b` reads from `a`, and `c` from what `b` has, when the port of `a` dies half-way.
fn with_a_lost_source(stage: &Stage) -> [Member; 2] {
    let a = stage.rollout("a");
    assert_eq!(Member::source(a.replicate()), "trainer");
    let [b, c] = ["b", "c"].map(|name| stage.rollout(name));
    a.gate.hold_after(BYTES / 2);
    let before = stage.trainer.gate.passed();
    thread::scope(|scope| {
        let _release = Release(&[&a.gate]);
        let first = scope.spawn(|| b.replicate());
        a.gate.wait_held();
        let second = scope.spawn(|| c.replicate());
        c.wait_begun();
        // What `c` has was final at `b`.
        let kept = c.handle.progress();
        a.gate.cut();
        assert_eq!(Member::source(first.join().unwrap()), "trainer");
        assert_eq!(Member::source(second.join().unwrap()), "b");
        assert_eq!(b.handle.progress(), BYTES);
        let again = stage.trainer.gate.passed() - before;
        assert!(again < BYTES - kept + FRAMES, "read {again} of {BYTES} again, had {kept}");
    });
    // Who reads from it has noticed nothing.
    assert!((BYTES..BYTES + FRAMES).contains(&b.gate.passed()), "{}", b.gate.passed());
    [b, c]
}

#[test]
fn a_lost_source_costs_only_what_was_not_final() {
    let stage = Stage::new();
    let readers = with_a_lost_source(&stage);
    assert!(readers.iter().all(|reader| reader.memory() == content(1)));
    // Twice at the same source, which might have come back, then at the other.
    assert_eq!(stage.counter("resumes"), 3);
    assert_eq!(stage.counter("digest_mismatches"), 0);
}

#[test]
fn what_was_read_from_two_sources_is_searched_as_any() {
    let stage = Stage::new();
    let [b, c] = with_a_lost_source(&stage);
    for holder in [&stage.trainer.handle, &c.handle] {
        holder.close(SOON);
    }
    b.corrupt();
    let reader = stage.rollout("reader");
    let refused = reader.replicate().unwrap_err();
    assert!(matches!(refused, Error::Call(CallError::DigestMismatch { .. })), "{refused:?}");
    let place = reader.handle.mismatch().unwrap();
    assert_eq!((place.tensor.as_str(), place.source_shard), ("mlp", Some(0)));
    assert_eq!(place.cause, Cause::Source);
    assert!(refused.to_string().contains("shard 0 of b had sealed"), "{refused}");
}

#[test]
fn nothing_of_a_bad_source_stays_below_it() {
    let stage = Stage::new();
    let a = stage.rollout("a");
    assert_eq!(Member::source(a.replicate()), "trainer");
    let [b, c] = ["b", "c"].map(|name| stage.rollout(name));
    a.gate.hold_after(BYTES / 2);
    thread::scope(|scope| {
        let release = Release(&[&a.gate]);
        let first = scope.spawn(|| b.replicate());
        a.gate.wait_held();
        let second = scope.spawn(|| c.replicate());
        c.wait_begun();
        a.corrupt();
        drop(release);
        let sources = [first, second].map(|read| Member::source(read.join().unwrap()));
        assert!(sources.iter().all(|source| source != "a"), "{sources:?}");
    });
    assert!(b.memory() == content(1) && c.memory() == content(1));
    assert!(stage.counter("digest_mismatches") >= 1);
}

#[test]
fn a_relay_that_gives_up_is_left_by_its_readers() {
    let stage = Stage::new();
    let [b, c] = ["b", "c"].map(|name| stage.rollout(name));
    let source = &stage.trainer.gate;
    source.hold_after(BYTES / 2);
    thread::scope(|scope| {
        let _release = Release(&[source]);
        let first = scope.spawn(|| b.replicate());
        source.wait_held();
        let second = scope.spawn(|| c.replicate());
        c.wait_begun();
        b.handle.close(SOON);
        assert!(first.join().unwrap().is_err());
        let before = source.passed();
        source.open();
        assert_eq!(Member::source(second.join().unwrap()), "trainer");
        // What it had it kept.
        assert!(source.passed() - before < BYTES);
    });
    assert!(c.memory() == content(1));
    assert_eq!(c.handle.progress(), BYTES);
}
