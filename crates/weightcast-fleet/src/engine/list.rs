//! The list of a rank's parameters being written.

use std::ops::Range;

use weightcast_plan::DType;

use super::ranks::Ranks;
use super::{Engine, Program};
use crate::cut::{self, Cut, follow, piece};
use crate::error::RuleError;
use crate::model::{Family, Fused, ModelSpec, ModuleTensor, TensorRole, fill};
use crate::record::{RankLayout, Record};

/// Rows to which a vocabulary is padded, in both engines.
const VOCABULARY_PADDING: u64 = 64;

/// The members of a module in the order in which engines list them.
const MEMBERS: [ModuleTensor; 3] = [ModuleTensor::Weight, ModuleTensor::Scale, ModuleTensor::Bias];

/// The parameters of one engine rank, in the order in which the engine lists them.
pub(crate) struct EngineParameters<'a> {
    pub(crate) model: &'a ModelSpec,
    pub(crate) engine: &'a Engine,
    pub(crate) ranks: &'a Ranks,
    /// Whether the draft layers are being listed, not the others.
    pub(crate) draft: bool,
    layout: RankLayout,
}

impl<'a> EngineParameters<'a> {
    pub(crate) fn new(
        model: &'a ModelSpec,
        engine: &'a Engine,
        ranks: &'a Ranks,
    ) -> EngineParameters<'a> {
        EngineParameters { model, engine, ranks, draft: false, layout: RankLayout::default() }
    }

    pub(crate) fn finish(self) -> RankLayout {
        self.layout
    }

    pub(crate) fn has(&self, role: TensorRole) -> bool {
        self.model.of_role(role).next().is_some()
    }

    pub(crate) fn warn(&mut self, warning: String) {
        if !self.layout.warnings.contains(&warning) {
            self.layout.warnings.push(warning);
        }
    }

    pub(crate) fn push(&mut self, mut record: Record) {
        record.name = self.local_name(&record.name);
        self.layout.records.push(record);
    }

    /// Everything in decoder layers, or in draft layers.
    pub(crate) fn layers(&mut self, draft: bool) -> Result<(), RuleError> {
        self.draft = draft;
        if draft {
            self.draft_modules()?;
        }
        self.whole(TensorRole::InputNorm)?;
        self.whole(TensorRole::PostAttentionNorm)?;
        self.whole(TensorRole::PostSelfAttentionNorm)?;
        self.whole(TensorRole::PostMlpNorm)?;
        self.attention()?;
        self.mlp()?;
        self.draft = false;
        Ok(())
    }

    /// A module that every rank has whole, under its own name.
    pub(crate) fn whole(&mut self, role: TensorRole) -> Result<(), RuleError> {
        self.module(None, &[(role, Cut::Whole)])
    }

    /// A module made of these weights one after the other, each cut by itself; under its own
    /// name, or that of the fused one.
    pub(crate) fn module(
        &mut self,
        name: Option<&str>,
        parts: &[(TensorRole, Cut)],
    ) -> Result<(), RuleError> {
        let roles: Vec<TensorRole> = parts.iter().map(|part| part.0).collect();
        for fused in self.alike(&roles) {
            for member in MEMBERS {
                let families = self.model.members(&fused, member);
                if families.is_empty() {
                    continue;
                }
                let record = self.record(name, &fused, &families, parts)?;
                self.push(record);
            }
        }
        Ok(())
    }

    fn record(
        &mut self,
        name: Option<&str>,
        fused: &Fused<'_>,
        families: &[&Family],
        parts: &[(TensorRole, Cut)],
    ) -> Result<Record, RuleError> {
        of_one_type(fused, families)?;
        let block = self.model.quantisation.as_ref().map_or((1, 1), |q| q.block);
        let mut pieces = Vec::new();
        let (mut at, mut dim) = (0, 0);
        let mut ragged: Option<&Family> = None;
        for ((weight, family), (_, cut)) in fused.weights.iter().zip(families).zip(parts) {
            for range in cut.ranges(weight)? {
                if let Some(ragged) = ragged.take() {
                    self.warn(begins_within_a_block(self.engine.program.name(), ragged));
                }
                if family.member == ModuleTensor::Scale
                    && range.dim == 0
                    && range.len % block.0 != 0
                {
                    ragged = Some(family);
                }
                let range = follow(family, range, block, cut.is_cut())?;
                dim = range.dim;
                pieces.push(piece(family, range, at));
                at += range.len;
            }
        }
        let mut shape = families[0].shape.clone();
        shape[dim] = at;
        let name = match name {
            None => families[0].name.clone(),
            Some(module) => rename(families[0], module),
        };
        let dtype = self.dtype_of(families[0]);
        Ok(Record { name, shape, dtype, pieces, offset: None, layers: fused.layers })
    }

    /// Embedding and head: rows padded, and spread like attention.
    pub(crate) fn vocabulary(&mut self, role: TensorRole) -> Result<(), RuleError> {
        let place = self.ranks.attention;
        for fused in self.alike(&[role]) {
            let family = fused.weights[0];
            let rows = family.shape[0];
            let mut padding = VOCABULARY_PADDING;
            if rows.next_multiple_of(padding) % place.of != 0 {
                if self.engine.program == Program::Vllm {
                    let (what, size) =
                        (format!("{}, padded", family.name), rows.next_multiple_of(padding));
                    return Err(RuleError::Indivisible { what, size, parts: place.of });
                }
                padding *= place.of;
            }
            let len = rows.next_multiple_of(padding) / place.of;
            let start = (place.index * len).min(rows);
            let range = cut::Range { dim: 0, start, len: len.min(rows - start) };
            let pieces = match range.len {
                0 => Vec::new(),
                _ => vec![piece(family, range, 0)],
            };
            let (name, shape) = (family.name.clone(), vec![len, family.shape[1]]);
            let dtype = self.dtype_of(family);
            self.push(Record { name, shape, dtype, pieces, offset: None, layers: fused.layers });
        }
        Ok(())
    }

    /// The layers now listed.
    fn listed(&self) -> Range<u64> {
        let count = self.model.dims.layers;
        if self.draft { count..count + self.model.dims.draft_layers } else { 0..count }
    }

    /// The modules now listed that are made of weights of these roles.
    pub(crate) fn alike(&self, roles: &[TensorRole]) -> Vec<Fused<'a>> {
        let layers = match (&self.model.tower, roles.iter().all(|role| role.is_of_tower())) {
            (Some(tower), true) => 0..tower.blocks.max(tower.mergers),
            _ => self.listed(),
        };
        let mut fused = self.model.alike(roles, layers);
        fused.retain(|fused| !self.draft || fused.layers.is_some());
        fused
    }

    /// The local type: quantised and F32 stay, the rest is the engine's.
    pub(crate) fn dtype_of(&self, family: &Family) -> DType {
        match (family.role, family.dtype) {
            (TensorRole::Router, _) if self.model.router_f32 => DType::F32,
            (TensorRole::IndexKeyNorm | TensorRole::LinearDecayLog, _) => DType::F32,
            (_, dtype) if dtype == self.model.dtype => self.engine.dtype.unwrap_or(dtype),
            (_, dtype) => dtype,
        }
    }

    /// What the engine calls a part of the model that has this name in the checkpoint.
    fn engine_name(&self, name: &str) -> String {
        let renamed = self.model.renamed.iter().find_map(|(published, local)| {
            name.strip_prefix(published).map(|rest| format!("{local}{rest}"))
        });
        renamed.unwrap_or_else(|| name.to_owned())
    }

    /// Draft layers are a model of their own beside the main one: `draft.`, and its own names.
    fn local_name(&self, name: &str) -> String {
        if !self.draft {
            return self.engine_name(name);
        }
        let rest = name.strip_prefix("model.layers.{L}.").unwrap_or(name);
        let own = ["eh_proj", "enorm", "hnorm", "shared_head"];
        let is_own = own.iter().any(|o| rest.starts_with(o));
        match self.engine.program {
            _ if rest.starts_with("embed_tokens") => format!("draft.model.{rest}"),
            Program::Vllm if is_own => format!("draft.model.layers.{{L}}.{rest}"),
            Program::Vllm => format!("draft.model.layers.{{L}}.mtp_block.{rest}"),
            Program::Sglang if is_own => format!("draft.model.{rest}"),
            Program::Sglang => format!("draft.model.decoder.{rest}"),
        }
    }
}

/// Engines refuse such, or load scales over others. It can be written down all the same, and is: the
/// data set has such.
fn begins_within_a_block(engine: &str, ragged: &Family) -> String {
    let name = &ragged.name;
    format!("{engine} refuses {name}: what follows it in one module begins within a block")
}

/// The family's name with another module before its last part.
pub(crate) fn rename(family: &Family, module: &str) -> String {
    let member = match family.member {
        ModuleTensor::Weight => "weight",
        ModuleTensor::Bias => "bias",
        ModuleTensor::Scale => "weight_scale_inv",
    };
    in_layer(family, &format!("{module}.{member}"))
}

/// The name in the family's layer; by itself for a family outside of layers.
pub(crate) fn in_layer(family: &Family, name: &str) -> String {
    match family.name.split_once("{L}.") {
        None => name.to_owned(),
        Some((layers, _)) => format!("{layers}{{L}}.{name}"),
    }
}

/// Parts of one parameter have one type: engines make a fused layer in one form.
fn of_one_type(fused: &Fused<'_>, families: &[&Family]) -> Result<(), RuleError> {
    if families.iter().all(|family| family.dtype == families[0].dtype) {
        return Ok(());
    }
    let layer = fused.layers.map(|(first, _)| first);
    let names: Vec<String> = families.iter().map(|f| fill(&f.name, layer, None)).collect();
    let types: Vec<&str> = families.iter().map(|family| family.dtype.name()).collect();
    Err(RuleError::MixedParts { what: names.join(", "), types: types.join(", ") })
}
