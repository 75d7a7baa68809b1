//! Specs: a parallelism in one word, `NAME:key=value,...`.
//!
//! | name | keys |
//! |---|---|
//! | `vllm` | `tp` `dp` `ep` `placement` (`linear`, `round_robin`) `redundant` `quant` (`fp8`, `none`) `block` `dtype` `mtp` |
//! | `sglang` | `tp` `ep` `attn_dp` `moe_dense_tp` `shared_tp` (1: whole on every rank) `placement` `redundant` `quant` `block` `dtype` `mtp` |
//! | `ddp` | `dp` `dtype` `mtp` |
//! | `fsdp2` | `dp` `tp` `dtype` `mtp` |
//! | `hsdp` | `replicate` `shard` `dtype` `mtp` |
//! | `fsdp_ep` | `fsdp` `pp` `pp_layers` `ep` `dtype` `mtp` |
//! | `megatron` | `tp` `pp` `pp_layers` (`24+24+22`) `cp` `ep` `etp` `dp` `vocab_multiple` `dtype` `mtp` |
//!
//! Degrees are 1 where they are not given.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use weightcast_plan::DType;

use crate::engine::{Engine, ExpertPlacement, Program};
use crate::trainer::Trainer;

/// Why a spec cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs)] // fields are named in the message
pub enum SpecError {
    /// No such name.
    #[error("unknown spec {name:?}; allowed are {}", NAMES.join(", "))]
    Name { name: String },
    /// No such key.
    #[error("{name} has no key {key:?}; allowed are {}", allowed.join(", "))]
    Key { name: String, key: String, allowed: Vec<&'static str> },
    /// A key twice, or without a value.
    #[error("{name}: {item:?} is not a key=value that is given once")]
    Item { name: String, item: String },
    /// A value that the key does not take.
    #[error("{name}: {key}={value} is not {wanted}")]
    Value { name: String, key: &'static str, value: String, wanted: String },
}

const NAMES: [&str; 7] = ["vllm", "sglang", "ddp", "fsdp2", "hsdp", "fsdp_ep", "megatron"];

/// Most ranks along one degree.
const MOST: u64 = 1 << 20;

/// A trainer or an engine, and how its weights are to be quantised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// As it was written.
    pub text: String,
    /// Who holds the weights.
    pub side: Side,
    /// What the checkpoint is to be quantised to.
    pub quantise: Quantise,
}

/// Who holds the weights.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the documentation
pub enum Side {
    Engine(Engine),
    Trainer(Trainer),
}

/// What a spec says of quantisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantise {
    /// As the config says.
    AsConfigured,
    /// Not at all.
    Never,
    /// FP8 with square blocks of this size.
    Fp8 {
        /// Elements along each side; none for the config's, or 128.
        block: Option<u64>,
    },
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Spec, SpecError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut values = Values::split(name, rest)?;
        let side = match name {
            "vllm" | "sglang" => Side::Engine(engine(name, &mut values)?),
            _ if NAMES.contains(&name) => Side::Trainer(trainer(name, &mut values)?),
            _ => return Err(SpecError::Name { name: name.to_owned() }),
        };
        let quantise = match &side {
            Side::Engine(_) => quantise(&mut values)?,
            Side::Trainer(_) => Quantise::Never,
        };
        values.finish()?;
        Ok(Spec { text: text.to_owned(), side, quantise })
    }
}

fn engine(name: &str, values: &mut Values) -> Result<Engine, SpecError> {
    let program = if name == "vllm" { Program::Vllm } else { Program::Sglang };
    let own = |this| program == this;
    Ok(Engine {
        program,
        tp: values.degree("tp")?,
        dp: if own(Program::Vllm) { values.degree("dp")? } else { 1 },
        ep: values.degree("ep")?,
        placement: match values.take("placement").as_deref() {
            None | Some("linear") => ExpertPlacement::Linear,
            Some("round_robin") => ExpertPlacement::RoundRobin,
            Some(other) => return values.bad("placement", other, "linear or round_robin"),
        },
        attention_dp: if own(Program::Sglang) { values.degree("attn_dp")? } else { 1 },
        dense_whole: own(Program::Sglang) && values.whole("moe_dense_tp")?,
        shared_whole: own(Program::Sglang) && values.whole("shared_tp")?,
        redundant: values.number("redundant", 0)?,
        dtype: values.dtype()?,
        draft: values.flag("mtp")?,
    })
}

fn trainer(name: &str, values: &mut Values) -> Result<Trainer, SpecError> {
    use crate::trainer::{Megatron, Parallelism};
    let parallelism = match name {
        "ddp" => Parallelism::Ddp { dp: values.degree("dp")? },
        "fsdp2" => Parallelism::Fsdp2 { dp: values.degree("dp")?, tp: values.degree("tp")? },
        "hsdp" => Parallelism::Hsdp {
            replicate: values.degree("replicate")?,
            shard: values.degree("shard")?,
        },
        "fsdp_ep" => Parallelism::FsdpEp {
            fsdp: values.degree("fsdp")?,
            pp: values.degree("pp")?,
            pp_layers: values.counts("pp_layers")?,
            ep: values.degree("ep")?,
        },
        _ => Parallelism::Megatron(Megatron {
            tp: values.degree("tp")?,
            pp: values.degree("pp")?,
            pp_layers: values.counts("pp_layers")?,
            cp: values.degree("cp")?,
            ep: values.degree("ep")?,
            etp: values.degree("etp")?,
            dp: values.degree("dp")?,
            vocab_multiple: values.number("vocab_multiple", 128)?.max(1),
        }),
    };
    Ok(Trainer { parallelism, dtype: values.dtype()?, draft: values.flag("mtp")? })
}

fn quantise(values: &mut Values) -> Result<Quantise, SpecError> {
    let block = match values.number("block", 0)? {
        0 => None,
        block => Some(block),
    };
    match values.take("quant").as_deref() {
        None if block.is_none() => Ok(Quantise::AsConfigured),
        None | Some("fp8") => Ok(Quantise::Fp8 { block }),
        Some("none") if block.is_none() => Ok(Quantise::Never),
        Some("none") => values.bad("quant", "none", "given together with block"),
        Some(other) => values.bad("quant", other, "fp8 or none"),
    }
}

/// The items of a spec not yet taken, and the keys asked for.
struct Values {
    name: String,
    items: BTreeMap<String, String>,
    asked: Vec<&'static str>,
}

impl Values {
    fn split(name: &str, rest: &str) -> Result<Values, SpecError> {
        let mut items = BTreeMap::new();
        for item in rest.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let wrong = || SpecError::Item { name: name.to_owned(), item: item.to_owned() };
            let (key, value) = item.split_once('=').ok_or_else(wrong)?;
            if value.is_empty() || items.insert(key.to_owned(), value.to_owned()).is_some() {
                return Err(wrong());
            }
        }
        Ok(Values { name: name.to_owned(), items, asked: Vec::new() })
    }

    fn take(&mut self, key: &'static str) -> Option<String> {
        self.asked.push(key);
        self.items.remove(key)
    }

    fn number(&mut self, key: &'static str, default: u64) -> Result<u64, SpecError> {
        let Some(value) = self.take(key) else { return Ok(default) };
        match value.parse() {
            Ok(number) if number <= MOST => Ok(number),
            _ => self.bad(key, &value, &format!("a number up to {MOST}")),
        }
    }

    fn degree(&mut self, key: &'static str) -> Result<u64, SpecError> {
        match self.number(key, 1)? {
            0 => self.bad(key, "0", "at least 1"),
            degree => Ok(degree),
        }
    }

    fn counts(&mut self, key: &'static str) -> Result<Vec<u64>, SpecError> {
        let Some(value) = self.take(key) else { return Ok(Vec::new()) };
        let counts: Option<Vec<u64>> =
            value.split('+').map(|n| n.parse().ok().filter(|&n| n <= MOST)).collect();
        match counts {
            Some(counts) => Ok(counts),
            None => self.bad(key, &value, "numbers of layers such as 24+24+22"),
        }
    }

    fn flag(&mut self, key: &'static str) -> Result<bool, SpecError> {
        match self.take(key).as_deref() {
            None | Some("0" | "false") => Ok(false),
            Some("1" | "true") => Ok(true),
            Some(other) => self.bad(key, other, "1 or 0"),
        }
    }

    /// A degree that is either the engine's or 1.
    fn whole(&mut self, key: &'static str) -> Result<bool, SpecError> {
        match self.take(key).as_deref() {
            None => Ok(false),
            Some("1" | "true" | "True") => Ok(true),
            Some(other) => self.bad(key, other, "1 (leave it out for the engine's tp)"),
        }
    }

    fn dtype(&mut self) -> Result<Option<DType>, SpecError> {
        let Some(value) = self.take("dtype") else { return Ok(None) };
        let named = match value.to_ascii_lowercase().as_str() {
            "bf16" | "bfloat16" => Some(DType::BF16),
            "fp16" | "f16" | "float16" | "half" => Some(DType::F16),
            "fp32" | "f32" | "float32" | "float" => Some(DType::F32),
            _ => None,
        };
        match named {
            Some(dtype) => Ok(Some(dtype)),
            None => self.bad("dtype", &value, "bf16, fp16 or fp32"),
        }
    }

    fn bad<T>(&self, key: &'static str, value: &str, wanted: &str) -> Result<T, SpecError> {
        let (name, value, wanted) = (self.name.clone(), value.to_owned(), wanted.to_owned());
        Err(SpecError::Value { name, key, value, wanted })
    }

    fn finish(self) -> Result<(), SpecError> {
        match self.items.into_keys().next() {
            None => Ok(()),
            Some(key) => Err(SpecError::Key { name: self.name, key, allowed: self.asked }),
        }
    }
}
