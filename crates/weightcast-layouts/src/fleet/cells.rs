//! Cells: the boxes of a target's slice that each have one set of sources.

use weightcast_plan::Slice;

/// Ranks that hold the same box.
pub(super) struct Group<'a> {
    pub(super) slice: &'a Slice,
    pub(super) ranks: Vec<u32>,
}

/// The holders by what they hold, in the order in which boxes are first met.
pub(super) fn groups<'a>(held: impl IntoIterator<Item = (u32, &'a Slice)>) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    let mut order: std::collections::BTreeMap<&Slice, usize> = std::collections::BTreeMap::new();
    for (rank, slice) in held {
        if slice.is_empty() {
            continue;
        }
        let at = *order.entry(slice).or_insert_with(|| {
            groups.push(Group { slice, ranks: Vec::new() });
            groups.len() - 1
        });
        groups[at].ranks.push(rank);
    }
    groups
}

/// The parts of `wanted` that the groups hold, each with the number of its group, and what none
/// of them holds. Parts are disjoint: where groups overlap, the first one met gives.
pub(super) fn cut(wanted: &Slice, groups: &[Group<'_>]) -> (Vec<(Slice, usize)>, Vec<Slice>) {
    let mut cells = Vec::new();
    let mut rest = vec![wanted.clone()];
    for (number, group) in groups.iter().enumerate() {
        if rest.is_empty() {
            break;
        }
        let mut left = Vec::new();
        for part in rest {
            match part.intersect(group.slice) {
                Some(common) => {
                    left.extend(part.subtract(&common));
                    cells.push((common, number));
                }
                None => left.push(part),
            }
        }
        rest = left;
    }
    (cells, rest)
}

/// Elements of all boxes, and whether two of them have one in common.
pub(super) fn volume(boxes: &[&Slice]) -> (u64, bool) {
    let overlap = boxes
        .iter()
        .enumerate()
        .any(|(at, a)| boxes[at + 1..].iter().any(|b| a.intersect(b).is_some()));
    (boxes.iter().map(|b| b.volume()).sum(), overlap)
}
