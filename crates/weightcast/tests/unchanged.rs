//! Updates that move only what changed, through real sessions and sockets.

use std::thread;
use std::time::{Duration, Instant};

use crate::gate::Gate;
use weightcast::plan::transform::{Rule, Rules, Transform};
use weightcast::plan::{DType, Layout, LayoutBuilder, Part};
use weightcast::transport::{Region, Way};
use weightcast::{
    CallError, EpochPolicy, Error, LayoutSource, Options, Replica, Role, Selector, ServeConfig,
    Server, ShardHandle, Updated, serve,
};

const SOON: Duration = Duration::from_secs(30);
/// The model: so many square tensors, of so many rows of bytes.
const TENSORS: usize = 10;
const SIDE: u64 = 512;
const TENSOR: u64 = SIDE * SIDE;
const BYTES: u64 = TENSORS as u64 * TENSOR;

/// How the tensors are cut among the shards of a group.
#[derive(Clone, Copy)]
enum Cut {
    Rows,
    Columns,
}

/// The content of a version: tensors with equal numbers have equal bytes.
type Stamps = [u64; TENSORS];

/// Everything as in version 1.
const FIRST: Stamps = [1; TENSORS];

/// As `FIRST`, but for the tensors of these numbers.
fn changed(tensors: &[usize], stamp: u64) -> Stamps {
    let mut stamps = FIRST;
    tensors.iter().for_each(|tensor| stamps[*tensor] = stamp);
    stamps
}

fn byte(tensor: usize, stamp: u64, row: u64, column: u64) -> u8 {
    let number = (tensor as u64) << 40 ^ stamp << 32 ^ (row * SIDE + column);
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8
}

struct Member {
    handle: ShardHandle,
    region: Region,
    gate: Gate,
    cut: Cut,
    shard: u64,
    of: u64,
}

impl Member {
    fn open(server: &Server, name: &str, role: Role, cut: Cut, shard: u64, of: u64) -> Self {
        Self::open_in(EpochPolicy::Current, server, name, role, cut, shard, of)
    }

    fn open_in(
        epoch: EpochPolicy,
        server: &Server,
        name: &str,
        role: Role,
        cut: Cut,
        shard: u64,
        of: u64,
    ) -> Self {
        let gate = Gate::new();
        let options = Options {
            server: Some(server.address().to_owned()),
            data_bind: Some(gate.bind()),
            data_advertise: Some(gate.advertise()),
            way: Way::Tcp,
            epoch,
            ..Options::new(role)
        };
        let replica = Replica::new(name, shard as u32, of as u32);
        let handle = ShardHandle::open("model", replica, &options).unwrap();
        let layout = layout(cut, shard, of);
        let region = Region::allocate((BYTES / of) as usize).unwrap();
        handle.register(LayoutSource::Known(layout), vec![region.clone()], SOON).unwrap();
        Self { handle, region, gate, cut, shard, of }
    }

    /// What its memory is with this content.
    fn expected(&self, stamps: Stamps) -> Vec<u8> {
        let share = SIDE / self.of;
        let part = self.shard * share..(self.shard + 1) * share;
        let (rows, columns) = match self.cut {
            Cut::Rows => (part, 0..SIDE),
            Cut::Columns => (0..SIDE, part),
        };
        let row = |tensor, row| {
            columns.clone().map(move |column| byte(tensor, stamps[tensor], row, column))
        };
        (0..TENSORS).flat_map(|tensor| rows.clone().flat_map(move |r| row(tensor, r))).collect()
    }

    fn publish(&self, version: u64, stamps: Stamps) {
        if self.handle.version().is_some() {
            self.handle.unpublish(SOON).unwrap();
        }
        self.region.write_at(0, &self.expected(stamps)).unwrap();
        self.handle.publish(version, SOON).unwrap();
        self.handle.wait_sealed(SOON).unwrap();
    }

    fn update(&self) -> Result<Updated, Error> {
        self.handle.update(Selector::Latest, false, SOON)
    }

    /// Waits until a read that moves so many whole tensors' share has begun.
    fn wait_begun(&self, moved: u64) {
        let until = Instant::now() + SOON;
        while self.handle.progress_total() != moved * TENSOR / self.of {
            assert!(Instant::now() < until, "it moves {}", self.handle.progress_total());
            thread::yield_now();
        }
    }

    /// An update that brings this content and leaves so many whole tensors' share unmoved.
    #[track_caller]
    fn brings(&self, stamps: Stamps, unmoved: usize) {
        self.brought(self.update(), stamps, unmoved);
    }

    #[track_caller]
    fn brought(&self, updated: Result<Updated, Error>, stamps: Stamps, unmoved: usize) {
        let transfer = updated.unwrap().transfer;
        let unmoved = unmoved as u64 * TENSOR / self.of;
        let all = BYTES / self.of;
        let told = (transfer.bytes, transfer.verified, transfer.unchanged);
        assert_eq!(told, (all, all, unmoved));
        assert_eq!(transfer.direct + transfer.tcp, all - unmoved);
        assert_eq!(self.handle.progress_total(), all - unmoved);
        assert!(self.region.to_vec() == self.expected(stamps), "the memory is another");
    }
}

/// Makes the same call on all shards at once.
fn each<T: Send>(group: &[Member], call: impl Fn(&Member) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let calls: Vec<_> = group.iter().map(|member| scope.spawn(|| call(member))).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    })
}

fn layout(cut: Cut, shard: u64, of: u64) -> Layout {
    let dim = match cut {
        Cut::Rows => 0,
        Cut::Columns => 1,
    };
    let mut shape = [SIDE, SIDE];
    shape[dim] /= of;
    let mut builder = LayoutBuilder::new();
    let tensors: Vec<Part> = (0..TENSORS)
        .map(|tensor| Part::new(format!("t{tensor}")).shape([SIDE, SIDE]).dim(dim, shard, of))
        .collect();
    builder.add("all", DType::U8, &[shape[0] * TENSORS as u64, shape[1]], tensors, 0);
    builder.build().unwrap()
}

fn server() -> Server {
    // Replicas read from each other, though all of them lie on this host.
    let config = ServeConfig {
        host_fanout: 1,
        lease: Duration::from_secs(5),
        paranoid: true,
        ..ServeConfig::default()
    };
    serve(config).unwrap()
}

fn group(server: &Server, name: &str, role: Role, cut: Cut, of: u64) -> Vec<Member> {
    thread::scope(|scope| {
        let open = |shard| move || Member::open(server, name, role, cut, shard, of);
        let opened: Vec<_> = (0..of).map(|shard| scope.spawn(open(shard))).collect();
        opened.into_iter().map(|member| member.join().unwrap()).collect()
    })
}

/// A trainer and a rollout of one shard each.
fn pair() -> (Server, Member, Member) {
    let server = server();
    let one = |name, role| Member::open(&server, name, role, Cut::Rows, 0, 1);
    let (trainer, rollout) = (one("trainer", Role::Trainer), one("rollout", Role::Rollout));
    (server, trainer, rollout)
}

#[test]
fn only_what_changed_is_moved() {
    let (_server, trainer, rollout) = pair();
    trainer.publish(1, FIRST);
    rollout.brings(FIRST, 0);
    let passed = trainer.gate.passed();
    trainer.publish(2, changed(&[3], 2));
    rollout.brings(changed(&[3], 2), TENSORS - 1);
    let moved = trainer.gate.passed() - passed;
    assert!(moved < 2 * TENSOR, "{moved} bytes have passed");
    trainer.publish(3, changed(&[3], 2));
    rollout.brings(changed(&[3], 2), TENSORS);
    trainer.publish(4, [4; TENSORS]);
    rollout.brings([4; TENSORS], 0);
}

/// Rows there and columns here: no slice of the one is one of the other.
#[test]
fn layouts_that_cross_have_what_changed_moved_from_the_second_version_on() {
    let server = server();
    let trainer = group(&server, "trainer", Role::Trainer, Cut::Rows, 4);
    let rollout = group(&server, "rollout", Role::Rollout, Cut::Columns, 2);
    for (version, stamps, unmoved) in
        [(1, FIRST, 0), (2, changed(&[0, 9], 2), 8), (3, changed(&[9], 2), 9), (4, [5; 10], 0)]
    {
        each(&trainer, |member| member.publish(version, stamps));
        each(&rollout, |member| member.brings(stamps, unmoved));
    }
}

/// One shard's rows have changed: what the others give is left out, of every tensor.
#[test]
fn what_one_shard_of_the_source_changed_is_all_that_moves() {
    let server = server();
    let trainer = group(&server, "trainer", Role::Trainer, Cut::Rows, 4);
    let rollout = group(&server, "rollout", Role::Rollout, Cut::Columns, 2);
    each(&trainer, |member| member.publish(1, FIRST));
    each(&rollout, |member| member.brings(FIRST, 0));
    each(&trainer, |member| {
        member.handle.unpublish(SOON).unwrap();
        if member.shard == 2 {
            member.region.write_at(0, &member.expected([7; TENSORS])).unwrap();
        }
        member.handle.publish(2, SOON).unwrap();
        member.handle.wait_sealed(SOON).unwrap();
    });
    each(&rollout, |member| {
        let transfer = member.update().unwrap().transfer;
        assert_eq!(transfer.unchanged, 3 * BYTES / 2 / 4);
        assert_eq!(transfer.tcp, BYTES / 2 / 4);
        let (old, new) = (member.expected(FIRST), member.expected([7; TENSORS]));
        let quarter = (SIDE / 4 * SIDE / 2) as usize;
        let parts = (0..TENSORS * 4).flat_map(|part| {
            let of = if part % 4 == 2 { &new } else { &old };
            of[part * quarter..(part + 1) * quarter].iter().copied()
        });
        assert!(member.region.to_vec() == parts.collect::<Vec<_>>());
    });
}

/// The numbers begin again, and the content is what counts.
#[test]
fn an_epoch_is_no_reason_to_move_and_its_numbers_are_no_reason_not_to() {
    let server = server();
    let open = |epoch: u64| {
        let (name, run) = (format!("trainer-{epoch}"), EpochPolicy::New);
        Member::open_in(run, &server, &name, Role::Trainer, Cut::Rows, 0, 1)
    };
    let rollout = Member::open(&server, "rollout", Role::Rollout, Cut::Rows, 0, 1);
    let first = open(1);
    first.publish(1, FIRST);
    rollout.brings(FIRST, 0);
    first.handle.close(SOON);
    // Version 1 again, of another run, with another content.
    let second = open(2);
    second.publish(1, changed(&[0, 1, 2], 8));
    let version = rollout.handle.version().unwrap();
    rollout.brings(changed(&[0, 1, 2], 8), TENSORS - 3);
    assert!(rollout.handle.version().unwrap().epoch > version.epoch);
    assert_eq!(rollout.handle.version().unwrap().number, version.number);
}

/// The memory belongs to the program between two updates.
#[test]
fn memory_that_the_program_changed_is_brought_anew() {
    let (_server, trainer, rollout) = pair();
    trainer.publish(1, FIRST);
    rollout.brings(FIRST, 0);
    let place = 5 * TENSOR as usize + 77;
    let flipped = !rollout.region.to_vec()[place];
    rollout.region.write_at(place, &[flipped]).unwrap();
    trainer.publish(2, changed(&[3], 2));
    rollout.brings(changed(&[3], 2), TENSORS - 2);
}

/// What was sealed counts, and is here already: what lies at the source by now is not looked at.
#[test]
fn what_a_source_spoiled_since_is_not_read() {
    let (_server, trainer, rollout) = pair();
    trainer.publish(1, FIRST);
    rollout.brings(FIRST, 0);
    trainer.publish(2, changed(&[3], 2));
    let place = 5 * TENSOR as usize + 77;
    let flipped = !trainer.region.to_vec()[place];
    trainer.region.write_at(place, &[flipped]).unwrap();
    rollout.brings(changed(&[3], 2), TENSORS - 1);
}

/// A read that ran out of time leaves parts of two versions. The next version shares slices with both.
#[test]
fn torn_memory_is_looked_at_slice_by_slice() {
    let (_server, trainer, rollout) = pair();
    trainer.publish(1, FIRST);
    rollout.brings(FIRST, 0);
    trainer.publish(2, changed(&[2, 3, 4, 5, 6, 7, 8, 9], 2));
    trainer.gate.hold_after(3 * TENSOR);
    let short = Duration::from_millis(700);
    let failed = rollout.handle.update(Selector::Latest, false, short).unwrap_err();
    assert!(matches!(failed, Error::Call(CallError::Timeout { .. })), "{failed}");
    assert!(rollout.handle.version().is_none());
    trainer.gate.open();
    let stamps = changed(&[9], 3);
    trainer.publish(3, stamps);
    let transfer = rollout.update().unwrap().transfer;
    assert!(rollout.region.to_vec() == rollout.expected(stamps));
    // At least the tensors that version 2 had not changed either are still there.
    assert!((2 * TENSOR..9 * TENSOR).contains(&transfer.unchanged), "{}", transfer.unchanged);
}

#[test]
fn a_staged_update_takes_what_is_unchanged_from_the_memory_itself() {
    let server = server();
    let trainer = group(&server, "trainer", Role::Trainer, Cut::Rows, 2);
    let rollout = group(&server, "rollout", Role::Rollout, Cut::Columns, 2);
    let versions = [(1, FIRST, 0), (2, changed(&[4], 2), 9), (3, changed(&[4, 5], 3), 8)];
    for (version, stamps, unmoved) in versions {
        each(&trainer, |member| member.publish(version, stamps));
        each(&rollout, |member| {
            let updated = member.handle.update_staged(Selector::Latest, false, SOON);
            member.brought(updated, stamps, unmoved);
        });
    }
}

/// A relay that is being filled tells its readers which of its slices are unchanged.
#[test]
fn a_chain_of_relays_moves_only_what_changed() {
    let (server, trainer, first) = pair();
    let second = Member::open(&server, "second", Role::Rollout, Cut::Rows, 0, 1);
    trainer.publish(1, FIRST);
    first.brings(FIRST, 0);
    second.brings(FIRST, 0);
    let stamps = changed(&[0, 5], 2);
    trainer.publish(2, stamps);
    trainer.gate.hold_after(TENSOR + TENSOR / 2);
    let before = first.gate.passed();
    thread::scope(|scope| {
        let one = scope.spawn(|| first.update());
        first.wait_begun(2);
        let two = scope.spawn(|| second.update());
        second.wait_begun(2);
        trainer.gate.open();
        first.brought(one.join().unwrap(), stamps, TENSORS - 2);
        let updated = two.join().unwrap();
        assert_eq!(updated.as_ref().unwrap().source.as_deref(), Some("rollout"));
        second.brought(updated, stamps, TENSORS - 2);
    });
    let passed = first.gate.passed() - before;
    assert!(passed < 3 * TENSOR, "{passed} bytes have passed");
}

/// From a trainer, then from a rollout of another layout than the trainer's.
#[test]
fn whoever_reads_from_another_layout_than_before_still_knows_its_own_slices() {
    let server = server();
    let trainer = group(&server, "trainer", Role::Trainer, Cut::Rows, 2);
    let first = group(&server, "first", Role::Rollout, Cut::Columns, 2);
    let second = group(&server, "second", Role::Rollout, Cut::Columns, 2);
    each(&trainer, |member| member.publish(1, FIRST));
    each(&first, |member| member.brings(FIRST, 0));
    each(&trainer, |member| member.handle.unpublish(SOON).unwrap());
    each(&second, |member| member.brings(FIRST, 0));
    each(&trainer, |member| member.publish(2, changed(&[1], 2)));
    // It has read from `first` so far, whose slices are its own; of the trainer's it knows nothing.
    each(&second, |member| member.brings(changed(&[1], 2), 0));
    each(&first, |member| {
        let updated = member.update();
        assert!(updated.as_ref().is_ok_and(|updated| updated.changed));
        member.brought(updated, changed(&[1], 2), TENSORS - 1);
    });
    each(&trainer, |member| member.publish(3, changed(&[1], 3)));
    each(&second, |member| member.brings(changed(&[1], 3), TENSORS - 1));
}

/// What counts are the bytes that readers get: here halves of the trainer's, whose lower bits are cut off.
#[test]
fn what_is_cast_to_the_same_bytes_is_unchanged() {
    const ELEMENTS: u64 = 4_096;
    let layout = |dtype| {
        let part = |name: &str| vec![Part::new(name).shape([ELEMENTS])];
        let mut builder = LayoutBuilder::new();
        builder.add("a", dtype, &[ELEMENTS], part("a"), 0);
        builder.add("b", dtype, &[ELEMENTS], part("b"), 0);
        builder.build().unwrap()
    };
    let server = server();
    let open = |name: &str, role| {
        let address = Some(server.address().to_owned());
        let options = Options { server: address, ..Options::new(role) };
        ShardHandle::open("model", Replica::new(name, 0, 1), &options).unwrap()
    };
    let memory = |bytes: u64| -> Vec<Region> {
        (0..2).map(|_| Region::allocate((bytes * ELEMENTS) as usize).unwrap()).collect()
    };
    let (trainer, rollout) = (open("trainer", Role::Trainer), open("rollout", Role::Rollout));
    let (weights, halves) = (memory(4), memory(2));
    let rules =
        Rules(vec![Rule { names: "*".into(), transform: Some(Transform::Cast(DType::BF16)) }]);
    trainer.register_transformed(&layout(DType::F32), &weights, rules, SOON).unwrap();
    rollout.register(LayoutSource::Known(layout(DType::BF16)), halves.clone(), SOON).unwrap();
    // Only the last version has another upper half than the one before, and only in `b`.
    for (version, bits, unchanged) in [
        (1, [0x3f80_0001, 0x3f80_0001], 0),
        (2, [0x3f80_0002, 0x3f80_0001], 2),
        (3, [0x3f80_0003, 0x4000_0000], 1),
    ] {
        if trainer.version().is_some() {
            trainer.unpublish(SOON).unwrap();
        }
        for (region, bits) in weights.iter().zip(bits) {
            let bytes: Vec<u8> = (0..ELEMENTS).flat_map(|_| u32::to_le_bytes(bits)).collect();
            region.write_at(0, &bytes).unwrap();
        }
        trainer.publish(version, SOON).unwrap();
        trainer.wait_sealed(SOON).unwrap();
        let transfer = rollout.update(Selector::Latest, false, SOON).unwrap().transfer;
        assert_eq!(transfer.unchanged, unchanged * 2 * ELEMENTS, "version {version}");
        for (region, bits) in halves.iter().zip(bits) {
            let half = u16::to_le_bytes((bits >> 16) as u16);
            assert!(region.to_vec().chunks(2).all(|element| element == half), "version {version}");
        }
    }
}

/// Pieces of one slice come from two replicas.
#[test]
fn of_two_sources_at_once_only_what_changed_is_read() {
    let config = ServeConfig { stripes: 2, paranoid: true, ..ServeConfig::default() };
    let server = serve(config).unwrap();
    let one = |name, role| Member::open(&server, name, role, Cut::Rows, 0, 1);
    let [trainer, other] = ["trainer", "other"].map(|name| one(name, Role::Trainer));
    let reader = one("reader", Role::Rollout);
    for (version, stamps, unmoved) in [(1, FIRST, 0), (2, changed(&[3, 7], 2), TENSORS - 2)] {
        for holder in [&trainer, &other] {
            holder.publish(version, stamps);
        }
        let updated = reader.update();
        assert_eq!(updated.as_ref().unwrap().transfer.helpers.len(), 1, "version {version}");
        reader.brought(updated, stamps, unmoved);
    }
}

/// Wrong bytes of two sources accuse nobody, and are read again from one: all of them.
#[test]
fn a_read_that_begins_anew_because_of_wrong_bytes_moves_everything() {
    let config = ServeConfig { stripes: 2, paranoid: true, ..ServeConfig::default() };
    let server = serve(config).unwrap();
    let one = |name, role| Member::open(&server, name, role, Cut::Rows, 0, 1);
    let [trainer, wrong] = ["trainer", "a-wrong-one"].map(|name| one(name, Role::Trainer));
    let reader = one("reader", Role::Rollout);
    for holder in [&trainer, &wrong] {
        holder.publish(1, FIRST);
    }
    reader.brings(FIRST, 0);
    let stamps = changed(&[3, 7], 2);
    for holder in [&trainer, &wrong] {
        holder.publish(2, stamps);
    }
    // Every byte of what it may be asked for, and the other one gives none until they have come.
    for tensor in [3, 7] {
        let place = tensor * TENSOR as usize;
        wrong.region.write_at(place, &vec![0; TENSOR as usize]).unwrap();
    }
    trainer.gate.hold_after(0);
    thread::scope(|scope| {
        let update = scope.spawn(|| reader.update());
        while counter(&server, "digest_mismatches") == 0 && !update.is_finished() {
            thread::yield_now();
        }
        trainer.gate.open();
        let updated = update.join().unwrap();
        assert!(updated.as_ref().unwrap().transfer.helpers.is_empty());
        reader.brought(updated, stamps, 0);
    });
    assert_eq!(counter(&server, "striped"), 2);
    assert_eq!(counter(&server, "accusations"), counter(&server, "digest_mismatches") - 1);
}

fn counter(server: &Server, name: &str) -> u64 {
    let server = Some(server.address().to_owned());
    let options = Options { server, ..Options::new(Role::Rollout) };
    weightcast::status(&options).unwrap().counters[name]
}

/// The relays have columns of what the trainer has rows of, so no digest of theirs is one of its own.
#[test]
fn a_chain_of_relays_in_another_layout_moves_only_what_changed() {
    let server = server();
    let trainer = group(&server, "trainer", Role::Trainer, Cut::Rows, 2);
    let first = group(&server, "first", Role::Rollout, Cut::Columns, 2);
    let second = group(&server, "second", Role::Rollout, Cut::Columns, 2);
    each(&trainer, |member| member.publish(1, FIRST));
    each(&first, |member| member.brings(FIRST, 0));
    each(&second, |member| member.brings(FIRST, 0));
    let stamps = changed(&[0, 5], 2);
    each(&trainer, |member| member.publish(2, stamps));
    trainer[0].gate.hold_after(TENSOR / 2);
    thread::scope(|scope| {
        let update = |member| scope.spawn(move || Member::update(member));
        let ones: Vec<_> = first.iter().map(update).collect();
        first.iter().for_each(|member| member.wait_begun(2));
        let twos: Vec<_> = second.iter().map(update).collect();
        second.iter().for_each(|member| member.wait_begun(2));
        trainer[0].gate.open();
        for (member, call) in first.iter().zip(ones) {
            member.brought(call.join().unwrap(), stamps, TENSORS - 2);
        }
        for (member, call) in second.iter().zip(twos) {
            let updated = call.join().unwrap();
            assert_eq!(updated.as_ref().unwrap().source.as_deref(), Some("first"));
            member.brought(updated, stamps, TENSORS - 2);
        }
    });
}
