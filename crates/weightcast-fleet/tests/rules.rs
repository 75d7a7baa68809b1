//! Rules of engines and trainers against slow and obvious statements of the same, over all ranks.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use weightcast_fleet::model::{Config, ConfigError, Family, ModelSpec, TensorRole, fill};
use weightcast_fleet::{Cluster, Record, RuleError};
use weightcast_plan::{DType, Slice};

fn with(mut config: Value, changes: Value) -> Value {
    for (key, value) in changes.as_object().expect("changes") {
        config[key] = value.clone();
    }
    config
}

/// Grouped queries, and experts where there are any.
fn heads(changes: Value) -> Value {
    let config = json!({
        "model_type": "qwen3_moe", "dtype": "bfloat16", "vocab_size": 50, "hidden_size": 12,
        "intermediate_size": 24, "num_hidden_layers": 4, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 2, "moe_intermediate_size": 8,
    });
    with(config, changes)
}

/// Latent attention with an indexer, shared experts and a draft layer.
fn latent(changes: Value) -> Value {
    let config = json!({
        "model_type": "deepseek_v3", "dtype": "bfloat16", "vocab_size": 50, "hidden_size": 12,
        "intermediate_size": 24, "num_hidden_layers": 4, "num_attention_heads": 8,
        "num_key_value_heads": 8, "q_lora_rank": 5, "kv_lora_rank": 6, "qk_nope_head_dim": 3,
        "qk_rope_head_dim": 2, "v_head_dim": 2, "n_routed_experts": 8, "n_shared_experts": 1,
        "moe_intermediate_size": 8, "n_group": 2, "first_k_dense_replace": 1,
        "topk_method": "noaux_tc", "num_nextn_predict_layers": 1, "index_n_heads": 2,
        "index_head_dim": 4,
    });
    with(config, changes)
}

fn model(config: &Value) -> Result<ModelSpec, ConfigError> {
    ModelSpec::of(&Config::parse(&config.to_string())?)
}

fn cluster(config: &Value, spec: &str) -> Result<Cluster, RuleError> {
    Cluster::new(&model(config)?, &spec.parse().expect("a spec"))
}

fn records(config: &Value, spec: &str) -> Vec<Vec<Record>> {
    let cluster = cluster(config, spec).expect("a cluster");
    let layout = |rank| cluster.layout(rank).unwrap_or_else(|e| panic!("{spec}: {e}")).records;
    (0..cluster.ranks()).map(layout).collect()
}

fn layers(record: &Record) -> Vec<Option<u64>> {
    match record.layers {
        None => vec![None],
        Some((first, last)) => (first..=last).map(Some).collect(),
    }
}

/// The published boxes of a rank.
fn boxes(records: &[Record]) -> Vec<(String, Slice)> {
    let of = |record: &Record| -> Vec<(String, Slice)> {
        let piece = |layer| {
            let name = move |p: &weightcast_fleet::ParameterPiece| {
                (fill(&p.tensor, layer, None), p.slice.clone())
            };
            record.pieces.iter().map(name)
        };
        layers(record).into_iter().flat_map(piece).collect()
    };
    records.iter().flat_map(of).collect()
}

/// The experts of a rank, by their numbers.
fn experts(records: &[Record]) -> Vec<u64> {
    let down = records.iter().find(|r| r.name.ends_with("w2_weight")).expect("experts");
    assert_eq!(down.shape[0], down.pieces.len() as u64, "a slot for each");
    let slots = down.pieces.iter().map(|piece| piece.target_index.expect("a slot"));
    assert!(slots.eq(0..down.shape[0]));
    let number = |name: &str| name.split('.').nth(5).and_then(|n| n.parse().ok()).expect("one");
    down.pieces.iter().map(|piece| number(&piece.tensor)).collect()
}

#[test]
fn over_all_ranks_each_expert_is_held_once_whatever_their_number() {
    for count in 1..24u64 {
        for ranks in 1..9u64 {
            let spec = format!("vllm:tp=1,dp={ranks},ep={ranks}");
            let held = |groups: u64, keys: &str| -> Vec<Vec<u64>> {
                let config = latent(json!({
                    "n_routed_experts": count, "n_group": groups, "index_n_heads": null,
                }));
                records(&config, &format!("{spec}{keys}")).iter().map(|r| experts(r)).collect()
            };
            if ranks == 1 {
                assert_eq!(held(2, ""), [(0..count).collect::<Vec<_>>()]);
                continue;
            }
            // One after the other; the first ranks have one more where they do not divide.
            let linear = held(2, "");
            assert!(linear.iter().flatten().copied().eq(0..count), "{count} {ranks}: {linear:?}");
            let sizes: Vec<usize> = linear.iter().map(Vec::len).collect();
            assert!(sizes.is_sorted_by(|a, b| a >= b) && sizes[0] - sizes[sizes.len() - 1] <= 1);
            // Dealt round: expert by expert to rank after rank.
            let mut dealt = vec![Vec::new(); ranks as usize];
            (0..count).for_each(|expert| dealt[(expert % ranks) as usize].push(expert));
            assert_eq!(held(2, ",placement=round_robin"), dealt, "{count} {ranks}");
            assert_eq!(held(1, ",placement=round_robin"), linear, "none in groups");
            // With redundant ones, the first have a second copy, numbered after all others.
            let redundant = ranks - count % ranks;
            let twice = held(1, &format!(",redundant={redundant}"));
            let physical = (0..count + redundant).map(|slot| slot % count);
            assert!(twice.iter().flatten().copied().eq(physical), "{count} {ranks}: {twice:?}");
            assert!(twice.iter().all(|mine| mine.len() == twice[0].len()));
            let uneven = format!("{spec},redundant={}", redundant + 1);
            let refused = cluster(&latent(json!({"n_routed_experts": count})), &uneven)
                .and_then(|cluster| cluster.layout(0));
            assert!(matches!(refused, Err(RuleError::Indivisible { .. })), "{uneven}");
        }
    }
}

#[test]
fn a_rank_has_the_keys_of_its_queries() {
    let mut refused = 0;
    for (heads_of, keys) in [(8, 8), (8, 4), (8, 2), (8, 1), (12, 4), (12, 3), (12, 6), (6, 2)] {
        for ranks in 1..13u64 {
            let config = heads(json!({
                "num_attention_heads": heads_of, "num_key_value_heads": keys, "vocab_size": 64 * 27_720,
                "intermediate_size": 27_720,
            }));
            let spec = format!("vllm:tp={ranks}");
            let divides = heads_of % ranks == 0 && (keys % ranks == 0 || ranks % keys == 0);
            let cluster = cluster(&config, &spec).expect("a cluster");
            let layout = |rank| cluster.layout(rank);
            if !divides {
                // Refused, or written down with a warning; never without a word.
                let told = layout(0).map_or(true, |layout| !layout.warnings.is_empty());
                assert!(told, "{heads_of} {keys} {ranks}");
                refused += 1;
                continue;
            }
            for rank in 0..ranks {
                let layout = layout(rank).expect("a layout");
                assert!(layout.warnings.is_empty());
                let of = |part: &str| -> Vec<u64> {
                    let rows = boxes(&layout.records).into_iter();
                    let mut rows = rows.filter(|(name, _)| {
                        name.ends_with(&format!("layers.0.self_attn.{part}.weight"))
                    });
                    let (_, slice) = rows.next().expect("a box");
                    assert!(
                        rows.next().is_none() && slice.start[0] % 2 == 0 && slice.len[0] % 2 == 0
                    );
                    (slice.start[0] / 2..slice.end(0) / 2).collect()
                };
                let each = heads_of / ranks;
                assert_eq!(of("q_proj"), (rank * each..(rank + 1) * each).collect::<Vec<_>>());
                let mut needed: Vec<u64> =
                    of("q_proj").iter().map(|query| query / (heads_of / keys)).collect();
                needed.dedup();
                assert_eq!((of("k_proj"), of("v_proj")), (needed.clone(), needed));
            }
        }
    }
    assert!(refused > 20);
}

/// What torch's chunks of a number of rows are.
fn chunk(rows: u64, index: u64, of: u64) -> (u64, u64) {
    let all: Vec<u64> = (0..rows).collect();
    let mut chunks = all.chunks(rows.div_ceil(of).max(1) as usize);
    match chunks.nth(index as usize) {
        Some(chunk) => (chunk[0], chunk.len() as u64),
        None => (rows, 0),
    }
}

/// What a rank of a trainer of torch has of a tensor: start and length along each dimension.
fn torch(spec: &str, degrees: [u64; 3], rank: u64, family: &Family) -> (Vec<u64>, Vec<u64>) {
    use TensorRole::*;
    let (mut start, mut len) = (vec![0; family.shape.len()], family.shape.clone());
    let mut cut = |dim: usize, index: u64, of: u64| {
        let (first, count) = chunk(len[dim], index, of);
        (start[dim], len[dim]) = (start[dim] + first, count);
    };
    let [a, b, c] = degrees;
    match spec {
        "ddp" => {}
        "hsdp" => cut(0, rank % b, b),
        "fsdp2" => {
            let is_bias = family.shape.len() == 1;
            let rows = matches!(
                family.role,
                Query
                    | Key
                    | Value
                    | QueryUp
                    | KeyValueUp
                    | DenseGate
                    | DenseUp
                    | DenseGateUp
                    | ExpertGate
                    | ExpertUp
                    | SharedGate
                    | SharedUp
                    | Embedding
                    | Head
            );
            let columns = matches!(family.role, Output | DenseDown | ExpertDown | SharedDown);
            if rows {
                cut(0, rank % b, b);
            } else if columns && !is_bias {
                cut(1, rank % b, b);
            }
            cut(0, rank / b, a);
        }
        "fsdp_ep" if family.experts > 0 => cut(0, rank / (b * c), a),
        "fsdp_ep" => cut(0, rank % c, c),
        other => panic!("{other}"),
    }
    (somewhere(start, &len), len)
}

/// What is empty is nowhere.
fn somewhere(start: Vec<u64>, len: &[u64]) -> Vec<u64> {
    if len.contains(&0) { vec![0; len.len()] } else { start }
}

#[test]
fn trainers_of_torch_have_the_chunks_that_torch_gives_them() {
    let dense = heads(json!({"model_type": "llama", "attention_bias": true, "mlp_bias": true}));
    let fused = heads(json!({"model_type": "glm4"}));
    let experts = heads(json!({"num_experts": 8}));
    for config in [dense, fused, experts, latent(json!({}))] {
        let model = model(&config).expect("a model");
        let draft_layer = model.layers();
        for (name, spec, degrees) in [
            ("ddp", "ddp:dp=2", [2, 1, 1]),
            ("hsdp", "hsdp:replicate=2,shard=3", [2, 3, 1]),
            ("fsdp2", "fsdp2:dp=3", [3, 1, 1]),
            ("fsdp2", "fsdp2:dp=5,tp=2", [5, 2, 1]),
            ("fsdp2", "fsdp2:dp=2,tp=4", [2, 4, 1]),
            ("fsdp_ep", "fsdp_ep:fsdp=2,pp=2,ep=2", [2, 2, 2]),
            ("fsdp_ep", "fsdp_ep:fsdp=3,pp=3,pp_layers=1+2+1,ep=4", [3, 3, 4]),
        ] {
            for draft in [false, true] {
                let text = if draft { format!("{spec},mtp=1") } else { spec.to_owned() };
                for (rank, records) in (0..).zip(records(&config, &text)) {
                    let stages = if name == "fsdp_ep" { degrees[1] } else { 1 };
                    let stage = rank / degrees[2] % stages;
                    let of_stage = |layer: u64| match (stages, layer) {
                        (1, _) => true,
                        (2, layer) => (layer >= 2) == (stage == 1),
                        (_, 0) => stage == 0,
                        (_, 1 | 2) => stage == 1,
                        _ => stage == 2,
                    };
                    let mut expected = BTreeMap::new();
                    for family in &model.families {
                        let layers: Vec<Option<u64>> = match family.layers.is_empty() {
                            true => vec![None],
                            false => {
                                family.layers.iter().flat_map(|&(a, b)| (a..=b).map(Some)).collect()
                            }
                        };
                        for layer in layers {
                            let here = match layer {
                                None if family.role == TensorRole::Embedding => stage == 0,
                                None => stage + 1 == stages,
                                Some(layer) if layer >= draft_layer => draft && stage + 1 == stages,
                                Some(layer) => of_stage(layer),
                            };
                            let mine = |expert: &u64| {
                                let each =
                                    if name == "fsdp_ep" { family.experts / degrees[2] } else { 8 };
                                family.experts == 0
                                    || name != "fsdp_ep"
                                    || expert / each == rank % degrees[2]
                            };
                            for expert in (0..family.experts.max(1)).filter(mine).filter(|_| here) {
                                let name_of = fill(&family.name, layer, Some(expert));
                                let (start, len) = torch(name, degrees, rank, family);
                                expected.insert(name_of, (start, len, family.dtype));
                            }
                        }
                    }
                    let mut found = BTreeMap::new();
                    for record in &records {
                        for layer in layers(record) {
                            let at = record.offset.clone().expect("a single box");
                            let told = (
                                somewhere(at.clone(), &record.shape),
                                record.shape.clone(),
                                record.dtype,
                            );
                            let again = found.insert(fill(&record.name, layer, None), told);
                            assert_eq!(again, None, "twice");
                            let slice = Slice::new(at, record.shape.clone());
                            let boxes: Vec<&Slice> =
                                record.pieces.iter().map(|p| &p.slice).collect();
                            let held = if slice.is_empty() { vec![] } else { vec![&slice] };
                            assert_eq!(boxes, held);
                            for piece in &record.pieces {
                                assert_eq!(piece.tensor, record.name);
                                assert_eq!((piece.target_start, piece.target_index), (0, None));
                                // The dimension that is told is the one that is cut, the last if two are.
                                let family = model.families.iter().find(|f| {
                                    f.names().any(|name| name == fill(&record.name, layer, None))
                                });
                                let shape = &family.expect("a family").shape;
                                let cut = (0..shape.len()).rfind(|&d| record.shape[d] != shape[d]);
                                assert_eq!(
                                    (piece.dim, piece.target_dim),
                                    (cut.unwrap_or(0), cut.unwrap_or(0))
                                );
                            }
                        }
                    }
                    assert_eq!(found, expected, "{text} rank {rank}");
                }
            }
        }
    }
}

/// Whether tensor parallelism of Megatron leaves a tensor whole on every rank.
fn is_whole(role: TensorRole) -> bool {
    use TensorRole::*;
    !matches!(
        role,
        Query
            | Key
            | Value
            | Output
            | QueryUp
            | KeyValueUp
            | DenseGate
            | DenseUp
            | DenseGateUp
            | DenseDown
            | SharedGate
            | SharedUp
            | SharedDown
            | Embedding
            | Head
            | ExpertGate
            | ExpertUp
            | ExpertDown
    )
}

#[test]
fn ranks_of_megatron_hold_every_element_as_often_as_they_are_replicated() {
    let tied = heads(json!({"num_experts": 8, "tie_word_embeddings": true}));
    for config in [heads(json!({})), tied, heads(json!({"model_type": "glm4"})), latent(json!({}))]
    {
        let model = model(&config).expect("a model");
        for (degrees, layers_of) in [
            ([2, 1, 1, 1, 1, 1], vec![4]),
            ([2, 2, 3, 2, 1, 2], vec![2, 2]),
            ([4, 3, 1, 2, 2, 1], vec![1, 2, 1]),
            ([1, 2, 1, 4, 1, 4], vec![3, 1]),
            ([2, 1, 2, 1, 2, 3], vec![4]),
        ] {
            let [tp, pp, cp, ep, etp, dp]: [u64; 6] = degrees;
            let stages: Vec<String> = layers_of.iter().map(u64::to_string).collect();
            let spec = format!(
                "megatron:tp={tp},pp={pp},pp_layers={},cp={cp},ep={ep},etp={etp},dp={dp},\
                 vocab_multiple=4,mtp=1",
                stages.join("+")
            );
            let ranks = records(&config, &spec);
            assert_eq!(ranks.len() as u64, tp * pp * cp * dp);
            let of_stage = tp * cp * dp;
            let mut held: BTreeMap<(String, u64, u64), Vec<u64>> = BTreeMap::new();
            for (rank, records) in (0..).zip(&ranks) {
                for (name, slice) in boxes(records) {
                    let columns =
                        if slice.ndim() > 1 { slice.start[1]..slice.end(1) } else { 0..1 };
                    for row in slice.start[0]..slice.end(0) {
                        for column in columns.clone() {
                            held.entry((name.clone(), row, column)).or_default().push(rank);
                        }
                    }
                }
            }
            let mut counted = 0;
            for family in &model.families {
                let layers: Vec<Option<u64>> = match family.layers.is_empty() {
                    true => vec![None],
                    false => family.layers.iter().flat_map(|&(a, b)| (a..=b).map(Some)).collect(),
                };
                for layer in layers {
                    // Layers go to stages one after the other; draft layers are with the last.
                    let stage = match (layer, family.role) {
                        (None, TensorRole::Embedding) => 0,
                        (None, _) => pp - 1,
                        (Some(layer), _) => {
                            let ends = layers_of.iter().scan(0, |end, n| {
                                *end += n;
                                Some(*end)
                            });
                            ends.take_while(|&end| end <= layer).count().min(pp as usize - 1) as u64
                        }
                    };
                    for expert in 0..family.experts.max(1) {
                        let copies = match (family.experts > 0, is_whole(family.role)) {
                            (true, _) => of_stage / (ep * etp),
                            (_, true) => of_stage,
                            _ => cp * dp,
                        };
                        let name = fill(&family.name, layer, Some(expert));
                        if matches!(family.role, TensorRole::DraftEmbedding | TensorRole::DraftHead)
                        {
                            continue; // shared with the model's own
                        }
                        for row in 0..family.shape[0] {
                            for column in 0..family.shape.get(1).copied().unwrap_or(1) {
                                let who = held.get(&(name.clone(), row, column));
                                let who = who.cloned().unwrap_or_default();
                                let in_stage = |s: u64| {
                                    who.iter().filter(|r| *r / of_stage == s).count() as u64
                                };
                                assert_eq!(
                                    in_stage(stage),
                                    copies,
                                    "{spec}: {name} {row} {column} {who:?}"
                                );
                                let tied = config["tie_word_embeddings"] == true
                                    && pp > 1
                                    && family.role == TensorRole::Embedding;
                                let twice = if tied { 2 } else { 1 };
                                assert_eq!(
                                    who.len() as u64,
                                    copies * twice,
                                    "{spec}: {name} {who:?}"
                                );
                                counted += 1;
                            }
                        }
                    }
                }
            }
            assert!(counted > 1_000);
            // In each parameter pieces lie one behind the other; only the vocabulary is padded.
            for record in ranks.iter().flatten() {
                let mut behind = 0;
                for piece in &record.pieces {
                    assert_eq!(
                        (piece.target_start, piece.target_dim),
                        (behind, piece.dim),
                        "{record:?}"
                    );
                    behind += piece.slice.len[piece.dim];
                    let across = 1 - piece.dim;
                    assert!(
                        piece.slice.ndim() < 2 || piece.slice.len[across] == record.shape[across]
                    );
                }
                let dim = record.pieces.first().map_or(0, |p| p.dim);
                let padded = record.name.contains("embed") || record.name.contains("output_layer");
                assert!(
                    behind == record.shape[dim] || padded && behind < record.shape[dim],
                    "{record:?}"
                );
            }
        }
    }
}

/// Every element of an engine's parameter is filled by one piece at most; where none fills it, it is
/// a padded vocabulary, or made otherwise.
#[test]
fn pieces_of_an_engines_parameter_lie_beside_each_other() {
    for config in [heads(json!({"num_experts": 8})), latent(json!({"index_n_heads": null}))] {
        for spec in [
            "vllm:tp=2",
            "vllm:tp=4,ep=4,mtp=1",
            "vllm:tp=2,dp=2,ep=4,mtp=1",
            "sglang:tp=4,ep=2,mtp=1",
            "sglang:tp=4,ep=4,attn_dp=2,moe_dense_tp=1,shared_tp=1",
            "vllm:tp=2,quant=fp8,block=2",
            "vllm:tp=8,dtype=fp16",
        ] {
            for record in records(&config, spec).iter().flatten() {
                let mut filled: BTreeMap<Vec<u64>, usize> = BTreeMap::new();
                for (number, piece) in record.pieces.iter().enumerate() {
                    let own = &record.shape[usize::from(piece.target_index.is_some())..];
                    let mut first = vec![0; own.len()];
                    first[piece.target_dim] = piece.target_start;
                    let sizes = &piece.slice.len;
                    assert_eq!(sizes.len(), own.len());
                    for d in 0..own.len() {
                        assert!(first[d] + sizes[d] <= own[d], "{spec}: {record:?}");
                        assert!(d == piece.target_dim || sizes[d] == own[d], "{spec}: {record:?}");
                    }
                    for row in 0..sizes[0] {
                        for column in 0..sizes.get(1).copied().unwrap_or(1) {
                            let mut at: Vec<u64> = piece.target_index.into_iter().collect();
                            at.push(first[0] + row);
                            at.extend(first.get(1).map(|first| first + column));
                            let before = filled.insert(at, number);
                            assert_eq!(before, None, "{spec}: {record:?}");
                        }
                    }
                }
                let all = record.shape.iter().product::<u64>() as usize;
                let padded = record.name.contains("embed_tokens") || record.name.contains("head");
                assert!(filled.len() == all || padded && filled.len() < all, "{spec}: {record:?}");
            }
        }
    }
}

#[test]
fn draft_layers_are_a_model_of_their_own_beside_the_main_one() {
    let config = latent(json!({"index_n_heads": null}));
    let names = |spec: &str| -> Vec<String> {
        let records = records(&config, spec).remove(0);
        let main = records.iter().position(|r| r.name.starts_with("draft.")).expect("drafts");
        assert!(records[main..].iter().all(|r| r.name.starts_with("draft.")), "after all others");
        assert!(records[main..].iter().all(|r| r.layers == Some((4, 4))));
        assert!(records[..main].iter().all(|r| r.layers.is_none_or(|(_, last)| last < 4)));
        records[main..].iter().map(|r| r.name.clone()).collect()
    };
    let is = |names: &[String], own: &[&str], block: &str| {
        for name in own {
            assert!(names.contains(&(*name).to_owned()), "{name} in {names:?}");
        }
        let rest = names.iter().filter(|name| !own.contains(&name.as_str()));
        for name in rest.clone() {
            assert!(name.starts_with(block), "{name}");
        }
        assert!(names.contains(&format!("{block}self_attn.o_proj.weight")));
        assert!(names.contains(&format!("{block}mlp.experts.w13_weight")));
        assert!(rest.count() > 10);
    };
    let vllm = [
        "draft.model.embed_tokens.weight",
        "draft.model.layers.{L}.eh_proj.weight",
        "draft.model.layers.{L}.enorm.weight",
        "draft.model.layers.{L}.hnorm.weight",
        "draft.model.layers.{L}.shared_head.norm.weight",
        "draft.model.layers.{L}.shared_head.head.weight",
    ];
    is(&names("vllm:tp=1,mtp=1"), &vllm, "draft.model.layers.{L}.mtp_block.");
    // It has the embedding and the head of its model.
    let sglang = [
        "draft.model.eh_proj.weight",
        "draft.model.enorm.weight",
        "draft.model.hnorm.weight",
        "draft.model.shared_head.norm.weight",
    ];
    is(&names("sglang:tp=1,mtp=1"), &sglang, "draft.model.decoder.");
    // None where none are asked for, or there.
    let none = |config: &Value, spec| {
        records(config, spec)[0].iter().all(|record| !record.name.starts_with("draft."))
    };
    assert!(none(&config, "vllm:tp=1"));
    let without = with(config.clone(), json!({"num_nextn_predict_layers": 0}));
    assert!(none(&without, "sglang:tp=1,mtp=1"));
    let model = model(&config).expect("a model");
    let in_draft = |f: &&Family| f.layers.contains(&(4, 4)) || f.is_in(4);
    let drafts = model.families.iter().filter(in_draft);
    let bytes: u64 = drafts.map(|f| f.tensor_bytes() * f.experts.max(1)).sum();
    assert_eq!(model.bytes(true) - model.bytes(false), bytes);
}

#[test]
fn degrees_that_do_not_go_together_are_refused() {
    let refused = |config: &Value, spec: &str| {
        let layout = cluster(config, spec).and_then(|cluster| cluster.layout(0));
        layout.expect_err(spec).to_string()
    };
    let experts = heads(json!({"num_experts": 8}));
    assert!(refused(&experts, "vllm:tp=4,ep=2").contains("ep=2 is not tp*dp=4"));
    assert!(refused(&experts, "sglang:tp=4,ep=3").contains("ep=3 does not divide tp=4"));
    assert!(refused(&experts, "sglang:tp=4,attn_dp=3").contains("attn_dp=3 does not divide tp=4"));
    assert!(refused(&experts, "megatron:tp=2,ep=3").contains("ep=3"));
    assert!(refused(&experts, "megatron:pp=3").contains("4 layers on 3 pipeline stages"));
    assert!(refused(&experts, "megatron:pp=2,pp_layers=4").contains("pp=2"));
    assert!(refused(&experts, "fsdp_ep:pp=2,pp_layers=1+2").contains("3 layers"));
    assert!(refused(&experts, "fsdp_ep:ep=3").contains("experts"));
    let cluster = cluster(&experts, "vllm:tp=2").expect("a cluster");
    assert!(cluster.layout(1).is_ok());
    assert!(matches!(cluster.layout(2), Err(RuleError::Rank { rank: 2, ranks: 2, .. })));
    let model = cluster.model().expect("by rule");
    let many = |spec: &str| Cluster::new(model, &spec.parse().expect("a spec")).err();
    assert_eq!(many("ddp:dp=65536"), None);
    assert!(matches!(many("ddp:dp=65537"), Some(RuleError::Degrees { .. })));
    assert!(matches!(many("vllm:tp=65536,dp=2"), Some(RuleError::Degrees { .. })));
}

#[test]
fn numbers_of_a_config_are_taken_from_where_they_stand() {
    let shape = |config: &Value, end: &str| {
        let model = model(config).expect("a model");
        let family = model.families.iter().find(|f| f.name.ends_with(end)).expect("a family");
        family.shape.clone()
    };
    let bare = |key: &str| {
        let mut config = heads(json!({"model_type": "llama"}));
        config.as_object_mut().expect("an object").remove(key);
        config
    };
    assert_eq!(shape(&bare("head_dim"), "q_proj.weight"), [8, 12], "12 / 8 rows of each of 8");
    assert_eq!(shape(&bare("num_key_value_heads"), "k_proj.weight"), [16, 12]);
    assert_eq!(shape(&bare("intermediate_size"), "up_proj.weight"), [48, 12]);
    for key in ["vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"] {
        assert!(matches!(model(&bare(key)), Err(ConfigError::Missing { .. })), "{key}");
    }
    let of = |changes: Value| model(&heads(changes));
    assert_eq!(of(json!({"num_hidden_layers": 4096})).expect("a model").layers(), 4096);
    let large = of(json!({"num_hidden_layers": 4097}));
    assert!(matches!(large, Err(ConfigError::TooLarge { value: 4097, most: 4096, .. })));
    assert!(matches!(of(json!({"num_hidden_layers": 0})), Err(ConfigError::Missing { .. })));
    let most = of(json!({"num_experts": 65_536, "num_hidden_layers": 1}));
    assert!(most.is_ok());
    let more = of(json!({"num_experts": 65_537}));
    assert!(matches!(more, Err(ConfigError::TooLarge { value: 65_537, .. })));
    assert!(of(json!({"vocab_size": 1u64 << 30})).is_ok());
    let number = of(json!({"vocab_size": (1u64 << 30) + 1}));
    assert!(matches!(number, Err(ConfigError::TooLarge { key: "vocab_size", .. })));
    let vast = of(json!({"vocab_size": 1u64 << 30, "hidden_size": 1u64 << 30}));
    assert!(matches!(vast, Err(ConfigError::Contradiction { .. })));
    assert!(matches!(
        of(json!({"num_key_value_heads": 3})),
        Err(ConfigError::Contradiction { .. })
    ));
    let typed = |key: &str, value: &str| {
        let mut config = bare("dtype");
        config[key] = json!(value);
        model(&config).expect("a model").dtype
    };
    for key in ["dtype", "torch_dtype"] {
        assert_eq!(typed(key, "bfloat16"), DType::BF16);
        assert_eq!(typed(key, "float16"), DType::F16);
        assert_eq!(typed(key, "float32"), DType::F32);
    }
    assert_eq!(model(&bare("dtype")).expect("a model").dtype, DType::F32);
    // Layers with experts may be listed one by one.
    let kinds = ["dense", "sparse", "sparse", "dense"];
    let listed = latent(json!({"mlp_layer_types": kinds, "num_nextn_predict_layers": 0}));
    let routers = model(&listed).expect("a model");
    let router = routers.families.iter().find(|f| f.role == TensorRole::Router).expect("a router");
    assert_eq!(router.layers, [(1, 2)]);
    let short = latent(json!({"mlp_layer_types": kinds[..3]}));
    assert!(matches!(model(&short), Err(ConfigError::Contradiction { .. })));
    let no_rank = latent(json!({"kv_lora_rank": null}));
    assert!(matches!(model(&no_rank), Err(ConfigError::Contradiction { .. })));
    for text in ["", "[]", "3", "{"] {
        assert!(matches!(Config::parse(text), Err(ConfigError::NotAnObject { .. })));
    }
    assert!(matches!(of(json!({"model_type": "x"})), Err(ConfigError::UnknownModel { .. })));
}

#[test]
fn a_spec_says_what_is_quantised_and_how() {
    let plain = heads(json!({}));
    let blocks = |rows, columns| {
        with(
            plain.clone(),
            json!({"quantization_config": {
            "quant_method": "fp8", "weight_block_size": [rows, columns],
            "modules_to_not_convert": ["model.layers.1"] }}),
        )
    };
    let scales = |config: &Value, spec: &str| {
        let records = records(config, spec).remove(0);
        let scale = records.iter().find(|r| r.name.ends_with("o_proj.weight_scale_inv"));
        scale.map(|record| (record.shape.clone(), record.layers.expect("layers")))
    };
    assert_eq!(scales(&plain, "vllm:tp=1"), None);
    assert_eq!(scales(&plain, "vllm:tp=1,quant=fp8"), Some((vec![1, 1], (0, 3))), "128 x 128");
    assert_eq!(scales(&plain, "vllm:tp=1,block=4"), Some((vec![3, 4], (0, 3))));
    let of = |keys: &str| scales(&blocks(2, 4), &format!("vllm:tp=1{keys}"));
    assert_eq!(of(""), Some((vec![6, 4], (0, 0))));
    assert_eq!(of(",quant=fp8"), Some((vec![6, 4], (0, 0))));
    assert_eq!(of(",quant=fp8,block=8"), Some((vec![2, 2], (0, 0))));
    assert_eq!(of(",quant=none"), None);
    // Some configs have another word for what is left as it was, and may have both.
    for (key, other, layers) in [
        ("ignored_layers", "modules_to_not_convert", (1, 2)),
        ("modules_to_not_convert", "ignored_layers", (1, 2)),
    ] {
        let said = json!({"quant_method": "fp8", "weight_block_size": [2, 4],
            key: ["model.layers.0"], other: ["model.layers.3"]});
        let config = with(plain.clone(), json!({"quantization_config": said}));
        assert_eq!(scales(&config, "vllm:tp=1"), Some((vec![6, 4], layers)), "{key}, {other}");
    }
}

#[test]
fn a_digest_names_all_that_the_ranks_hold() {
    let digest = |config: &Value, spec: &str| {
        cluster(config, spec).and_then(|cluster| cluster.digest()).expect("a digest")
    };
    let (one, other) = (heads(json!({})), heads(json!({"vocab_size": 51})));
    let found = digest(&one, "vllm:tp=2");
    assert_eq!((found.len(), &found), (32, &digest(&one, "vllm:tp=2")));
    for different in [digest(&other, "vllm:tp=2"), digest(&one, "vllm:tp=4"), digest(&one, "ddp")] {
        assert_ne!(found, different);
    }
}

/// Names and shapes as the classes of each model type have them, beside what all have.
#[test]
fn checkpoints_of_each_model_type_have_its_own_tensors() {
    let has = |changes: Value, wanted: &[(&str, &[u64])], none: &[&str]| {
        let model = model(&heads(changes.clone())).expect("a model");
        let shapes: BTreeMap<String, Vec<u64>> = model
            .families
            .iter()
            .flat_map(|f| f.names().map(|name| (name, f.shape.clone())))
            .collect();
        for (name, shape) in wanted {
            let found = shapes.get(&format!("model.layers.1.{name}"));
            assert_eq!(found.map(Vec::as_slice), Some(*shape), "{changes}: {name} in {shapes:?}");
        }
        for part in none {
            assert!(!shapes.keys().any(|name| name.contains(part)), "{changes}: {part}");
        }
    };
    let (bias, no_bias) = (&[16][..], "_proj.bias");
    for model_type in ["llama", "mistral"] {
        let of = |key: &str, value: bool| json!({"model_type": model_type, key: value});
        has(
            of("attention_bias", false),
            &[("mlp.up_proj.weight", &[24, 12])],
            &[no_bias, "norm.bias"],
        );
        let attention = [("self_attn.q_proj.bias", bias), ("self_attn.o_proj.bias", &[12])];
        has(of("attention_bias", true), &attention, &["mlp.up_proj.bias", "q_norm"]);
        let mlp = [("mlp.gate_proj.bias", &[24][..]), ("mlp.down_proj.bias", &[12])];
        has(of("mlp_bias", true), &mlp, &["self_attn.q_proj.bias"]);
    }
    let qkv = [("self_attn.q_proj.bias", bias), ("self_attn.v_proj.bias", &[8])];
    has(
        json!({"model_type": "qwen2", "mlp_bias": true}),
        &qkv,
        &["o_proj.bias", "mlp.up_proj.bias"],
    );
    let normed = [("self_attn.q_norm.weight", &[2][..]), ("self_attn.k_norm.weight", &[2])];
    for model_type in ["qwen3", "qwen3_moe"] {
        has(json!({"model_type": model_type}), &normed, &[no_bias, "post_mlp"]);
    }
    let shared = [
        ("mlp.gate.weight", &[8, 12][..]),
        ("mlp.experts.7.gate_proj.weight", &[8, 12]),
        ("mlp.shared_expert.down_proj.weight", &[12, 20]),
        ("mlp.shared_expert_gate.weight", &[1, 12]),
        ("self_attn.k_proj.bias", &[8]),
    ];
    let qwen =
        json!({"model_type": "qwen2_moe", "num_experts": 8, "shared_expert_intermediate_size": 20});
    has(qwen, &shared, &["correction", "shared_experts"]);
    let mixtral = [
        ("block_sparse_moe.gate.weight", &[8, 12][..]),
        ("block_sparse_moe.experts.7.w1.weight", &[24, 12]),
        ("block_sparse_moe.experts.7.w3.weight", &[24, 12]),
        ("block_sparse_moe.experts.7.w2.weight", &[12, 24]),
    ];
    let config = json!({"model_type": "mixtral", "num_local_experts": 8, "moe_intermediate_size": null,
        "attention_bias": true});
    has(config, &mixtral, &["mlp.", no_bias]);
    let sandwich = [
        ("mlp.gate_up_proj.weight", &[48, 12][..]),
        ("post_self_attn_layernorm.weight", &[12]),
        ("post_mlp_layernorm.weight", &[12]),
        ("self_attn.q_proj.bias", bias),
    ];
    has(
        json!({"model_type": "glm4", "attention_bias": true}),
        &sandwich,
        &["up_proj.bias", "o_proj.bias"],
    );
    let correction = [("mlp.gate.e_score_correction_bias", &[8][..])];
    let glm = |model_type: &str, normed: bool| json!({"model_type": model_type, "num_experts": 8, "use_qk_norm": normed});
    has(glm("glm4_moe", true), &[correction[0], normed[0]], &["o_proj.bias"]);
    has(glm("glm4_moe", false), &correction, &["q_norm"]);
    has(glm("glm4_moe_lite", true), &correction, &["q_norm"]);
    has(glm("glm_moe_dsa", true), &correction, &["q_norm"]);
    for model_type in ["deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2"] {
        let of =
            |topk: &str| json!({"model_type": model_type, "num_experts": 8, "topk_method": topk});
        has(of("noaux_tc"), &correction, &["q_norm"]);
        has(of("greedy"), &[], &["correction"]);
    }
    // Draft layers with an embedding of their own, and without.
    for (model_type, own) in [
        ("deepseek_v3", true),
        ("glm4_moe", true),
        ("glm4_moe_lite", false),
        ("glm_moe_dsa", false),
    ] {
        let config = heads(
            json!({"model_type": model_type, "num_experts": 8, "num_nextn_predict_layers": 1}),
        );
        let model = model(&config).expect("a model");
        let names: Vec<String> = model.families.iter().flat_map(|f| f.names()).collect();
        let draft = |end: &str| names.contains(&format!("model.layers.4.{end}.weight"));
        assert!(draft("eh_proj") && draft("shared_head.norm") && draft("mlp.experts.7.up_proj"));
        assert_eq!((draft("embed_tokens"), draft("shared_head.head")), (own, own), "{model_type}");
    }
}

/// As the data set writes it, with what trainers have besides.
#[test]
fn records_are_written_with_their_offsets_and_layers() {
    let cluster = cluster(&heads(json!({})), "fsdp2:dp=2").expect("a cluster");
    let written = serde_json::to_value(cluster.layout(1).expect("a layout")).expect("JSON");
    let find = |name: &str| {
        let params = written["params"].as_array().expect("params");
        params.iter().find(|p| p["name"] == name).expect("one").clone()
    };
    assert_eq!(
        find("model.layers.{L}.self_attn.q_proj.weight"),
        json!({
            "name": "model.layers.{L}.self_attn.q_proj.weight", "shape": [8, 12], "dtype": "BF16",
            "offset": [8, 0], "L": [0, 3],
            "pieces": [["model.layers.{L}.self_attn.q_proj.weight", 0, 8, 8, 0, 0, null]],
        })
    );
    assert_eq!(
        find("model.norm.weight"),
        json!({
            "name": "model.norm.weight", "shape": [6], "dtype": "BF16", "offset": [6],
            "pieces": [["model.norm.weight", 0, 6, 6, 0, 0, null]],
        })
    );
    assert_eq!(written["transfer_bytes"], written["alloc_bytes"]);
}

/// Where layers of several kinds take turns, parameters are of the layers that have them.
#[test]
fn no_layer_is_taken_for_one_of_another_kind() {
    for kinds in [["dense", "sparse", "dense", "sparse"], ["sparse", "dense", "dense", "sparse"]] {
        let config = latent(json!({
            "mlp_layer_types": kinds, "num_nextn_predict_layers": 0, "index_n_heads": null,
        }));
        let published = model(&config).expect("a model");
        let names: std::collections::BTreeSet<String> =
            published.families.iter().flat_map(|f| f.names()).collect();
        for spec in ["vllm:tp=1", "sglang:tp=1", "megatron:tp=1", "fsdp2:dp=1"] {
            let held: Vec<String> =
                boxes(&records(&config, spec)[0]).into_iter().map(|(name, _)| name).collect();
            let once: std::collections::BTreeSet<String> = held.iter().cloned().collect();
            assert_eq!(held.len(), once.len(), "{spec}: twice");
            assert_eq!(once, names, "{spec}");
        }
    }
}
