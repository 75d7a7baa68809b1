//! Who holds what of each tensor, over all ranks of one side.

use std::collections::BTreeMap;

use weightcast_plan::{DType, Slice};

use crate::cluster::Cluster;
use crate::error::RuleError;
use crate::record::Record;

/// A box of a tensor in the memory of a rank, in these layers.
#[derive(Debug, Clone)]
pub(super) struct HeldBox {
    pub(super) rank: u32,
    pub(super) layers: Option<(u64, u64)>,
    pub(super) slice: Slice,
    pub(super) dtype: DType,
}

/// All holders of each tensor, by its name with `{L}`.
pub(super) struct Holders {
    by_tensor: BTreeMap<String, Vec<HeldBox>>,
    pub(super) ranks: u64,
    /// The most that a rank holds.
    pub(super) most_bytes: u64,
    /// What the real programs would refuse.
    pub(super) warnings: Vec<String>,
}

impl Holders {
    /// The holders of a cluster: every rank's layout, turned around.
    pub(super) fn of(cluster: &Cluster) -> Result<Holders, RuleError> {
        let ranks = cluster.ranks();
        let mut holders =
            Holders { by_tensor: BTreeMap::new(), ranks, most_bytes: 0, warnings: Vec::new() };
        for rank in 0..ranks {
            let layout = cluster.layout(rank)?;
            holders.most_bytes = holders.most_bytes.max(layout.transfer_bytes());
            layout.records.into_iter().for_each(|record| holders.add(rank, record));
            holders.warnings.extend(layout.warnings);
        }
        holders.warnings.sort();
        holders.warnings.dedup();
        Ok(holders)
    }

    /// With what they hold under further names as well: they can give it, and need not be given it.
    pub(super) fn with_tied(mut self, cluster: &Cluster) -> Holders {
        for rank in 0..self.ranks {
            cluster.tied(rank).iter().for_each(|record| self.add(rank, record.clone()));
        }
        self
    }

    fn add(&mut self, rank: u64, record: Record) {
        for piece in record.pieces {
            let (layers, dtype) = (record.layers, record.dtype);
            let held = HeldBox { rank: rank as u32, layers, slice: piece.slice, dtype };
            self.by_tensor.entry(piece.tensor).or_default().push(held);
        }
    }

    /// The holders of a tensor; none if it is not held at all.
    pub(super) fn of_tensor(&self, name: &str) -> &[HeldBox] {
        self.by_tensor.get(name).map_or(&[], Vec::as_slice)
    }

    /// All names, with `{L}`.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_tensor.keys().map(String::as_str)
    }
}

impl HeldBox {
    /// Whether it is held in this layer.
    pub(super) fn is_in(&self, layer: Option<u64>) -> bool {
        match (self.layers, layer) {
            (Some((first, last)), Some(layer)) => (first..=last).contains(&layer),
            (None, None) => true,
            _ => false,
        }
    }

    /// The scales that it can make of its part of a weight: those of the blocks that begin in it.
    pub(super) fn scales(&self, block: (u64, u64)) -> HeldBox {
        let mut slice = self.slice.clone();
        for (dim, size) in [block.0, block.1].into_iter().enumerate() {
            let first = self.slice.start[dim].div_ceil(size);
            let end = self.slice.end(dim).div_ceil(size);
            (slice.start[dim], slice.len[dim]) = (first, end.saturating_sub(first));
        }
        HeldBox { slice, dtype: DType::F32, ..self.clone() }
    }
}
