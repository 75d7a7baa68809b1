//! What a transfer takes, against a count of every element.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::elements::{
    Element, boxes, cluster, dense, elements, layers, scales, scenes, shapes, sparse, sum,
};
use serde_json::{Value, json};
use weightcast_fleet::Record;
use weightcast_fleet::model::{ModuleTensor, fill};
use weightcast_fleet::movement::{self, RankRoute};
use weightcast_plan::{DType, Slice};

#[test]
fn what_a_transfer_takes_is_what_counting_every_element_says() {
    for (config, trainer, engine, replicas, gpus) in scenes() {
        let at = format!("{trainer} to {engine}");
        let (source, target) = (cluster(&config, trainer), cluster(&config, engine));
        let plan = movement::plan(&source, &target, replicas, gpus).expect("a plan");
        assert_eq!(plan.defects, Vec::<String>::new(), "{at}");
        let shapes = shapes(target.model().expect("by rule"));
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
        assert!(plan.messages <= plan.copies && plan.of_busiest.1 <= plan.messages, "{at}");
        assert!(
            plan.of_busiest.0 <= plan.copies && plan.messages <= source.ranks() * ranks * replicas
        );
        // Boxes of which another type, or scales, are made before they are sent.
        let block = target.quantisation().map(|q| q.block);
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
        let block = target.quantisation().map(|q| q.block);
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

#[test]
fn names_that_were_meant_are_found() {
    let target = cluster(&sparse(json!({})), "vllm:tp=1");
    let near = movement::nearest_names(&target, "layers.1.mlp.experts.7.up_proj.weight");
    assert_eq!(near[0], "model.layers.1.mlp.experts.7.up_proj.weight");
    let scaled = |f: &weightcast_fleet::model::Family| f.member == ModuleTensor::Scale;
    assert!(!target.families().iter().any(scaled));
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
        for sent in [&plan.per_source, &plan.network_out] {
            let (least, most) = (sent.iter().min().expect("one"), sent.iter().max().expect("one"));
            assert!(most - least <= 3 << 19, "{dp} {replicas}: {sent:?}");
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
