//! The tensors of a decoder, layer by layer.

use weightcast_plan::DType;

use super::config::{Config, ConfigError};
use super::description::{Decoder, ExpertForm, LinearForm, Moe, When};
use super::dims::{Dims, Indexer, LinearDims, Mla, MoeDims};
use super::family::{Family, intervals};
use super::role::{ModuleTensor, TensorRole};

/// The families of a decoder's checkpoint, not quantised, with its layers in the one module and its head in the other.
pub(crate) fn families(
    config: &Config,
    decoder: &Decoder,
    (module, head): (&str, &str),
    dims: &Dims,
    dtype: DType,
) -> Result<Vec<Family>, ConfigError> {
    let all = dims.layers + dims.draft_layers;
    let layers = vec![(0, all - 1)];
    let mut list = DecoderFamilies { families: Vec::new(), layers, dtype, config, module };
    let (hidden, vocabulary) = (dims.hidden, dims.vocabulary);
    list.outside(TensorRole::Embedding, &format!("{module}.embed_tokens"), &[vocabulary, hidden]);
    norms(&mut list, decoder, hidden);
    match &dims.mla {
        Some(mla) => latent_attention(&mut list, mla, dims),
        None => attention(&mut list, decoder, dims)?,
    }
    if let Some(indexer) = &dims.indexer {
        let mla = dims.mla.as_ref().ok_or_else(|| ConfigError::Contradiction {
            what: "an indexer (index_n_heads) without latent attention (kv_lora_rank)".into(),
        })?;
        sparse_attention(&mut list, indexer, mla, hidden);
    }
    let sparse: &[u64] = dims.moe.as_ref().map_or(&[], |moe| &moe.layers);
    let dense = (0..dims.layers).filter(|layer| !sparse.contains(layer));
    list.layers = intervals(match dims.moe {
        Some(_) => dense.collect::<Vec<_>>(),
        None => (0..all).collect(),
    });
    dense_mlp(&mut list, decoder, dims);
    if let Some(moe) = &dims.moe {
        list.layers = intervals(sparse.iter().copied().chain(dims.layers..all));
        experts(&mut list, decoder, moe, hidden);
    }
    list.outside(TensorRole::FinalNorm, &format!("{module}.norm"), &[hidden]);
    if !dims.tied {
        list.outside(TensorRole::Head, head, &[vocabulary, hidden]);
    }
    if dims.draft_layers > 0 {
        list.layers = vec![(dims.layers, all - 1)];
        draft(&mut list, decoder, dims);
    }
    Ok(list.families)
}

/// The families of a decoder's checkpoint, while they are listed, and the layers that come next.
struct DecoderFamilies<'a> {
    families: Vec<Family>,
    layers: Vec<(u64, u64)>,
    dtype: DType,
    config: &'a Config,
    module: &'a str,
}

impl DecoderFamilies<'_> {
    fn holds(&self, when: When) -> bool {
        match when {
            When::Never => false,
            When::Always => true,
            When::Flag(key) => self.config.flag(key),
            When::Text(key, text) => self.config.text(key) == text,
        }
    }

    fn put(
        &mut self,
        role: TensorRole,
        member: ModuleTensor,
        name: String,
        shape: &[u64],
        dtype: DType,
    ) {
        let (layers, shape) = (self.layers.clone(), shape.to_vec());
        if !layers.is_empty() {
            self.families.push(Family { role, member, name, shape, dtype, layers, experts: 0 });
        }
    }

    /// A weight outside of layers.
    fn outside(&mut self, role: TensorRole, module: &str, shape: &[u64]) {
        let (name, shape, dtype) = (format!("{module}.weight"), shape.to_vec(), self.dtype);
        let (member, layers) = (ModuleTensor::Weight, Vec::new());
        self.families.push(Family { role, member, name, shape, dtype, layers, experts: 0 });
    }

    fn weight(&mut self, role: TensorRole, module: &str, shape: &[u64]) {
        let name = format!("{}.layers.{{L}}.{module}.weight", self.module);
        self.put(role, ModuleTensor::Weight, name, shape, self.dtype);
    }

    fn bias(&mut self, role: TensorRole, module: &str, rows: u64, when: When) {
        if self.holds(when) {
            let name = format!("{}.layers.{{L}}.{module}.bias", self.module);
            self.put(role, ModuleTensor::Bias, name, &[rows], self.dtype);
        }
    }

    fn expert(&mut self, role: TensorRole, experts: u64, module: &str, shape: &[u64]) {
        self.weight(role, module, shape);
        if let Some(family) = self.families.last_mut().filter(|f| f.role == role) {
            family.experts = experts;
        }
    }
}

fn norms(list: &mut DecoderFamilies<'_>, decoder: &Decoder, hidden: u64) {
    for &(role, module) in decoder.norms {
        list.weight(role, module, &[hidden]);
    }
}

/// Attention, and linear attention in the layers that have it instead.
fn attention(
    list: &mut DecoderFamilies<'_>,
    decoder: &Decoder,
    dims: &Dims,
) -> Result<(), ConfigError> {
    let Some(form) = decoder.linear else {
        head_attention(list, decoder, dims);
        return Ok(());
    };
    let keys = vec!["linear_num_value_heads"];
    let linear = dims.linear.as_ref().ok_or(ConfigError::Missing { keys })?;
    let key = "attn_output_gate";
    if decoder.gated_query && list.config.value(key).is_some_and(|said| said != true) {
        let found = "not true".to_owned();
        let why = "only queries with gates have a rule";
        return Err(ConfigError::Unruled { key, found, why });
    }
    let all = std::mem::take(&mut list.layers);
    list.layers = intervals((0..dims.layers).filter(|layer| !linear.layers.contains(layer)));
    head_attention(list, decoder, dims);
    list.layers = intervals(linear.layers.iter().copied());
    linear_attention(list, form, linear, dims.hidden);
    list.layers = all;
    Ok(())
}

fn linear_attention(
    list: &mut DecoderFamilies<'_>,
    form: LinearForm,
    linear: &LinearDims,
    hidden: u64,
) {
    let ((keys, values), heads) = (linear.rows(), linear.value_heads);
    match form {
        LinearForm::ByHead => {
            let rows = 2 * keys + 2 * values;
            list.weight(TensorRole::LinearInput, "linear_attn.in_proj_qkvz", &[rows, hidden]);
            let rows = 2 * heads;
            list.weight(TensorRole::LinearStrength, "linear_attn.in_proj_ba", &[rows, hidden]);
        }
        LinearForm::ByKind => {
            let rows = 2 * keys + values;
            list.weight(TensorRole::LinearInput, "linear_attn.in_proj_qkv", &[rows, hidden]);
            list.weight(TensorRole::LinearGate, "linear_attn.in_proj_z", &[values, hidden]);
            list.weight(TensorRole::LinearStrength, "linear_attn.in_proj_b", &[heads, hidden]);
            list.weight(TensorRole::LinearDecay, "linear_attn.in_proj_a", &[heads, hidden]);
        }
    }
    let convolution = [2 * keys + values, 1, linear.kernel];
    list.weight(TensorRole::LinearConvolution, "linear_attn.conv1d", &convolution);
    for (role, name) in
        [(TensorRole::LinearTimeBias, "dt_bias"), (TensorRole::LinearDecayLog, "A_log")]
    {
        let name = format!("{}.layers.{{L}}.linear_attn.{name}", list.module);
        list.put(role, ModuleTensor::Weight, name, &[heads], list.dtype);
    }
    list.weight(TensorRole::LinearNorm, "linear_attn.norm", &[linear.value_head]);
    list.weight(TensorRole::LinearOutput, "linear_attn.out_proj", &[hidden, values]);
}

fn head_attention(list: &mut DecoderFamilies<'_>, decoder: &Decoder, dims: &Dims) {
    let queries = dims.heads * if decoder.gated_query { 2 } else { 1 };
    let projections = [
        (TensorRole::Query, "self_attn.q_proj", queries),
        (TensorRole::Key, "self_attn.k_proj", dims.key_heads),
        (TensorRole::Value, "self_attn.v_proj", dims.key_heads),
    ];
    for (role, module, heads) in projections {
        list.weight(role, module, &[heads * dims.head, dims.hidden]);
        list.bias(role, module, heads * dims.head, decoder.qkv_bias);
    }
    list.weight(TensorRole::Output, "self_attn.o_proj", &[dims.hidden, dims.heads * dims.head]);
    list.bias(TensorRole::Output, "self_attn.o_proj", dims.hidden, decoder.output_bias);
    if list.holds(decoder.qk_norm) {
        let (queries, keys) = match decoder.qk_norm_over_heads {
            true => (dims.heads, dims.key_heads),
            false => (1, 1),
        };
        list.weight(TensorRole::QueryNorm, "self_attn.q_norm", &[queries * dims.head]);
        list.weight(TensorRole::KeyNorm, "self_attn.k_norm", &[keys * dims.head]);
    }
}

fn latent_attention(list: &mut DecoderFamilies<'_>, mla: &Mla, dims: &Dims) {
    let (hidden, heads) = (dims.hidden, dims.heads);
    let queries = heads * (mla.nope + mla.rope);
    match mla.query_rank {
        Some(rank) => {
            list.weight(TensorRole::QueryDown, "self_attn.q_a_proj", &[rank, hidden]);
            list.weight(TensorRole::QueryDownNorm, "self_attn.q_a_layernorm", &[rank]);
            list.weight(TensorRole::QueryUp, "self_attn.q_b_proj", &[queries, rank]);
        }
        None => list.weight(TensorRole::Query, "self_attn.q_proj", &[queries, hidden]),
    }
    let down = [mla.key_rank + mla.rope, hidden];
    list.weight(TensorRole::KeyValueDown, "self_attn.kv_a_proj_with_mqa", &down);
    list.weight(TensorRole::KeyValueDownNorm, "self_attn.kv_a_layernorm", &[mla.key_rank]);
    let up = [heads * (mla.nope + mla.value), mla.key_rank];
    list.weight(TensorRole::KeyValueUp, "self_attn.kv_b_proj", &up);
    list.weight(TensorRole::Output, "self_attn.o_proj", &[hidden, heads * mla.value]);
}

fn sparse_attention(list: &mut DecoderFamilies<'_>, indexer: &Indexer, mla: &Mla, hidden: u64) {
    let rank = mla.query_rank.unwrap_or(hidden);
    let (heads, head) = (indexer.heads, indexer.head);
    list.weight(TensorRole::IndexQuery, "self_attn.indexer.wq_b", &[heads * head, rank]);
    list.weight(TensorRole::IndexKey, "self_attn.indexer.wk", &[head, hidden]);
    list.weight(TensorRole::IndexKeyNorm, "self_attn.indexer.k_norm", &[head]);
    list.bias(TensorRole::IndexKeyNorm, "self_attn.indexer.k_norm", head, When::Always);
    list.weight(TensorRole::IndexWeights, "self_attn.indexer.weights_proj", &[heads, hidden]);
}

fn dense_mlp(list: &mut DecoderFamilies<'_>, decoder: &Decoder, dims: &Dims) {
    let (rows, hidden) = (dims.intermediate, dims.hidden);
    if decoder.fused_gate_up {
        list.weight(TensorRole::DenseGateUp, "mlp.gate_up_proj", &[2 * rows, hidden]);
        list.bias(TensorRole::DenseGateUp, "mlp.gate_up_proj", 2 * rows, decoder.mlp_bias);
    } else {
        list.weight(TensorRole::DenseGate, "mlp.gate_proj", &[rows, hidden]);
        list.bias(TensorRole::DenseGate, "mlp.gate_proj", rows, decoder.mlp_bias);
        list.weight(TensorRole::DenseUp, "mlp.up_proj", &[rows, hidden]);
        list.bias(TensorRole::DenseUp, "mlp.up_proj", rows, decoder.mlp_bias);
    }
    list.weight(TensorRole::DenseDown, "mlp.down_proj", &[hidden, rows]);
    list.bias(TensorRole::DenseDown, "mlp.down_proj", hidden, decoder.mlp_bias);
}

fn experts(list: &mut DecoderFamilies<'_>, decoder: &Decoder, moe: &MoeDims, hidden: u64) {
    let names = decoder.moe;
    list.weight(TensorRole::Router, names.router, &[moe.experts, hidden]);
    if list.holds(names.correction) {
        let name = format!("{}.layers.{{L}}.{}", list.module, names.correction_name);
        list.put(
            TensorRole::RouterCorrection,
            ModuleTensor::Bias,
            name,
            &[moe.experts],
            DType::F32,
        );
    }
    match names.expert_form {
        ExpertForm::Each => single_experts(list, &names, moe, hidden),
        form => stacked_experts(list, &names, moe, hidden, form),
    }
    if moe.shared > 0 {
        let [gate, up, down] = ["gate", "up", "down"].map(|p| format!("{}.{p}_proj", names.shared));
        list.weight(TensorRole::SharedGate, &gate, &[moe.shared, hidden]);
        list.weight(TensorRole::SharedUp, &up, &[moe.shared, hidden]);
        list.weight(TensorRole::SharedDown, &down, &[hidden, moe.shared]);
        if let Some(switch) = names.shared_switch {
            list.weight(TensorRole::SharedSwitch, switch, &[1, hidden]);
        }
    }
}

fn single_experts(list: &mut DecoderFamilies<'_>, names: &Moe, moe: &MoeDims, hidden: u64) {
    let rows = moe.intermediate;
    let [gate, up, down] = names.projections.map(|p| format!("{}.{{E}}.{p}", names.experts));
    list.expert(TensorRole::ExpertGate, moe.experts, &gate, &[rows, hidden]);
    list.expert(TensorRole::ExpertUp, moe.experts, &up, &[rows, hidden]);
    list.expert(TensorRole::ExpertDown, moe.experts, &down, &[hidden, rows]);
}

/// As transformers names them: no `weight` at the end.
fn stacked_experts(
    list: &mut DecoderFamilies<'_>,
    names: &Moe,
    moe: &MoeDims,
    hidden: u64,
    form: ExpertForm,
) {
    let wide = moe.intermediate;
    for (role, name, [rows, columns]) in [
        (TensorRole::ExpertsGateUp, "gate_up_proj", [2 * wide, hidden]),
        (TensorRole::ExpertsDown, "down_proj", [hidden, wide]),
    ] {
        let shape = match form {
            ExpertForm::InOut => [moe.experts, columns, rows],
            _ => [moe.experts, rows, columns],
        };
        let name = format!("{}.layers.{{L}}.{}.{name}", list.module, names.experts);
        list.put(role, ModuleTensor::Weight, name, &shape, list.dtype);
    }
}

fn draft(list: &mut DecoderFamilies<'_>, decoder: &Decoder, dims: &Dims) {
    let hidden = dims.hidden;
    list.weight(TensorRole::DraftProjection, "eh_proj", &[hidden, 2 * hidden]);
    list.weight(TensorRole::DraftEmbeddingNorm, "enorm", &[hidden]);
    list.weight(TensorRole::DraftHiddenNorm, "hnorm", &[hidden]);
    list.weight(TensorRole::DraftFinalNorm, "shared_head.norm", &[hidden]);
    if decoder.draft_embeddings {
        list.weight(TensorRole::DraftEmbedding, "embed_tokens", &[dims.vocabulary, hidden]);
        list.weight(TensorRole::DraftHead, "shared_head.head", &[dims.vocabulary, hidden]);
    }
}
