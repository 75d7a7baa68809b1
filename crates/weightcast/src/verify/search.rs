//! Finds where tensors differ: asks all holders of a box for its digest, and cuts the boxes whose
//! digests differ. Pure: the caller fetches the digests.
//!
//! A box that differs is cut along its first dimension until single rows are left, and each of
//! these along the others as long as all of the difference is in one part. Holders whose digests of
//! a box are the same have the same bytes there, so only one of them is asked from then on.

use std::collections::BTreeSet;

use weightcast_plan::{Slice, Tensor};
use weightcast_transport::Digest;

use super::atoms::{Atom, HeldEntry};

/// Parts that a box is cut into.
const PARTS: u64 = 16;
/// Most ranges of rows of one tensor that are searched at once. The others stay as coarse as they
/// are: where so much differs, rows say little.
const OPEN_ROWS: usize = 32;
/// Most boxes of one tensor that are searched at once: several shards may hold parts of one row.
const OPEN: usize = 4_096;

/// A box to digest in one shard's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) held: HeldEntry,
    pub(super) slice: Slice,
}

/// Where a tensor differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Number of the tensor among the suspects.
    pub(super) tensor: usize,
    pub(super) slice: Slice,
    /// Every row of the box differs. If false, some rows do: there were too many to search, or the
    /// memory is being written.
    pub(super) exact: bool,
    /// The box differed when it was asked for first, and later did not.
    pub(super) moving: bool,
    /// The holders of the box, grouped by what they hold.
    pub(super) readings: Vec<Vec<HeldEntry>>,
}

/// A box of one atom.
#[derive(Clone, Debug)]
struct Candidate {
    tensor: usize,
    slice: Slice,
    /// The dimension along which the box is cut next; those before are done.
    dim: usize,
    readings: Vec<Vec<HeldEntry>>,
}

/// What one round searches of one tensor, bounded by [`OPEN_ROWS`] and [`OPEN`].
#[derive(Default)]
struct Budget {
    tensor: usize,
    rows: BTreeSet<(u64, u64)>,
    boxes: usize,
}

impl Budget {
    /// Whether a candidate fits in; counts it if so. Candidates come tensor by tensor.
    fn allows(&mut self, candidate: &Candidate) -> bool {
        if self.tensor != candidate.tensor {
            *self = Self { tensor: candidate.tensor, ..Self::default() };
        }
        let rows = (candidate.slice.start[0], candidate.slice.len[0]);
        let fits = self.rows.len() < OPEN_ROWS || self.rows.contains(&rows);
        let fits = fits && self.boxes < OPEN;
        if fits {
            self.rows.insert(rows);
            self.boxes += 1;
        }
        fits
    }
}

/// One search over some tensors.
pub(super) struct Search {
    tensors: Vec<Tensor>,
    /// Boxes that differ and have been cut.
    parents: Vec<Candidate>,
    /// Boxes to ask for: whole atoms at first, then the parts of the numbered parents.
    asked: Vec<(Option<usize>, Candidate)>,
    found: Vec<Found>,
}

impl Search {
    /// A search of tensors that are not the same everywhere, with their atoms. Atoms that only one
    /// shard holds are left out: there is nothing to compare.
    pub(super) fn new(suspects: Vec<(Tensor, Vec<Atom>)>) -> Self {
        let (mut tensors, mut asked) = (Vec::new(), Vec::new());
        for (number, (tensor, atoms)) in suspects.into_iter().enumerate() {
            tensors.push(tensor);
            asked.extend(atoms.into_iter().filter(|atom| atom.held.len() > 1).map(|atom| {
                let readings = atom.held.into_iter().map(|held| vec![held]).collect();
                (None, Candidate { tensor: number, slice: atom.slice, dim: 0, readings })
            }));
        }
        Self { tensors, parents: Vec::new(), asked, found: Vec::new() }
    }

    /// What to digest now; nothing once the search has ended.
    pub(super) fn questions(&self) -> Vec<Question> {
        let one = |candidate: &Candidate| {
            let slice = candidate.slice.clone();
            let first = candidate.readings.iter().map(|same| same[0]);
            first.map(|held| Question { held, slice: slice.clone() }).collect::<Vec<_>>()
        };
        self.asked.iter().flat_map(|(_, candidate)| one(candidate)).collect()
    }

    /// Takes the digests that [`Search::questions`] asked for, in the same order.
    pub(super) fn answer(&mut self, digests: &[Digest]) {
        let mut digests = digests.iter();
        let mut parts: Vec<Vec<Candidate>> = vec![Vec::new(); self.parents.len()];
        let mut open = Vec::new();
        for (parent, mut candidate) in std::mem::take(&mut self.asked) {
            let count = candidate.readings.len();
            let seen: Vec<Digest> = digests.by_ref().take(count).copied().collect();
            assert_eq!(seen.len(), count, "every question has a digest");
            candidate.readings = together(candidate.readings, &seen);
            match parent {
                _ if candidate.readings.len() == 1 => {} // the same everywhere
                Some(parent) => parts[parent].push(candidate),
                None => open.push(candidate),
            }
        }
        for (parent, parts) in std::mem::take(&mut self.parents).into_iter().zip(parts) {
            self.narrow(parent, parts, &mut open);
        }
        self.cut(open);
    }

    /// Opens what is to be searched of a box that was cut, given its parts that differ.
    fn narrow(&mut self, parent: Candidate, parts: Vec<Candidate>, open: &mut Vec<Candidate>) {
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
            return self.settle(parent, true);
        };
        if parent.dim == 0 || parts.len() == 1 {
            return open.extend(parts);
        }
        // For all holders, all of the difference lies between the first and the last part.
        let mut hull = parent.slice.clone();
        hull.start[parent.dim] = first.slice.start[parent.dim];
        hull.len[parent.dim] = last.slice.end(parent.dim) - hull.start[parent.dim];
        open.push(Candidate { slice: hull, dim: parent.dim + 1, ..parent });
    }

    /// Cuts the boxes that differ, as far as they can and may be.
    fn cut(&mut self, mut open: Vec<Candidate>) {
        open.sort_by(|a, b| (a.tensor, &a.slice).cmp(&(b.tensor, &b.slice)));
        let mut budget = Budget::default();
        for mut candidate in open {
            let unit = |dim| self.unit(candidate.tensor, dim);
            let mut dims = candidate.dim..candidate.slice.ndim();
            match dims.find(|&dim| candidate.slice.len[dim] > unit(dim)) {
                Some(dim) if budget.allows(&candidate) => {
                    candidate.dim = dim;
                    let parent = Some(self.parents.len());
                    let parts = parts(&candidate.slice, dim, unit(dim)).into_iter();
                    let part = |slice| (parent, Candidate { slice, ..candidate.clone() });
                    self.asked.extend(parts.map(part));
                    self.parents.push(candidate);
                }
                _ => self.settle(candidate, false),
            }
        }
    }

    /// The smallest step along a dimension: an element, or as many as fill a byte.
    fn unit(&self, tensor: usize, dim: usize) -> u64 {
        let tensor = &self.tensors[tensor];
        if dim + 1 == tensor.shape().len() { tensor.dtype().step_elements() } else { 1 }
    }

    fn settle(&mut self, at: Candidate, moving: bool) {
        let Candidate { tensor, slice, readings, .. } = at;
        let rows = slice.len.first().is_none_or(|rows| *rows <= self.unit(tensor, 0));
        let exact = rows && !moving;
        self.found.push(Found { tensor, slice, exact, moving, readings });
    }

    /// All places, by tensor and slice, once there is no question left. Places one below the other
    /// are joined. A tensor without a place has changed since it was a suspect.
    pub(super) fn end(self) -> Vec<Found> {
        let mut found = self.found;
        for (tensor, of) in self.tensors.iter().enumerate() {
            if found.iter().all(|place| place.tensor != tensor) {
                let (slice, readings) = (Slice::full(of.shape()), Vec::new());
                found.push(Found { tensor, slice, exact: false, moving: true, readings });
            }
        }
        found.sort_by(|a, b| aside(a).cmp(&aside(b)));
        found.dedup_by(|next, last| last.take(next));
        found.sort_by(|a, b| (a.tensor, &a.slice).cmp(&(b.tensor, &b.slice)));
        found
    }
}

/// Sorts by everything but the rows first, so that places one below the other are neighbours.
fn aside(found: &Found) -> impl Ord + '_ {
    let columns = (found.slice.start.get(1..), found.slice.len.get(1..));
    (found.tensor, &found.readings, found.exact, found.moving, columns, found.slice.start.first())
}

impl Found {
    /// Joins the rows below, if they differ in the same columns between the same holders. True if
    /// joined.
    fn take(&mut self, next: &Self) -> bool {
        let alike = (self.tensor, self.exact, self.moving)
            == (next.tensor, next.exact, next.moving)
            && self.readings == next.readings
            && self.slice.start.get(1..) == next.slice.start.get(1..)
            && self.slice.len.get(1..) == next.slice.len.get(1..);
        let below = self.slice.ndim() > 0 && self.slice.end(0) == next.slice.start[0];
        if alike && below {
            self.slice.len[0] += next.slice.len[0];
        }
        alike && below
    }
}

/// Joins the groups of holders whose first members have the same digest.
fn together(readings: Vec<Vec<HeldEntry>>, digests: &[Digest]) -> Vec<Vec<HeldEntry>> {
    let mut groups: Vec<(Digest, Vec<HeldEntry>)> = Vec::new();
    for (held, digest) in readings.into_iter().zip(digests) {
        match groups.iter_mut().find(|(other, _)| other == digest) {
            Some((_, group)) => group.extend(held),
            None => groups.push((*digest, held)),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Cuts a box into at most [`PARTS`] along one dimension, in whole steps of `unit`.
fn parts(slice: &Slice, dim: usize, unit: u64) -> Vec<Slice> {
    let step = slice.len[dim].div_ceil(unit).div_ceil(PARTS) * unit;
    let part = |start: u64| {
        let mut part = slice.clone();
        part.start[dim] = start;
        part.len[dim] = step.min(slice.end(dim) - start);
        part
    };
    (slice.start[dim]..slice.end(dim)).step_by(step as usize).map(part).collect()
}
