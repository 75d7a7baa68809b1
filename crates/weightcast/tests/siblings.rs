//! Shards of one group on one host: what several hold enters the host once, and is taken from whoever brought it.

use std::time::Duration;

use weightcast::plan::{DType, Layout, LayoutBuilder, Part};
use weightcast::transport::{Region, Way};
use weightcast::{
    CallError, Error, LayoutSource, Options, Replica, Role, Selector, ShardHandle, Updated,
};

use crate::support::Cluster;

const SOON: Duration = Duration::from_secs(20);
const SHARDS: u64 = 3;
/// Turns of a mebibyte, and a part of one.
const TABLE: u64 = (7 << 20) + 4_096;
/// Of each shard.
const MATRIX: u64 = 1 << 20;

/// Of what the bytes of a version are made: those of the matrix, of the first third of the table, and of its rest.
#[derive(Clone, Copy)]
struct Made(u64, u64, u64);

impl Made {
    fn all(of: u64) -> Self {
        Self(of, of, of)
    }

    fn byte(self, tensor: &str, at: u64) -> u8 {
        let of = match tensor {
            "matrix" => self.0,
            _ if at < TABLE.div_ceil(SHARDS) => self.1,
            _ => self.2,
        };
        (at.wrapping_mul(0x9e37_79b9) >> 13) as u8 ^ (of * 31 + tensor.len() as u64) as u8
    }

    /// What a shard holds, buffer by buffer.
    fn content(self, layout: &Layout) -> Vec<Vec<u8>> {
        let entries = layout.entries().enumerate().map(|(number, entry)| {
            let tensor = layout.tensor_of(number as u32);
            let row: u64 = tensor.shape()[1..].iter().product();
            let start = entry.slice.start[0] * row;
            let bytes =
                (start..start + entry.slice.volume()).map(|at| self.byte(tensor.name(), at));
            (entry.buffer, bytes.collect())
        });
        let mut content: Vec<(u32, Vec<u8>)> = entries.collect();
        content.sort_by_key(|(buffer, _)| *buffer);
        content.into_iter().map(|(_, bytes)| bytes).collect()
    }
}

/// A shard that has its part of the matrix, and all of the table or its part.
fn layout(index: u64, whole_table: bool) -> Layout {
    let mut builder = LayoutBuilder::new();
    let part = Part::new("matrix").shape([SHARDS, MATRIX]).dim(0, index, SHARDS);
    builder.add("matrix", DType::U8, &[1, MATRIX], vec![part], 0);
    let part = Part::new("table").shape([TABLE]);
    let (each, part) = match whole_table {
        true => (TABLE, part),
        false => {
            let each = TABLE.div_ceil(SHARDS);
            let end = ((index + 1) * each).min(TABLE);
            (end - index * each, part.range(0, index * each, end - index * each))
        }
    };
    builder.add("table", DType::U8, &[each], vec![part], 0);
    builder.build().unwrap()
}

struct Member {
    handle: ShardHandle,
    layout: Layout,
    regions: Vec<Region>,
}

impl Member {
    fn holds(&self, made: Made) -> bool {
        let expected = made.content(&self.layout);
        self.regions.iter().zip(expected).all(|(region, bytes)| region.to_vec() == bytes)
    }
}

fn all<T: Send>(group: &[Member], call: impl Fn(&Member) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = group.iter().map(|member| scope.spawn(|| call(member))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The shards of a replica, with what each of them is given.
fn open(cluster: &Cluster, name: &str, options: impl Fn(u64) -> Options + Sync) -> Vec<Member> {
    let member = |index: u64| {
        let server = Some(cluster.server.address().to_owned());
        let options = Options { server, ..options(index) };
        let layout = layout(index, options.role == Role::Rollout);
        let replica = Replica::new(name, index as u32, SHARDS as u32);
        let handle = ShardHandle::open("model", replica, &options).unwrap();
        let region = |bytes: &u64| Region::allocate(*bytes as usize).unwrap();
        let regions: Vec<Region> = layout.buffers().iter().map(region).collect();
        handle.register(LayoutSource::Known(layout.clone()), regions.clone(), SOON).unwrap();
        Member { handle, layout, regions }
    };
    std::thread::scope(|scope| {
        let member = &member;
        let threads: Vec<_> = (0..SHARDS).map(|i| scope.spawn(move || member(i))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// As if the source were on another host.
fn far(role: Role) -> Options {
    Options { way: Way::Tcp, ..Options::new(role) }
}

fn groups(cluster: &Cluster) -> (Vec<Member>, Vec<Member>) {
    let trainer = open(cluster, "trainer", |_| Options::new(Role::Trainer));
    (trainer, open(cluster, "rollout", |_| far(Role::Rollout)))
}

fn publish(trainer: &[Member], version: u64, made: Made) {
    all(trainer, |member| {
        if member.handle.version().is_some() {
            member.handle.unpublish(SOON).unwrap();
        }
        for (region, bytes) in member.regions.iter().zip(made.content(&member.layout)) {
            region.write_at(0, &bytes).unwrap();
        }
        member.handle.publish(version, SOON).unwrap();
        member.handle.wait_sealed(SOON).unwrap();
    });
}

fn update(rollout: &[Member]) -> Vec<Updated> {
    all(rollout, |member| member.handle.update(Selector::Latest, false, SOON).unwrap())
}

/// Bytes that all shards together have had from the source, from each other, and had already.
fn sums(updates: &[Updated]) -> (u64, u64, u64) {
    let given = updates.iter().map(|updated| updated.transfer.given.iter().sum::<u64>()).sum();
    let sum = |of: fn(&Updated) -> u64| updates.iter().map(of).sum();
    (given, sum(|updated| updated.transfer.siblings), sum(|updated| updated.transfer.unchanged))
}

/// What all shards are to have from the source, and from each other.
const ONCE: u64 = TABLE + SHARDS * MATRIX;
const TAKEN: u64 = (SHARDS - 1) * TABLE;

#[test]
fn what_all_hold_enters_once() {
    let cluster = Cluster::start();
    let (trainer, rollout) = groups(&cluster);
    for version in 1..5 {
        publish(&trainer, version, Made::all(version));
        let updates = all(&rollout, |member| match version {
            1 => member.handle.replicate(Selector::Latest, SOON).unwrap(),
            2 => member.handle.update(Selector::Latest, false, SOON).unwrap(),
            _ => member.handle.update_staged(Selector::Latest, false, SOON).unwrap(),
        });
        assert_eq!(sums(&updates), (ONCE, TAKEN, 0), "version {version}");
        for updated in &updates {
            assert_eq!(updated.transfer.verified, TABLE + MATRIX);
            // Nobody brings it all: seven turns of three shards.
            assert!(updated.transfer.siblings > TABLE / 3, "{:?}", updated.transfer);
        }
        assert!(rollout.iter().all(|member| member.holds(Made::all(version))));
    }
}

#[test]
fn what_has_not_changed_is_neither_brought_nor_taken_and_half_of_a_table_is_none() {
    let cluster = Cluster::start();
    let (trainer, rollout) = groups(&cluster);
    let versions = [
        (Made(1, 1, 1), (ONCE, TAKEN, 0)),
        (Made(2, 2, 2), (ONCE, TAKEN, 0)),
        (Made(3, 2, 2), (SHARDS * MATRIX, 0, SHARDS * TABLE)),
        // The shards have the table from three of the trainer's.
        (Made(3, 4, 2), (TABLE, TAKEN, SHARDS * MATRIX)),
    ];
    for (version, (made, expected)) in (1..).zip(versions) {
        publish(&trainer, version, made);
        let updates = update(&rollout);
        assert_eq!(sums(&updates), expected, "version {version}");
        assert!(rollout.iter().all(|member| member.holds(made)), "version {version}");
    }
}

#[test]
fn a_shard_that_none_can_reach_takes_from_others_and_gives_nothing() {
    let cluster = Cluster::start();
    let trainer = open(&cluster, "trainer", |_| Options::new(Role::Trainer));
    let rollout = open(&cluster, "rollout", |index| {
        // Nobody listens there.
        let nowhere = (index == 1).then(|| "127.0.0.1:1".to_owned());
        Options { data_advertise: nowhere, ..far(Role::Rollout) }
    });
    for version in 1..3 {
        publish(&trainer, version, Made::all(version));
        let taken: Vec<bool> =
            update(&rollout).iter().map(|updated| updated.transfer.siblings > 0).collect();
        assert_eq!(taken, [false, true, false], "version {version}");
        assert!(rollout.iter().all(|member| member.holds(Made::all(version))));
    }
}

#[test]
fn wrong_bytes_are_told_as_ever_and_the_next_version_comes() {
    let cluster = Cluster::start();
    let (trainer, rollout) = groups(&cluster);
    publish(&trainer, 1, Made::all(1));
    let wrong = trainer[0].regions[1].to_vec()[5] ^ 1;
    trainer[0].regions[1].write_at(5, &[wrong]).unwrap();
    for refused in all(&rollout, |member| member.handle.replicate(Selector::Latest, SOON)) {
        let Err(Error::Call(CallError::DigestMismatch { .. })) = refused else {
            panic!("{refused:?}")
        };
    }
    publish(&trainer, 2, Made::all(2));
    let updates = all(&rollout, |member| member.handle.replicate(Selector::Latest, SOON).unwrap());
    assert!(sums(&updates).1 > 0);
    assert!(rollout.iter().all(|member| member.holds(Made::all(2))));
}
