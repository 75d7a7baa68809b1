//! Choice of a source: by least bytes sent so far.

use std::collections::BTreeMap;

/// Bytes to be moved from one of several sources to a target.
struct Choice {
    bytes: u64,
    sources: u32,
    target: u32,
}

/// Loads of sources and targets. What only one source holds counts first; then the largest pieces
/// are spread, each to the source with the least bytes so far, ties to the lower rank.
pub(super) struct Balance {
    pub(super) sent: Vec<u64>,
    pub(super) received: Vec<u64>,
    /// Copies from each source to each target, source by source.
    copies: Vec<u32>,
    /// Bytes by source that only it could send.
    pub(super) forced: Vec<u64>,
    sets: Vec<Vec<u32>>,
    numbers: BTreeMap<Vec<u32>, u32>,
    open: Vec<Choice>,
    /// Pieces above this many bytes are cut, so that several sources can share them.
    piece: u64,
}

impl Balance {
    pub(super) fn new(sources: u64, targets: u64, piece: u64) -> Balance {
        Balance {
            sent: vec![0; sources as usize],
            received: vec![0; targets as usize],
            copies: vec![0; (sources * targets) as usize],
            forced: vec![0; sources as usize],
            sets: Vec::new(),
            numbers: BTreeMap::new(),
            open: Vec::new(),
            piece: piece.max(1),
        }
    }

    /// The number of a set of sources.
    pub(super) fn set(&mut self, ranks: &[u32]) -> u32 {
        if let Some(&number) = self.numbers.get(ranks) {
            return number;
        }
        let number = self.sets.len() as u32;
        self.sets.push(ranks.to_vec());
        self.numbers.insert(ranks.to_vec(), number);
        number
    }

    /// `bytes` from one of a set of sources to a target.
    pub(super) fn add(&mut self, sources: u32, target: u32, bytes: u64) {
        self.received[target as usize] += bytes;
        if let [only] = self.sets[sources as usize][..] {
            self.sent[only as usize] += bytes;
            self.forced[only as usize] += bytes;
            self.copy(only, target);
            return;
        }
        let pieces = bytes.div_ceil(self.piece).min(self.sets[sources as usize].len() as u64 * 4);
        for piece in 0..pieces {
            let bytes = bytes * (piece + 1) / pieces - bytes * piece / pieces;
            self.open.push(Choice { bytes, sources, target });
        }
    }

    /// Chooses a source for everything that has several.
    pub(super) fn settle(&mut self) {
        let mut open = std::mem::take(&mut self.open);
        open.sort_by_key(|c| (std::cmp::Reverse(c.bytes), c.sources, c.target));
        for choice in open {
            let set = &self.sets[choice.sources as usize];
            // Each target begins at another source, so that equal loads do not all meet the first.
            let turn = choice.target as usize % set.len();
            let order = set[turn..].iter().chain(&set[..turn]);
            if let Some(&source) = order.min_by_key(|&&source| self.sent[source as usize]) {
                self.sent[source as usize] += choice.bytes;
                self.copy(source, choice.target);
            }
        }
    }

    fn copy(&mut self, source: u32, target: u32) {
        let copies = &mut self.copies[source as usize * self.received.len() + target as usize];
        *copies = copies.saturating_add(1);
    }

    /// Copies by source, and the messages that they go in, up to `most` to one target in each.
    pub(super) fn messages(&self, most: u32) -> Vec<(u64, u64)> {
        let of_source = |copies: &[u32]| {
            let messages = copies.iter().map(|copies| u64::from(copies.div_ceil(most))).sum();
            (copies.iter().map(|&copies| u64::from(copies)).sum(), messages)
        };
        self.copies.chunks(self.received.len().max(1)).map(of_source).collect()
    }

    /// The least that the busiest source must send: what only it has, or the mean of sources that
    /// share what they send.
    pub(super) fn bound(&self) -> f64 {
        let mut parent: Vec<usize> = (0..self.sent.len()).collect();
        for set in &self.sets {
            for pair in set.windows(2) {
                let (a, b) = (root(&parent, pair[0]), root(&parent, pair[1]));
                parent[a.max(b)] = a.min(b);
            }
        }
        let mut sums: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        for (source, &sent) in self.sent.iter().enumerate() {
            let sum = sums.entry(root(&parent, source as u32)).or_default();
            *sum = (sum.0 + sent, sum.1 + 1);
        }
        let means = sums.values().map(|&(bytes, ranks)| bytes as f64 / ranks as f64);
        let forced = self.forced.iter().map(|&bytes| bytes as f64);
        means.chain(forced).fold(0.0, f64::max)
    }
}

fn root(parent: &[usize], rank: u32) -> usize {
    let mut at = rank as usize;
    while parent[at] != at {
        at = parent[at];
    }
    at
}
