//! What one tensor takes: computed once for all layers that are spread alike.

use std::collections::BTreeMap;

use weightcast_plan::Slice;

use super::cells::{BoxHolders, cut};

/// Where the targets are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    /// Ranks of one engine, and number of engines.
    pub(super) ranks: u64,
    pub(super) replicas: u64,
    pub(super) gpus_per_host: u64,
}

impl Places {
    /// The ranks of all engines that stand where `rank` does in its own.
    fn everywhere(self, rank: u32) -> impl Iterator<Item = u64> {
        (0..self.replicas).map(move |replica| replica * self.ranks + u64::from(rank))
    }
}

/// Bytes that a target rank needs from one of a group of sources.
pub(super) struct Move {
    /// The group's number among those of the tensor.
    pub(super) group: usize,
    pub(super) target: u32,
    pub(super) bytes: u64,
}

/// Bytes that a host needs once, from one of a group of sources, and the ranks that could receive
/// them for it.
pub(super) struct HostNeed {
    pub(super) group: usize,
    pub(super) host: u32,
    pub(super) receivers: Vec<u32>,
    pub(super) bytes: u64,
}

/// Every target rank is sent everything that it holds.
pub(super) fn direct(
    cells: &[(&BoxHolders<'_>, Vec<(Slice, usize)>)],
    places: Places,
    bytes: impl Fn(&Slice) -> u64,
) -> Vec<Move> {
    let mut moves = Vec::new();
    for (taker, cells) in cells {
        for (cell, group) in cells {
            let bytes = bytes(cell);
            let targets = taker.ranks.iter().flat_map(|&rank| places.everywhere(rank));
            moves.extend(targets.map(|to| Move { group: *group, target: to as u32, bytes }));
        }
    }
    moves
}

/// Each host is sent every element that it needs once; the rest it copies.
pub(super) fn by_host(
    takers: &[BoxHolders<'_>],
    sources: &[BoxHolders<'_>],
    places: Places,
    bytes: impl Fn(&Slice) -> u64,
) -> Vec<HostNeed> {
    let mut needs: BTreeMap<u64, Vec<(usize, u32)>> = BTreeMap::new();
    for (number, group) in takers.iter().enumerate() {
        for to in group.ranks.iter().flat_map(|&rank| places.everywhere(rank)) {
            needs.entry(to / places.gpus_per_host).or_default().push((number, to as u32));
        }
    }
    // Hosts that need the same boxes are cut alike.
    let mut known: BTreeMap<Vec<usize>, Vec<Vec<(usize, u64)>>> = BTreeMap::new();
    let mut entries = Vec::new();
    for (host, mut needs) in needs {
        needs.sort_unstable();
        let boxes: Vec<&[(usize, u32)]> = needs.chunk_by(|a, b| a.0 == b.0).collect();
        let numbers: Vec<usize> = boxes.iter().map(|of_box| of_box[0].0).collect();
        let cells = known
            .entry(numbers)
            .or_insert_with_key(|numbers| enter_once(numbers, takers, sources, &bytes));
        for (of_box, cells) in boxes.iter().zip(cells.iter()) {
            for &(group, bytes) in cells {
                let receivers = of_box.iter().map(|&(_, rank)| rank).collect();
                entries.push(HostNeed { group, host: host as u32, receivers, bytes });
            }
        }
    }
    entries
}

/// The groups and bytes of every element that any target takes, once.
pub(super) fn once(
    takers: &[BoxHolders<'_>],
    sources: &[BoxHolders<'_>],
    bytes: impl Fn(&Slice) -> u64,
) -> Vec<(usize, u64)> {
    let all: Vec<usize> = (0..takers.len()).collect();
    enter_once(&all, takers, sources, bytes).into_iter().flatten().collect()
}

/// For each of the boxes the groups and bytes of what no earlier box has brought in.
fn enter_once(
    boxes: &[usize],
    takers: &[BoxHolders<'_>],
    sources: &[BoxHolders<'_>],
    bytes: impl Fn(&Slice) -> u64,
) -> Vec<Vec<(usize, u64)>> {
    let mut entered: Vec<&Slice> = Vec::new();
    let mut cells = Vec::with_capacity(boxes.len());
    for &number in boxes {
        let slice = takers[number].slice;
        let parts = slice.subtract_all(entered.iter().copied());
        let of_part = |part: &Slice| cut(part, sources).0;
        let new = parts.iter().flat_map(of_part);
        cells.push(new.map(|(cell, group)| (group, bytes(&cell))).collect());
        entered.push(slice);
    }
    cells
}
