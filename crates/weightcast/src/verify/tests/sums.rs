//! The sums that shards fold, the sums that a summary folds, and both by their definition.

use std::collections::BTreeMap;

use weightcast_protocol::{ShardSums, Sum};
use weightcast_transport::{Digest, Region, digest_at};

use super::world::{Model, Rng};
use super::*;
use crate::client::memory::registration::RegisteredShard;
use crate::client::mismatch::summary::partial;
use crate::manifest;

/// Entry, tensor, position, and where it is in its buffer.
type EntryByte = (u32, String, u64, usize);

fn layouts(shards: &[Shard]) -> Vec<Arc<Layout>> {
    shards.iter().map(|shard| Arc::clone(&shard.layout)).collect()
}

fn registered(shards: &[Shard]) -> Vec<RegisteredShard> {
    let layouts = layouts(shards);
    let each = shards.iter().enumerate();
    each.map(|(number, shard)| {
        let regions = shard.memory.iter().map(|bytes| Region::from_bytes(bytes).unwrap());
        RegisteredShard::new(&layouts, number, regions.collect()).unwrap()
    })
    .collect()
}

/// The first of the two groups that hold a random model.
fn group(seed: u64) -> (Rng, Model, Vec<Shard>) {
    let (rng, model, mut sides) = scene(seed);
    sides.truncate(1);
    let shards = filled(&model, sides, |_, tensor, at| content(&model, tensor, at));
    (rng, model, shards)
}

fn folded(group: &[RegisteredShard]) -> ShardSums {
    let sums = group.iter().map(|shard| shard.fold(&shard.digest_all()));
    sums.fold(ShardSums::default(), |all, one| all + one)
}

/// The summary of a group, as a comparison makes it.
fn summary(group: &[RegisteredShard]) -> Summary {
    let mut all = Summary::default();
    for shard in group {
        all.add(Summary::of(&shard.layout, &shard.cells, &shard.digest_all()));
    }
    all
}

/// The sum of all bytes of a model, each counted once.
fn once(model: &Model) -> Sum {
    let tensors = model.tensors.iter().enumerate();
    let each = tensors.map(|(number, tensor)| {
        let bytes: Vec<u8> = (0..tensor.nbytes()).map(|at| content(model, number, at)).collect();
        Sum(digest_at(0, &bytes).mul(tensor.key()).0)
    });
    each.fold(Sum::default(), |all, one| all + one)
}

#[test]
fn every_element_of_a_group_is_counted_once_and_every_copy_of_it_held() {
    let mut copied = 0;
    for seed in 0..300 {
        let (mut rng, model, shards) = group(seed);
        let registered = registered(&shards);
        let sums = folded(&registered);
        assert_eq!(sums.counted, once(&model), "seed {seed}");
        assert_eq!(sums.held, sums.expected, "seed {seed}: all copies are the same");
        let tensors = union(&layouts(&shards)).unwrap();
        let seen = summary(&registered).folded(&tensors);
        assert_eq!(seen, sums, "seed {seed}: whoever looks sums what the server is told");
        // One byte of one shard is another one now.
        let which = rng.below(shards.len() as u64) as usize;
        let places = places(&shards[which].layout);
        if places.is_empty() {
            continue;
        }
        let (entry, _, _, at) = &places[rng.below(places.len() as u64) as usize];
        let buffer = |entry: u32| shards[which].layout.entry(entry).buffer;
        let region = &registered[which].regions[buffer(*entry) as usize];
        let mut byte = [0];
        region.read_at(*at, &mut byte).unwrap();
        region.write_at(*at, &[byte[0] ^ 4]).unwrap();
        let changed = folded(&registered);
        // Of a tied weight it is one byte under each name. Who holds those bytes:
        let same = |(e, _, _, there): &&EntryByte| (buffer(*e), there) == (buffer(*entry), at);
        let holders = |(_, tensor, position, _): &EntryByte| -> Vec<usize> {
            let holds = |shard: &Shard| {
                let there = super::places(&shard.layout);
                there.iter().any(|(_, t, p, _)| (t, p) == (tensor, position))
            };
            (0..shards.len()).filter(|number| holds(&shards[*number])).collect()
        };
        let holders: Vec<Vec<usize>> = places.iter().filter(same).map(holders).collect();
        assert_ne!(changed.held, sums.held, "seed {seed}");
        let counts = holders.iter().any(|of| of[0] == which);
        assert_eq!(changed.counted != sums.counted, counts, "seed {seed}: the first counts it");
        let copies = holders.iter().any(|of| of.len() > 1);
        assert_eq!(changed.held != changed.expected, copies, "seed {seed}: the copies differ");
        copied += usize::from(copies);
        let seen = summary(&registered).folded(&tensors);
        assert_eq!(seen, changed, "seed {seed}");
    }
    assert!(copied > 50, "{copied}");
}

#[test]
fn a_registration_covers_what_its_layout_does_and_notes_each_entry() {
    for seed in 300..500 {
        let (_, _, shards) = group(seed);
        for (shard, registration) in shards.iter().zip(registered(&shards)) {
            let mut covered = BTreeSet::new();
            for (region, offset, len) in registration.ranges() {
                covered.extend((offset..offset + len).map(|at| (region, at)));
            }
            let buffer = |entry: u32| shard.layout.entry(entry).buffer as usize;
            let held = places(&shard.layout).into_iter();
            let held: BTreeSet<_> = held.map(|(entry, _, _, at)| (buffer(entry), at)).collect();
            assert_eq!(covered, held, "seed {seed}");
            // Cells with a name each: of a tied weight every byte counts for each of them.
            let bytes: u64 = registration.ranges().map(|(_, _, len)| len as u64).sum();
            assert_eq!(registration.bytes(), bytes, "seed {seed}");
            let digests = registration.digest_all();
            for threads in 1..4 {
                assert_eq!(registration.digest_all_on(threads), digests, "seed {seed}");
            }
            let note = registration.note(&digests);
            let parts = manifest::decode_parts(&note, shard.layout.entries().len()).unwrap();
            let mut expected = vec![Digest::ZERO; parts.len()];
            for (entry, _, position, at) in places(&shard.layout) {
                let byte = shard.memory[buffer(entry)][at];
                expected[entry as usize] += digest_at(position, &[byte]);
            }
            assert_eq!(parts, expected, "seed {seed}");
            let cells = manifest::decode_cells(&note, digests.len());
            assert_eq!(cells, Some(digests), "seed {seed}");
        }
    }
}

#[test]
fn who_holds_not_all_of_a_tensor_is_noticed() {
    for seed in 500..600 {
        let (mut rng, model, shards) = group(seed);
        let registered = registered(&shards);
        let tensors = union(&layouts(&shards)).unwrap();
        let whole = summary(&registered);
        assert_eq!(partial(&tensors, &[whole.clone(), whole.clone()]), [], "seed {seed}");
        // Without one cell that counts: what is missing of its tensor is missing.
        let which = rng.below(registered.len() as u64) as usize;
        let shard = &registered[which];
        let Some(lost) = shard.cells.iter().position(|cell| cell.counted) else { continue };
        let mut less = Summary::default();
        for (number, shard) in registered.iter().enumerate() {
            let mut cells = shard.cells.clone();
            let mut digests = shard.digest_all();
            if number == which {
                cells.remove(lost);
                digests.remove(lost);
            }
            less.add(Summary::of(&shard.layout, &cells, &digests));
        }
        let named = shard.layout.tensor_of(shard.cells[lost].entry).name();
        for pair in [[whole.clone(), less.clone()], [less, whole]] {
            let said: Vec<String> =
                partial(&tensors, &pair).iter().map(|t| t.name().to_owned()).collect();
            assert_eq!(said, [named], "seed {seed}");
        }
        assert!(model.tensors.iter().any(|tensor| tensor.name() == named));
    }
}

/// Two replicas of which one has other bytes in some tensors, or copies of its own that differ.
#[test]
fn the_tensors_that_are_not_the_same_everywhere_are_suspects() {
    for seed in 600..800 {
        let (mut rng, model, sides) = scene(seed);
        let chosen = rng.below(1 << model.tensors.len());
        let differs =
            |tensor: usize| chosen >> tensor & 1 == 1 && model.tensors[tensor].nbytes() > 0;
        let named = |tensor: usize| model.content[tensor];
        let shards = filled(&model, sides, |side, tensor, at| {
            content(&model, tensor, at) ^ u8::from(side == 1 && differs(named(tensor)))
        });
        let summaries: Vec<Summary> = (0..2)
            .map(|side| {
                let of = shards.iter().filter(|shard| shard.side == side).map(|shard| Shard {
                    side,
                    layout: Arc::clone(&shard.layout),
                    memory: shard.memory.clone(),
                });
                summary(&registered(&of.collect::<Vec<_>>()))
            })
            .collect();
        let all: BTreeMap<String, Tensor> =
            model.tensors.iter().map(|t| (t.name().to_owned(), t.clone())).collect();
        let suspects = suspects(&all, &summaries);
        let said: Vec<&str> = suspects.iter().map(Tensor::name).collect();
        let mut expected: Vec<&str> = (0..model.tensors.len())
            .filter(|tensor| differs(named(*tensor)))
            .map(|tensor| model.tensors[tensor].name())
            .collect();
        expected.sort_unstable();
        assert_eq!(said, expected, "seed {seed}");
    }
}
