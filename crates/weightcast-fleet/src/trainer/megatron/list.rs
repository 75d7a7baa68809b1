//! The list of a Megatron rank's parameters being written.

use std::ops::Range;

use super::{Coordinates, Megatron};
use crate::cut::{self, Cut, GroupRank, piece};
use crate::error::RuleError;
use crate::model::{Family, Fused, ModelSpec, ModuleTensor, TensorRole};
use crate::record::{ParameterPiece, Record};
use crate::trainer::{Trainer, stages};

/// The parameters of one Megatron rank, while they are listed.
pub(super) struct MegatronParameters<'a> {
    pub(super) model: &'a ModelSpec,
    trainer: &'a Trainer,
    megatron: &'a Megatron,
    /// Tensor parallelism, that of experts, and expert parallelism.
    pub(super) tp: GroupRank,
    pub(super) etp: GroupRank,
    pub(super) ep: GroupRank,
    /// Layers of the stage.
    layers: Range<u64>,
    records: Vec<Record>,
}

impl<'a> MegatronParameters<'a> {
    pub(super) fn new(
        megatron: &'a Megatron,
        model: &'a ModelSpec,
        trainer: &'a Trainer,
        at: Coordinates,
    ) -> Result<MegatronParameters<'a>, RuleError> {
        let count = model.dims.layers;
        let mut layers = stages::layers_of(count, megatron.pp, &megatron.pp_layers, at.pp)?;
        if trainer.draft && at.pp + 1 == megatron.pp {
            layers.end += model.dims.draft_layers;
        }
        Ok(MegatronParameters {
            model,
            trainer,
            megatron,
            tp: GroupRank { index: at.tp, of: megatron.tp },
            etp: GroupRank { index: at.etp, of: megatron.etp },
            ep: GroupRank { index: at.ep, of: megatron.ep },
            layers,
            records: Vec::new(),
        })
    }

    pub(super) fn finish(self) -> Vec<Record> {
        self.records
    }

    pub(super) fn alike(&self, roles: &[TensorRole]) -> Vec<Fused<'a>> {
        self.model.alike(roles, self.layers.clone())
    }

    /// A module of the checkpoint that every tensor-parallel rank has whole.
    pub(super) fn whole(&mut self, role: TensorRole, module: &str) -> Result<(), RuleError> {
        self.module(module, &[(role, Cut::Whole)])
    }

    /// A norm that Megatron keeps in the layer after it.
    pub(super) fn fused_norm(&mut self, role: TensorRole, module: &str) {
        for fused in self.alike(&[role]) {
            let family = fused.weights[0];
            let name = format!("{module}.layer_norm_weight");
            self.push(name, family, vec![all(family, 0)], 0, fused.layers);
        }
    }

    /// Weights one after the other, each cut by itself, and their biases.
    pub(super) fn module(
        &mut self,
        module: &str,
        parts: &[(TensorRole, Cut)],
    ) -> Result<(), RuleError> {
        let roles: Vec<TensorRole> = parts.iter().map(|part| part.0).collect();
        for fused in self.alike(&roles) {
            for (member, suffix) in [(ModuleTensor::Weight, "weight"), (ModuleTensor::Bias, "bias")]
            {
                let families = self.model.members(&fused, member);
                if families.is_empty() {
                    continue;
                }
                let (mut pieces, mut at, mut dim) = (Vec::new(), 0, 0);
                for ((weight, family), (_, cut)) in fused.weights.iter().zip(&families).zip(parts) {
                    for range in cut.ranges(weight)? {
                        let range = cut::follow(family, range, (1, 1), cut.is_cut())?;
                        dim = range.dim;
                        pieces.push(piece(family, range, at));
                        at += range.len;
                    }
                }
                let name = format!("{module}.{suffix}");
                self.push(name, families[0], pieces, dim, fused.layers);
            }
        }
        Ok(())
    }

    /// Rows of the vocabulary, padded so that all ranks have as many.
    pub(super) fn vocabulary(&mut self, role: TensorRole, name: &str) {
        for fused in self.model.alike(&[role], 0..0) {
            let family = fused.weights[0];
            let rows = family.shape[0];
            let padded = rows.next_multiple_of(self.megatron.vocab_multiple * self.tp.of);
            let each = padded / self.tp.of;
            let start = (self.tp.index * each).min(rows);
            let len = each.min(rows - start);
            let range = cut::Range { dim: 0, start, len };
            let pieces = if len > 0 { vec![piece(family, range, 0)] } else { Vec::new() };
            self.push(name.to_owned(), family, pieces, 0, None);
            if let Some(record) = self.records.last_mut() {
                record.shape[0] = each;
            }
        }
    }

    /// A parameter that is these pieces of families like `family`, along `dim`.
    pub(super) fn push(
        &mut self,
        name: String,
        family: &Family,
        pieces: Vec<ParameterPiece>,
        dim: usize,
        layers: Option<(u64, u64)>,
    ) {
        let mut shape = family.shape.clone();
        shape[dim] = pieces.iter().map(|p| p.slice.len[p.dim]).sum();
        let offset = match &pieces[..] {
            [one] => Some(one.slice.start.clone()),
            _ => None,
        };
        let dtype = self.trainer.local(self.model, family.dtype);
        self.records.push(Record { name, shape, dtype, pieces, offset, layers });
    }
}

/// The whole of a family's tensors, at `at`.
pub(super) fn all(family: &Family, at: u64) -> ParameterPiece {
    piece(family, cut::Range { dim: 0, start: 0, len: family.shape[0] }, at)
}
