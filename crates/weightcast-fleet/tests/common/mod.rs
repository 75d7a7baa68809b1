//! The data set.

#![allow(dead_code, reason = "each test takes what it needs")]

pub(crate) mod elements;

use std::path::{Path, PathBuf};

use serde_json::Value;
use weightcast_fleet::model::{Config, ModelSpec};

fn data(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(folder)
}

/// Every file of a folder, by its name.
pub(crate) fn folder(folder: &str) -> Vec<(String, Value)> {
    let mut files: Vec<_> = std::fs::read_dir(data(folder)).expect("a folder").collect();
    files.sort_by_key(|file| file.as_ref().expect("a file").path());
    let read = |file: Result<std::fs::DirEntry, _>| {
        let path = file.expect("a file").path();
        let text = std::fs::read_to_string(&path).expect("text");
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        (name, serde_json::from_str(&text).expect("JSON"))
    };
    files.into_iter().map(read).collect()
}

/// The model of a config of the data set.
pub(crate) fn model(name: &str) -> ModelSpec {
    let path = data("configs").join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path).expect("a config");
    ModelSpec::of(&Config::parse(&text).expect("an object")).expect("a model")
}
