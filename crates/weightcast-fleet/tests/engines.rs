//! Every engine layout of the data set, rank by rank, field by field.

use crate::common;
use serde_json::Value;
use weightcast_fleet::{Cluster, Spec};

fn spec_of(layout: &Value) -> Spec {
    let engine = layout["engine"].as_str().expect("an engine").split(' ').next().expect("a name");
    let mut text = format!("{engine}:tp={}", layout["tp"]);
    for (key, value) in layout["options"].as_object().expect("options") {
        let (key, value) = match key.as_str() {
            "moe_dense_tp1" => ("moe_dense_tp", "1".to_owned()),
            "shared_tp1" => ("shared_tp", "1".to_owned()),
            _ => (key.as_str(), value.to_string().replace('"', "")),
        };
        text += &format!(",{key}={value}");
    }
    text.parse().expect("a spec")
}

#[test]
fn every_engine_layout_is_as_read_off_the_engine() {
    let mut seen = 0;
    for (file, layout) in common::folder("infer") {
        let model = common::model(layout["model"].as_str().expect("a model"));
        let cluster = Cluster::new(&model, &spec_of(&layout)).expect("a cluster");
        for (rank, wanted) in layout["ranks"].as_object().expect("ranks") {
            let found = cluster.layout(rank.parse().expect("a rank")).expect("a layout");
            let found = serde_json::to_value(&found).expect("JSON");
            let (ours, theirs) = (found["params"].as_array(), wanted["params"].as_array());
            let (ours, theirs) = (ours.expect("params"), theirs.expect("params"));
            for (ours, theirs) in ours.iter().zip(theirs) {
                assert_eq!(ours, theirs, "{file} rank {rank}");
            }
            assert_eq!(&found, wanted, "{file} rank {rank}");
            seen += 1;
        }
    }
    assert_eq!(seen, 210);
}
