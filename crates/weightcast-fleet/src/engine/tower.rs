//! A tower that sees. vLLM cuts its heads and rows like those of the decoder, where it isn't told
//! `mm_encoder_tp_mode="data"`.

use super::list::EngineParameters;
use crate::cut::{Cut, equal};
use crate::error::RuleError;
use crate::model::TensorRole;

/// What every rank has whole.
const WHOLE: [TensorRole; 8] = [
    TensorRole::TowerPatches,
    TensorRole::TowerPositions,
    TensorRole::TowerInputNorm,
    TensorRole::TowerPostAttentionNorm,
    TensorRole::TowerFinalNorm,
    TensorRole::MergerNorm,
    TensorRole::InnerMergerNorm,
    TensorRole::TowerProjection,
];

impl EngineParameters<'_> {
    /// The tower, where the model has one.
    pub(crate) fn tower(&mut self) -> Result<(), RuleError> {
        let Some(tower) = &self.model.tower else { return Ok(()) };
        let place = self.ranks.attention;
        // Rows may divide where heads do not.
        equal("heads of the vision tower", tower.heads, place)?;
        for role in WHOLE {
            self.whole(role)?;
        }
        let (rows, columns) = (Cut::Rows(place), Cut::Columns(place));
        let thirds = Cut::Parts { place, parts: 3 };
        self.module(None, &[(TensorRole::TowerQueryKeyValue, thirds)])?;
        let apart = [TensorRole::TowerQuery, TensorRole::TowerKey, TensorRole::TowerValue];
        self.module(Some("self_attn.qkv_proj"), &apart.map(|role| (role, rows)))?;
        self.module(None, &[(TensorRole::TowerOutput, columns)])?;
        match self.has(TensorRole::TowerGate) {
            true => {
                let gate_up = [TensorRole::TowerGate, TensorRole::TowerUp];
                self.module(Some("mlp.gate_up_proj"), &gate_up.map(|role| (role, rows)))?;
            }
            false => self.module(None, &[(TensorRole::TowerUp, rows)])?,
        }
        for role in [TensorRole::MergerUp, TensorRole::InnerMergerUp] {
            self.module(None, &[(role, rows)])?;
        }
        for role in [TensorRole::TowerDown, TensorRole::MergerDown, TensorRole::InnerMergerDown] {
            self.module(None, &[(role, columns)])?;
        }
        Ok(())
    }
}
