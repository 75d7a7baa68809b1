//! Choice of a source: by least bytes sent so far.

use std::collections::BTreeMap;

/// Bytes for a target that any of several sources could send.
struct SharedBytes {
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
    sets: Vec<Vec<u32>>,
    numbers: BTreeMap<Vec<u32>, u32>,
    open: Vec<SharedBytes>,
    /// Pieces above this many bytes are cut, so that several sources can share them.
    piece: u64,
}

impl Balance {
    pub(super) fn new(sources: u64, targets: u64, piece: u64) -> Balance {
        Balance {
            sent: vec![0; sources as usize],
            received: vec![0; targets as usize],
            copies: vec![0; (sources * targets) as usize],
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
            self.copy(only, target);
            return;
        }
        let pieces = bytes.div_ceil(self.piece).min(self.sets[sources as usize].len() as u64 * 4);
        for piece in 0..pieces {
            let bytes = bytes * (piece + 1) / pieces - bytes * piece / pieces;
            self.open.push(SharedBytes { bytes, sources, target });
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
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Congruential(u64);

    impl Congruential {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) % n
        }
    }

    #[test]
    fn bytes_go_to_whom_they_are_for_from_those_who_have_them() {
        let mut rng = Congruential(1);
        for _ in 0..2_000 {
            let (sources, targets, piece) = (1 + rng.below(5), 1 + rng.below(4), 1 + rng.below(20));
            let mut balance = Balance::new(sources, targets, piece);
            let mut adds: Vec<(Vec<u32>, u64)> = Vec::new();
            let mut received = vec![0; targets as usize];
            let mut most_copies = 0;
            let mut may = vec![false; (sources * targets) as usize];
            for _ in 0..rng.below(8) {
                let mut set: Vec<u32> = (0..sources as u32).filter(|_| rng.below(2) == 0).collect();
                if set.is_empty() {
                    set.push(rng.below(sources) as u32);
                }
                let (target, bytes) = (rng.below(targets), 1 + rng.below(100));
                let number = balance.set(&set);
                assert_eq!(balance.set(&set), number, "a set has one number");
                balance.add(number, target as u32, bytes);
                received[target as usize] += bytes;
                most_copies += match set.len() {
                    1 => 1,
                    members => bytes.div_ceil(piece).min(4 * members as u64),
                };
                for &source in &set {
                    may[(u64::from(source) * targets + target) as usize] = true;
                }
                adds.push((set, bytes));
            }
            balance.settle();
            assert_eq!(balance.received, received);
            assert_eq!(balance.sent.iter().sum::<u64>(), received.iter().sum::<u64>());
            let copied = balance.copies.iter().map(|&copies| u64::from(copies)).sum::<u64>();
            assert_eq!(copied, most_copies, "as many pieces as are to be shared");
            assert!(balance.copies.iter().zip(may).all(|(&copies, may)| copies == 0 || may));
            for source in 0..sources as u32 {
                let alone = adds.iter().filter(|(set, _)| *set == [source]);
                let forced: u64 = alone.map(|add| add.1).sum();
                assert!(balance.sent[source as usize] >= forced);
            }
        }
    }

    /// The rule once more, choice by choice: of all that is left the largest comes next, then that of
    /// the first set, then that to the first target, from who has sent least.
    fn chosen(
        mut sent: Vec<u64>,
        mut left: Vec<(u64, Vec<u32>, u32)>,
        sets: &[Vec<u32>],
    ) -> Vec<u64> {
        let number = |set: &[u32]| sets.iter().position(|known| known == set).unwrap();
        while !left.is_empty() {
            let next = (0..left.len())
                .min_by_key(|&at| (u64::MAX - left[at].0, number(&left[at].1), left[at].2))
                .unwrap();
            let (bytes, mut set, target) = left.remove(next);
            let turn = target as usize % set.len();
            set.rotate_left(turn);
            let mut giver = set[0];
            for &source in &set {
                if sent[source as usize] < sent[giver as usize] {
                    giver = source;
                }
            }
            sent[giver as usize] += bytes;
        }
        sent
    }

    #[test]
    fn who_sends_what_is_settled_by_size_set_and_target() {
        let mut rng = Congruential(7);
        for _ in 0..2_000 {
            let (sources, targets) = (2 + rng.below(4), 1 + rng.below(4));
            let mut balance = Balance::new(sources, targets, 1_000);
            let (mut sent, mut left, mut sets) =
                (vec![0; sources as usize], Vec::new(), Vec::new());
            for _ in 0..rng.below(12) {
                let mut set: Vec<u32> = (0..sources as u32).filter(|_| rng.below(2) == 0).collect();
                if set.is_empty() {
                    set.push(rng.below(sources) as u32);
                }
                let (target, bytes) = (rng.below(targets) as u32, 1 + rng.below(4));
                let number = balance.set(&set);
                balance.add(number, target, bytes);
                if !sets.contains(&set) {
                    sets.push(set.clone());
                }
                match set[..] {
                    [only] => sent[only as usize] += bytes,
                    _ => left.push((bytes, set, target)),
                }
            }
            balance.settle();
            assert_eq!(balance.sent, chosen(sent, left.clone(), &sets), "{sets:?} {left:?}");
        }
    }

    /// What several sources could send leaves none of them a piece behind the others.
    #[test]
    fn what_is_shared_is_shared_evenly() {
        for (sources, piece, bytes) in [(2, 10, 100), (3, 7, 84), (5, 1, 20), (4, 1_000, 999)] {
            let mut balance = Balance::new(sources + 1, 3, piece);
            let all: Vec<u32> = (0..sources as u32).collect();
            let set = balance.set(&all);
            let first = balance.set(&[0]);
            // What the first alone can send counts before anything is shared.
            for target in 0..3 {
                balance.add(set, target, bytes);
            }
            balance.add(first, 0, piece);
            balance.settle();
            let sent = &balance.sent[..sources as usize];
            let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
            let largest = bytes.div_ceil(bytes.div_ceil(piece).min(4 * sources));
            assert!(most - least <= largest.max(piece), "{sources} {piece} {bytes}: {sent:?}");
            assert_eq!(balance.sent[sources as usize], 0, "who has nothing sends nothing");
        }
    }

    /// What is small fills up what large pieces leave uneven.
    #[test]
    fn the_largest_pieces_are_spread_first() {
        let mut balance = Balance::new(2, 1, 1_000);
        let both = balance.set(&[0, 1]);
        (0..6).for_each(|_| balance.add(both, 0, 1));
        balance.add(both, 0, 6);
        balance.settle();
        assert_eq!(balance.sent, [6, 6]);
    }

    #[test]
    fn equal_loads_do_not_all_meet_the_first() {
        let mut balance = Balance::new(3, 3, 100);
        let all = balance.set(&[0, 1, 2]);
        (0..3).for_each(|target| balance.add(all, target, 9));
        balance.settle();
        assert_eq!(balance.sent, [9; 3]);
        let from = |source: usize| &balance.copies[3 * source..3 * source + 3];
        assert_eq!([from(0), from(1), from(2)], [[1, 0, 0], [0, 1, 0], [0, 0, 1]]);
    }

    #[test]
    fn messages_carry_so_many_copies_to_one_target() {
        let mut balance = Balance::new(2, 3, 10);
        let sets = [balance.set(&[0]), balance.set(&[1])];
        for (source, target, copies) in [(0, 0, 4), (0, 2, 5), (1, 1, 1), (1, 2, 9)] {
            (0..copies).for_each(|_| balance.add(sets[source], target, 1));
        }
        assert_eq!(balance.messages(4), [(9, 1 + 2), (10, 1 + 3)]);
        assert_eq!(balance.messages(100), [(9, 2), (10, 2)]);
    }
}
