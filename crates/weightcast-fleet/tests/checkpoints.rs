//! Every published checkpoint of the data set, tensor by tensor.

use crate::common;
use std::collections::BTreeMap;

use serde_json::Value;
use weightcast_fleet::model::{ModelSpec, fill};

type Tensors = BTreeMap<String, (Vec<u64>, String)>;

fn ranges(value: &Value) -> Vec<Option<u64>> {
    let Some(list) = value.as_array() else { return vec![None] };
    let pair = |v: &Value| (v[0].as_u64().expect("a number"), v[1].as_u64().expect("a number"));
    list.iter().map(pair).flat_map(|(a, b)| (a..=b).map(Some)).collect()
}

fn published(manifest: &Value) -> Tensors {
    let mut tensors = Tensors::new();
    for family in manifest["families"].as_array().expect("families") {
        let name = family["name"].as_str().expect("a name");
        let shape: Vec<u64> = serde_json::from_value(family["shape"].clone()).expect("a shape");
        let dtype = family["dtype"].as_str().expect("a type");
        for layer in ranges(&family["L"]) {
            for expert in ranges(&family["E"]) {
                tensors.insert(fill(name, layer, expert), (shape.clone(), dtype.to_owned()));
            }
        }
    }
    tensors
}

fn described(model: &ModelSpec) -> Tensors {
    let mut tensors = Tensors::new();
    for family in &model.families {
        let mut count = 0;
        for name in family.names() {
            let told = (family.shape.clone(), family.dtype.name().to_owned());
            assert_eq!(tensors.insert(name.clone(), told), None, "{name} twice");
            count += 1;
        }
        assert_eq!(count, family.count());
    }
    tensors
}

#[test]
fn every_checkpoint_is_as_published() {
    let mut seen = 0;
    for (file, manifest) in common::folder("hf") {
        let model = common::model(&file);
        let (found, wanted) = (described(&model), published(&manifest));
        for (name, told) in &wanted {
            assert_eq!(found.get(name), Some(told), "{file}: {name}");
        }
        let extra: Vec<_> = found.keys().filter(|name| !wanted.contains_key(*name)).collect();
        assert!(extra.is_empty(), "{file}: {extra:?}");
        assert_eq!(model.bytes(true), manifest["bytes"].as_u64().expect("bytes"));
        seen += 1;
    }
    assert_eq!(seen, 21);
}
