//! Records: what one rank's parameter holds, in the form of the layout data set.

use serde::Serialize;
use serde::ser::{SerializeStruct, SerializeTuple, Serializer};
use weightcast_plan::{DType, Slice};

use crate::model::fill;

/// A parameter of a rank, or one for each layer of an interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The local name, with `{L}` where it ranges over layers.
    pub name: String,
    /// Local shape, padding included, in elements.
    pub shape: Vec<u64>,
    /// Local element type; where the source's differs, the copy converts.
    pub dtype: DType,
    /// What fills it, in the order in which it lies; what none fills is zero padding, or derived.
    pub pieces: Vec<ParameterPiece>,
    /// Where it starts in the published tensor; for trainers, whose local tensors are single boxes.
    pub offset: Option<Vec<u64>>,
    /// First and last layer.
    pub layers: Option<(u64, u64)>,
}

/// A box of a published tensor, and where the box lies in a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParameterPiece {
    /// The published tensor, with `{L}` where the record ranges over layers.
    pub tensor: String,
    /// The box, in elements of the published tensor.
    pub slice: Slice,
    /// The dimension of the published tensor that is cut.
    pub dim: usize,
    /// The dimension of the local tensor (below its index) along which pieces follow one another.
    pub target_dim: usize,
    /// Where it starts along that dimension.
    pub target_start: u64,
    /// The local expert, where the local tensor is a stack of experts.
    pub target_index: Option<u64>,
}

impl Record {
    /// A record for each of its layers.
    pub(crate) fn written_out(&self) -> Vec<Record> {
        let Some((first, last)) = self.layers else { return vec![self.clone()] };
        let of_layer = |layer| {
            let mut record = Record { layers: None, ..self.clone() };
            record.name = fill(&self.name, Some(layer), None);
            for piece in &mut record.pieces {
                piece.tensor = fill(&piece.tensor, Some(layer), None);
            }
            record
        };
        (first..=last).map(of_layer).collect()
    }

    /// Bytes of its pieces in one layer, in the local type.
    pub fn piece_bytes(&self) -> u64 {
        self.pieces.iter().map(|p| p.slice.volume()).sum::<u64>() * self.dtype.bits() / 8
    }

    /// Bytes it occupies in one layer.
    pub fn bytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * self.dtype.bits() / 8
    }

    /// Number of layers; 1 outside of them.
    pub fn count(&self) -> u64 {
        self.layers.map_or(1, |(first, last)| last - first + 1)
    }
}

/// All that a rank holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RankLayout {
    /// Its parameters, in the order of a forward pass.
    pub records: Vec<Record>,
    /// What the real program would refuse, though it can be written down.
    pub warnings: Vec<String>,
}

impl RankLayout {
    /// Bytes that it must receive: all pieces, without padding.
    pub fn transfer_bytes(&self) -> u64 {
        self.records.iter().map(|r| r.piece_bytes() * r.count()).sum()
    }

    /// Bytes that it occupies: padding and derived parameters too.
    pub fn alloc_bytes(&self) -> u64 {
        self.records.iter().map(|r| r.bytes() * r.count()).sum()
    }
}

/// As a rank of the data set: `transfer_bytes`, `alloc_bytes`, `params`.
impl Serialize for RankLayout {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut rank = serializer.serialize_struct("RankLayout", 3)?;
        rank.serialize_field("transfer_bytes", &self.transfer_bytes())?;
        rank.serialize_field("alloc_bytes", &self.alloc_bytes())?;
        rank.serialize_field("params", &self.records)?;
        rank.end()
    }
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = 4 + usize::from(self.offset.is_some()) + usize::from(self.layers.is_some());
        let mut record = serializer.serialize_struct("Record", fields)?;
        record.serialize_field("name", &self.name)?;
        record.serialize_field("shape", &self.shape)?;
        record.serialize_field("dtype", self.dtype.name())?;
        if let Some(offset) = &self.offset {
            record.serialize_field("offset", offset)?;
        }
        record.serialize_field("pieces", &self.pieces)?;
        if let Some((first, last)) = self.layers {
            record.serialize_field("L", &[first, last])?;
        }
        record.end()
    }
}

/// `[hf_name, src_dim, src_start, src_len, dst_dim, dst_start, dst_index]`
impl Serialize for ParameterPiece {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (start, len) = match self.slice.ndim() {
            0 => (0, 1),
            _ => (self.slice.start[self.dim], self.slice.len[self.dim]),
        };
        let mut piece = serializer.serialize_tuple(7)?;
        piece.serialize_element(&self.tensor)?;
        piece.serialize_element(&self.dim)?;
        piece.serialize_element(&start)?;
        piece.serialize_element(&len)?;
        piece.serialize_element(&self.target_dim)?;
        piece.serialize_element(&self.target_start)?;
        piece.serialize_element(&self.target_index)?;
        piece.end()
    }
}
