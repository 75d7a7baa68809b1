//! Rectangles of bytes of one region, as a reader asks for them.

/// A rectangle of bytes of one region of the source: `rows` runs of `row_bytes`, `pitch` apart.
/// Without bytes it has no runs, whatever it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Index of the region in the export.
    pub region: u32,
    /// First byte.
    pub offset: u64,
    /// Bytes of each run.
    pub row_bytes: u64,
    /// Number of runs.
    pub rows: u64,
    /// Bytes from the start of one run to the start of the next.
    pub pitch: u64,
}

impl Extent {
    /// Where each of its runs begins. Only of use once checked.
    pub(crate) fn runs(&self) -> impl Iterator<Item = u64> + Clone + use<> {
        let (offset, pitch) = (self.offset, self.pitch);
        (0..self.count()).map(move |row| offset + row * pitch)
    }

    /// Bytes of all its runs. Only of use once checked.
    pub(crate) fn bytes(&self) -> u64 {
        self.row_bytes.wrapping_mul(self.count())
    }

    /// How many runs it has.
    pub(crate) fn count(&self) -> u64 {
        if self.row_bytes == 0 { 0 } else { self.rows }
    }
}

/// An extent whose bytes lie at known positions of their logical tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedExtent {
    /// The bytes.
    pub extent: Extent,
    /// Position of the first byte.
    pub position: u64,
    /// Positions from one run to the next.
    pub position_pitch: u64,
}
