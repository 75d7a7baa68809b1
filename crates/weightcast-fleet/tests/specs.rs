//! Specs: every key means what the table of the module says.

use weightcast_fleet::engine::{Engine, ExpertPlacement, Program};
use weightcast_fleet::trainer::{Megatron, Parallelism, Trainer};
use weightcast_fleet::{Quantise, Side, Spec, SpecError};
use weightcast_plan::DType;

fn spec(text: &str) -> Spec {
    let spec: Spec = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(spec.to_string(), text);
    spec
}

fn engine(text: &str) -> Engine {
    match spec(text).side {
        Side::Engine(engine) => engine,
        Side::Trainer(_) => panic!("{text} is no engine"),
    }
}

fn trainer(text: &str) -> Trainer {
    match spec(text).side {
        Side::Trainer(trainer) => trainer,
        Side::Engine(_) => panic!("{text} is no trainer"),
    }
}

fn alone(program: Program) -> Engine {
    Engine {
        program,
        tp: 1,
        dp: 1,
        ep: 1,
        placement: ExpertPlacement::Linear,
        attention_dp: 1,
        dense_whole: false,
        shared_whole: false,
        redundant: 0,
        dtype: None,
        draft: false,
    }
}

#[test]
fn engines_have_the_degrees_that_they_are_given() {
    assert_eq!(engine("vllm"), alone(Program::Vllm));
    assert_eq!(engine("sglang:"), alone(Program::Sglang));
    let text = "vllm:tp=2,dp=3,ep=6,placement=round_robin,redundant=4,dtype=half,mtp=1";
    let expected = Engine {
        tp: 2,
        dp: 3,
        ep: 6,
        placement: ExpertPlacement::RoundRobin,
        redundant: 4,
        dtype: Some(DType::F16),
        draft: true,
        ..alone(Program::Vllm)
    };
    assert_eq!((engine(text), engine(text).ranks()), (expected, 6));
    let text = "sglang:tp=8, ep=4 ,attn_dp=2,moe_dense_tp=1,placement=linear,mtp=false,dtype=FP32";
    let expected = Engine {
        tp: 8,
        ep: 4,
        attention_dp: 2,
        dense_whole: true,
        dtype: Some(DType::F32),
        ..alone(Program::Sglang)
    };
    assert_eq!((engine(text), engine(text).ranks()), (expected, 8));
    let shared = Engine { shared_whole: true, ..alone(Program::Sglang) };
    assert_eq!(engine("sglang:shared_tp=True"), shared);
}

#[test]
fn trainers_have_the_degrees_that_they_are_given() {
    let plain = |parallelism| Trainer { parallelism, dtype: None, draft: false };
    let bf16 = |parallelism| Trainer { dtype: Some(DType::BF16), ..plain(parallelism) };
    for (text, expected, ranks) in [
        ("ddp", plain(Parallelism::Ddp { dp: 1 }), 1),
        ("ddp:dp=3,dtype=bfloat16", bf16(Parallelism::Ddp { dp: 3 }), 3),
        ("fsdp2:dp=3,tp=2", plain(Parallelism::Fsdp2 { dp: 3, tp: 2 }), 6),
        ("hsdp:replicate=2,shard=5", plain(Parallelism::Hsdp { replicate: 2, shard: 5 }), 10),
        (
            "fsdp_ep:fsdp=2,pp=3,pp_layers=1+2+3,ep=4",
            plain(Parallelism::FsdpEp { fsdp: 2, pp: 3, pp_layers: vec![1, 2, 3], ep: 4 }),
            24,
        ),
        (
            "megatron:tp=2,pp=3,pp_layers=24+24+22,cp=5,ep=7,etp=11,dp=13,vocab_multiple=17",
            plain(Parallelism::Megatron(Megatron {
                tp: 2,
                pp: 3,
                pp_layers: vec![24, 24, 22],
                cp: 5,
                ep: 7,
                etp: 11,
                dp: 13,
                vocab_multiple: 17,
            })),
            2 * 3 * 5 * 13,
        ),
    ] {
        assert_eq!((trainer(text), trainer(text).ranks()), (expected, ranks), "{text}");
    }
    let Parallelism::Megatron(megatron) = trainer("megatron:mtp=true").parallelism else {
        panic!()
    };
    let degrees = [megatron.tp, megatron.pp, megatron.cp, megatron.ep, megatron.etp, megatron.dp];
    assert_eq!((degrees, megatron.vocab_multiple), ([1; 6], 128));
    assert!(trainer("megatron:mtp=true").draft);
}

#[test]
fn quantisation_is_as_configured_unless_said_otherwise() {
    for (keys, expected) in [
        ("", Quantise::AsConfigured),
        (",quant=none", Quantise::Never),
        (",quant=fp8", Quantise::Fp8 { block: None }),
        (",block=64", Quantise::Fp8 { block: Some(64) }),
        (",quant=fp8,block=32", Quantise::Fp8 { block: Some(32) }),
        (",quant=fp8,block=0", Quantise::Fp8 { block: None }),
    ] {
        for engine in ["vllm", "sglang"] {
            assert_eq!(spec(&format!("{engine}:tp=1{keys}")).quantise, expected, "{keys}");
        }
    }
    assert_eq!(spec("ddp:dp=1").quantise, Quantise::Never);
}

#[test]
fn a_key_is_taken_only_where_it_means_something() {
    let keys = [
        ("vllm", "tp dp ep placement redundant quant block dtype mtp"),
        (
            "sglang",
            "tp ep attn_dp moe_dense_tp shared_tp placement redundant quant block dtype mtp",
        ),
        ("ddp", "dp dtype mtp"),
        ("fsdp2", "dp tp dtype mtp"),
        ("hsdp", "replicate shard dtype mtp"),
        ("fsdp_ep", "fsdp pp pp_layers ep dtype mtp"),
        ("megatron", "tp pp pp_layers cp ep etp dp vocab_multiple dtype mtp"),
    ];
    let all: std::collections::BTreeSet<&str> =
        keys.iter().flat_map(|(_, keys)| keys.split(' ')).collect();
    for (name, taken) in keys {
        for &key in &all {
            let value = match key {
                "placement" => "linear",
                "quant" => "fp8",
                "dtype" => "bf16",
                _ => "1",
            };
            let parsed = format!("{name}:{key}={value}").parse::<Spec>();
            let takes = taken.split(' ').any(|one| one == key);
            assert_eq!(parsed.is_ok(), takes, "{name} {key}");
            let refused = matches!(&parsed, Err(SpecError::Key { allowed, .. })
                if taken.split(' ').all(|one| allowed.contains(&one)));
            assert!(takes || refused, "{parsed:?}");
        }
    }
}

#[test]
fn what_a_key_does_not_take_is_refused() {
    let most = 1 << 20;
    assert_eq!(engine(&format!("vllm:tp={most}")).tp, most);
    for bad in [
        &format!("vllm:tp={}", most + 1),
        "vllm:tp=-1",
        "vllm:tp=",
        "vllm:tp",
        "vllm:tp=2,tp=2",
        "vllm:mtp=2",
        "vllm:dtype=int8",
        "vllm:quant=none,block=64",
        "sglang:moe_dense_tp=2",
        "sglang:attn_dp=0",
        "megatron:pp_layers=",
        "megatron:pp_layers=1+",
        &format!("megatron:pp_layers=1+{}", most + 1),
        "vlm",
        "",
    ] {
        assert!(bad.parse::<Spec>().is_err(), "{bad}");
    }
    for whole in ["1", "true"] {
        assert!(engine(&format!("sglang:shared_tp={whole}")).shared_whole);
    }
    let layers = format!("fsdp_ep:pp_layers=0+{most}");
    assert!(matches!(trainer(&layers).parallelism, Parallelism::FsdpEp { pp_layers, .. }
        if pp_layers == [0, most]));
}
