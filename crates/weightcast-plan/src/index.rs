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
