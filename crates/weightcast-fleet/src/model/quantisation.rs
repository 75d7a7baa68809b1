//! FP8 block quantisation of a checkpoint: which weights, and one F32 scale for each block.

use weightcast_plan::DType;

use super::config::{Config, ConfigError};
use super::family::{Family, fill, intervals};
use super::role::ModuleTensor;

/// Weights in FP8 (e4m3) with a scale for each block of rows and columns.
///
/// The form of the DeepSeek-V3 checkpoints: `weight` and `weight_scale_inv`, the last blocks ragged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quantisation {
    /// Rows and columns of a block, in elements.
    pub block: (u64, u64),
    /// Modules left as they are.
    left: Vec<String>,
}

impl Quantisation {
    /// FP8 with square blocks.
    pub fn fp8(block: u64) -> Quantisation {
        Quantisation { block: (block.max(1), block.max(1)), left: Vec::new() }
    }

    /// Whether this is what the config asks for: `quant_method` fp8 with blocks.
    pub(crate) fn of(config: &Config) -> Result<Option<Quantisation>, ConfigError> {
        let Some(config) = config.within("quantization_config") else { return Ok(None) };
        if config.text("quant_method") != "fp8" {
            return Ok(None);
        }
        let block = config.numbers("weight_block_size");
        let [rows, columns] = block[..] else {
            return Err(ConfigError::Missing { keys: vec!["weight_block_size"] });
        };
        let left = ["modules_to_not_convert", "ignored_layers"];
        let left = left.iter().flat_map(|key| config.texts(key)).map(str::to_owned).collect();
        Ok(Some(Quantisation { block: (rows.max(1), columns.max(1)), left }))
    }

    /// The families with their weights quantised, each followed by its scales.
    pub(crate) fn apply(&self, families: Vec<Family>) -> Vec<Family> {
        families.into_iter().flat_map(|family| self.quantise(family)).collect()
    }

    fn quantise(&self, family: Family) -> Vec<Family> {
        let fits = family.member == ModuleTensor::Weight && family.shape.len() == 2;
        if !fits || !family.role.is_quantised() {
            return vec![family];
        }
        let (left, taken): (Vec<u64>, Vec<u64>) = family
            .layers
            .iter()
            .flat_map(|&(a, b)| a..=b)
            .partition(|&layer| self.is_left(&family.name, layer));
        let mut made = Vec::new();
        if !left.is_empty() {
            made.push(Family { layers: intervals(left), ..family.clone() });
        }
        if !taken.is_empty() || family.layers.is_empty() {
            let layers = intervals(taken);
            let scale = Family {
                member: ModuleTensor::Scale,
                name: format!("{}_scale_inv", family.name),
                shape: self.grid(&family.shape),
                dtype: DType::F32,
                layers: layers.clone(),
                ..family.clone()
            };
            made.push(Family { dtype: DType::F8E4M3, layers, ..family });
            made.push(scale);
        }
        made
    }

    /// Shape of the scales of a weight of this shape.
    pub(crate) fn grid(&self, shape: &[u64]) -> Vec<u64> {
        vec![shape[0].div_ceil(self.block.0), shape[1].div_ceil(self.block.1)]
    }

    fn is_left(&self, weight: &str, layer: u64) -> bool {
        if self.left.is_empty() {
            return false;
        }
        let name = fill(weight, Some(layer), None);
        let module = name.strip_suffix(".weight").unwrap_or(&name);
        self.left.iter().any(|left| {
            module == left || module.strip_prefix(left.as_str()).is_some_and(|r| r.starts_with('.'))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaving_a_module_leaves_what_is_in_it_and_none_beside() {
        let left = vec!["model.layers.1".to_owned(), "model.layers.20.mlp.up_proj".to_owned()];
        let quantisation = Quantisation { left, ..Quantisation::fp8(128) };
        let is_left = |layer, module: &str| {
            quantisation.is_left(&format!("model.layers.{{L}}.{module}.weight"), layer)
        };
        assert!(is_left(1, "mlp.up_proj") && is_left(1, "self_attn.q_proj"));
        assert!(is_left(20, "mlp.up_proj") && !is_left(20, "mlp.up_proj_2"));
        assert!(!is_left(20, "mlp.down_proj"));
        for layer in [0, 2, 10, 19] {
            assert!(!is_left(layer, "mlp.up_proj"), "layer {layer}");
        }
    }
}
