//! FP8 block quantisation of a checkpoint: which weights, and one F32 scale for each block.

use serde_json::Value;
use weightcast_plan::DType;

use super::config::{texts, understood};
use super::family::{Family, fill, intervals};
use super::role::ModuleTensor;

/// Keys with the values that are laid out. Scales of `ue8m0` are powers of two, stored in F32 all the same.
const VALUES: [(&str, &[&str]); 3] = [
    ("fmt", &["e4m3", "float8_e4m3fn"]),
    ("activation_scheme", &["dynamic"]),
    ("scale_fmt", &["ue8m0"]),
];
/// Keys that list modules left as they are.
const LEFT: [&str; 2] = ["modules_to_not_convert", "ignored_layers"];

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

    /// What a config's `quantization_config` says, or why that is no such quantisation. It may name what is never
    /// quantised, in these short words.
    pub(super) fn of(said: &Value, never: &[&str]) -> Result<Quantisation, String> {
        let all = VALUES.iter().map(|value| value.0).chain(LEFT);
        understood(said, &all.chain(["quant_method", "weight_block_size"]).collect::<Vec<_>>())?;
        for (key, known) in VALUES {
            let found = said.get(key).filter(|value| !value.is_null());
            if let Some(found) = found.filter(|&value| known.iter().all(|known| value != known)) {
                return Err(format!("{key}={found} has no rule, only {key}={:?}", known[0]));
            }
        }
        let (rows, columns) = block(said.get("weight_block_size"))
            .ok_or("only FP8 in blocks has a rule (weight_block_size: [rows, columns])")?;
        let mut left = Vec::new();
        for key in LEFT {
            for module in texts(said, key)?.into_iter().filter(|module| !never.contains(module)) {
                named(module).map_err(|why| format!("{key} names {module:?}: {why}"))?;
                left.push(module.to_owned());
            }
        }
        Ok(Quantisation { block: (rows, columns), left })
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

/// Two positive numbers, and nothing else.
fn block(said: Option<&Value>) -> Option<(u64, u64)> {
    let [rows, columns] = said?.as_array()?.as_slice() else { return None };
    let size = |of: &Value| of.as_u64().filter(|&size| size > 0);
    Some((size(rows)?, size(columns)?))
}

/// Whether this is the full name of a module, or why it is not: engines match patterns and parts of names too, each
/// in its own way.
fn named(module: &str) -> Result<(), &'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let is_full = module == "lm_head" || module.starts_with("model.");
    if !is_full || !module.chars().all(plain) {
        return Err("write full names, such as model.layers.0.mlp.gate");
    }
    let mut parts = module.split('.').skip_while(|&part| part != "experts").skip(1);
    match parts.next() {
        None => Ok(()),
        Some(_) => Err("experts of one layer are quantised together, or not at all"),
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
