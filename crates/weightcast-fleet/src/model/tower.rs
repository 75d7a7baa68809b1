//! The tensors of a tower that sees, and of what leads from it to the decoder.

use serde_json::Value;
use weightcast_plan::DType;

use super::config::{Config, ConfigError};
use super::description::{Tower, TowerMembers, TowerSize, TowerTensor};
use super::family::Family;
use super::role::ModuleTensor;

/// Most blocks of a tower: more than any has, few enough to list.
const MOST_BLOCKS: u64 = 4096;

/// Numbers of a tower, out of the part of the config that is for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TowerDims {
    /// Its attention heads.
    pub(crate) heads: u64,
    /// Its blocks, and the mergers that stand behind some of them.
    pub(crate) blocks: u64,
    pub(crate) mergers: u64,
}

impl TowerDims {
    /// Reads them.
    pub(crate) fn of(config: &Config, tower: &Tower) -> Result<TowerDims, ConfigError> {
        if let Some(key) = tower.without {
            refuse_unless_false(config, key)?;
        }
        let key = "deepstack_visual_indexes";
        let mergers = config.value(key).map(|_| config.numbers(key).len() as u64);
        let blocks = config.number(&["depth", "num_hidden_layers"])?;
        if blocks > MOST_BLOCKS || mergers.unwrap_or(0) > MOST_BLOCKS {
            return Err(ConfigError::TooLarge { key: "depth", value: blocks, most: MOST_BLOCKS });
        }
        let has_mergers =
            tower.tensors.iter().flat_map(|g| *g).any(|t| t.role.is_of_inner_merger());
        let mergers = match mergers {
            None if has_mergers => return Err(ConfigError::Missing { keys: vec![key] }),
            Some(count) if count > 0 && !has_mergers => {
                let (found, why) =
                    (count.to_string(), "this type of model has no merger behind a block");
                return Err(ConfigError::Unruled { key, found, why });
            }
            mergers => mergers.unwrap_or(0),
        };
        Ok(TowerDims {
            heads: config.number(&["num_heads", "num_attention_heads"])?.max(1),
            blocks,
            mergers,
        })
    }
}

/// The families of a tower, not quantised, beside a decoder that takes so many elements.
pub(crate) fn families(
    config: &Config,
    tower: &Tower,
    dims: &TowerDims,
    decoder: u64,
    dtype: DType,
) -> Result<Vec<Family>, ConfigError> {
    let mut families = Vec::new();
    for tensor in tower.tensors.iter().flat_map(|group| *group) {
        let shape =
            tensor.shape.iter().map(|&of| size(config, of, decoder)).collect::<Result<_, _>>()?;
        put(&mut families, tower, tensor, shape, dims, dtype);
    }
    Ok(families)
}

/// The weight, and its bias where it has one; nothing where there is no layer of it.
fn put(
    families: &mut Vec<Family>,
    tower: &Tower,
    tensor: &TowerTensor,
    shape: Vec<u64>,
    dims: &TowerDims,
    dtype: DType,
) {
    let count = match tensor.role.is_of_inner_merger() {
        true => dims.mergers,
        false => dims.blocks,
    };
    let layers = match tensor.module.contains("{L}") {
        true if count == 0 => return,
        true => vec![(0, count - 1)],
        false => Vec::new(),
    };
    let name = format!("{}{}", tower.module, tensor.module);
    let mut put = |member, name, shape| {
        let (role, layers) = (tensor.role, layers.clone());
        families.push(Family { role, member, name, shape, dtype, layers, experts: 0 });
    };
    let rows = shape[0];
    match tensor.members {
        TowerMembers::Itself => put(ModuleTensor::Weight, name, shape),
        TowerMembers::Weight => put(ModuleTensor::Weight, format!("{name}.weight"), shape),
        TowerMembers::WeightAndBias => {
            put(ModuleTensor::Weight, format!("{name}.weight"), shape);
            put(ModuleTensor::Bias, format!("{name}.bias"), vec![rows]);
        }
    }
}

fn refuse_unless_false(config: &Config, key: &'static str) -> Result<(), ConfigError> {
    let said = config.value(key);
    if said.and_then(Value::as_bool) == Some(false) {
        return Ok(());
    }
    let found = said.map_or("not there".to_owned(), Value::to_string);
    let why = "the tower then has a part that engines leave out, and only false is laid out";
    Err(ConfigError::Unruled { key, found, why })
}

/// A size, in elements. Products that are out of reach are refused with all others, as bytes.
fn size(config: &Config, of: TowerSize, decoder: u64) -> Result<u64, ConfigError> {
    let hidden = config.number(&["hidden_size"])?;
    Ok(match of {
        TowerSize::Hidden => hidden,
        TowerSize::Projections => 3 * hidden,
        TowerSize::Wide => config.number(&["intermediate_size"])?,
        TowerSize::Merged => {
            let side = config.number(&["spatial_merge_size"])?;
            hidden.saturating_mul(side.saturating_mul(side))
        }
        TowerSize::Given => config.number(&["out_hidden_size"])?,
        TowerSize::Decoder => decoder,
        TowerSize::Colours => {
            config.find(&["in_channels", "in_chans", "num_channels"])?.unwrap_or(3)
        }
        TowerSize::Frames => config.number(&["temporal_patch_size"])?,
        TowerSize::Patch => config.number(&["patch_size"])?,
        TowerSize::Grid => config.number(&["num_position_embeddings"])?,
        TowerSize::Image => {
            let side = config.number(&["image_size"])? / config.number(&["patch_size"])?.max(1);
            side.saturating_mul(side)
        }
    })
}
