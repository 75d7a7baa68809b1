//! What two entries share whose buffers lie in each other's memory.

use std::fmt;

/// Two entries of different buffers with bytes in common: the first that were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlap {
    /// One of them.
    pub first: OverlapShare,
    /// The other, in a later layout or a later entry.
    pub second: OverlapShare,
    /// Bytes that they share from there on; none if they are too fragmented to tell.
    pub bytes: Option<u64>,
}

/// An entry's part in an overlap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverlapShare {
    /// Which of the layouts.
    pub layout: usize,
    /// The number of its entry.
    pub entry: u32,
    /// Tensor and slice.
    pub name: String,
    /// Where in its buffer the shared bytes begin.
    pub offset: u64,
}

impl Overlap {
    /// Which bytes, for people.
    pub fn range(&self) -> String {
        let of = |share: &OverlapShare, bytes: u64| {
            format!(
                "bytes {}..{} of the memory of {}",
                share.offset,
                share.offset + bytes,
                share.name
            )
        };
        match self.bytes {
            Some(bytes) => format!("{} are {}", of(&self.first, bytes), of(&self.second, bytes)),
            None => "they interleave in too many pieces to tell which bytes".to_owned(),
        }
    }
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} and {} overlap in memory: {}",
            self.first.name,
            self.second.name,
            self.range()
        )
    }
}
