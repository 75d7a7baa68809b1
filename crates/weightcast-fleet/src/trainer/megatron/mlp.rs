//! MLPs of a Megatron stage: dense, or a router with experts.

use super::list::{MegatronParameters, all};
use crate::cut::{self, Cut, follow, piece};
use crate::error::RuleError;
use crate::model::{TensorRole, fill};

/// Where the MLP is.
const MODULE: &str = "decoder.layers.{L}.mlp";

impl MegatronParameters<'_> {
    /// MLPs with the norm before them.
    pub(super) fn mlp(&mut self) -> Result<(), RuleError> {
        self.norm();
        let gated = |gate, up, place| [(gate, Cut::Rows(place)), (up, Cut::Rows(place))];
        let fc1 = format!("{MODULE}.linear_fc1");
        let halves = Cut::Parts { place: self.tp, parts: 2 };
        self.module(&fc1, &[(TensorRole::DenseGateUp, halves)])?;
        self.module(&fc1, &gated(TensorRole::DenseGate, TensorRole::DenseUp, self.tp))?;
        self.module(
            &format!("{MODULE}.linear_fc2"),
            &[(TensorRole::DenseDown, Cut::Columns(self.tp))],
        )?;
        self.whole(TensorRole::Router, &format!("{MODULE}.router"))?;
        self.correction();
        self.experts()?;
        let shared = format!("{MODULE}.shared_experts");
        let gate_up = gated(TensorRole::SharedGate, TensorRole::SharedUp, self.tp);
        self.module(&format!("{shared}.linear_fc1"), &gate_up)?;
        let down = [(TensorRole::SharedDown, Cut::Columns(self.tp))];
        self.module(&format!("{shared}.linear_fc2"), &down)?;
        self.whole(TensorRole::SharedSwitch, &format!("{shared}.gate"))?;
        self.whole(TensorRole::PostMlpNorm, "decoder.layers.{L}.post_mlp_layernorm")?;
        self.draft()
    }

    /// The norm is in a dense layer's first projection, and by itself before experts.
    fn norm(&mut self) {
        for fused in self.alike(&[TensorRole::PostAttentionNorm, TensorRole::Router]) {
            let name = "decoder.layers.{L}.pre_mlp_layernorm.weight".to_owned();
            self.push(name, fused.weights[0], vec![all(fused.weights[0], 0)], 0, fused.layers);
        }
        for fused in self.alike(&[TensorRole::PostAttentionNorm, TensorRole::DenseDown]) {
            let name = format!("{MODULE}.linear_fc1.layer_norm_weight");
            self.push(name, fused.weights[0], vec![all(fused.weights[0], 0)], 0, fused.layers);
        }
    }

    fn correction(&mut self) {
        for fused in self.alike(&[TensorRole::Router]) {
            let layer = fused.layers.map_or(0, |(first, _)| first);
            let mut biases = self.model.of_role(TensorRole::RouterCorrection);
            if let Some(bias) = biases.find(|bias| bias.is_in(layer)) {
                let name = format!("{MODULE}.router.expert_bias");
                self.push(name, bias, vec![all(bias, 0)], 0, fused.layers);
            }
        }
    }

    /// Consecutive experts, each a tensor of its own, cut over expert tensor parallelism.
    fn experts(&mut self) -> Result<(), RuleError> {
        let stacks: [(&str, &[TensorRole], Cut); 2] = [
            ("linear_fc1", &[TensorRole::ExpertGate, TensorRole::ExpertUp], Cut::Rows(self.etp)),
            ("linear_fc2", &[TensorRole::ExpertDown], Cut::Columns(self.etp)),
        ];
        for (name, roles, cut) in stacks {
            for fused in self.alike(roles) {
                let (first, count) = cut::equal("experts", fused.weights[0].experts, self.ep)?;
                for local in 0..count {
                    let (mut pieces, mut at, mut dim) = (Vec::new(), 0, 0);
                    for family in &fused.weights {
                        for range in cut.ranges(family)? {
                            let range = follow(family, range, (1, 1), cut.is_cut())?;
                            let mut piece = piece(family, range, at);
                            piece.tensor = fill(&piece.tensor, None, Some(first + local));
                            (at, dim) = (at + range.len, range.dim);
                            pieces.push(piece);
                        }
                    }
                    let name = format!("{MODULE}.experts.{name}.weight{local}");
                    self.push(name, fused.weights[0], pieces, dim, fused.layers);
                }
            }
        }
        Ok(())
    }

    /// What a draft layer has beside a decoder layer.
    fn draft(&mut self) -> Result<(), RuleError> {
        self.whole(TensorRole::DraftProjection, "mtp.layers.{L}.eh_proj")?;
        self.whole(TensorRole::DraftEmbeddingNorm, "mtp.layers.{L}.enorm")?;
        self.whole(TensorRole::DraftHiddenNorm, "mtp.layers.{L}.hnorm")?;
        self.whole(TensorRole::DraftFinalNorm, "mtp.layers.{L}.final_layernorm")
    }
}
