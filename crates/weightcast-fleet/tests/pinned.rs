//! Layouts and transfers of drawn options, as they were when they were written down: what a rule gives, or says in
//! refusing. A line that changes says that a rule does, not that it is wrong: `make pin` writes the new ones down,
//! if all of the difference is meant.

use std::fmt::Write;

use crate::common::folder;
use weightcast_fleet::Cluster;
use weightcast_fleet::model::{Config, ModelSpec};
use weightcast_fleet::movement::{self, AssumedMachine, Cost};

const WRITTEN: &str = include_str!("pinned.txt");
const LAYOUTS: usize = 1_000;
const FLEETS: usize = 300;
/// Ranks beyond which a layout of a real model takes too long for a test.
const MOST_RANKS: u64 = 64;

/// Numbers from a seed (splitmix64).
struct Lot(u64);

impl Lot {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    /// A spec with some of the options that its program has.
    fn spec(&mut self, programs: &[(&str, Options)]) -> String {
        let (name, options) = programs[self.below(programs.len())];
        let mut spec = String::from(name);
        let mut separator = ':';
        for (key, values) in options {
            if self.below(3) == 0 {
                let value = values[self.below(values.len())];
                write!(spec, "{separator}{key}={value}").expect("text");
                separator = ',';
            }
        }
        spec
    }
}

/// What a program's options may be.
type Options = &'static [(&'static str, &'static [&'static str])];

const DEGREE: &[&str] = &["1", "2", "3", "4", "8"];
const FEW: &[&str] = &["1", "2", "3"];
const FLAG: &[&str] = &["0", "1"];
const BLOCK: &[&str] = &["4", "64", "128"];
const QUANT: &[&str] = &["fp8", "none"];
const DTYPE: &[&str] = &["bf16", "fp16", "fp32"];

const ENGINES: &[(&str, Options)] = &[
    (
        "vllm",
        &[
            ("tp", DEGREE),
            ("dp", &["1", "2"]),
            ("ep", DEGREE),
            ("placement", &["linear", "round_robin"]),
            ("redundant", &["2", "8"]),
            ("quant", QUANT),
            ("block", BLOCK),
            ("mtp", FLAG),
        ],
    ),
    (
        "sglang",
        &[
            ("tp", DEGREE),
            ("ep", DEGREE),
            ("attn_dp", &["1", "2", "4"]),
            ("moe_dense_tp", &["1"]),
            ("shared_tp", &["1"]),
            ("redundant", &["2", "8"]),
            ("quant", QUANT),
            ("block", BLOCK),
            ("mtp", FLAG),
        ],
    ),
];

const TRAINERS: &[(&str, Options)] = &[
    ("ddp", &[("dp", DEGREE), ("dtype", DTYPE), ("mtp", FLAG)]),
    ("fsdp2", &[("dp", DEGREE), ("tp", DEGREE), ("dtype", DTYPE), ("mtp", FLAG)]),
    ("hsdp", &[("replicate", DEGREE), ("shard", DEGREE), ("dtype", DTYPE), ("mtp", FLAG)]),
    ("fsdp_ep", &[("fsdp", DEGREE), ("pp", FEW), ("ep", DEGREE), ("dtype", DTYPE), ("mtp", FLAG)]),
    (
        "megatron",
        &[
            ("tp", DEGREE),
            ("pp", DEGREE),
            ("cp", &["1", "2"]),
            ("ep", DEGREE),
            ("etp", &["1", "2"]),
            ("dp", &["1", "2"]),
            ("vocab_multiple", &["1", "4", "100"]),
            ("dtype", DTYPE),
            ("mtp", FLAG),
        ],
    ),
];

fn said(error: impl std::fmt::Display) -> String {
    format!("refused: {error}").replace('\n', " ")
}

fn cluster(model: &ModelSpec, spec: &str) -> Result<Cluster, String> {
    Cluster::new(model, &spec.parse().map_err(said)?).map_err(said)
}

fn layout(model: &ModelSpec, spec: &str) -> String {
    let layout = cluster(model, spec).and_then(|cluster| {
        if cluster.ranks() > MOST_RANKS {
            return Ok(format!("{} ranks", cluster.ranks()));
        }
        cluster.digest().map_err(said)
    });
    layout.unwrap_or_else(|refused| refused)
}

fn transfer(
    model: &ModelSpec,
    from: &str,
    to: &str,
    replicas: u64,
    hosts: u64,
) -> Result<String, String> {
    let (source, target) = (cluster(model, from)?, cluster(model, to)?);
    let plan = movement::plan(&source, &target, replicas, hosts).map_err(said)?;
    let machine = AssumedMachine { gpus_per_host: hosts, ..AssumedMachine::ALL[0] };
    let text = format!("{plan:?} {:?}", Cost::of(&plan, &machine, 1 << 20));
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Ok(format!("{hash:016x}"))
}

/// Models whose sizes divide by little, so that rules refuse, pad and repeat.
fn small() -> Vec<(&'static str, ModelSpec)> {
    let configs = [
        (
            "small-dense",
            r#"{"model_type": "qwen3", "dtype": "bfloat16", "vocab_size": 70, "hidden_size": 12,
            "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 8,
            "num_key_value_heads": 4, "head_dim": 2}"#,
        ),
        (
            "small-tied",
            r#"{"model_type": "llama", "dtype": "float32", "vocab_size": 64, "hidden_size": 16,
            "intermediate_size": 36, "num_hidden_layers": 4, "num_attention_heads": 6,
            "num_key_value_heads": 2, "head_dim": 4, "tie_word_embeddings": true}"#,
        ),
        (
            "small-sparse",
            r#"{"model_type": "deepseek_v3", "dtype": "bfloat16", "vocab_size": 50, "hidden_size": 12,
            "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 8,
            "num_key_value_heads": 8, "kv_lora_rank": 6, "qk_nope_head_dim": 3,
            "qk_rope_head_dim": 2, "v_head_dim": 2, "n_routed_experts": 8, "n_shared_experts": 1,
            "moe_intermediate_size": 16, "n_group": 2, "first_k_dense_replace": 1,
            "topk_method": "noaux_tc"}"#,
        ),
    ];
    let model = |text| ModelSpec::of(&Config::parse(text).expect("an object")).expect("a model");
    configs.map(|(name, text)| (name, model(text))).into()
}

fn now() -> String {
    let mut lot = Lot(7);
    let small = small();
    let mut models: Vec<(String, ModelSpec)> =
        small.iter().map(|(name, model)| (name.to_string(), model.clone())).collect();
    for (name, config) in folder("configs") {
        match Config::parse(&config.to_string()).and_then(|config| ModelSpec::of(&config)) {
            Ok(model) => models.push((name, model)),
            Err(refused) => panic!("{name}: {refused}"),
        }
    }
    let mut lines = String::new();
    for at in 0..LAYOUTS {
        let (name, model) = &models[lot.below(models.len())];
        let spec = lot.spec(if at % 2 == 0 { ENGINES } else { TRAINERS });
        writeln!(lines, "{name} {spec} {}", layout(model, &spec)).expect("text");
    }
    for _ in 0..FLEETS {
        let (name, model) = &small[lot.below(small.len())];
        let (from, to) = (lot.spec(TRAINERS), lot.spec(ENGINES));
        let (replicas, hosts) = (1 + lot.below(3) as u64, 1 + lot.below(8) as u64);
        let came = transfer(model, &from, &to, replicas, hosts).unwrap_or_else(|refused| refused);
        writeln!(lines, "{name} {from} -> {to} x {replicas} / {hosts} {came}").expect("text");
    }
    lines
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test may be asked to write; the crate may not")]
fn layouts_and_transfers_are_as_they_were() {
    let now = now();
    if let Some(file) = std::env::var_os("WEIGHTCAST_PIN") {
        return std::fs::write(file, now).expect("a file to pin to");
    }
    let other = WRITTEN.lines().zip(now.lines()).find(|(then, now)| then != now);
    assert_eq!(other, None, "a layout is another one than it was");
    assert_eq!(WRITTEN.lines().count(), now.lines().count(), "other options are drawn");
}
