//! Layers that are alike: runs in which a module has the same families.

use std::ops::Range;

use super::checkpoint::ModelSpec;
use super::family::Family;
use super::role::{ModuleTensor, TensorRole};

/// A module: the weights that are fused into it, and the layers in which they are the same.
pub(crate) struct Fused<'a> {
    /// First and last layer; none for a module outside of layers.
    pub(crate) layers: Option<(u64, u64)>,
    pub(crate) weights: Vec<&'a Family>,
}

impl ModelSpec {
    /// The runs of these layers in which all of these roles have a weight, of the same families;
    /// or the one module outside of layers.
    pub(crate) fn alike(&self, roles: &[TensorRole], layers: Range<u64>) -> Vec<Fused<'_>> {
        let weights = |layer: Option<u64>| -> Option<Vec<&Family>> {
            roles.iter().map(|&role| self.member(role, ModuleTensor::Weight, layer)).collect()
        };
        if roles.iter().any(|&role| self.of_role(role).all(|f| f.layers.is_empty())) {
            let weights = weights(None).map(|weights| Fused { layers: None, weights });
            return weights.into_iter().collect();
        }
        let mut runs: Vec<Fused<'_>> = Vec::new();
        for layer in layers {
            let Some(weights) = weights(Some(layer)) else { continue };
            match runs.last_mut() {
                Some(Fused { layers: Some((_, last)), weights: same })
                    if *last + 1 == layer && *same == weights =>
                {
                    *last = layer;
                }
                _ => runs.push(Fused { layers: Some((layer, layer)), weights }),
            }
        }
        runs
    }

    /// The members of this kind beside the weights of a module; as many as weights, or none.
    pub(crate) fn members(&self, fused: &Fused<'_>, member: ModuleTensor) -> Vec<&Family> {
        let layer = fused.layers.map(|(first, _)| first);
        let of = |weight: &&Family| self.member(weight.role, member, layer);
        let found: Vec<&Family> = fused.weights.iter().filter_map(of).collect();
        if found.len() == fused.weights.len() { found } else { Vec::new() }
    }

    /// The family of this role and member that is in the layer, or outside of layers.
    pub(crate) fn member(
        &self,
        role: TensorRole,
        member: ModuleTensor,
        layer: Option<u64>,
    ) -> Option<&Family> {
        self.of_role(role).find(|family| {
            family.member == member
                && match layer {
                    Some(layer) => family.is_in(layer),
                    None => family.layers.is_empty(),
                }
        })
    }
}
