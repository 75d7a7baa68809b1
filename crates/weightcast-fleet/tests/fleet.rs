//! What a transfer takes, against a count of every element.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use weightcast_fleet::model::{Config, ModelSpec, ModuleTensor, fill};
use weightcast_fleet::movement::{self, Cost, FleetPlan, Hardware, RankRoute};
use weightcast_fleet::{Cluster, Record};
use weightcast_plan::{DType, Slice};

fn with(mut config: Value, changes: &Value) -> Value {
    for (key, value) in changes.as_object().expect("changes") {
        config[key] = value.clone();
    }
    config
}

fn dense(changes: Value) -> Value {
    let config = json!({
        "model_type": "qwen3", "dtype": "bfloat16", "vocab_size": 70, "hidden_size": 12,
        "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 2,
    });
    with(config, &changes)
}

fn sparse(changes: Value) -> Value {
    let config = json!({
        "model_type": "deepseek_v3", "dtype": "bfloat16", "vocab_size": 50, "hidden_size": 12,
        "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 8,
        "num_key_value_heads": 8, "kv_lora_rank": 6, "qk_nope_head_dim": 3, "qk_rope_head_dim": 2,
        "v_head_dim": 2, "n_routed_experts": 8, "n_shared_experts": 1, "moe_intermediate_size": 16,
        "n_group": 2, "first_k_dense_replace": 1, "topk_method": "noaux_tc",
    });
    with(config, &changes)
}

fn cluster(config: &Value, spec: &str) -> Cluster {
    let model =
        Config::parse(&config.to_string()).and_then(|c| ModelSpec::of(&c)).expect("a model");
    Cluster::new(&model, &spec.parse().expect("a spec")).expect("a cluster")
}

/// What there is to move, from whom, to whom, and on what hosts.
fn scenes() -> Vec<(Value, &'static str, &'static str, u64, u64)> {
    vec![
        (dense(json!({})), "ddp:dp=2", "vllm:tp=2", 2, 4),
        (dense(json!({})), "fsdp2:dp=3", "vllm:tp=1,dp=4", 2, 8),
        (dense(json!({"tie_word_embeddings": true})), "fsdp2:dp=3,tp=2", "sglang:tp=4", 1, 2),
        (dense(json!({})), "hsdp:replicate=2,shard=3", "vllm:tp=8", 1, 3),
        (
            dense(json!({})),
            "megatron:tp=2,pp=3,dp=2,vocab_multiple=4",
            "sglang:tp=4,attn_dp=2",
            3,
            4,
        ),
        (dense(json!({})), "fsdp2:dp=2,dtype=fp32", "vllm:tp=2", 1, 1),
        (sparse(json!({})), "fsdp_ep:fsdp=2,ep=4", "vllm:tp=4,ep=4", 2, 8),
        (sparse(json!({})), "megatron:tp=2,ep=2,dp=2,vocab_multiple=4", "sglang:tp=4,ep=2", 2, 4),
        (sparse(json!({})), "fsdp2:dp=4", "vllm:tp=2,ep=2,quant=fp8,block=4", 2, 2),
        (sparse(json!({})), "fsdp2:dp=5", "sglang:tp=2,quant=fp8,block=2,redundant=2,ep=2", 1, 2),
    ]
}

type Element = (String, u64);

/// Elements of a box as numbers in row-major order of the tensor.
fn elements(slice: &Slice, shape: &[u64]) -> Vec<u64> {
    let mut all = vec![0];
    for (dim, size) in shape.iter().enumerate() {
        let range = slice.start[dim]..slice.end(dim);
        all = all.iter().flat_map(|&e| range.clone().map(move |i| e * size + i)).collect();
    }
    all
}

fn layers(record: &Record) -> Vec<Option<u64>> {
    match record.layers {
        None => vec![None],
        Some((first, last)) => (first..=last).map(Some).collect(),
    }
}

/// The boxes of a rank: tensor, box, local type.
fn boxes(cluster: &Cluster, rank: u64) -> Vec<(String, Slice, DType)> {
    let mut boxes = Vec::new();
    for record in &cluster.layout(rank).expect("a layout").records {
        for layer in layers(record) {
            let piece = |p: &weightcast_fleet::ParameterPiece| {
                (fill(&p.tensor, layer, None), p.slice.clone(), record.dtype)
            };
            boxes.extend(record.pieces.iter().map(piece));
        }
    }
    boxes
}

fn shapes(model: &ModelSpec) -> BTreeMap<String, Vec<u64>> {
    let of = |f: &weightcast_fleet::model::Family| {
        f.names().map(|name| (name, f.shape.clone())).collect::<Vec<_>>()
    };
    model.families.iter().flat_map(of).collect()
}

/// The blocks whose first element is in a box of a weight.
fn scales(slice: &Slice, block: (u64, u64)) -> Slice {
    let of = |dim: usize, side: u64| {
        let starts = (0..slice.end(dim)).filter(|at| at % side == 0 && *at >= slice.start[dim]);
        let blocks: Vec<u64> = starts.map(|at| at / side).collect();
        (blocks.first().copied().unwrap_or(0), blocks.len() as u64)
    };
    let (rows, columns) = (of(0, block.0), of(1, block.1));
    Slice::new([rows.0, columns.0], [rows.1, columns.1])
}

fn sum(bytes: &[u64]) -> u64 {
    bytes.iter().sum()
}

#[test]
fn what_a_transfer_takes_is_what_counting_every_element_says() {
    for (config, trainer, engine, replicas, gpus) in scenes() {
        let at = format!("{trainer} to {engine}");
        let (source, target) = (cluster(&config, trainer), cluster(&config, engine));
        let plan = movement::plan(&source, &target, replicas, gpus).expect("a plan");
        assert_eq!(plan.defects, Vec::<String>::new(), "{at}");
        let shapes = shapes(target.model());
        // Everything that a host needs, once; everything that a rank holds.
        let ranks = target.ranks();
        let mut needed: BTreeMap<u64, BTreeMap<Element, u64>> = BTreeMap::new();
        let mut types: BTreeMap<String, DType> = BTreeMap::new();
        let mut each = vec![0; (ranks * replicas) as usize];
        for rank in 0..ranks {
            for (name, slice, dtype) in boxes(&target, rank) {
                types.insert(name.clone(), dtype);
                for element in elements(&slice, &shapes[&name]) {
                    for replica in 0..replicas {
                        let to = replica * ranks + rank;
                        each[to as usize] += dtype.bits() / 8;
                        let of_host = needed.entry(to / gpus).or_default();
                        of_host.insert((name.clone(), element), dtype.bits() / 8);
                    }
                }
            }
        }
        assert_eq!(plan.per_target, each, "{at}");
        let entering: Vec<u64> = needed.values().map(|of_host| of_host.values().sum()).collect();
        assert_eq!(plan.host_in, entering, "{at}");
        let whole: u64 = types
            .iter()
            .map(|(name, dtype)| shapes[name].iter().product::<u64>() * dtype.bits() / 8)
            .sum();
        assert_eq!(plan.broadcast, whole, "{at}");
        // Who sends what is sent; who receives what enters his host.
        assert_eq!(sum(&plan.per_source), sum(&each), "{at}");
        assert_eq!(sum(&plan.network_out), sum(&entering), "{at}");
        let hosts = |bytes: &[u64]| -> Vec<u64> { bytes.chunks(gpus as usize).map(sum).collect() };
        assert_eq!(plan.host_out, hosts(&plan.network_out), "{at}");
        assert_eq!(plan.host_in, hosts(&plan.network_in), "{at}");
        assert!(plan.network_in.iter().zip(&each).all(|(over, all)| over <= all), "{at}");
        for (bound, sent) in
            [(plan.bound_out, &plan.per_source), (plan.bound_network_out, &plan.network_out)]
        {
            let mean = sum(sent) as f64 / sent.len() as f64;
            let most = sent.iter().copied().max().expect("one") as f64;
            assert!(bound >= mean && bound <= most, "{at}: {bound} of {sent:?}");
        }
        assert!(plan.messages <= plan.copies && plan.of_busiest.1 <= plan.messages, "{at}");
        assert!(
            plan.of_busiest.0 <= plan.copies && plan.messages <= source.ranks() * ranks * replicas
        );
        // Boxes of which another type, or scales, are made before they are sent.
        let block = target.model().quantisation.as_ref().map(|q| q.block);
        let mut made: BTreeSet<(String, Slice)> = BTreeSet::new();
        let mut largest = 0;
        for rank in 0..source.ranks() {
            for (name, slice, dtype) in boxes(&source, rank) {
                let scale = format!("{name}_scale_inv");
                if let Some(block) = block.filter(|_| types.contains_key(&scale)) {
                    let slice = scales(&slice, block);
                    largest = largest.max(slice.volume() * 4);
                    made.insert((scale, slice));
                }
                if types[&name] != dtype {
                    largest = largest.max(slice.volume() * types[&name].bits() / 8);
                    made.insert((name, slice));
                }
            }
        }
        let bytes: u64 =
            made.iter().map(|(name, slice)| slice.volume() * types[name].bits() / 8).sum();
        assert_eq!((plan.converted, plan.largest_converted), (bytes, largest), "{at}");
    }
}

#[test]
fn routes_fill_every_parameter_from_the_least_loaded_holder() {
    for (config, trainer, engine, ..) in scenes() {
        let (source, target) = (cluster(&config, trainer), cluster(&config, engine));
        let routes = movement::routes(&source, &target, None, None).expect("routes");
        let mut sent: BTreeMap<u32, u64> = BTreeMap::new();
        let block = target.model().quantisation.as_ref().map(|q| q.block);
        let mut holds: BTreeMap<(u32, String), Vec<Slice>> = BTreeMap::new();
        for rank in 0..source.ranks() {
            for (name, slice, _) in boxes(&source, rank) {
                if let Some(block) = block.filter(|_| slice.ndim() == 2) {
                    let made = (rank as u32, format!("{name}_scale_inv"));
                    holds.entry(made).or_default().push(scales(&slice, block));
                }
                holds.entry((rank as u32, name)).or_default().push(slice);
            }
        }
        let mut ranks: BTreeMap<u32, Vec<Record>> = BTreeMap::new();
        for rank in 0..target.ranks() {
            ranks.insert(rank as u32, target.layout(rank).expect("a layout").records);
        }
        for route in &routes {
            let RankRoute { tensor, slice, .. } = route;
            let has = |rank: &u32| {
                let held = holds.get(&(*rank, tensor.clone()));
                held.is_some_and(|held| held.iter().any(|h| h.contains(slice)))
            };
            let all: Vec<u32> = (0..source.ranks() as u32).filter(has).collect();
            assert!(route.sources.iter().all(|rank| all.contains(rank)), "{route:?}");
            let load = |rank: &u32| sent.get(rank).copied().unwrap_or(0);
            let least = route.sources.iter().map(load).min().expect("a source");
            assert!(route.sources.contains(&route.source) && load(&route.source) == least);
            // The piece that it is part of.
            let lies = |record: &&Record| {
                let of = |layer: &Option<u64>| fill(&record.name, *layer, None) == route.parameter;
                let layer = layers(record).into_iter().find(of);
                let piece = |p: &weightcast_fleet::ParameterPiece| {
                    let name = fill(&p.tensor, layer.flatten(), None);
                    let at = (p.target_start, p.target_index);
                    name == *tensor
                        && at == (route.target_start, route.expert)
                        && p.slice.contains(slice)
                };
                layer.is_some() && record.pieces.iter().any(piece)
            };
            let record = ranks[&route.target].iter().find(lies).expect("its parameter");
            assert_eq!(route.bytes, slice.volume() * record.dtype.bits() / 8);
            *sent.entry(route.source).or_default() += route.bytes;
        }
        // Of one tensor, or of one rank: the same boxes.
        let told = |route: &RankRoute| (route.tensor.clone(), route.slice.clone(), route.target);
        let (name, rank) = (&routes[routes.len() / 2].tensor, routes[routes.len() / 2].target);
        let of = |rank, name| -> Vec<_> {
            let routes = movement::routes(&source, &target, rank, name).expect("routes");
            routes.iter().map(told).collect()
        };
        let mine = |keep: &dyn Fn(&RankRoute) -> bool| -> Vec<_> {
            routes.iter().filter(|route| keep(route)).map(told).collect()
        };
        assert_eq!(of(None, Some(name)), mine(&|route| route.tensor == *name));
        assert_eq!(of(Some(rank.into()), None), mine(&|route| route.target == rank));
        assert_eq!(
            of(Some(rank.into()), Some(name)),
            mine(&|route| route.target == rank && route.tensor == *name)
        );
    }
}

/// Where all ranks of a host need the same, they share what comes over the network.
#[test]
fn no_rank_of_a_host_receives_more_than_its_share_and_one_box() {
    for (config, largest) in [(dense(json!({})), 70 * 12 * 2), (sparse(json!({})), 50 * 12 * 2)] {
        for (dp, replicas, gpus) in [(4, 1, 4), (1, 8, 8), (4, 2, 2), (2, 3, 6)] {
            let source = cluster(&config, "fsdp2:dp=3");
            let target = cluster(&config, &format!("vllm:tp=1,dp={dp}"));
            let plan = movement::plan(&source, &target, replicas, gpus).expect("a plan");
            // With experts over dp each rank holds its own; the rest is the same for all.
            let same = dp == 1 || config["model_type"] == "qwen3";
            for (host, received) in plan.network_in.chunks(gpus as usize).enumerate() {
                let most = *received.iter().max().expect("ranks");
                let share = plan.host_in[host] / gpus;
                assert!(most <= share + largest || !same, "{dp} {replicas} {gpus}: {received:?}");
                assert!(received.iter().all(|&bytes| bytes > 0), "{received:?}");
            }
        }
    }
}

#[test]
fn what_cannot_be_moved_is_a_defect() {
    let defects = |config: &Value, trainer, engine| {
        let plan = movement::plan(&cluster(config, trainer), &cluster(config, engine), 1, 8);
        plan.expect("a plan").defects
    };
    let draft = sparse(json!({"num_nextn_predict_layers": 1}));
    assert!(defects(&draft, "ddp:dp=1,mtp=1", "vllm:tp=1,mtp=1").is_empty());
    assert!(defects(&draft, "ddp:dp=1", "vllm:tp=1").is_empty());
    let missing = defects(&draft, "ddp:dp=1", "vllm:tp=1,mtp=1");
    assert!(missing.len() == 8 && missing[0].ends_with("is held by no source"), "{missing:?}");
    let lost = defects(&draft, "ddp:dp=1,mtp=1", "vllm:tp=1");
    assert!(!lost.is_empty() && lost.len() <= 8);
    assert!(lost.iter().all(|d| d.contains("eh_proj") || d.ends_with("taken by no target rank")));
    // Six heads on four ranks: two are on none.
    let heads = dense(json!({"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16}));
    let none = defects(&heads, "ddp:dp=1", "vllm:tp=4");
    assert_eq!(
        none,
        [0, 1, 2].map(|layer| {
            format!(
                "model.layers.{layer}.self_attn.q_proj.weight [64:96, 0:12] reaches no target rank"
            )
        })[..1]
            .to_vec()
    );
    let warned = movement::plan(&cluster(&heads, "ddp:dp=1"), &cluster(&heads, "vllm:tp=4"), 1, 8);
    assert_eq!(warned.expect("a plan").warnings.len(), 1);
    // Scales of a checkpoint are not missed by who holds it unquantised.
    let scaled = dense(json!({"quantization_config": {
        "quant_method": "fp8", "weight_block_size": [4, 4] }}));
    assert!(defects(&scaled, "ddp:dp=1", "vllm:tp=1,quant=none").is_empty());
}

/// A plan in which nothing is moved.
fn nothing() -> FleetPlan {
    FleetPlan {
        per_target: vec![0; 4],
        per_source: vec![0; 2],
        host_in: vec![0; 2],
        host_out: vec![0],
        network_out: vec![0; 2],
        network_in: vec![0; 4],
        copies: 0,
        messages: 0,
        of_busiest: (0, 0),
        broadcast: 0,
        largest_converted: 0,
        converted: 0,
        bound_network_out: 0.0,
        bound_out: 0.0,
        defects: Vec::new(),
        warnings: Vec::new(),
    }
}

/// `predicted = fill + max(send, receive, convert, copy) + messages`, each stage by itself.
#[test]
fn the_slowest_stage_makes_the_time() {
    const GB: u64 = 1_000_000_000;
    let machines = Hardware { gpus_per_host: 2, nic: 50e9, budget: 100 * GB };
    let cost = |plan: &FleetPlan| Cost::of(plan, &machines);
    let near = |found: f64, wanted: f64| {
        assert!((found - wanted).abs() <= 1e-9 * wanted.abs(), "{found}, not {wanted}");
    };
    near(cost(&nothing()).predicted, 0.0);
    // The busiest rank at 95 % of its NIC.
    let send = FleetPlan { network_out: vec![19 * GB, 95 * GB], ..nothing() };
    near(cost(&send).predicted, 2.0);
    let receive = FleetPlan {
        network_in: vec![GB, 95 * GB, 0, 0],
        per_target: vec![GB, 95 * GB, 0, 0],
        ..nothing()
    };
    near(cost(&receive).predicted, 2.0);
    near(cost(&receive).lower_bound_direct, 95.0 / 50.0);
    // What does not come over the network is copied within the host, at 150 GB/s.
    let copied = FleetPlan {
        network_in: vec![GB, 0, 0, GB],
        per_target: vec![GB, 0, 30 * GB, 31 * GB],
        ..nothing()
    };
    near(cost(&copied).predicted, 0.2);
    // All sources convert at once, 1 TB/s each.
    let converted = FleetPlan { converted: 4_000 * GB, ..nothing() };
    near(cost(&converted).predicted, 2.0);
    // Stages overlap; the first piece fills them, and messages cost besides.
    let all = FleetPlan {
        network_out: vec![0, 95 * GB],
        converted: 1_000 * GB,
        largest_converted: 10 * GB,
        of_busiest: (3_000_000, 50_000),
        ..nothing()
    };
    near(cost(&all).predicted, 10.0 / 1_000.0 + 2.0 + 0.3 + 0.1);
    assert_eq!(cost(&all).peak_staged, 20 * GB);
    let tight = Hardware { budget: 8 * GB, ..machines };
    assert_eq!(Cost::of(&all, &tight).peak_staged, 8 * GB);
    near(Cost::of(&all, &tight).predicted, 4.0 / 1_000.0 + 2.0 + 0.3 + 0.1);
    // No routing beats the busiest host's NICs together, nor what one source must send.
    let host = FleetPlan {
        host_in: vec![100 * GB, 300 * GB],
        bound_network_out: 1e9,
        bound_out: 60e9,
        ..nothing()
    };
    near(cost(&host).lower_bound, 3.0);
    near(cost(&host).lower_bound_direct, 60.0 / 50.0);
    let source = FleetPlan { bound_network_out: 200e9, ..host };
    near(cost(&source).lower_bound, 4.0);
}

#[test]
fn names_that_were_meant_are_found() {
    let target = cluster(&sparse(json!({})), "vllm:tp=1");
    let near = movement::nearest_names(&target, "layers.1.mlp.experts.7.up_proj.weight");
    assert_eq!(near[0], "model.layers.1.mlp.experts.7.up_proj.weight");
    let model = target.model();
    let scaled = |f: &weightcast_fleet::model::Family| f.member == ModuleTensor::Scale;
    assert!(!model.families.iter().any(scaled));
}

/// A source's bytes go in pieces of one in 64 of its share, so a large version is not cut into
/// megabytes.
#[test]
fn pieces_grow_with_what_each_source_has_to_send() {
    let config = dense(json!({
        "vocab_size": 200_000, "hidden_size": 4_096, "intermediate_size": 1_024,
        "num_hidden_layers": 1,
    }));
    let (dp, replicas) = (2, 1);
    let (source, target) = (cluster(&config, "ddp:dp=2"), cluster(&config, "vllm:tp=1"));
    let plan = movement::plan(&source, &target, replicas, 1).expect("a plan");
    let tensors: Vec<u64> =
        boxes(&target, 0).iter().map(|(_, s, d)| s.volume() * d.bits() / 8).collect();
    let piece = sum(&tensors) / dp / 64;
    assert!(piece > 8 << 20 && tensors.iter().any(|&bytes| bytes > piece));
    assert!(tensors.iter().any(|&bytes| bytes > 1 << 20 && bytes < piece));
    let pieces = |bytes: &u64| bytes.div_ceil(piece).min(4 * dp);
    assert_eq!(plan.copies, tensors.iter().map(pieces).sum::<u64>());
}

/// Sources that all have everything share what they send, in pieces of a megabyte at least.
#[test]
fn copies_of_a_source_share_what_is_sent() {
    let config = dense(json!({"vocab_size": 20_000, "hidden_size": 256, "num_hidden_layers": 1}));
    for (dp, replicas, gpus) in [(1, 1, 1), (2, 1, 1), (4, 1, 1), (3, 4, 2), (4, 3, 8)] {
        let (source, target) =
            (cluster(&config, &format!("ddp:dp={dp}")), cluster(&config, "vllm:tp=1"));
        let plan = movement::plan(&source, &target, replicas, gpus).expect("a plan");
        for (sent, bound) in
            [(&plan.per_source, plan.bound_out), (&plan.network_out, plan.bound_network_out)]
        {
            let (least, most) = (sent.iter().min().expect("one"), sent.iter().max().expect("one"));
            assert!(most - least <= 3 << 19, "{dp} {replicas}: {sent:?}");
            assert!((bound - sum(sent) as f64 / dp as f64).abs() < 1.0, "{bound} of {sent:?}");
        }
        // A message for each of a source's targets; the busiest has as many as any.
        let targets = replicas.min(replicas * gpus);
        assert!(plan.messages <= dp * targets && plan.messages >= replicas.div_ceil(gpus));
        assert!(plan.of_busiest.0 * dp >= plan.copies && plan.of_busiest.1 * dp >= plan.messages);
    }
    // Equal loads: each target begins at another source.
    let small = dense(json!({}));
    let (source, target) = (cluster(&small, "ddp:dp=4"), cluster(&small, "vllm:tp=4"));
    let first =
        |rank| movement::routes(&source, &target, Some(rank), None).expect("routes")[0].source;
    assert_eq!([first(0), first(1), first(2), first(3)], [0, 1, 2, 3]);
}
