//! Trainers of torch: DDP, FSDP2, HSDP, FSDP over TP, FSDP with expert meshes.
//!
//! Every parameter stands by itself under its published name, and a mesh with placements says which
//! rows and columns a rank has: torch's own rule, `weightcast_plan::local_slices`.

use std::ops::Range;

use weightcast_plan::{Mesh, Placement, Slice, local_slices};

use super::{Parallelism, Trainer, stages};
use crate::cut::GroupRank;
use crate::cut::equal;
use crate::error::RuleError;
use crate::model::{Family, ModelSpec, TensorRole, fill};
use crate::record::{ParameterPiece, Record};

/// What a rank holds.
pub(crate) fn records(
    trainer: &Trainer,
    model: &ModelSpec,
    rank: u64,
) -> Result<Vec<Record>, RuleError> {
    let (mesh, held) = (mesh(trainer)?, RankShare::of(trainer, model, rank)?);
    let mut records = Vec::new();
    for family in &model.families {
        let placements = placements(&trainer.parallelism, family);
        let slices = local_slices(&family.shape, &mesh, &placements, rank);
        let slices = slices.map_err(|e| RuleError::Degrees { what: e.to_string() })?;
        let [slice] = &slices[..] else {
            let what = format!("{}: its rows are not one box on this mesh", family.name);
            return Err(RuleError::Degrees { what });
        };
        for layers in held.layers(family, trainer.draft, model) {
            for expert in held.experts(family)? {
                records.push(record(trainer, model, family, slice, layers, expert));
            }
        }
    }
    Ok(records)
}

fn record(
    trainer: &Trainer,
    model: &ModelSpec,
    family: &Family,
    slice: &Slice,
    layers: Option<(u64, u64)>,
    expert: Option<u64>,
) -> Record {
    let name = fill(&family.name, None, expert);
    let cut = |&dim: &usize| slice.len[dim] != family.shape[dim];
    let piece = ParameterPiece {
        tensor: name.clone(),
        slice: slice.clone(),
        dim: (0..slice.ndim()).rev().find(cut).unwrap_or(0),
        target_dim: (0..slice.ndim()).rev().find(cut).unwrap_or(0),
        target_start: 0,
        target_index: None,
    };
    Record {
        name,
        shape: slice.len.clone(),
        dtype: trainer.local(model, family.dtype),
        pieces: if slice.is_empty() { Vec::new() } else { vec![piece] },
        offset: Some(slice.start.clone()),
        layers,
    }
}

fn mesh(trainer: &Trainer) -> Result<Mesh, RuleError> {
    let axes = match &trainer.parallelism {
        Parallelism::Ddp { dp } => vec![("dp", *dp)],
        Parallelism::Fsdp2 { dp, tp } => vec![("dp", *dp), ("tp", *tp)],
        Parallelism::Hsdp { replicate, shard } => {
            vec![("replicate", *replicate), ("shard", *shard)]
        }
        Parallelism::FsdpEp { fsdp, pp, ep, .. } => vec![("fsdp", *fsdp), ("pp", *pp), ("ep", *ep)],
        Parallelism::Megatron(_) => Vec::new(),
    };
    Mesh::new(axes).map_err(|e| RuleError::Degrees { what: e.to_string() })
}

/// What each axis of the mesh does to a tensor of this family.
fn placements(parallelism: &Parallelism, family: &Family) -> Vec<Placement> {
    use Placement::{Replicate, Shard, StridedShard};
    let rows = Shard { dim: 0 };
    match *parallelism {
        Parallelism::Ddp { .. } | Parallelism::Megatron(_) => vec![Replicate],
        Parallelism::Fsdp2 { tp, .. } => match tensor_parallel(family) {
            Shard { dim: 0 } if tp > 1 => vec![StridedShard { dim: 0, split_factor: tp }, rows],
            cut => vec![rows, if tp > 1 { cut } else { Replicate }],
        },
        Parallelism::Hsdp { .. } => vec![Replicate, rows],
        Parallelism::FsdpEp { .. } if family.experts > 0 => vec![rows, Replicate, Replicate],
        Parallelism::FsdpEp { .. } => vec![Replicate, Replicate, rows],
    }
}

/// torch's plan for decoders: projections into heads and intermediate rows by rows, back by
/// columns; embedding and head by rows; the rest on every rank.
fn tensor_parallel(family: &Family) -> Placement {
    use TensorRole::*;
    let is_bias = family.shape.len() == 1;
    match family.role {
        Query | Key | Value | QueryUp | KeyValueUp | DenseGate | DenseUp | DenseGateUp
        | ExpertGate | ExpertUp | SharedGate | SharedUp | Embedding | Head => {
            Placement::Shard { dim: 0 }
        }
        Output | DenseDown | ExpertDown | SharedDown if !is_bias => Placement::Shard { dim: 1 },
        _ => Placement::Replicate,
    }
}

/// The layers and experts of which a rank holds any elements.
struct RankShare {
    layers: Range<u64>,
    is_first: bool,
    is_last: bool,
    experts: GroupRank,
}

impl RankShare {
    fn of(trainer: &Trainer, model: &ModelSpec, rank: u64) -> Result<RankShare, RuleError> {
        let count = model.dims.layers;
        let everything = RankShare {
            layers: 0..count,
            is_first: true,
            is_last: true,
            experts: GroupRank::ALONE,
        };
        let Parallelism::FsdpEp { pp, pp_layers, ep, .. } = &trainer.parallelism else {
            return Ok(everything);
        };
        let stage = rank / ep % pp;
        Ok(RankShare {
            layers: stages::layers_of(count, *pp, pp_layers, stage)?,
            is_first: stage == 0,
            is_last: stage + 1 == *pp,
            experts: GroupRank { index: rank % ep, of: *ep },
        })
    }

    /// The held layers of a family; draft layers are with the last, the embedding and a tower with the first.
    fn layers(&self, family: &Family, draft: bool, model: &ModelSpec) -> Vec<Option<(u64, u64)>> {
        if family.layers.is_empty() {
            let here = match family.role {
                TensorRole::Embedding | TensorRole::Positions => self.is_first,
                role if role.is_of_tower() => self.is_first,
                _ => self.is_last,
            };
            return if here { vec![None] } else { Vec::new() };
        }
        if family.role.is_of_tower() {
            let all = family.layers.iter().copied().map(Some);
            return if self.is_first { all.collect() } else { Vec::new() };
        }
        let count = model.dims.layers;
        let end =
            if draft && self.is_last { count + model.dims.draft_layers } else { self.layers.end };
        let inside = |&(a, b): &(u64, u64)| {
            let (first, last) = (a.max(self.layers.start), (b + 1).min(end));
            (first < last).then(|| Some((first, last - 1)))
        };
        family.layers.iter().filter_map(inside).collect()
    }

    fn experts(&self, family: &Family) -> Result<Vec<Option<u64>>, RuleError> {
        if family.experts == 0 {
            return Ok(vec![None]);
        }
        let (first, count) = equal("experts", family.experts, self.experts)?;
        Ok((first..first + count).map(Some).collect())
    }
}
