//! The tensors of gpt-oss: experts fused over the layer. As published they are rows of MXFP4 blocks of 32 elements
//! (16 bytes) with one exponent each; plain ones are stored `[experts, in, out]`, as transformers holds them.

use weightcast_plan::DType;

use super::config::ConfigError;
use super::dims::Dims;
use super::family::Family;
use super::form::WeightForm;
use super::role::{ModuleTensor, TensorRole};

/// Elements of an MXFP4 block, and its bytes.
const BLOCK: u64 = 32;
const BLOCK_BYTES: u64 = 16;

/// The families of the checkpoint.
pub(crate) fn families(
    dims: &Dims,
    dtype: DType,
    form: &WeightForm,
) -> Result<Vec<Family>, ConfigError> {
    let moe = dims.moe.as_ref();
    let moe = moe.ok_or(ConfigError::Missing { keys: vec!["num_local_experts"] })?;
    let (hidden, heads, keys) = (dims.hidden, dims.heads * dims.head, dims.key_heads * dims.head);
    let (experts, wide) = (moe.experts, moe.intermediate);
    let mut list =
        GptOssFamilies { families: Vec::new(), layers: vec![(0, dims.layers - 1)], dtype };
    list.put(
        TensorRole::Embedding,
        ModuleTensor::Weight,
        "model.embed_tokens.weight",
        &[dims.vocabulary, hidden],
    );
    list.put(
        TensorRole::Sinks,
        ModuleTensor::Weight,
        "model.layers.{L}.self_attn.sinks",
        &[dims.heads],
    );
    for (role, name, rows, columns) in [
        (TensorRole::Query, "self_attn.q_proj", heads, hidden),
        (TensorRole::Key, "self_attn.k_proj", keys, hidden),
        (TensorRole::Value, "self_attn.v_proj", keys, hidden),
        (TensorRole::Output, "self_attn.o_proj", hidden, heads),
        (TensorRole::Router, "mlp.router", experts, hidden),
    ] {
        list.put(
            role,
            ModuleTensor::Weight,
            &format!("model.layers.{{L}}.{name}.weight"),
            &[rows, columns],
        );
        list.put(role, ModuleTensor::Bias, &format!("model.layers.{{L}}.{name}.bias"), &[rows]);
    }
    for (role, name, rows, columns) in [
        (TensorRole::ExpertsGateUp, "gate_up_proj", 2 * wide, hidden),
        (TensorRole::ExpertsDown, "down_proj", hidden, wide),
    ] {
        let name = format!("model.layers.{{L}}.mlp.experts.{name}");
        match form {
            WeightForm::Mxfp4Experts => list.blocks(role, &name, [experts, rows, columns])?,
            _ => list.put(role, ModuleTensor::Weight, &name, &[experts, columns, rows]),
        }
        list.put(role, ModuleTensor::Bias, &format!("{name}_bias"), &[experts, rows]);
    }
    let norm = |name: &str| format!("model.layers.{{L}}.{name}.weight");
    list.put(TensorRole::InputNorm, ModuleTensor::Weight, &norm("input_layernorm"), &[hidden]);
    list.put(
        TensorRole::PostAttentionNorm,
        ModuleTensor::Weight,
        &norm("post_attention_layernorm"),
        &[hidden],
    );
    list.put(TensorRole::FinalNorm, ModuleTensor::Weight, "model.norm.weight", &[hidden]);
    if !dims.tied {
        list.put(
            TensorRole::Head,
            ModuleTensor::Weight,
            "lm_head.weight",
            &[dims.vocabulary, hidden],
        );
    }
    Ok(list.families)
}

/// The families of a gpt-oss checkpoint, while they are listed.
struct GptOssFamilies {
    families: Vec<Family>,
    layers: Vec<(u64, u64)>,
    dtype: DType,
}

impl GptOssFamilies {
    fn put(&mut self, role: TensorRole, member: ModuleTensor, name: &str, shape: &[u64]) {
        let layers = if name.contains("{L}") { self.layers.clone() } else { Vec::new() };
        let (name, shape, dtype) = (name.to_owned(), shape.to_vec(), self.dtype);
        self.families.push(Family { role, member, name, shape, dtype, layers, experts: 0 });
    }

    /// Experts of so many rows and columns, in blocks along their rows.
    fn blocks(
        &mut self,
        role: TensorRole,
        name: &str,
        [experts, rows, columns]: [u64; 3],
    ) -> Result<(), ConfigError> {
        if columns % BLOCK != 0 {
            let what = format!("{name}: {columns} elements of a row are no whole MXFP4 blocks");
            return Err(ConfigError::Contradiction { what });
        }
        let blocks = columns / BLOCK;
        let shape = [experts, rows, blocks, BLOCK_BYTES];
        self.bytes(role, ModuleTensor::Weight, format!("{name}_blocks"), &shape);
        self.bytes(role, ModuleTensor::Scale, format!("{name}_scales"), &shape[..3]);
        Ok(())
    }

    fn bytes(&mut self, role: TensorRole, member: ModuleTensor, name: String, shape: &[u64]) {
        self.put(role, member, &name, shape);
        if let Some(family) = self.families.last_mut() {
            family.dtype = DType::U8;
        }
    }
}
