//! Finding the boxes that meet a box, without looking at all of them.

use std::borrow::Borrow;

use crate::slice::Slice;

/// Boxes of one tensor, sorted along the dimension that tells them apart best.
///
/// Layouts are tilings far more often than not, so one dimension and a running maximum find the
/// few boxes that matter in logarithmic time.
pub(crate) struct BoxIndex {
    dim: usize,
    /// Start, end, running maximum of ends, number of the box; ascending starts.
    rows: Vec<(u64, u64, u64, u32)>,
}

impl BoxIndex {
    /// Indexes boxes with the same number of dimensions; a box's number is its place.
    pub(crate) fn new<S: Borrow<Slice>>(boxes: impl Iterator<Item = S> + Clone) -> BoxIndex {
        let ndim = boxes.clone().next().map_or(0, |b| b.borrow().ndim());
        let dim = if ndim < 2 { 0 } else { telling_dim(ndim, boxes.clone()) };
        let range = |b: &Slice| if ndim == 0 { (0, 1) } else { (b.start[dim], b.end(dim)) };
        let mut rows = Vec::with_capacity(boxes.clone().filter(|b| !b.borrow().is_empty()).count());
        for (id, b) in boxes.enumerate().filter(|(_, b)| !b.borrow().is_empty()) {
            let (start, end) = range(b.borrow());
            rows.push((start, end, 0, id as u32));
        }
        rows.sort_unstable();
        let mut furthest = 0;
        for row in &mut rows {
            furthest = furthest.max(row.1);
            row.2 = furthest;
        }
        BoxIndex { dim, rows }
    }

    /// Numbers of the boxes that may meet `probe`: all that do, and some that miss it in another
    /// dimension. In no particular order.
    pub(crate) fn near(&self, probe: &Slice) -> impl Iterator<Item = u32> + '_ {
        let (start, end) = match probe.ndim() {
            0 => (0, 1),
            _ => (probe.start[self.dim], probe.end(self.dim)),
        };
        let above = self.rows.partition_point(|row| row.0 < end);
        self.rows[..above]
            .iter()
            .rev()
            .take_while(move |row| row.2 > start)
            .filter(move |row| row.1 > start)
            .map(|row| row.3)
    }
}

/// The dimension with the most distinct starts.
fn telling_dim<S: Borrow<Slice>>(ndim: usize, boxes: impl Iterator<Item = S> + Clone) -> usize {
    let distinct = |dim: usize| {
        let mut starts: Vec<u64> = boxes.clone().map(|b| b.borrow().start[dim]).collect();
        starts.sort_unstable();
        starts.dedup();
        starts.len()
    };
    if boxes.clone().nth(1).is_none() {
        return 0;
    }
    (0..ndim).rev().max_by_key(|&dim| distinct(dim)).unwrap_or(0)
}

/// The first two of so many boxes, by number, that share an element.
pub(crate) fn first_overlap<S: Borrow<Slice>>(
    count: usize,
    slice: impl Fn(usize) -> S,
) -> Option<(usize, usize)> {
    if count < 2 {
        return None;
    }
    let index = BoxIndex::new((0..count).map(&slice));
    (0..count).find_map(|at| {
        let this = slice(at);
        let meets = |other: &u32| {
            let other = *other as usize;
            other > at && slice(other).borrow().intersect(this.borrow()).is_some()
        };
        index.near(this.borrow()).filter(meets).min().map(|other| (at, other as usize))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Boxes of up to three dimensions, some of them empty, and a probe.
    fn boxes(seed: u64) -> (Vec<Slice>, Slice) {
        let mut state = seed;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % n
        };
        let ndim = below(4);
        let mut one = || {
            let dims: Vec<(u64, u64)> = (0..ndim).map(|_| (below(7), below(4))).collect();
            let (start, len): (Vec<u64>, Vec<u64>) = dims.into_iter().unzip();
            Slice { start, len }
        };
        let probe = one();
        let count = 1 + seed % 6;
        ((0..count).map(|_| one()).collect(), probe)
    }

    #[test]
    fn near_are_all_that_meet_and_none_that_misses_in_the_dimension_looked_at() {
        let mut met = 0;
        for seed in 0..4_000 {
            let (boxes, probe) = boxes(seed);
            let index = BoxIndex::new(boxes.iter());
            let mut near: Vec<u32> = index.near(&probe).collect();
            near.sort_unstable();
            let in_dim = |b: &Slice| {
                let meet = |d: usize| b.start[d] < probe.end(d) && probe.start[d] < b.end(d);
                !b.is_empty() && (b.ndim() == 0 || meet(index.dim))
            };
            let expected: Vec<u32> =
                (0..).zip(&boxes).filter(|(_, b)| in_dim(b)).map(|(at, _)| at).collect();
            assert_eq!(near, expected, "{boxes:?} {probe}");
            met += near.len();
        }
        assert!(met > 1_000);
    }

    /// However a tensor is tiled, few tiles have to be looked at.
    #[test]
    fn the_dimension_that_tells_tiles_apart_is_the_one_looked_at() {
        for dim in 0..3 {
            let mut len = vec![6, 6, 6];
            len[dim] = 1;
            let tiles = (0..6).flat_map(|at| {
                let mut start = vec![0, 0, 0];
                start[dim] = at;
                [start.clone(), start].map(|start| Slice { start, len: len.clone() })
            });
            let tiles: Vec<Slice> = tiles.collect();
            let index = BoxIndex::new(tiles.iter());
            assert!(tiles.iter().all(|tile| index.near(tile).count() == 2), "dimension {dim}");
        }
    }

    #[test]
    fn the_first_overlap_is_that_of_all_pairs() {
        let mut found = 0;
        for seed in 0..4_000 {
            let (boxes, _) = boxes(seed);
            let pairs = (0..boxes.len()).flat_map(|a| (a + 1..boxes.len()).map(move |b| (a, b)));
            let meet = |&(a, b): &(usize, usize)| {
                let (a, b): (&Slice, &Slice) = (&boxes[a], &boxes[b]);
                a.intersect(b).is_some() && !a.is_empty()
            };
            let first = pairs.clone().find(meet);
            assert_eq!(first_overlap(boxes.len(), |at| &boxes[at]), first, "{boxes:?}");
            found += usize::from(first.is_some());
        }
        assert!(found > 500);
    }
}
