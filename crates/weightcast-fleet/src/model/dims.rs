//! The numbers of a decoder, out of its config.

use super::config::{Config, ConfigError};

/// Most layers and experts of a model: more than any has, few enough to list.
const MOST_LAYERS: u64 = 4096;
const MOST_EXPERTS: u64 = 65_536;

/// Sizes of a decoder, in elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dims {
    pub(crate) layers: u64,
    pub(crate) draft_layers: u64,
    pub(crate) hidden: u64,
    pub(crate) vocabulary: u64,
    pub(crate) heads: u64,
    pub(crate) key_heads: u64,
    pub(crate) head: u64,
    pub(crate) intermediate: u64,
    pub(crate) mla: Option<Mla>,
    pub(crate) indexer: Option<Indexer>,
    pub(crate) linear: Option<LinearDims>,
    pub(crate) moe: Option<MoeDims>,
    pub(crate) tied: bool,
}

/// Multi-head latent attention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mla {
    /// Rank of the queries' down projection, where there is one.
    pub(crate) query_rank: Option<u64>,
    pub(crate) key_rank: u64,
    /// Key dimensions without and with rotary embedding, value dimensions; per head.
    pub(crate) nope: u64,
    pub(crate) rope: u64,
    pub(crate) value: u64,
}

/// The indexer of sparse attention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Indexer {
    pub(crate) heads: u64,
    pub(crate) head: u64,
}

/// Linear attention (gated delta nets).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinearDims {
    pub(crate) key_heads: u64,
    pub(crate) key_head: u64,
    pub(crate) value_heads: u64,
    pub(crate) value_head: u64,
    pub(crate) kernel: u64,
    /// The layers that have it in place of attention, ascending.
    pub(crate) layers: Vec<u64>,
}

/// Layers of experts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MoeDims {
    pub(crate) experts: u64,
    /// Groups out of which the router chooses first.
    pub(crate) groups: u64,
    pub(crate) intermediate: u64,
    /// Rows of the shared experts' gate; 0 without shared experts.
    pub(crate) shared: u64,
    /// The layers that have experts, ascending.
    pub(crate) layers: Vec<u64>,
}

impl Dims {
    /// Reads the sizes.
    pub(crate) fn of(config: &Config) -> Result<Dims, ConfigError> {
        let layers = bounded(config, &["num_hidden_layers", "n_layer"], MOST_LAYERS)?;
        let hidden = config.number(&["hidden_size", "n_embd"])?;
        let heads = config.number(&["num_attention_heads", "n_head"])?.max(1);
        let draft = config.find(&["num_nextn_predict_layers"])?.unwrap_or(0).min(MOST_LAYERS);
        let key_heads = config.find(&["num_key_value_heads"])?.unwrap_or(heads).max(1);
        if heads % key_heads != 0 {
            let what = format!("{heads} heads are no multiple of {key_heads} key-value heads");
            return Err(ConfigError::Contradiction { what });
        }
        Ok(Dims {
            layers,
            draft_layers: draft,
            hidden,
            vocabulary: config.number(&["vocab_size"])?,
            heads,
            key_heads,
            head: config.find(&["head_dim"])?.unwrap_or(hidden / heads),
            intermediate: config.find(&["intermediate_size", "n_inner"])?.unwrap_or(4 * hidden),
            mla: Mla::of(config)?,
            indexer: Indexer::of(config)?,
            linear: LinearDims::of(config, layers)?,
            moe: MoeDims::of(config, layers)?,
            tied: config.flag("tie_word_embeddings"),
        })
    }
}

impl Mla {
    fn of(config: &Config) -> Result<Option<Mla>, ConfigError> {
        let Some(key_rank) = config.find(&["kv_lora_rank"])? else { return Ok(None) };
        Ok(Some(Mla {
            query_rank: config.find(&["q_lora_rank"])?.filter(|&rank| rank > 0),
            key_rank,
            nope: config.number(&["qk_nope_head_dim"])?,
            rope: config.number(&["qk_rope_head_dim"])?,
            value: config.number(&["v_head_dim"])?,
        }))
    }
}

impl Indexer {
    fn of(config: &Config) -> Result<Option<Indexer>, ConfigError> {
        let Some(heads) = config.find(&["index_n_heads"])? else { return Ok(None) };
        Ok(Some(Indexer { heads, head: config.number(&["index_head_dim"])? }))
    }
}

impl LinearDims {
    fn of(config: &Config, layers: u64) -> Result<Option<LinearDims>, ConfigError> {
        let Some(value_heads) = config.find(&["linear_num_value_heads"])? else { return Ok(None) };
        let key_heads = config.number(&["linear_num_key_heads"])?.max(1);
        if value_heads % key_heads != 0 {
            let what =
                format!("{value_heads} value heads are no multiple of {key_heads} key heads");
            return Err(ConfigError::Contradiction { what });
        }
        Ok(Some(LinearDims {
            key_heads,
            key_head: config.number(&["linear_key_head_dim"])?,
            value_heads,
            value_head: config.number(&["linear_value_head_dim"])?,
            kernel: config.number(&["linear_conv_kernel_dim"])?,
            layers: linear_layers(config, layers)?,
        }))
    }

    /// Rows of all queries, which are as many as those of keys, and of all values.
    pub(crate) fn rows(&self) -> (u64, u64) {
        (self.key_heads * self.key_head, self.value_heads * self.value_head)
    }
}

/// The layers with linear attention: as listed, else all but every so many-th.
fn linear_layers(config: &Config, layers: u64) -> Result<Vec<u64>, ConfigError> {
    let listed = config.texts("layer_types");
    if listed.is_empty() {
        let every = config.find(&["full_attention_interval"])?.unwrap_or(4).max(1);
        return Ok((0..layers).filter(|layer| (layer + 1) % every != 0).collect());
    }
    if listed.len() as u64 != layers {
        let what = format!("layer_types lists {} of {layers} layers", listed.len());
        return Err(ConfigError::Contradiction { what });
    }
    let known = ["linear_attention", "full_attention"];
    if let Some(other) = listed.iter().find(|kind| !known.contains(kind)) {
        let (key, found) = ("layer_types", format!("{other:?}"));
        let why = "only linear_attention and full_attention have a rule";
        return Err(ConfigError::Unruled { key, found, why });
    }
    Ok((0..layers).filter(|&layer| listed[layer as usize] == known[0]).collect())
}

impl MoeDims {
    fn of(config: &Config, layers: u64) -> Result<Option<MoeDims>, ConfigError> {
        let keys = ["n_routed_experts", "num_experts", "num_local_experts"];
        let experts = config.find(&keys)?.unwrap_or(0);
        if experts == 0 {
            return Ok(None);
        }
        if experts > MOST_EXPERTS {
            let (key, value, most) = (keys[0], experts, MOST_EXPERTS);
            return Err(ConfigError::TooLarge { key, value, most });
        }
        let intermediate = config.number(&["moe_intermediate_size", "intermediate_size"])?;
        let shared = match config.find(&["shared_expert_intermediate_size"])? {
            Some(rows) => rows,
            None => config.find(&["n_shared_experts"])?.unwrap_or(0) * intermediate,
        };
        let groups = config.find(&["n_group"])?.unwrap_or(1);
        let layers = sparse_layers(config, layers)?;
        Ok(Some(MoeDims { experts, groups, intermediate, shared, layers }))
    }
}

/// The layers with experts: as listed, else after the first dense ones and at every step.
fn sparse_layers(config: &Config, layers: u64) -> Result<Vec<u64>, ConfigError> {
    let listed = config.texts("mlp_layer_types");
    if !listed.is_empty() {
        if listed.len() as u64 != layers {
            let what = format!("mlp_layer_types lists {} of {layers} layers", listed.len());
            return Err(ConfigError::Contradiction { what });
        }
        return Ok((0..layers).filter(|&l| listed[l as usize] == "sparse").collect());
    }
    let dense = config.numbers("mlp_only_layers");
    let first = config.find(&["first_k_dense_replace"])?.unwrap_or(0);
    let step = config.find(&["decoder_sparse_step"])?.unwrap_or(1).max(1);
    let every = config.find(&["moe_layer_freq"])?.unwrap_or(1).max(1);
    let sparse =
        |&l: &u64| l >= first && !dense.contains(&l) && (l + 1) % step == 0 && l % every == 0;
    Ok((0..layers).filter(sparse).collect())
}

fn bounded(config: &Config, keys: &[&'static str], most: u64) -> Result<u64, ConfigError> {
    let value = config.number(keys)?;
    match value {
        0 => Err(ConfigError::Missing { keys: keys.to_vec() }),
        _ if value > most => Err(ConfigError::TooLarge { key: keys[0], value, most }),
        _ => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sparse(config: &str) -> Vec<u64> {
        sparse_layers(&Config::parse(config).unwrap(), 6).unwrap()
    }

    /// As the classes have it: `(layer + 1) % decoder_sparse_step`, but `layer % moe_layer_freq`.
    #[test]
    fn layers_with_experts_are_those_of_the_classes() {
        let body = |keys: &str| format!(r#"{{"model_type": "qwen2_moe"{keys}}}"#);
        assert_eq!(sparse(&body("")), [0, 1, 2, 3, 4, 5]);
        assert_eq!(sparse(&body(r#", "decoder_sparse_step": 2"#)), [1, 3, 5]);
        assert_eq!(sparse(&body(r#", "decoder_sparse_step": 3"#)), [2, 5]);
        assert_eq!(sparse(&body(r#", "decoder_sparse_step": 2, "mlp_only_layers": [3]"#)), [1, 5]);
        assert_eq!(sparse(&body(r#", "moe_layer_freq": 2, "first_k_dense_replace": 1"#)), [2, 4]);
    }
}
