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
    /// A number that the model cannot be described without.
    #[error("the config has no number under {}; add it", keys.join(" or "))]
    Missing { keys: Vec<&'static str> },
    /// A number out of reach.
    #[error("config key {key} is {value}; at most {most} is supported")]
    TooLarge { key: &'static str, value: u64, most: u64 },
    /// A model type without a description.
    #[error("no description of model type {found:?}; known are {}", known.join(", "))]
    UnknownModel { found: String, known: Vec<&'static str> },
    /// Numbers that do not belong together.
    #[error("the config contradicts itself: {what}")]
    Contradiction { what: String },
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

    /// The config without this key.
    pub(crate) fn without(&self, key: &str) -> Config {
        let mut value = self.0.clone();
        if let Some(object) = value.as_object_mut() {
            object.remove(key);
        }
        Config(value)
    }

    /// The object under the key, read as a config of its own.
    pub(crate) fn within(&self, key: &str) -> Option<Config> {
        self.0.get(key).filter(|v| v.is_object()).cloned().map(Config)
    }
}

fn list(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}
