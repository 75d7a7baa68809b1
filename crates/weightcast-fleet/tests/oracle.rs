//! Random models on random parallelisms: every element of every rank is filled once, by a rank that
//! has it, element by element.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};
use weightcast_fleet::model::{Config, ModelSpec, fill};
use weightcast_fleet::movement::{self, RankRoute};
use weightcast_fleet::{Cluster, Record};
use weightcast_plan::Slice;

/// Elements of a box as numbers in row-major order of the tensor.
fn elements(slice: &Slice, shape: &[u64]) -> Vec<u64> {
    let mut all = vec![0];
    for (dim, size) in shape.iter().enumerate() {
        let range = slice.start[dim]..slice.end(dim);
        all = all.iter().flat_map(|&e| range.clone().map(move |i| e * size + i)).collect();
    }
    all
}

type Filled = BTreeMap<(String, u64), Vec<u64>>;

/// For each tensor and element the ranks that hold it.
fn holders(cluster: &Cluster, shapes: &BTreeMap<String, Vec<u64>>) -> Filled {
    let mut held = Filled::new();
    for rank in 0..cluster.ranks() {
        for record in &cluster.layout(rank).expect("a layout").records {
            for (name, slice) in pieces(record) {
                let Some(shape) = shapes.get(&name) else { continue };
                for element in elements(&slice, shape) {
                    held.entry((name.clone(), element)).or_default().push(rank);
                }
            }
        }
    }
    held
}

fn pieces(record: &Record) -> Vec<(String, Slice)> {
    let layers: Vec<Option<u64>> = match record.layers {
        None => vec![None],
        Some((first, last)) => (first..=last).map(Some).collect(),
    };
    let of = |layer: &Option<u64>| {
        let layer = *layer;
        let pieces = record.pieces.iter();
        pieces.map(move |p| (fill(&p.tensor, layer, None), p.slice.clone())).collect::<Vec<_>>()
    };
    layers.iter().flat_map(of).collect()
}

fn dense(heads: u64, groups: u64, layers: u64, vocabulary: u64, tied: bool) -> Value {
    json!({
        "model_type": "qwen3", "dtype": "bfloat16", "vocab_size": vocabulary, "hidden_size": 12,
        "intermediate_size": 24, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": groups, "head_dim": 2, "tie_word_embeddings": tied,
        "attention_bias": vocabulary.is_multiple_of(2),
    })
}

fn sparse(experts: u64, shared: u64, latent: bool, layers: u64) -> Value {
    let mut config = json!({
        "model_type": "deepseek_v3", "dtype": "bfloat16", "vocab_size": 50, "hidden_size": 12,
        "intermediate_size": 24, "num_hidden_layers": layers, "num_attention_heads": 8,
        "num_key_value_heads": 8, "kv_lora_rank": 6, "qk_nope_head_dim": 3, "qk_rope_head_dim": 2,
        "v_head_dim": 2, "n_routed_experts": experts, "n_shared_experts": shared,
        "moe_intermediate_size": 16, "n_group": 2, "first_k_dense_replace": 1, "topk_method": "noaux_tc",
    });
    if latent {
        config["q_lora_rank"] = json!(5);
    }
    config
}

fn models() -> impl Strategy<Value = Value> {
    let dense = (0..4usize, 0..3usize, 1..4u64, 30..90u64, any::<bool>()).prop_map(
        |(heads, groups, layers, vocabulary, tied)| {
            let (heads, groups) = ([8, 8, 16, 8][heads], [2, 4, 8][groups]);
            dense(heads, groups, layers, vocabulary, tied)
        },
    );
    let sparse = (0..5usize, 0..2u64, any::<bool>(), 2..4u64).prop_map(
        |(experts, shared, latent, layers)| {
            sparse([8, 16, 24, 10, 14][experts], shared, latent, layers)
        },
    );
    prop_oneof![dense, sparse]
}

fn trainers() -> impl Strategy<Value = String> {
    let two = || prop_oneof![Just(1u64), Just(2), Just(4)];
    prop_oneof![
        (1..6u64).prop_map(|dp| format!("fsdp2:dp={dp}")),
        (1..4u64, two()).prop_map(|(dp, tp)| format!("fsdp2:dp={dp},tp={tp}")),
        (1..3u64, 1..4u64).prop_map(|(r, s)| format!("hsdp:replicate={r},shard={s}")),
        (1..3u64).prop_map(|dp| format!("ddp:dp={dp}")),
        (1..4u64, two()).prop_map(|(fsdp, ep)| format!("fsdp_ep:fsdp={fsdp},ep={ep}")),
        (two(), two(), 1..3u64, 1..3u64).prop_map(|(tp, ep, etp, cp)| format!(
            "megatron:tp={tp},ep={ep},etp={etp},cp={cp},dp={},vocab_multiple=4",
            ep * etp
        )),
    ]
}

fn engines() -> impl Strategy<Value = String> {
    let two = || prop_oneof![Just(1u64), Just(2), Just(4), Just(8)];
    prop_oneof![
        two().prop_map(|tp| format!("vllm:tp={tp}")),
        two().prop_map(|tp| format!("vllm:tp={tp},ep={tp}")),
        two().prop_map(|tp| format!("vllm:tp={tp},dp=2,ep={},placement=round_robin", 2 * tp)),
        two().prop_map(|tp| format!("sglang:tp={tp},ep={tp},redundant={tp}")),
        two().prop_map(|tp| format!("sglang:tp={tp},attn_dp={tp},moe_dense_tp=1,shared_tp=1")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn every_element_is_filled_once_by_who_has_it(
        config in models(), trainer in trainers(), engine in engines()
    ) {
        let model = Config::parse(&config.to_string()).and_then(|c| ModelSpec::of(&c)).expect("a model");
        let cluster = |spec: &str| Cluster::new(&model, &spec.parse().expect("a spec"));
        let source = cluster(&trainer).expect("a trainer");
        let target = cluster(&engine).expect("an engine");
        // Some degrees do not divide these sizes; then both say so.
        let both = source.layout(0).and_then(|_| target.layout(0));
        prop_assume!(both.is_ok());
        let shapes: BTreeMap<String, Vec<u64>> = model.families.iter()
            .flat_map(|f| f.names().map(|name| (name, f.shape.clone())))
            .collect();
        let held = holders(&source, &shapes);
        let plan = movement::plan(&source, &target, 2, 4).expect("a plan");
        prop_assert_eq!(plan.defects, Vec::<String>::new());
        for rank in 0..target.ranks() {
            let layout = target.layout(rank).expect("a layout");
            let routes = movement::routes(&source, &target, Some(rank), None).expect("routes");
            let mut filled: BTreeMap<(String, u64), u64> = BTreeMap::new();
            for RankRoute { tensor, slice, source, .. } in &routes {
                for element in elements(slice, &shapes[tensor]) {
                    let at = (tensor.clone(), element);
                    prop_assert!(held[&at].contains(&u64::from(*source)), "{} of {}", element, tensor);
                    *filled.entry(at).or_default() += 1;
                }
            }
            let mut wanted: BTreeMap<(String, u64), u64> = BTreeMap::new();
            for (name, slice) in layout.records.iter().flat_map(pieces) {
                for element in elements(&slice, &shapes[&name]) {
                    *wanted.entry((name.clone(), element)).or_default() += 1;
                }
            }
            prop_assert_eq!(&filled, &wanted, "rank {}", rank);
            let bytes: u64 = routes.iter().map(|route| route.bytes).sum();
            for replica in 0..2 {
                let at = (replica * target.ranks() + rank) as usize;
                prop_assert_eq!(plan.per_target[at], bytes);
            }
        }
        let sent: u64 = plan.per_source.iter().sum();
        prop_assert_eq!(sent, plan.per_target.iter().sum::<u64>());
        prop_assert_eq!(plan.network_out.iter().sum::<u64>(), plan.host_in.iter().sum::<u64>());
        // The plan is a schedule, so its busiest NIC carries no less than the least.
        let most = |bytes: &[u64]| bytes.iter().copied().max().unwrap_or(0) as f64;
        prop_assert!(plan.least.out <= most(&plan.network_out) && plan.least.into <= most(&plan.network_in));
        prop_assert!(plan.least_direct.out <= most(&plan.per_source));
        prop_assert!(plan.least_direct.into <= most(&plan.per_target));
    }
}
