//! In which form a checkpoint has its weights, as the config says. A form that no rule lays out is refused: read as
//! plain weights, the layout would be of the wrong bytes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::config::{Config, ConfigError, texts, understood};
use super::description::{CheckpointKind, ModelType};
use super::quantisation::Quantisation;

/// Keys under which a config says that its checkpoint is quantised.
const KEYS: [&str; 2] = ["quantization_config", "compression_config"];
/// Keys that name a method, or a variety of one.
const METHODS: [&str; 4] = ["quant_method", "quant_algo", "quant_type", "format"];
/// Keys that say how many bits a weight has.
const BITS: [&str; 4] = ["bits", "num_bits", "w_bit", "weight_bits"];
/// Keys of what is quantised beside the weights.
const NOT_WEIGHTS: [&str; 3] = ["input_activations", "output_activations", "kv_cache_scheme"];

/// The form of a checkpoint's weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WeightForm {
    /// Elements of the config's type.
    Plain,
    /// FP8 with a scale for each block.
    Fp8Blocks(Quantisation),
    /// Experts in MXFP4 blocks, the rest plain.
    Mxfp4Experts,
}

impl WeightForm {
    /// The form that a config of this kind says.
    pub(crate) fn of(config: &Config, described: &ModelType) -> Result<WeightForm, ConfigError> {
        let said = config.anywhere(&KEYS);
        let Some((key, value)) = said.first() else { return Ok(WeightForm::Plain) };
        let refused = |why: String| refusal(key, value, why);
        if let Some((other, _)) = said.iter().find(|(_, other)| other != value) {
            return Err(refused(format!("{other} says something else")));
        }
        if key.contains('.') {
            return Err(refused("a part of the model is quantised by itself".into()));
        }
        let form = match value.get("quant_method").and_then(Value::as_str) {
            Some("fp8") => {
                Quantisation::of(value, described.never_quantised).map(WeightForm::Fp8Blocks)
            }
            Some("mxfp4") => mxfp4_experts(value),
            _ => Err("no rule lays this method out".into()),
        };
        match form.map_err(refused)? {
            form if form.is_of(described) => Ok(form),
            _ => Err(refused("no rule lays this method out for this type of model".into())),
        }
    }

    /// Whether rules lay out a checkpoint of this kind in this form.
    fn is_of(&self, described: &ModelType) -> bool {
        match self {
            WeightForm::Plain => true,
            WeightForm::Fp8Blocks(_) => {
                matches!(described.kind, CheckpointKind::Decoder(_)) && described.fp8
            }
            WeightForm::Mxfp4Experts => matches!(described.kind, CheckpointKind::GptOss),
        }
    }
}

fn refusal(key: &str, value: &Value, why: String) -> ConfigError {
    let names = METHODS.iter().filter_map(|&key| value.get(key)?.as_str());
    let names: Vec<&str> = names.collect();
    let method = if names.is_empty() { "a method without a name".into() } else { names.join(", ") };
    let mut bits = BTreeSet::new();
    collect_bits(value, &mut bits);
    let bits = bits.into_iter().collect();
    ConfigError::Quantised { key: key.to_owned(), method, bits, why }
}

/// Bits of a weight, wherever within the value these are said.
fn collect_bits(value: &Value, bits: &mut BTreeSet<u64>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        match (key.as_str(), value) {
            ("load_in_4bit", Value::Bool(true)) => bits.extend([4]),
            ("load_in_8bit", Value::Bool(true)) => bits.extend([8]),
            (key, value) if BITS.contains(&key) => bits.extend(value.as_u64()),
            (key, _) if NOT_WEIGHTS.contains(&key) => {}
            (_, value) => collect_bits(value, bits),
        }
    }
}

/// MXFP4 as gpt-oss is published: all experts, and nothing else.
fn mxfp4_experts(said: &Value) -> Result<WeightForm, String> {
    understood(said, &["quant_method", "modules_to_not_convert"])?;
    let left = texts(said, "modules_to_not_convert")?;
    match left.iter().find(|module| module.contains("experts")) {
        None => Ok(WeightForm::Mxfp4Experts),
        Some(module) => Err(format!("modules_to_not_convert names experts: {module}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_those_of_weights() {
        let bits = |text: &str| {
            let mut bits = BTreeSet::new();
            collect_bits(&serde_json::from_str(text).expect("JSON"), &mut bits);
            bits.into_iter().collect::<Vec<u64>>()
        };
        assert_eq!(bits(r#"{"bits": 4, "group_size": 128}"#), [4]);
        assert_eq!(bits(r#"{"load_in_8bit": true, "load_in_4bit": false}"#), [8]);
        let groups = r#"{"config_groups": {
            "a": {"weights": {"num_bits": 4}, "input_activations": {"num_bits": 8}},
            "b": {"weights": {"num_bits": 6}}}}"#;
        assert_eq!(bits(groups), [4, 6]);
        assert!(bits("{}").is_empty());
    }
}
