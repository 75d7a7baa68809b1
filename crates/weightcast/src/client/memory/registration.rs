//! Registered memory: which slices lie where, and what the group counts. `digesting` has its digests.

use std::collections::BTreeMap;
use std::sync::Arc;

use weightcast_plan::{Cell, Layout, Run, Tensor, catalog_digest, cells, missing, runs};
use weightcast_protocol::ContentDigest;
use weightcast_protocol::message::Sibling;
use weightcast_transport::Region;

use super::siblings::Siblings;
use crate::error::Error;
use crate::transform::Transformed;

/// One shard's registered memory, and what the layouts of its group say of it.
#[derive(Clone)]
pub(crate) struct RegisteredShard {
    pub(crate) layout: Arc<Layout>,
    pub(crate) regions: Arc<[Region]>,
    /// Set if the regions are a representation of other memory.
    pub(crate) transformed: Option<Arc<Transformed>>,
    /// Digest of the group's catalog.
    pub(crate) catalog: ContentDigest,
    /// Every logical tensor of the group, by name.
    pub(crate) tensors: BTreeMap<String, Tensor>,
    /// This shard's slices, cut where the set of shards that hold them changes.
    pub(crate) cells: Vec<Cell>,
    /// Its number in the group.
    pub(crate) shard: usize,
    /// Shards of the group on this host that bring a part of what this one holds.
    pub(crate) siblings: Option<Arc<Siblings>>,
    /// Where the cells lie in memory.
    pub(super) runs: Vec<Run>,
    /// For each cell, the key of its tensor, with which the cell's digest is multiplied before
    /// summing.
    pub(super) keys: Vec<[u64; 2]>,
}

impl RegisteredShard {
    /// The memory of shard number `shard` of a group with these layouts.
    pub(crate) fn new(
        layouts: &[Arc<Layout>],
        shard: usize,
        regions: Vec<Region>,
    ) -> Result<Self, Error> {
        let layout = Arc::clone(&layouts[shard]);
        let tensors = union(layouts)?;
        let all: Vec<Tensor> = tensors.values().cloned().collect();
        let group: Vec<&Layout> = layouts.iter().map(Arc::as_ref).collect();
        let cells = cells(&group, shard);
        let runs = runs(&layout, &cells);
        let keys = cells.iter().map(|cell| tensor_of(&layout, cell).key()).collect();
        let catalog = ContentDigest(catalog_digest(&all));
        let (transformed, siblings) = (None, None);
        Ok(Self {
            layout,
            regions: regions.into(),
            transformed,
            catalog,
            tensors,
            cells,
            shard,
            siblings,
            runs,
            keys,
        })
    }

    /// Notes which shards of the group are on this host. `layouts` are those of the group.
    pub(crate) fn beside(mut self, layouts: &[Arc<Layout>], shard: u32, told: &[Sibling]) -> Self {
        self.siblings = Siblings::new(layouts, shard, &self.cells, told).map(Arc::new);
        self
    }

    /// Notes that the regions are a representation of other memory, if they are.
    pub(crate) fn transformed(mut self, transformed: Option<Transformed>) -> Self {
        self.transformed = transformed.map(Arc::new);
        self
    }

    /// The same slices, in other memory of the same shape.
    pub(crate) fn within(&self, regions: Vec<Region>) -> Self {
        Self { regions: regions.into(), ..self.clone() }
    }

    /// Where the bytes of the slices lie, row by row: region, offset, length.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
        self.runs.iter().flat_map(|run| {
            let offset = |row: u64| (run.offset + row * run.pitch) as usize;
            let (buffer, len) = (run.buffer as usize, run.row_bytes as usize);
            (0..run.rows).map(move |row| (buffer, offset(row), len))
        })
    }

    /// A tensor whose memory may not be written, if there is one.
    pub(crate) fn read_only(&self) -> Option<&str> {
        let fixed = |buffer: u32| !self.regions[buffer as usize].is_writable();
        let run = self.runs.iter().find(|run| fixed(run.buffer))?;
        Some(tensor_of(&self.layout, &self.cells[run.cell as usize]).name())
    }

    /// Describes for people which elements no shard of the group holds, of tensors that the group
    /// holds in part. `None` if there are none.
    pub(in crate::client) fn lacking(&self, layouts: &[Arc<Layout>]) -> Option<String> {
        let layouts: Vec<&Layout> = layouts.iter().map(Arc::as_ref).collect();
        let missing = missing(&layouts, &self.tensors);
        let (tensor, slices) = missing.first()?;
        let boxes = if slices.len() > 1 { " and more" } else { "" };
        let others = match missing.len() - 1 {
            0 => String::new(),
            others => format!(", nor all of {others} other tensors"),
        };
        Some(format!("{}{boxes} of {tensor}{others}", slices[0]))
    }

    /// Bytes that the cells cover: what a read moves and verifies.
    pub(crate) fn bytes(&self) -> u64 {
        self.runs.iter().map(Run::bytes).sum()
    }
}

fn tensor_of<'a>(layout: &'a Layout, cell: &Cell) -> &'a Tensor {
    layout.tensor_of(cell.entry)
}

/// The logical tensors of a group; its shards must agree on every one.
pub(crate) fn union(layouts: &[Arc<Layout>]) -> Result<BTreeMap<String, Tensor>, Error> {
    let mut tensors: BTreeMap<String, Tensor> = BTreeMap::new();
    for (shard, layout) in layouts.iter().enumerate() {
        for tensor in layout.tensors() {
            match tensors.get(tensor.name()) {
                Some(known) if known != tensor => {
                    return Err(Error::misuse(format!(
                        "shard {shard} registers {} as {} {:?}, another shard of its group as {} \
                         {:?}",
                        tensor.name(),
                        tensor.dtype().name(),
                        tensor.shape(),
                        known.dtype().name(),
                        known.shape()
                    )));
                }
                Some(_) => {}
                None => {
                    tensors.insert(tensor.name().to_owned(), tensor.clone());
                }
            }
        }
    }
    Ok(tensors)
}

#[cfg(test)]
mod tests;
