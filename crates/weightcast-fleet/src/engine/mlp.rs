//! MLPs: dense, or a router with experts and shared experts.

use super::Program;
use super::list::EngineParameters;
use crate::cut::{Cut, GroupRank, Range, piece};
use crate::error::RuleError;
use crate::model::{Family, ModuleTensor, TensorRole};
use crate::record::Record;

impl EngineParameters<'_> {
    /// The MLPs of the layers now listed.
    pub(crate) fn mlp(&mut self) -> Result<(), RuleError> {
        let place = self.ranks.dense;
        let halves = Cut::Parts { place, parts: 2 };
        self.module(Some("mlp.gate_up_proj"), &[(TensorRole::DenseGateUp, halves)])?;
        let gate_up = [TensorRole::DenseGate, TensorRole::DenseUp];
        self.module(Some("mlp.gate_up_proj"), &gate_up.map(|role| (role, Cut::Rows(place))))?;
        self.module(None, &[(TensorRole::DenseDown, Cut::Columns(place))])?;
        self.whole(TensorRole::Router)?;
        self.correction();
        self.experts()?;
        self.shared_experts(self.ranks.shared)
    }

    /// The router's correction bias has no weight beside it.
    fn correction(&mut self) {
        for fused in self.alike(&[TensorRole::Router]) {
            let layer = fused.layers.map_or(0, |(first, _)| first);
            let mut biases = self.model.of_role(TensorRole::RouterCorrection);
            if let Some(bias) = biases.find(|bias| bias.is_in(layer)) {
                self.push(whole_record(bias, fused.layers));
            }
        }
    }

    fn shared_experts(&mut self, place: GroupRank) -> Result<(), RuleError> {
        let Some(module) = self.module_of(TensorRole::SharedGate) else { return Ok(()) };
        let fused = format!("{}.gate_up_proj", module.trim_end_matches(".gate_proj"));
        let gate_up = [TensorRole::SharedGate, TensorRole::SharedUp];
        self.module(Some(&fused), &gate_up.map(|role| (role, Cut::Rows(place))))?;
        self.module(None, &[(TensorRole::SharedDown, Cut::Columns(place))])?;
        self.whole(TensorRole::SharedSwitch)
    }

    /// The module of a role's weight, within its layer.
    pub(crate) fn module_of(&self, role: TensorRole) -> Option<String> {
        let family = self.model.of_role(role).find(|f| f.member == ModuleTensor::Weight)?;
        let (_, name) = family.name.split_once("{L}.")?;
        Some(name.strip_suffix(".weight")?.to_owned())
    }

    /// What stands in a draft layer beside the decoder layer. SGLang's draft has the embedding and
    /// the head of its model, whatever the checkpoint has for it.
    pub(crate) fn draft_modules(&mut self) -> Result<(), RuleError> {
        let has_vocabulary = self.engine.program == Program::Vllm;
        if has_vocabulary {
            self.vocabulary(TensorRole::DraftEmbedding)?;
        }
        for role in [
            TensorRole::DraftEmbeddingNorm,
            TensorRole::DraftHiddenNorm,
            TensorRole::DraftProjection,
        ] {
            self.whole(role)?;
        }
        self.whole(TensorRole::DraftFinalNorm)?;
        match has_vocabulary {
            true => self.vocabulary(TensorRole::DraftHead),
            false => Ok(()),
        }
    }
}

fn whole_record(family: &Family, layers: Option<(u64, u64)>) -> Record {
    let rows = family.shape[0];
    let range = Range { dim: 0, start: 0, len: rows };
    Record {
        name: family.name.clone(),
        shape: family.shape.clone(),
        dtype: family.dtype,
        pieces: vec![piece(family, range, 0)],
        offset: None,
        layers,
    }
}
