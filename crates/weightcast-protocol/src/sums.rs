//! Folded digests: how the server checks content without ever seeing a tensor.
//!
//! Every shard sends three numbers for what it holds. Over a group, `counted` adds up to the
//! version's number in every layout, because each element is counted by exactly one shard; and the
//! sum of `held` equals the sum of `expected` exactly when every further copy of a replicated slice
//! equals the counted one.

use std::ops::Add;

/// A 128-bit additive digest in two 64-bit lanes; addition wraps lane by lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sum(pub [u64; 2]);

impl Add for Sum {
    type Output = Sum;
    fn add(self, other: Sum) -> Sum {
        Sum([self.0[0].wrapping_add(other.0[0]), self.0[1].wrapping_add(other.0[1])])
    }
}

/// What one shard says of its content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
