//! Cells: the boxes of a target's slice that each have one set of sources.

use std::collections::BTreeSet;

use weightcast_plan::Slice;

/// Ranks that hold the same box.
pub(super) struct BoxHolders<'a> {
    pub(super) slice: &'a Slice,
    pub(super) ranks: Vec<u32>,
}

/// The holders by what they hold, in the order in which boxes are first met.
pub(super) fn groups<'a>(held: impl IntoIterator<Item = (u32, &'a Slice)>) -> Vec<BoxHolders<'a>> {
    let mut groups: Vec<BoxHolders<'a>> = Vec::new();
    let mut order: std::collections::BTreeMap<&Slice, usize> = std::collections::BTreeMap::new();
    for (rank, slice) in held {
        if slice.is_empty() {
            continue;
        }
        let at = *order.entry(slice).or_insert_with(|| {
            groups.push(BoxHolders { slice, ranks: Vec::new() });
            groups.len() - 1
        });
        groups[at].ranks.push(rank);
    }
    groups
}

/// The parts of `wanted` that the groups hold, each with the number of its group, and what none
/// of them holds. Parts are disjoint: where groups overlap, the first one met gives.
pub(super) fn cut(wanted: &Slice, groups: &[BoxHolders<'_>]) -> (Vec<(Slice, usize)>, Vec<Slice>) {
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

/// For each group of a tensor all ranks that hold any element of its box, ascending: more than the group's where
/// boxes overlap.
pub(super) fn all_holders(groups: &[BoxHolders<'_>], tensor: &Slice) -> Vec<Vec<u32>> {
    let held: u64 = groups.iter().map(|group| group.slice.volume()).sum();
    let covered: u64 = cut(tensor, groups).0.iter().map(|cell| cell.0.volume()).sum();
    if held == covered {
        return groups.iter().map(|group| group.ranks.clone()).collect();
    }
    let of = |group: &BoxHolders<'_>| {
        let meets = |other: &&BoxHolders<'_>| other.slice.intersect(group.slice).is_some();
        let met: BTreeSet<u32> =
            groups.iter().filter(meets).flat_map(|other| other.ranks.clone()).collect();
        met.into_iter().collect()
    };
    groups.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each element goes to the first group that has it, and to none if none has.
    #[test]
    fn every_element_comes_from_the_first_that_holds_it() {
        let mut state = 1u64;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % n
        };
        for _ in 0..2_000 {
            let mut one = || Slice::new([below(5), below(5)], [below(4), below(4)]);
            let wanted = one();
            let boxes: Vec<Slice> = (0..5).map(|_| one()).collect();
            let held = groups(
                (0..).zip(&boxes).flat_map(|(rank, slice)| [(rank, slice), (rank + 9, slice)]),
            );
            assert!(held.iter().all(|group| !group.slice.is_empty()));
            for (rank, slice) in (0..).zip(&boxes).filter(|(_, slice)| !slice.is_empty()) {
                let own =
                    held.iter().filter(|group| group.ranks.contains(&rank)).collect::<Vec<_>>();
                assert!(
                    own.len() == 1 && own[0].slice == slice && own[0].ranks.contains(&(rank + 9))
                );
            }
            let (cells, rest) = cut(&wanted, &held);
            for row in 0..10 {
                for column in 0..10 {
                    let point = Slice::new([row, column], [1, 1]);
                    let has = |slice: &Slice| slice.intersect(&point).is_some();
                    let expected: Vec<usize> = match has(&wanted) {
                        true => {
                            (0..held.len()).find(|&at| has(held[at].slice)).into_iter().collect()
                        }
                        false => Vec::new(),
                    };
                    let found: Vec<usize> =
                        cells.iter().filter(|cell| has(&cell.0)).map(|cell| cell.1).collect();
                    assert_eq!(found, expected, "{wanted} {boxes:?}");
                    let left = rest.iter().filter(|slice| has(slice)).count();
                    assert_eq!(left, usize::from(has(&wanted) && expected.is_empty()));
                }
            }
        }
    }

    /// Whoever has an element of a box is among its holders; where boxes are apart, nobody else is.
    #[test]
    fn holders_of_a_box_are_all_that_have_any_of_it() {
        let rows = |start, len| Slice::new([start], [len]);
        let of = |slices: &[Slice]| {
            let held = groups((0..).zip(slices));
            all_holders(&held, &rows(0, 12))
        };
        assert_eq!(
            of(&[rows(0, 4), rows(4, 4), rows(0, 4), rows(8, 4)]),
            [vec![0, 2], vec![1], vec![3]]
        );
        assert_eq!(of(&[rows(0, 8), rows(4, 4), rows(8, 4)]), [vec![0, 1], vec![0, 1], vec![2]]);
        assert_eq!(of(&[rows(0, 12), rows(0, 6)]), [vec![0, 1], vec![0, 1]]);
    }
}
