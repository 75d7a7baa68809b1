//! A model's `config.json`, as Hugging Face writes it, asked by the names of its keys.

use serde_json::Value;
use thiserror::Error;

/// Why a config does not describe a model.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs)] // fields are named in the message
pub enum ConfigError {
    /// Not JSON, or not an object.
    #[error("the config is no JSON object: {reason}")]
    NotAnObject { reason: String },
    /// What the model cannot be described without.
    #[error("the config has nothing under {} that can be read; add it", keys.join(" or "))]
    Missing { keys: Vec<&'static str> },
    /// A number out of reach.
    #[error("config key {key} is {value}; at most {most} is supported")]
    TooLarge { key: &'static str, value: u64, most: u64 },
    /// A model type without a description.
    #[error(
        "no description of model type {found:?}; known are {}; read the layout off a live engine",
        known.join(", ")
    )]
    UnknownModel { found: String, known: Vec<&'static str> },
    /// A model type that engines fill with other values than slices of its checkpoint.
    #[error("no rule lays out model type {found:?}: {why}; read the layout off a live engine")]
    NotSlices { found: String, why: &'static str },
    /// A class that has other tensors than the model type's causal language model.
    #[error(
        "architecture {found} of model type {model_type} has a head or parts (score, classifier) that no rule lays \
         out; known are {}; plan the config of the causal language model, or read the layout off a live engine",
        known.join(", ")
    )]
    Architecture { found: String, model_type: String, known: Vec<&'static str> },
    /// A type of weights that no rule lays out.
    #[error(
        "config key {key} is {found}; known are bfloat16, float16 and float32; \
         plan a config in one of these types, or read the layout off a live engine"
    )]
    Dtype { key: &'static str, found: String },
    /// Quantised weights that no rule lays out.
    #[error(
        "config key {key} says that the checkpoint is quantised by {method} ({}): {why}; \
         plan its unquantised config, without {key}, or read the layout off a live engine",
        told_bits(bits)
    )]
    Quantised { key: String, method: String, bits: Vec<u64>, why: String },
    /// A variety of a model that no rule lays out.
    #[error("config key {key} is {found}: {why}; read the layout off a live engine")]
    Unruled { key: &'static str, found: String, why: &'static str },
    /// Numbers that do not belong together.
    #[error("the config contradicts itself: {what}")]
    Contradiction { what: String },
}

fn told_bits(bits: &[u64]) -> String {
    let told: Vec<String> = bits.iter().map(u64::to_string).collect();
    match told.is_empty() {
        true => "bits not said".into(),
        false => format!("{} bits", told.join(" and ")),
    }
}

/// The largest number taken from a config: dimensions multiply without overflow.
const MOST: u64 = 1 << 30;

/// A parsed `config.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct Config(Value);

impl Config {
    /// Parses the text of a `config.json`.
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        let value: Value = serde_json::from_str(text)
            .map_err(|e| ConfigError::NotAnObject { reason: e.to_string() })?;
        match value.is_object() {
            true => Ok(Config(value)),
            false => Err(ConfigError::NotAnObject { reason: "it is something else".into() }),
        }
    }

    /// The model's type, such as `qwen3_moe`; empty if the config does not say.
    pub fn model_type(&self) -> &str {
        self.0.get("model_type").and_then(Value::as_str).unwrap_or("")
    }

    /// The first of these keys that holds a number.
    pub(crate) fn find(&self, keys: &[&'static str]) -> Result<Option<u64>, ConfigError> {
        for key in keys {
            let Some(value) = self.0.get(key).and_then(Value::as_u64) else { continue };
            if value > MOST {
                return Err(ConfigError::TooLarge { key, value, most: MOST });
            }
            return Ok(Some(value));
        }
        Ok(None)
    }

    /// The first of these keys that holds a number; an error if none does.
    pub(crate) fn number(&self, keys: &[&'static str]) -> Result<u64, ConfigError> {
        self.find(keys)?.ok_or_else(|| ConfigError::Missing { keys: keys.to_vec() })
    }

    /// Whether the key holds `true`.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.0.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    /// The text under the key; empty if there is none.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.0.get(key).and_then(Value::as_str).unwrap_or("")
    }

    /// The texts listed under the key.
    pub(crate) fn texts(&self, key: &str) -> Vec<&str> {
        list(self.0.get(key)).filter_map(Value::as_str).collect()
    }

    /// The numbers listed under the key.
    pub(crate) fn numbers(&self, key: &str) -> Vec<u64> {
        list(self.0.get(key)).filter_map(Value::as_u64).collect()
    }

    /// What the key holds; nothing for null.
    pub(crate) fn value(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// The object under the key, as a config of its own.
    pub(crate) fn part(&self, key: &str) -> Option<Config> {
        self.0.get(key).filter(|value| value.is_object()).cloned().map(Config)
    }

    /// This config, with what the object under the key says instead of what it says itself.
    pub(crate) fn with_part(&self, key: &str) -> Config {
        let mut whole = self.clone();
        let part = self.0.get(key).and_then(Value::as_object).into_iter().flatten();
        for (key, value) in part.filter(|(_, value)| !value.is_null()) {
            whole.0[key] = value.clone();
        }
        whole
    }

    /// This config, with these numbers and this flag where it has nothing under their keys.
    pub(crate) fn assuming(mut self, numbers: &[(&str, u64)], flag: (&str, bool)) -> Config {
        for &(key, number) in numbers {
            if self.value(key).is_none() {
                self.0[key] = number.into();
            }
        }
        if self.value(flag.0).is_none() {
            self.0[flag.0] = flag.1.into();
        }
        self
    }

    /// What these keys hold here and in all objects within, each with its path, the outermost first.
    pub(crate) fn anywhere(&self, keys: &[&str]) -> Vec<(String, &Value)> {
        let mut found = Vec::new();
        collect(&self.0, "", keys, &mut found);
        found
    }
}

fn collect<'a>(value: &'a Value, path: &str, keys: &[&str], found: &mut Vec<(String, &'a Value)>) {
    let members = || value.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    let is_asked = |key: &String| keys.contains(&key.as_str());
    found.extend(members().filter(|m| is_asked(m.0)).map(|(k, v)| (format!("{path}{k}"), v)));
    for (key, value) in members().filter(|member| !is_asked(member.0)) {
        collect(value, &format!("{path}{key}."), keys, found);
    }
}

fn list(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}

/// An error for a key that is not among these: what the key changes is not known.
pub(super) fn understood(said: &Value, keys: &[&str]) -> Result<(), String> {
    let mut set = said.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    match set.find(|(key, _)| !keys.contains(&key.as_str())) {
        None => Ok(()),
        Some((key, value)) => Err(format!("what {key}={value} changes is not known")),
    }
}

/// The texts listed under a key; none without the key.
pub(super) fn texts<'a>(said: &'a Value, key: &str) -> Result<Vec<&'a str>, String> {
    let value = match said.get(key) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(value) => value,
    };
    let texts = value.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
    texts.ok_or_else(|| format!("{key} is no list of names: {value}"))
}
