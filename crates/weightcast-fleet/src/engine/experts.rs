//! Experts: `w13` and `w2` stacked over the experts of a rank.

use super::list::{EngineParameters, in_layer, rename};
use super::{ExpertPlacement, Program};
use crate::cut::{Cut, GroupRank, Range, equal, follow, piece};
use crate::error::RuleError;
use crate::model::{Family, Fused, ModuleTensor, MoeDims, TensorRole, fill};
use crate::record::{ParameterPiece, Record};

/// The smallest block to which vLLM refines a grid of scales.
const SMALLEST_BLOCK: u64 = 32;

/// A stack: its name, and what is one below the other in each of its experts.
struct Stack {
    name: &'static str,
    parts: Vec<(TensorRole, Cut)>,
}

impl EngineParameters<'_> {
    /// The experts of the layers now listed.
    pub(crate) fn experts(&mut self) -> Result<(), RuleError> {
        if self.has(TensorRole::ExpertsGateUp) && !self.model.experts_turned {
            return self.stacked_experts();
        }
        if self.has(TensorRole::ExpertsGateUp) {
            return Err(RuleError::Computes {
                engine: self.engine.program.name(),
                model_type: self.model.model_type.clone(),
                why: "its experts are one tensor of [experts, in, out] and are transposed, which no slice is; \
                      read the layout off a live engine",
            });
        }
        let Some(module) = self.module_of(TensorRole::ExpertGate) else { return Ok(()) };
        let module = module.split(".{E}").next().unwrap_or_default().to_owned();
        let place = self.ranks.expert_tensor;
        let rows = |role| (role, Cut::Rows(place));
        let stacks = [
            Stack {
                name: "w13",
                parts: vec![rows(TensorRole::ExpertGate), rows(TensorRole::ExpertUp)],
            },
            Stack { name: "w2", parts: vec![(TensorRole::ExpertDown, Cut::Columns(place))] },
        ];
        let held = self.held_experts()?;
        for member in [ModuleTensor::Weight, ModuleTensor::Scale, ModuleTensor::Bias] {
            for stack in &stacks {
                let roles: Vec<TensorRole> = stack.parts.iter().map(|part| part.0).collect();
                for fused in self.alike(&roles) {
                    let families = self.model.members(&fused, member);
                    if !families.is_empty() {
                        let record = self.stack(&module, stack, &fused, &families, &held)?;
                        self.push(record);
                    }
                }
            }
        }
        Ok(())
    }

    /// Experts that the checkpoint has as `[experts, out, in]`: some of them whole, or rows and columns of all.
    fn stacked_experts(&mut self) -> Result<(), RuleError> {
        let (held, place) = (self.held_experts()?, self.ranks.expert_tensor);
        for (role, name, dim, parts) in [
            (TensorRole::ExpertsGateUp, "w13_weight", 1, 2),
            (TensorRole::ExpertsDown, "w2_weight", 2, 1),
        ] {
            for fused in self.alike(&[role]) {
                let family = fused.weights[0];
                let mut shape = family.shape.clone();
                shape[0] = held.len() as u64;
                shape[dim] /= place.of;
                let ranges = match place.of {
                    1 => runs(&held),
                    _ => parts_of(family, dim, parts, place)?,
                };
                let pieces =
                    ranges.into_iter().map(|(range, at)| piece(family, range, at)).collect();
                let module = family.name.split_once("{L}.").map_or("", |(_, name)| name);
                let module = module.rsplit_once('.').map_or("", |(module, _)| module);
                let name = in_layer(family, &format!("{module}.{name}"));
                let dtype = self.dtype_of(family);
                self.push(Record {
                    name,
                    shape,
                    dtype,
                    pieces,
                    offset: None,
                    layers: fused.layers,
                });
            }
        }
        Ok(())
    }

    fn stack(
        &self,
        module: &str,
        stack: &Stack,
        fused: &Fused<'_>,
        families: &[&Family],
        held: &[Option<u64>],
    ) -> Result<Record, RuleError> {
        let suffix = rename(families[0], "");
        let suffix = suffix.rsplit('.').next().unwrap_or_default();
        let name = in_layer(families[0], &format!("{module}.{}_{suffix}", stack.name));
        let refined = self.refined_block()?.filter(|_| families[0].member == ModuleTensor::Scale);
        let block = self.model.quantisation.as_ref().map_or((1, 1), |q| q.block);
        let (mut one, mut at, mut shape) = (Vec::new(), 0, Vec::new());
        for ((weight, family), (_, cut)) in fused.weights.iter().zip(families).zip(&stack.parts) {
            for range in cut.ranges(weight)? {
                shape.clone_from(match refined {
                    Some(_) => &weight.shape,
                    None => &family.shape,
                });
                let range = match refined {
                    Some(_) => range,
                    None => follow(family, range, block, cut.is_cut())?,
                };
                one.push((*family, range, at));
                at += range.len;
                shape[range.dim] = at;
            }
        }
        if let Some(refined) = refined {
            shape.iter_mut().for_each(|n| *n /= refined);
            one.clear();
        }
        shape.insert(0, held.len() as u64);
        let pieces = |(slot, expert)| -> Vec<ParameterPiece> {
            one.iter().map(|&(f, r, at)| of_expert(f, r, at, expert, slot)).collect()
        };
        let filled = held.iter().enumerate().filter_map(|(slot, held)| Some((slot, (*held)?)));
        let pieces = filled.flat_map(pieces).collect();
        let dtype = self.dtype_of(families[0]);
        Ok(Record { name, shape, dtype, pieces, offset: None, layers: fused.layers })
    }

    /// The experts of this rank, slot by slot: the redundant ones are numbered after all others. A
    /// draft of SGLang has room for those, but they are not placed: nothing fills it.
    fn held_experts(&self) -> Result<Vec<Option<u64>>, RuleError> {
        let Some(moe) = &self.model.dims.moe else { return Ok(Vec::new()) };
        let (place, redundant) = (self.ranks.expert, self.engine.redundant);
        self.refuse_experts(moe)?;
        let is_placed = !self.draft || self.engine.program != Program::Sglang;
        let expert = |slot| (is_placed || slot < moe.experts).then_some(slot % moe.experts);
        let physical: Vec<Option<u64>> = (0..moe.experts + redundant).map(expert).collect();
        if is_placed && self.is_dealt_round(moe) {
            let mine = physical.iter().skip(place.index as usize).step_by(place.of as usize);
            return Ok(mine.copied().collect());
        }
        // The first ranks have one more where they do not divide.
        let (each, more) = (physical.len() as u64 / place.of, physical.len() as u64 % place.of);
        let first = place.index * each + place.index.min(more);
        let count = each + u64::from(place.index < more);
        Ok(physical[first as usize..(first + count) as usize].to_vec())
    }

    /// What the engine's classes refuse of experts and their copies.
    fn refuse_experts(&self, moe: &MoeDims) -> Result<(), RuleError> {
        let (program, redundant) = (self.engine.program, self.engine.redundant);
        let refused = |what| Err(RuleError::Degrees { what });
        if redundant > 0 && !self.model.copied_in.contains(&program.name()) {
            let (name, model_type) = (program.name(), &self.model.model_type);
            return refused(format!(
                "{name} has no room for copies of the experts of {model_type}; leave out redundant"
            ));
        }
        if program == Program::Sglang && self.engine.tp > moe.experts {
            let (tp, experts) = (self.engine.tp, moe.experts);
            return refused(format!(
                "SGLang refuses tp={tp} for {experts} experts; use fewer ranks"
            ));
        }
        self.refuse_ragged(moe)?;
        let must_divide = redundant > 0 || program == Program::Sglang;
        if must_divide && !(moe.experts + redundant).is_multiple_of(self.ranks.expert.of) {
            let (what, size) = ("experts with redundant ones".to_owned(), moe.experts + redundant);
            return Err(RuleError::Indivisible { what, size, parts: self.ranks.expert.of });
        }
        Ok(())
    }

    /// SGLang wants whole blocks in each part of an expert, also of experts that are not cut.
    fn refuse_ragged(&self, moe: &MoeDims) -> Result<(), RuleError> {
        let mut scales =
            self.model.of_role(TensorRole::ExpertGate).filter(|f| f.member == ModuleTensor::Scale);
        let (Some(q), Some(scale)) = (&self.model.quantisation, scales.next()) else {
            return Ok(());
        };
        let (size, block) = (moe.intermediate / self.ranks.expert_tensor.of, q.block.0);
        if self.engine.program == Program::Vllm || size.is_multiple_of(block) {
            return Ok(());
        }
        Err(RuleError::CutBlock { what: scale.name.clone(), size, block })
    }

    /// vLLM deals round only experts that are chosen by group and there once.
    fn is_dealt_round(&self, moe: &MoeDims) -> bool {
        let takes =
            self.engine.program != Program::Vllm || (moe.groups > 1 && self.engine.redundant == 0);
        self.engine.placement == ExpertPlacement::RoundRobin && takes
    }

    /// vLLM refines the scales of experts whose cut falls within a block, computing them as it
    /// loads; the block is the greatest that divides everything.
    fn refined_block(&self) -> Result<Option<u64>, RuleError> {
        let (Some(q), Some(moe)) = (&self.model.quantisation, &self.model.dims.moe) else {
            return Ok(None);
        };
        let of = self.ranks.expert_tensor.of;
        let rows = moe.intermediate / of.max(1);
        let whole = |block: u64| rows.is_multiple_of(block);
        let fits = whole(q.block.0) && (of == 1 || whole(q.block.1));
        if fits || of == 1 || self.engine.program != Program::Vllm {
            return Ok(None);
        }
        let numbers = [q.block.0, q.block.1, rows, self.model.dims.hidden];
        let block = numbers.into_iter().fold(0, gcd);
        match block >= SMALLEST_BLOCK {
            true => Ok(Some(block)),
            false => {
                Err(RuleError::CutBlock { what: "experts".into(), size: rows, block: q.block.0 })
            }
        }
    }
}

/// Runs of consecutive experts, and the slot in which each begins.
fn runs(held: &[Option<u64>]) -> Vec<(Range, u64)> {
    let mut runs: Vec<(Range, u64)> = Vec::new();
    for (slot, expert) in (0..).zip(held).filter_map(|(slot, expert)| Some((slot, (*expert)?))) {
        match runs.last_mut() {
            Some((run, at)) if run.start + run.len == expert && *at + run.len == slot => {
                run.len += 1
            }
            _ => runs.push((Range { dim: 0, start: expert, len: 1 }, slot)),
        }
    }
    runs
}

/// A rank's part of each of so many equal parts along a dimension, and where it lies.
fn parts_of(
    family: &Family,
    dim: usize,
    parts: u64,
    place: GroupRank,
) -> Result<Vec<(Range, u64)>, RuleError> {
    let each = family.shape[dim] / parts;
    let (start, len) = equal(&family.name, each, place)?;
    let part = |part| (Range { dim, start: part * each + start, len }, part * len);
    Ok((0..parts).map(part).collect())
}

fn of_expert(family: &Family, range: Range, at: u64, expert: u64, slot: usize) -> ParameterPiece {
    let mut piece = piece(family, range, at);
    piece.tensor = fill(&piece.tensor, None, Some(expert));
    piece.target_index = Some(slot as u64);
    piece
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
