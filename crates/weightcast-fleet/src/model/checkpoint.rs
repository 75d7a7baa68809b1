//! What the published checkpoint of a model holds: names, shapes and types, in families.

use serde_json::Value;
use weightcast_plan::DType;

use super::config::{Config, ConfigError};
use super::description::{
    CheckpointKind, ExpertForm, MODEL_TYPES, ModelType, Multimodal, NOT_SLICES,
};
use super::dims::Dims;
use super::family::Family;
use super::form::WeightForm;
use super::quantisation::Quantisation;
use super::role::TensorRole;
use super::tower::{self, TowerDims};
use super::{decoder, gpt_oss, gpt2};

/// Most bytes of a checkpoint at eight an element: a thousand times what there is.
const MOST_BYTES: u128 = 1 << 60;

/// A model: its config and what its checkpoint holds.
#[derive(Debug, Clone)]
pub struct ModelSpec {
    /// The families of the checkpoint, in the order of a forward pass.
    pub families: Vec<Family>,
    /// How the checkpoint is quantised, if it is.
    pub quantisation: Option<Quantisation>,
    /// Type of what is not quantised.
    pub dtype: DType,
    pub(crate) dims: Dims,
    pub(crate) router_f32: bool,
    pub(crate) shared_by_tokens: bool,
    /// Engines that have room for copies of its experts.
    pub(crate) copied_in: &'static [&'static str],
    /// Its experts are stored `[experts, in, out]`.
    pub(crate) experts_turned: bool,
    pub(crate) output_bias_taken: bool,
    /// The norms of query and key have a weight for each element of each head.
    pub(crate) qk_norm_over_heads: bool,
    pub(crate) model_type: String,
    /// Whether engines and trainers have rules for it; else only whole tensors and rows.
    pub(crate) is_decoder: bool,
    /// The tower that sees, if there is one.
    pub(crate) tower: Option<TowerDims>,
    /// Beginnings of published names that vLLM changes: the first that fits.
    pub(crate) renamed: &'static [(&'static str, &'static str)],
    /// Engines, and Megatron, that have rules for it.
    pub(crate) ruled_by: &'static [&'static str],
    /// Whether rules lay out its weights in FP8 blocks.
    pub(crate) fp8: bool,
    /// Whether its checkpoint has draft layers that no rule lays out.
    pub(crate) unruled_drafts: bool,
    config: Config,
}

impl ModelSpec {
    /// Describes the model of a config.
    pub fn of(config: &Config) -> Result<ModelSpec, ConfigError> {
        let form = WeightForm::of(config, describe(config)?)?;
        ModelSpec::in_form(config, form)
    }

    /// The same model with a checkpoint that is quantised so, or not at all.
    pub fn quantised(&self, quantisation: Option<Quantisation>) -> Result<ModelSpec, ConfigError> {
        let form = quantisation.map_or(WeightForm::Plain, WeightForm::Fp8Blocks);
        ModelSpec::in_form(&self.config, form)
    }

    /// The model of a config with its weights in this form, whatever the config says of that.
    fn in_form(config: &Config, form: WeightForm) -> Result<ModelSpec, ConfigError> {
        let model_type = describe(config)?;
        let parts = model_type.multimodal.as_ref();
        let text = match parts {
            Some(_) => text_of(config)?,
            None => config.clone(),
        };
        let text = text.assuming(model_type.assumed, ("tie_word_embeddings", model_type.tied));
        let dims = Dims::of(&text)?;
        let dtype = dtype_of(&text)?;
        let mut families = match &model_type.kind {
            CheckpointKind::Decoder(decoder) => {
                let modules = parts.map_or(("model", "lm_head"), |p| (p.decoder, p.head));
                decoder::families(&text, decoder, modules, &dims, dtype)?
            }
            CheckpointKind::Gpt2 => gpt2::families(&dims, config, dtype)?,
            CheckpointKind::GptOss => gpt_oss::families(&dims, dtype, &form)?,
        };
        let tower = parts.map(|parts| tower_of(config, parts, &dims, dtype)).transpose()?;
        let tower = tower.map(|(tower, seeing)| {
            families.extend(seeing);
            tower
        });
        let decoder = match &model_type.kind {
            CheckpointKind::Decoder(decoder) => Some(decoder),
            CheckpointKind::Gpt2 | CheckpointKind::GptOss => None,
        };
        let quantisation = match form {
            WeightForm::Fp8Blocks(quantisation) => Some(quantisation),
            WeightForm::Plain | WeightForm::Mxfp4Experts => None,
        };
        if let Some(quantisation) = &quantisation {
            families = quantisation.apply(families);
        }
        bounded(&families)?;
        Ok(ModelSpec {
            families,
            quantisation,
            dtype,
            dims,
            router_f32: decoder.is_some_and(|d| d.moe.router_f32),
            shared_by_tokens: decoder.is_some_and(|d| d.moe.shared_by_tokens),
            copied_in: decoder.map_or(&[], |d| d.moe.copied_in),
            experts_turned: decoder.is_some_and(|d| d.moe.expert_form == ExpertForm::InOut),
            output_bias_taken: decoder.is_some_and(|d| d.output_bias_taken),
            qk_norm_over_heads: decoder.is_some_and(|d| d.qk_norm_over_heads),
            model_type: config.model_type().to_owned(),
            is_decoder: decoder.is_some(),
            tower,
            renamed: parts.map_or(&[], |parts| parts.renamed),
            ruled_by: model_type.ruled_by,
            fp8: model_type.fp8,
            unruled_drafts: model_type.unruled_drafts,
            config: config.clone(),
        })
    }

    /// Number of decoder layers, without draft layers.
    pub fn layers(&self) -> u64 {
        self.dims.layers
    }

    /// Bytes of the whole checkpoint, with or without its draft layers.
    pub fn bytes(&self, draft: bool) -> u64 {
        let bytes = |f: &Family| {
            let layers = f.layers.iter().flat_map(|&(a, b)| a..=b);
            let is_kept = |l: u64| draft || f.role.is_of_tower() || l < self.dims.layers;
            let kept = layers.filter(|&l| is_kept(l)).count() as u64;
            let layers = if f.layers.is_empty() { 1 } else { kept };
            layers * f.experts.max(1) * f.tensor_bytes()
        };
        self.families.iter().map(bytes).sum()
    }

    /// The families of this role.
    pub(crate) fn of_role(&self, role: TensorRole) -> impl Iterator<Item = &Family> {
        self.families.iter().filter(move |f| f.role == role)
    }
}

/// All bytes of a checkpoint fit in numbers with room to spare.
fn bounded(families: &[Family]) -> Result<(), ConfigError> {
    let mut bytes = 0u128;
    for family in families {
        let elements = family.shape.iter().fold(1u128, |n, &size| n.saturating_mul(size.into()));
        bytes = bytes.saturating_add(elements.saturating_mul(u128::from(family.count()) * 8));
        if bytes > MOST_BYTES {
            let what = format!("up to {} it has more than {MOST_BYTES} bytes", family.name);
            return Err(ConfigError::Contradiction { what });
        }
    }
    Ok(())
}

fn describe(config: &Config) -> Result<&'static ModelType, ConfigError> {
    let name = config.model_type();
    if let Some(&(_, why)) = NOT_SLICES.iter().find(|(types, _)| types.contains(&name)) {
        return Err(ConfigError::NotSlices { found: name.to_owned(), why });
    }
    let found = MODEL_TYPES.iter().find(|d| d.model_types.contains(&name));
    let found = found.ok_or_else(|| ConfigError::UnknownModel {
        found: name.to_owned(),
        known: MODEL_TYPES.iter().flat_map(|d| d.model_types).copied().collect(),
    })?;
    let Some(architectures) = config.value("architectures") else { return Ok(found) };
    let known = |class: &Value| class.as_str().is_some_and(|c| found.architectures.contains(&c));
    match architectures.as_array() {
        Some(classes) if classes.iter().all(known) => Ok(found),
        _ => Err(ConfigError::Architecture {
            found: architectures.to_string(),
            model_type: name.to_owned(),
            known: found.architectures.to_vec(),
        }),
    }
}

/// What a config says of its decoder, in a part of its own or not.
fn text_of(config: &Config) -> Result<Config, ConfigError> {
    let key = "tie_word_embeddings";
    let inner = config.part("text_config").filter(|part| part.value(key).is_some());
    if inner.is_some_and(|part| config.value(key).is_some() && part.flag(key) != config.flag(key)) {
        let what = format!("{key} and text_config.{key} are different");
        return Err(ConfigError::Contradiction { what });
    }
    Ok(config.with_part("text_config"))
}

/// The tower that a config describes, and its tensors.
fn tower_of(
    config: &Config,
    parts: &Multimodal,
    decoder: &Dims,
    dtype: DType,
) -> Result<(TowerDims, Vec<Family>), ConfigError> {
    let part = config.part("vision_config");
    let part = part.ok_or(ConfigError::Missing { keys: vec!["vision_config"] })?;
    let typed = ["dtype", "torch_dtype"].iter().any(|key| part.value(key).is_some());
    if typed && dtype_of(&part)? != dtype {
        let what = "vision_config has another dtype than the decoder".into();
        return Err(ConfigError::Contradiction { what });
    }
    let dims = TowerDims::of(&part, &parts.tower)?;
    let families = tower::families(&part, &parts.tower, &dims, decoder.hidden, dtype)?;
    Ok((dims, families))
}

/// Type of the weights as torch names it; F32 is what Hugging Face writes nothing for.
fn dtype_of(config: &Config) -> Result<DType, ConfigError> {
    let said = ["dtype", "torch_dtype"].map(|key| config.value(key).map(|value| (key, value)));
    let mut types = said.into_iter().flatten().map(|(key, value)| match value.as_str() {
        Some("bfloat16") => Ok(DType::BF16),
        Some("float16") => Ok(DType::F16),
        Some("float32") => Ok(DType::F32),
        _ => Err(ConfigError::Dtype { key, found: value.to_string() }),
    });
    let first = types.next().transpose()?;
    match types.next().transpose()? {
        Some(second) if Some(second) != first => Err(ConfigError::Contradiction {
            what: "dtype and torch_dtype are different types".into(),
        }),
        _ => Ok(first.unwrap_or(DType::F32)),
    }
}
