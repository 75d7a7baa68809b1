//! Shards of a host that bring each other what several of them hold, against memory in which every byte has a name.

use std::collections::BTreeMap;

use crate::world::{Model, PADDING, Rng, blank, memory, scene};
use weightcast_plan::{Cell, Copy, DType, HostShares, Layout, LayoutBuilder, Part, cells, plan};

const SEEDS: u64 = 2_000;

/// A byte of a tensor, by its place in the model and its position.
type Byte = (usize, u64);

/// One shard while its host is filled.
struct Shard<'a> {
    layout: &'a Layout,
    cells: Vec<Cell>,
    shares: Option<HostShares>,
    memory: Vec<Vec<u64>>,
}

impl Shard<'_> {
    /// Makes copies; no byte is written twice, and none comes from where nothing has arrived.
    fn make(&mut self, copies: &[Copy], sources: &[Vec<Vec<u64>>]) {
        for c in copies {
            for row in 0..c.rows {
                for byte in 0..c.row_bytes {
                    let from = c.source_offset + row * c.source_pitch + byte;
                    let to = c.target_offset + row * c.target_pitch + byte;
                    let value = sources[c.source as usize][c.source_buffer as usize][from as usize];
                    assert_ne!(value, PADDING, "nothing has arrived there");
                    let slot = &mut self.memory[c.target_buffer as usize][to as usize];
                    assert_eq!(*slot, PADDING, "written twice");
                    *slot = value;
                }
            }
        }
    }

    /// The bytes that copies are of.
    fn bytes(&self, model: &Model, copies: &[Copy]) -> Vec<Byte> {
        let of = |c: &Copy| {
            let entry = self.cells[c.cell as usize].entry;
            let tensor = model.find(self.layout.tensor_of(entry).name());
            let (rows, row_bytes, pitch, begin) =
                (c.rows, c.row_bytes, c.position_pitch, c.position);
            (0..rows).flat_map(move |row| {
                (0..row_bytes).map(move |byte| (tensor, begin + row * pitch + byte))
            })
        };
        copies.iter().flat_map(of).collect()
    }
}

/// The hosts of so many shards: which shards each has.
fn hosts(rng: &mut Rng, shards: usize) -> Vec<Vec<u32>> {
    let mut hosts = vec![Vec::new(); 1 + rng.below(3) as usize];
    (0..shards as u32).for_each(|shard| {
        let host = rng.below(hosts.len() as u64) as usize;
        hosts[host].push(shard);
    });
    hosts
}

/// Whether any shard has a further name for the tensor's memory.
fn tied(model: &Model, targets: &[Layout], tensor: usize) -> bool {
    targets.iter().any(|layout| {
        let entries = 0..layout.entries().len() as u32;
        entries.into_iter().any(|entry| {
            layout.is_alias(entry) && model.find(layout.tensor_of(entry).name()) == tensor
        })
    })
}

#[test]
fn each_byte_enters_a_host_once_and_reaches_all_that_hold_it() {
    let (mut shared, mut apart) = (0_u64, 0_u64);
    for seed in 0..SEEDS {
        let (mut rng, model, sources, targets) = scene(seed);
        let block = [1, 2, 3, 7, 16, 1 << 20][rng.below(6) as usize];
        let from: Vec<_> = sources.iter().map(|layout| memory(&model, layout)).collect();
        let sources: Vec<&Layout> = sources.iter().collect();
        let group: Vec<&Layout> = targets.iter().collect();
        for host in hosts(&mut rng, targets.len()) {
            let mut entered = BTreeMap::<Byte, u64>::new();
            let mut all: Vec<Shard> = (0..targets.len())
                .map(|shard| {
                    let (layout, cells) = (&targets[shard], cells(&group, shard));
                    let shares = if host.contains(&(shard as u32)) {
                        HostShares::new(&group, shard as u32, &host, &cells, block).unwrap()
                    } else {
                        None
                    };
                    Shard { layout, cells, shares, memory: blank(layout) }
                })
                .collect();
            for shard in &host {
                let shard = &mut all[*shard as usize];
                let plan = plan(shard.layout, &shard.cells, &sources).unwrap();
                let own: Vec<Copy> = match &shard.shares {
                    Some(shares) => plan.copies.iter().flat_map(|c| shares.entered(c)).collect(),
                    None => plan.copies.clone(),
                };
                let left =
                    shard.shares.iter().flat_map(|s| plan.copies.iter().flat_map(|c| s.left(c)));
                let mut both = shard.bytes(&model, &[own.clone(), left.collect()].concat());
                both.sort_unstable();
                let mut all = shard.bytes(&model, &plan.copies);
                all.sort_unstable();
                assert_eq!(both, all, "seed {seed}: what it enters, and what others do");
                shard.make(&own, &from);
                shard
                    .bytes(&model, &own)
                    .into_iter()
                    .for_each(|b| *entered.entry(b).or_default() += 1);
            }
            // What has entered, before anybody has taken anything from anybody.
            let there: Vec<_> = all.iter().map(|shard| shard.memory.clone()).collect();
            for number in &host {
                let shard = &mut all[*number as usize];
                let taken: Vec<Copy> = shard
                    .shares
                    .iter()
                    .flat_map(|s| s.taken())
                    .flat_map(|t| {
                        assert!(
                            host.contains(&t.shard) && t.shard != *number && !t.copies.is_empty()
                        );
                        assert!(t.copies.iter().all(|copy| copy.source == t.shard));
                        t.copies.clone()
                    })
                    .collect();
                let is_shared = |c: &Copy| shard.shares.as_ref().unwrap().is_shared(c.cell);
                assert!(taken.iter().all(is_shared), "seed {seed}");
                shard.make(&taken, &there);
                shared += taken.iter().map(Copy::bytes).sum::<u64>();
                assert_eq!(
                    shard.memory,
                    memory(&model, shard.layout),
                    "seed {seed}, shard {number}"
                );
            }
            for ((tensor, position), times) in entered {
                if !tied(&model, &targets, tensor) {
                    assert_eq!(times, 1, "seed {seed}: byte {position} of tensor {tensor}");
                } else if times > 1 {
                    apart += 1;
                }
            }
        }
    }
    assert!(shared > 10_000 && apart > 0, "{shared} bytes were shared, {apart} of ties were not");
}

/// Tensors of so many bytes, whole.
fn replica(bytes: u64, names: &[String]) -> Layout {
    let mut layout = LayoutBuilder::new();
    for name in names {
        let part = Part::new(name).shape([bytes]);
        layout.add(name, DType::U8, &[bytes], vec![part], 0);
    }
    layout.build().unwrap()
}

#[test]
fn a_large_tensor_is_entered_in_equal_turns_and_small_ones_by_whoever() {
    let one = replica(1 << 10, &["a".to_owned()]);
    let group = [&one; 4];
    let entered = |layouts: &[&Layout], shard: u32, block: u64| -> u64 {
        let cells = cells(layouts, shard as usize);
        let host: Vec<u32> = (0..layouts.len() as u32).collect();
        let shares = HostShares::new(layouts, shard, &host, &cells, block).unwrap().unwrap();
        let plan = plan(layouts[shard as usize], &cells, &layouts[..1]).unwrap();
        plan.copies.iter().flat_map(|c| shares.entered(c)).map(|c| c.bytes()).sum()
    };
    for shard in 0..4 {
        assert_eq!(entered(&group, shard, 64), 256, "shard {shard}");
    }
    // Of one block each: by the tensor, and not all by one shard.
    let names: Vec<String> = (0..64).map(|number| format!("norm.{number}")).collect();
    let small = replica(16, &names);
    let each: Vec<u64> = (0..4).map(|shard| entered(&[&small; 4], shard, 64)).collect();
    assert_eq!(each.iter().sum::<u64>(), 64 * 16);
    assert!(each.iter().all(|bytes| (6 * 16..=28 * 16).contains(bytes)), "{each:?}");
}

#[test]
fn nobody_shares_what_no_other_shard_of_the_host_holds() {
    let one = replica(64, &["a".to_owned()]);
    let group = [&one, &one];
    let of = |host: &[u32]| HostShares::new(&group, 0, host, &cells(&group, 0), 8).unwrap();
    assert!(of(&[0]).is_none() && of(&[]).is_none());
    assert!(of(&[1]).is_some() && of(&[1, 0, 1]) == of(&[0, 1]));
    let parts: Vec<Layout> = (0..2)
        .map(|index| {
            let mut layout = LayoutBuilder::new();
            let part = Part::new("a").shape([64]).range(0, 32 * index, 32);
            layout.add("a", DType::U8, &[32], vec![part], 0);
            layout.build().unwrap()
        })
        .collect();
    let apart: Vec<&Layout> = parts.iter().collect();
    assert!(HostShares::new(&apart, 0, &[0, 1], &cells(&apart, 0), 8).unwrap().is_none());
}
