//! `layout` and `plan`, as a user and a CI job run them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn weightcast(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weightcast")).args(arguments).output().expect("it runs")
}

fn data(file: &str) -> String {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../weightcast-fleet/tests/data");
    data.join(file).to_string_lossy().into_owned()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn error(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_layout_is_printed_as_in_the_data_set() {
    let config = data("configs/glm-4.5.json");
    let spec = ["--spec", "sglang:tp=8,ep=8,attn_dp=8", "--rank", "4"];
    let arguments = [&["layout", "--config", &config, "--json"], &spec[..]].concat();
    let found = json(&weightcast(&arguments));
    let wanted = std::fs::read_to_string(data("infer/glm-4.5__sglang_tp8_ep8_attn_dp8.json"));
    let wanted: Value = serde_json::from_str(&wanted.expect("a file")).expect("JSON");
    assert_eq!(found, wanted["ranks"]["4"]);
}

#[test]
fn a_trainer_prints_shapes_offsets_and_pieces() {
    let config = data("configs/qwen3-4b.json");
    let arguments =
        ["layout", "--config", &config, "--spec", "fsdp2:dp=3", "--rank", "2", "--json"];
    let found = json(&weightcast(&arguments));
    let first = &found["params"][0];
    assert_eq!(first["shape"], serde_json::json!([50644, 2560]));
    assert_eq!(first["offset"], serde_json::json!([101_292, 0]));
    assert_eq!(first["pieces"][0][2], 101_292);
}

#[test]
fn a_plan_has_every_number() {
    let config = data("configs/kimi-k2.json");
    let arguments = |nic: &'static str| {
        let trainer = "megatron:tp=8,pp=8,pp_layers=8+8+8+8+8+8+8+5,cp=4,ep=32";
        let engine = "sglang:tp=32,ep=32,attn_dp=8,moe_dense_tp=1,quant=fp8,block=64";
        let sides = ["--source", trainer, "--target", engine, "--replicas", "8"];
        let machine = ["--machine", "h100-rdma", "--nic-gbps", nic];
        [&["plan", "--config", &config, "--json"], &machine[..], &sides[..]].concat()
    };
    let plan = json(&weightcast(&arguments("400")));
    assert_eq!(plan["coverage"], "exact");
    for key in ["messages", "broadcast_bytes", "peak_staged_bytes", "predicted_s", "plan_s"] {
        assert!(plan[key].as_f64().expect(key) > 0.0, "{key}");
    }
    let sum = |key: &str| -> u64 {
        plan[key].as_array().expect("numbers").iter().filter_map(Value::as_u64).sum()
    };
    assert_eq!(sum("per_target_bytes"), 256 * 35_963_015_104);
    assert_eq!(sum("per_source_bytes"), sum("per_target_bytes"));
    assert_eq!(sum("host_bytes_in"), 32 * 266_181_724_864);
    assert_eq!(sum("host_bytes_in"), sum("host_bytes_out"));
    assert!(plan["extra_buffer_bytes"]["source"].is_u64());
    let (predicted, bound) = (&plan["predicted_s"], &plan["lower_bound_s"]);
    assert!(predicted.as_f64() > bound.as_f64());
    // What a host's eight NICs of 50 GB/s need for its bytes, and hardly more.
    let alone = 266_181_724_864.0 / (8.0 * 400e9 / 8.0);
    let bound_s = bound.as_f64().expect("s");
    assert!((0.999 * alone..1.1 * alone).contains(&bound_s), "{alone} {bound_s}");
    // The parts of the update add up, and each names its figures; so does the machine.
    let parts = plan["update"].as_array().expect("parts");
    let names: Vec<&Value> = parts.iter().map(|part| &part["name"]).collect();
    assert_eq!(names, ["pause", "gather", "transfer", "install", "post-process"]);
    let all: f64 = parts.iter().filter_map(|part| part["seconds"].as_f64()).sum();
    assert!((all - predicted.as_f64().expect("s")).abs() < 1e-9, "{all} {predicted}");
    assert_eq!(plan["machine"]["name"], "h100-rdma");
    assert_eq!(
        plan["machine"]["nic"],
        serde_json::json!({"value": 50e9, "from": "given: --nic-gbps"})
    );
    assert!(plan["machine"]["ways"].as_str().is_some_and(|ways| ways.ends_with("not built")));
    let half = json(&weightcast(&arguments("200")));
    let ratio = half["lower_bound_s"].as_f64().expect("s") / bound.as_f64().expect("s");
    assert!((ratio - 2.0).abs() < 1e-9, "{ratio}");
    assert!(half["predicted_s"].as_f64() > predicted.as_f64());
}

struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_lock_is_written_checked_and_compared() {
    let scratch = std::env::temp_dir().join(format!("weightcast-lock-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).expect("a folder");
    let scratch = Scratch(scratch);
    let file = |name: &str| scratch.0.join(name).to_string_lossy().into_owned();
    let (a, b) = (file("a.lock"), file("b.lock"));
    let config = data("configs/qwen3-0.6b.json");
    let plan = |engine: &str, lock: &str| {
        let arguments = ["plan", "--config", &config, "--source", "fsdp2:dp=4", "--target", engine];
        weightcast(&[&arguments[..], &["--lock", lock]].concat())
    };
    assert!(plan("vllm:tp=2", &a).status.success());
    assert!(plan("vllm:tp=2", &a).status.success(), "the same plan again");
    let differs = error(&plan("vllm:tp=4", &a));
    assert!(differs.contains("target_layout") && differs.contains("per_target_bytes"), "{differs}");
    assert!(plan("vllm:tp=4", &b).status.success());
    assert!(error(&weightcast(&["plan", "diff", &a, &b])).contains("vllm:tp=2"));
    assert!(weightcast(&["plan", "diff", &a, &a]).status.success());
}

#[test]
fn a_tensor_is_explained() {
    let config = data("configs/qwen3-0.6b.json");
    let explain = |tensor: &str| {
        let sides = ["--source", "fsdp2:dp=3", "--target", "vllm:tp=16", "--tensor", tensor];
        weightcast(&[&["plan", "explain", "--config", &config, "--json"], &sides[..]].concat())
    };
    let found = json(&explain("model.layers.3.self_attn.k_proj.weight"));
    let rows = found.as_array().expect("routes");
    // Eight heads on sixteen ranks; rank 5 has head 2, whose rows are on two of the three sources.
    let of_five: Vec<&Value> = rows.iter().filter(|row| row["target"] == 5).collect();
    let slices: Vec<&Value> = of_five.iter().map(|row| &row["slice"]).collect();
    assert_eq!(slices, ["[256:342, 0:1024]", "[342:384, 0:1024]"]);
    let sources: Vec<&Value> = of_five.iter().map(|row| &row["source"]).collect();
    assert_eq!(sources, [0, 1]);
    assert_eq!(of_five[0]["parameter"], "model.layers.3.self_attn.qkv_proj.weight");
    let unknown = error(&explain("layers.3.self_attn.k_proj.weight"));
    assert!(unknown.contains("model.layers.3.self_attn.k_proj.weight"), "{unknown}");
}

#[test]
fn what_does_not_fit_is_said() {
    let config = data("configs/qwen2.5-0.5b.json");
    let sides = ["--source", "fsdp2:dp=4", "--target", "vllm:tp=4"];
    let output = weightcast(&[&["plan", "--config", &config, "--json"], &sides[..]].concat());
    let told = error(&output);
    assert!(told.contains("refuses 14 query heads on 4 ranks"), "{told}");
    assert!(told.contains("reaches no target rank"), "{told}");
    let plan: Value = serde_json::from_slice(&output.stdout).expect("the plan all the same");
    assert_ne!(plan["coverage"], "exact");
    let config = data("configs/gpt2.json");
    let told = error(&weightcast(&["layout", "--config", &config, "--spec", "vllm:tp=1"]));
    assert!(told.contains("transposed"), "{told}");
    let told =
        error(&weightcast(&["layout", "--config", &config, "--spec", "ddp:dp=2", "--rank", "2"]));
    assert!(told.contains("rank 2 is outside of the 2 ranks"), "{told}");
}

/// As a published four-bit checkpoint has it, in its config or beside it.
#[test]
fn a_checkpoint_in_an_unknown_form_is_refused() {
    let folder = std::env::temp_dir().join(format!("weightcast-form-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let scratch = Scratch(folder);
    let file = scratch.0.join("config.json");
    let text = std::fs::read_to_string(data("configs/qwen3-0.6b.json")).expect("a config");
    let mut config: Value = serde_json::from_str(&text).expect("JSON");
    let plan = |config: &Value| {
        std::fs::write(&file, config.to_string()).expect("a config");
        let sides = ["--source", "fsdp2:dp=4", "--target", "vllm:tp=2"];
        let config = file.to_string_lossy().into_owned();
        weightcast(&[&["plan", "--config", &config], &sides[..]].concat())
    };
    assert!(plan(&config).status.success());
    let beside = scratch.0.join("hf_quant_config.json");
    std::fs::write(&beside, r#"{"quantization": {"quant_algo": "NVFP4"}}"#).expect("a file");
    let told = error(&plan(&config));
    assert!(told.contains("hf_quant_config.json") && told.contains("live engine"), "{told}");
    std::fs::remove_file(&beside).expect("it is there");
    config["quantization_config"] = serde_json::json!({"quant_method": "awq", "bits": 4});
    let told = error(&plan(&config));
    assert!(told.contains("quantised by awq (4 bits)"), "{told}");
}

#[test]
fn a_prediction_names_its_machine() {
    let config = data("configs/qwen3-0.6b.json");
    let plan = |more: &[&str]| {
        let sides = ["--config", &config, "--source", "fsdp2:dp=4", "--target", "vllm:tp=2"];
        weightcast(&[&["plan"], &sides[..], more].concat())
    };
    let text = |more: &[&str]| String::from_utf8(plan(more).stdout).expect("text");
    let usual = text(&[]);
    assert!(usual.contains("on host-tcp: hosts of 8 ranks") && usual.contains("50 GB/s, guess:"));
    let given = text(&["--machine", "h100-tcp", "--nic-gbps", "8", "--gpus-per-host", "4"]);
    assert!(given.contains("on h100-tcp: hosts of 4 ranks") && given.contains("1 GB/s, given:"));
    let told = error(&plan(&["--machine", "a100"]));
    assert!(told.contains("known machines are host-tcp"), "{told}");
}

#[test]
fn a_reader_that_has_enough_is_no_error() {
    let config = data("configs/kimi-k2.json");
    let mut child = Command::new(env!("CARGO_BIN_EXE_weightcast"))
        .args(["layout", "--config", &config, "--spec", "vllm:tp=1", "--json"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it runs");
    drop(child.stdout.take());
    assert!(child.wait().expect("it ends").success());
}
