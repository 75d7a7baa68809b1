//! The tensors of GPT-2, whose linear weights are stored `[in, out]`.

use weightcast_plan::DType;

use super::config::{Config, ConfigError};
use super::dims::Dims;
use super::family::Family;
use super::role::{ModuleTensor, TensorRole};

/// The families of the checkpoint.
pub(crate) fn families(
    dims: &Dims,
    config: &Config,
    dtype: DType,
) -> Result<Vec<Family>, ConfigError> {
    let (hidden, wide) = (dims.hidden, dims.intermediate);
    let positions = config.number(&["n_positions", "max_position_embeddings"])?;
    let layers = vec![(0, dims.layers - 1)];
    let mut families = Vec::new();
    let mut put = |role, member, name: &str, shape: &[u64]| {
        let layers = if name.contains("{L}") { layers.clone() } else { Vec::new() };
        let (name, shape) = (name.to_owned(), shape.to_vec());
        families.push(Family { role, member, name, shape, dtype, layers, experts: 0 });
    };
    put(TensorRole::Embedding, ModuleTensor::Weight, "wte.weight", &[dims.vocabulary, hidden]);
    put(TensorRole::Positions, ModuleTensor::Weight, "wpe.weight", &[positions, hidden]);
    for (role, module, shape) in [
        (TensorRole::InputNorm, "ln_1", [hidden, 0]),
        (TensorRole::QueryKeyValue, "attn.c_attn", [hidden, 3 * hidden]),
        (TensorRole::Output, "attn.c_proj", [hidden, hidden]),
        (TensorRole::PostAttentionNorm, "ln_2", [hidden, 0]),
        (TensorRole::DenseUp, "mlp.c_fc", [hidden, wide]),
        (TensorRole::DenseDown, "mlp.c_proj", [wide, hidden]),
    ] {
        let (weight, bias) = match shape {
            [rows, 0] => (vec![rows], rows),
            [rows, columns] => (vec![rows, columns], columns),
        };
        put(role, ModuleTensor::Weight, &format!("h.{{L}}.{module}.weight"), &weight);
        put(role, ModuleTensor::Bias, &format!("h.{{L}}.{module}.bias"), &[bias]);
    }
    put(TensorRole::FinalNorm, ModuleTensor::Weight, "ln_f.weight", &[hidden]);
    put(TensorRole::FinalNorm, ModuleTensor::Bias, "ln_f.bias", &[hidden]);
    if !config.flag("tie_word_embeddings") {
        put(TensorRole::Head, ModuleTensor::Weight, "lm_head.weight", &[dims.vocabulary, hidden]);
    }
    Ok(families)
}
