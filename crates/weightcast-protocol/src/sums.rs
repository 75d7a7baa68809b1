//! Folded digests: the server compares content without seeing a tensor.
//!
//! Every shard sends three numbers for what it holds. Summed over a group, `counted` is the
//! version's number in every layout, because each element is counted by exactly one shard. The sum
//! of `held` equals the sum of `expected` exactly when every further copy of a replicated slice
//! equals the counted copy.

use std::ops::Add;

use serde::{Deserialize, Serialize};

/// A 128-bit additive digest in two 64-bit lanes; addition wraps lane by lane.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Sum(pub [u64; 2]);

impl Add for Sum {
    type Output = Sum;
    fn add(self, other: Sum) -> Sum {
        Sum([self.0[0].wrapping_add(other.0[0]), self.0[1].wrapping_add(other.0[1])])
    }
}

/// The three numbers of one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ShardSums {
    /// Sum over the elements that this shard counts for its group.
    pub counted: Sum,
    /// Sum over all elements that this shard holds.
    pub held: Sum,
    /// Sum over the elements that this shard counts, each times the number of shards holding it.
    pub expected: Sum,
}

impl Add for ShardSums {
    type Output = ShardSums;
    fn add(self, other: ShardSums) -> ShardSums {
        ShardSums {
            counted: self.counted + other.counted,
            held: self.held + other.held,
            expected: self.expected + other.expected,
        }
    }
}

impl ShardSums {
    /// Whether, summed over a whole group, every copy of a replicated slice is the same.
    pub fn copies_agree(&self) -> bool {
        self.held == self.expected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(one: u64, other: u64) -> Sum {
        Sum([one, other])
    }

    #[test]
    fn lanes_are_added_each_for_itself_and_wrap() {
        assert_eq!(sum(1, 20) + sum(3, 40), sum(4, 60));
        assert_eq!(sum(u64::MAX, 1) + sum(2, u64::MAX), sum(1, 0), "nothing is carried over");
    }

    #[test]
    fn each_of_the_three_numbers_is_added_to_its_own_kind() {
        let one = ShardSums { counted: sum(1, 2), held: sum(4, 8), expected: sum(16, 32) };
        let other = ShardSums { counted: sum(64, 128), held: sum(256, 512), expected: sum(7, 9) };
        let both = ShardSums { counted: sum(65, 130), held: sum(260, 520), expected: sum(23, 41) };
        assert_eq!((one + other, other + one), (both, both));
        assert_eq!(one + ShardSums::default(), one);
    }

    #[test]
    fn copies_agree_where_all_that_is_held_is_what_is_counted_so_many_times() {
        // Two shards hold the same slice; the first counts it.
        let first = ShardSums { counted: sum(5, 6), held: sum(5, 6), expected: sum(10, 12) };
        let second = ShardSums { held: sum(5, 6), ..ShardSums::default() };
        assert!((first + second).copies_agree());
        assert!(!first.copies_agree() && !second.copies_agree());
        for held in [sum(5, 7), sum(4, 6), sum(0, 0)] {
            assert!(!(first + ShardSums { held, ..second }).copies_agree(), "{held:?}");
        }
    }
}
