//! Folding n-dimensional boxes into few, large, two-dimensional blocks.
//!
//! A block lives in `K` address spaces at once (source memory, target memory, global order); it
//! can only be as long as it is contiguous in all of them.

/// Rows of bytes at a pitch, in each of `K` address spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block<const K: usize> {
    pub(crate) row_bytes: u64,
    pub(crate) rows: u64,
    pub(crate) offset: [u64; K],
    /// Distance between rows; `row_bytes` where there is one row.
    pub(crate) pitch: [u64; K],
}

/// A box with every dimension merged that can be: a row and the loops around it.
pub(crate) struct Folded<const K: usize> {
    row_bytes: u64,
    /// Length and strides, innermost first; lengths of at least 2.
    loops: Vec<(u64, [u64; K])>,
}

/// Folds a non-empty box whose last dimension is in bytes. `strides[k]` are the byte distances in
/// address space `k`, the last being 1.
pub(crate) fn fold<const K: usize>(lens: &[u64], strides: [&[u64]; K]) -> Folded<K> {
    let last = lens.len() - 1;
    let mut loops = vec![(lens[last], [1; K])];
    for d in (0..last).rev().filter(|&d| lens[d] != 1) {
        let outer: [u64; K] = std::array::from_fn(|k| strides[k][d]);
        let inner = loops.last_mut().expect("starts with one");
        if (0..K).all(|k| outer[k] == inner.0 * inner.1[k]) {
            inner.0 *= lens[d];
        } else {
            loops.push((lens[d], outer));
        }
    }
    let row_bytes = loops.remove(0).0;
    Folded { row_bytes, loops }
}

impl<const K: usize> Folded<K> {
    /// The row and the loops around it: length and strides, innermost first.
    pub(crate) fn into_loops(self) -> (u64, Vec<(u64, [u64; K])>) {
        (self.row_bytes, self.loops)
    }

    /// How many blocks it takes.
    pub(crate) fn count(&self) -> u64 {
        let longest = self.loops.iter().map(|l| l.0).max().unwrap_or(1);
        self.loops.iter().fold(1u64, |n, l| n.saturating_mul(l.0)) / longest
    }

    /// The blocks of the box that begins at `offset`: the longest loop becomes rows, the others
    /// are unrolled in row-major order.
    pub(crate) fn blocks(mut self, offset: [u64; K]) -> Vec<Block<K>> {
        let at = (0..self.loops.len()).rev().max_by_key(|&at| self.loops[at].0);
        let (rows, pitch) = match at {
            Some(at) => self.loops.remove(at),
            None => (1, [self.row_bytes; K]),
        };
        let mut blocks = vec![Block { row_bytes: self.row_bytes, rows, offset, pitch }];
        for (len, strides) in self.loops.iter().rev() {
            let step = |block: &Block<K>, i: u64| Block {
                offset: std::array::from_fn(|k| block.offset[k] + i * strides[k]),
                ..*block
            };
            blocks = blocks.iter().flat_map(|b| (0..*len).map(move |i| step(b, i))).collect();
        }
        blocks
    }
}

impl<const K: usize> Block<K> {
    /// Takes `next` into this block if the two are one block together. `next` follows in global
    /// order.
    pub(crate) fn join(&mut self, next: &Block<K>) -> bool {
        let lies = |distance: &dyn Fn(usize) -> u64| {
            (0..K).all(|k| next.offset[k] == self.offset[k] + distance(k))
        };
        let alike = self.row_bytes == next.row_bytes;
        if self.rows == next.rows
            && (self.rows == 1 || self.pitch == next.pitch)
            && lies(&|_| self.row_bytes)
        {
            self.row_bytes += next.row_bytes; // side by side
        } else if alike && self.rows == 1 && next.rows == 1 {
            if (0..K).any(|k| next.offset[k] < self.offset[k] + self.row_bytes) {
                return false;
            }
            self.pitch = std::array::from_fn(|k| next.offset[k] - self.offset[k]);
            self.rows = 2; // two rows make a pitch
        } else if alike
            && (next.rows == 1 || self.pitch == next.pitch)
            && self.rows > 1
            && lies(&|k| self.rows * self.pitch[k])
        {
            self.rows += next.rows; // below
        } else {
            return false;
        }
        self.flatten();
        true
    }

    /// Rows without gaps are one row.
    fn flatten(&mut self) {
        if self.rows == 1 || self.pitch == [self.row_bytes; K] {
            self.row_bytes *= self.rows;
            self.rows = 1;
            self.pitch = [self.row_bytes; K];
        }
    }
}

/// Joins neighbours, in order, as far as they go.
pub(crate) fn join_all<const K: usize>(blocks: Vec<Block<K>>) -> Vec<Block<K>> {
    let mut joined: Vec<Block<K>> = Vec::new();
    for block in blocks {
        if !joined.last_mut().is_some_and(|last| last.join(&block)) {
            joined.push(block);
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folds_what_is_contiguous_everywhere() {
        // 2 experts x 3 rows x 8 bytes: packed on the one side, rows 16 apart on the other.
        let blocks = fold(&[2, 3, 8], [&[24, 8, 1], &[48, 16, 1]]).blocks([0, 100]);
        assert_eq!(blocks, [Block { row_bytes: 8, rows: 6, offset: [0, 100], pitch: [8, 16] }]);
        let blocks = fold(&[2, 3, 8], [&[24, 8, 1], &[24, 8, 1]]).blocks([0, 0]);
        assert_eq!(blocks, [Block { row_bytes: 48, rows: 1, offset: [0; 2], pitch: [48; 2] }]);
    }

    #[test]
    fn unrolls_the_shorter_loops() {
        let folded = fold(&[2, 5, 8], [&[1000, 16, 1]]);
        assert_eq!(folded.count(), 2);
        let blocks = folded.blocks([0]);
        assert_eq!(blocks.len(), 2);
        assert_eq!((blocks[1].offset, blocks[1].rows, blocks[1].pitch), ([1000], 5, [16]));
    }

    #[test]
    fn joins_rows_columns_and_pieces() {
        let row = |at: u64| Block { row_bytes: 4, rows: 1, offset: [at], pitch: [4] };
        assert_eq!(join_all(vec![row(0), row(4)]).len(), 1);
        let pitched = join_all(vec![row(0), row(10), row(20)]);
        assert_eq!(pitched, [Block { row_bytes: 4, rows: 3, offset: [0], pitch: [10] }]);
        let column = Block { row_bytes: 6, rows: 3, offset: [4], pitch: [10] };
        let whole = join_all(vec![pitched[0], column]);
        assert_eq!(whole, [Block { row_bytes: 30, rows: 1, offset: [0], pitch: [30] }]);
    }

    #[test]
    fn keeps_apart_what_has_another_pitch() {
        let rows =
            |at: u64, pitch: u64| Block { row_bytes: 4, rows: 2, offset: [at], pitch: [pitch] };
        assert_eq!(join_all(vec![rows(0, 10), rows(20, 11)]).len(), 2); // below
        assert_eq!(join_all(vec![rows(0, 10), rows(4, 12)]).len(), 2); // side by side
        assert_eq!(join_all(vec![rows(0, 10), rows(20, 10)]).len(), 1);
    }
}
