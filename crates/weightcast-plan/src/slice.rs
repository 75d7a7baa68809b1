//! Slices: n-dimensional boxes of elements, and their algebra.

use std::fmt;

/// A box of elements: in dimension `d` it holds `start[d]` up to `start[d] + len[d]`.
///
/// A scalar is the box with no dimensions and volume 1. Operations take boxes of one tensor, that
/// is with the same number of dimensions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slice {
    /// First index in each dimension.
    pub start: Vec<u64>,
    /// Number of indices in each dimension.
    pub len: Vec<u64>,
}

impl Slice {
    /// The box with these starts and lengths (as many of the one as of the other).
    pub fn new(start: impl Into<Vec<u64>>, len: impl Into<Vec<u64>>) -> Slice {
        Slice { start: start.into(), len: len.into() }
    }

    /// The whole of a tensor of this shape.
    pub fn full(shape: &[u64]) -> Slice {
        Slice { start: vec![0; shape.len()], len: shape.to_vec() }
    }

    /// Number of dimensions.
    pub fn ndim(&self) -> usize {
        self.start.len()
    }

    /// One past the last index in dimension `dim`.
    pub fn end(&self, dim: usize) -> u64 {
        self.start[dim].saturating_add(self.len[dim])
    }

    /// Number of elements.
    pub fn volume(&self) -> u64 {
        if self.is_empty() { 0 } else { self.len.iter().fold(1, |v, &n| v.saturating_mul(n)) }
    }

    /// Whether it holds no element.
    pub fn is_empty(&self) -> bool {
        self.len.contains(&0)
    }

    /// Whether it is a box of a tensor of this shape.
    pub fn fits(&self, shape: &[u64]) -> bool {
        self.start.len() == shape.len()
            && self.len.len() == shape.len()
            && (0..shape.len())
                .all(|d| self.start[d].checked_add(self.len[d]).is_some_and(|end| end <= shape[d]))
    }

    /// Whether every element of `other` is in this box.
    pub fn contains(&self, other: &Slice) -> bool {
        other.is_empty()
            || (0..self.ndim())
                .all(|d| self.start[d] <= other.start[d] && other.end(d) <= self.end(d))
    }

    /// The elements in both, if there are any.
    pub fn intersect(&self, other: &Slice) -> Option<Slice> {
        let mut both = self.clone();
        for d in 0..self.ndim() {
            let start = self.start[d].max(other.start[d]);
            let end = self.end(d).min(other.end(d));
            if start >= end {
                return None;
            }
            (both.start[d], both.len[d]) = (start, end - start);
        }
        Some(both)
    }

    /// The elements of this box that are not in `other`, as disjoint boxes.
    pub fn subtract(&self, other: &Slice) -> Vec<Slice> {
        if self.is_empty() {
            return Vec::new();
        }
        let Some(hole) = self.intersect(other) else { return vec![self.clone()] };
        let (mut rest, mut left) = (Vec::new(), self.clone());
        // Cut off what lies below and above the hole, one dimension after the other.
        for d in 0..self.ndim() {
            if left.start[d] < hole.start[d] {
                rest.push(left.with(d, left.start[d], hole.start[d] - left.start[d]));
            }
            if hole.end(d) < left.end(d) {
                rest.push(left.with(d, hole.end(d), left.end(d) - hole.end(d)));
            }
            (left.start[d], left.len[d]) = (hole.start[d], hole.len[d]);
        }
        rest
    }

    /// The elements of this box in none of `others`, as disjoint boxes.
    pub fn subtract_all<'a>(&self, others: impl IntoIterator<Item = &'a Slice>) -> Vec<Slice> {
        let mut rest = if self.is_empty() { Vec::new() } else { vec![self.clone()] };
        for other in others {
            if rest.iter().any(|piece| piece.intersect(other).is_some()) {
                rest = rest.iter().flat_map(|piece| piece.subtract(other)).collect();
            }
        }
        rest
    }

    /// Takes `next` in if the two are one box together, `next` being further along one dimension.
    pub(crate) fn join(&mut self, next: &Slice) -> bool {
        let mut apart = (0..self.ndim())
            .filter(|&d| (self.start[d], self.len[d]) != (next.start[d], next.len[d]));
        match (apart.next(), apart.next()) {
            (Some(d), None) if self.end(d) == next.start[d] => {
                self.len[d] += next.len[d];
                true
            }
            _ => false,
        }
    }

    /// This box with another range in one dimension.
    pub(crate) fn with(&self, dim: usize, start: u64, len: u64) -> Slice {
        let mut other = self.clone();
        (other.start[dim], other.len[dim]) = (start, len);
        other
    }
}

impl fmt::Display for Slice {
    /// `[0:4096, 512:1024]`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for d in 0..self.ndim() {
            let comma = if d == 0 { "" } else { ", " };
            write!(f, "{comma}{}:{}", self.start[d], self.end(d))?;
        }
        f.write_str("]")
    }
}
