//! `weightcast layout`: what one rank holds, by rule.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use weightcast_fleet::RankLayout;
use weightcast_fleet::model::{Config, ModelSpec};

use super::given::GivenSide;
use crate::output;

/// How specs are written.
pub(crate) const GRAMMAR: &str = "\
SPEC is NAME:key=value,... (degrees are 1 where not given):
  vllm      tp dp ep placement=linear|round_robin redundant quant=fp8|none block dtype mtp
  sglang    tp ep attn_dp moe_dense_tp=1 shared_tp=1 placement redundant quant block dtype mtp
  ddp       dp dtype mtp
  fsdp2     dp tp dtype mtp
  hsdp      replicate shard dtype mtp
  fsdp_ep   fsdp pp pp_layers ep dtype mtp
  megatron  tp pp pp_layers=24+24+22 cp ep etp dp vocab_multiple dtype mtp
ep of vLLM is tp*dp or 1; moe_dense_tp=1 and shared_tp=1 put dense MLPs and shared experts whole on
every rank; dtype is bf16, fp16 or fp32; mtp=1 adds the draft layers.
Examples: vllm:tp=8,ep=8  sglang:tp=32,ep=32,attn_dp=8,moe_dense_tp=1,quant=fp8,block=64
          megatron:tp=4,pp=4,pp_layers=24+24+24+22,cp=2,ep=16,dp=2
FILE.json has the layouts of all ranks as their own classes say them, of any model:
  python -m weightcast.adapters.vllm.describe MODEL --tp 2 > engine.json
  Layout.describe() and weightcast.plans.write() of a trainer";

/// Show what a rank of a trainer or an engine holds, by rule or by a file of layouts.
///
/// With --json in the form of a rank of the layout data set: transfer_bytes, alloc_bytes, params;
/// a piece is [published name, dimension, start, length, local dimension, local start, local
/// expert]. Records of layers that are alike are one, with {L} in their names and L = [first, last]. Of a file: a
/// record for each box, whose offset is its first index; the local start counts elements of the buffer.
#[derive(Args)]
#[command(after_help = GRAMMAR)]
pub(crate) struct LayoutOf {
    /// The model's config.json, as Hugging Face writes it; for a SPEC
    #[arg(long, value_name = "CONFIG.json")]
    config: Option<PathBuf>,
    /// Who holds it, and how it is spread; or a file of layouts
    #[arg(long, value_name = "SPEC|FILE.json")]
    spec: GivenSide,
    /// Which rank
    #[arg(long, default_value_t = 0)]
    rank: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(asked: &LayoutOf) -> anyhow::Result<()> {
    let cluster = asked.spec.cluster(asked.config.as_deref())?;
    let layout = cluster.layout(asked.rank)?;
    for warning in &layout.warnings {
        eprintln!("weightcast: warning: {warning}");
    }
    output::print(&match asked.json {
        true => serde_json::to_string(&layout)? + "\n",
        false => table(&layout),
    })
}

/// Files beside a config that say how its checkpoint is quantised, where the config itself may not.
const BESIDE: [&str; 3] = ["hf_quant_config.json", "quantize_config.json", "quant_config.json"];

/// Reads the model of a config file, as Hugging Face writes it.
pub fn read_model(config: &Path) -> anyhow::Result<ModelSpec> {
    let read = || -> anyhow::Result<ModelSpec> {
        let model = ModelSpec::of(&Config::parse(&std::fs::read_to_string(config)?)?)?;
        if let Some(file) = BESIDE.iter().find(|file| config.with_file_name(file).exists()) {
            bail!(
                "{file} beside it says that the checkpoint is quantised, in a form that no rule lays out; \
                 plan the config of the unquantised checkpoint, or read the layout off a live engine"
            );
        }
        Ok(model)
    };
    read().with_context(|| config.display().to_string())
}

fn table(layout: &RankLayout) -> String {
    let mut text = format!(
        "{} bytes to receive, {} with padding, {} parameters\n",
        layout.transfer_bytes(),
        layout.alloc_bytes(),
        layout.records.iter().map(|record| record.count()).sum::<u64>(),
    );
    for record in &layout.records {
        let layers = record.layers.map_or(String::new(), |(a, b)| format!("  L {a}..{b}"));
        text += &format!("{} {:?} {}{layers}\n", record.name, record.shape, record.dtype);
        let shown = record.pieces.iter().take(4);
        for piece in shown {
            let slot = piece.target_index.map_or(String::new(), |slot| format!("[{slot}]"));
            let at = piece.target_start;
            text += &format!("    {slot}[{at}:] <- {}{}\n", piece.tensor, piece.slice);
        }
        if record.pieces.len() > 4 {
            text += &format!("    ... {} pieces in all\n", record.pieces.len());
        }
        if record.pieces.is_empty() {
            text += "    no source: empty, padding or derived\n";
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use weightcast_fleet::Cluster;

    use super::*;

    fn layout(experts: u64, spec: &str) -> RankLayout {
        let config = format!(
            r#"{{"model_type": "qwen3_moe", "dtype": "bfloat16", "vocab_size": 65, "hidden_size": 8,
            "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 4,
            "num_experts": {experts}, "moe_intermediate_size": 4, "mlp_only_layers": [0]}}"#
        );
        let model = ModelSpec::of(&Config::parse(&config).unwrap()).unwrap();
        Cluster::new(&model, &spec.parse().unwrap()).unwrap().layout(0).unwrap()
    }

    /// A line for each parameter and for each of its pieces, of many for the first four.
    #[test]
    fn every_parameter_is_listed_with_what_fills_it() {
        for experts in 1..8 {
            let layout = layout(experts, "vllm:tp=1");
            let text = table(&layout);
            let mut lines = text.lines();
            let (received, padded) = (layout.transfer_bytes(), layout.alloc_bytes());
            // Two layers of six parameters beside the MLP, which has two and three; three outside.
            let said = format!("{received} bytes to receive, {padded} with padding, 20 parameters");
            assert_eq!(lines.next(), Some(said.as_str()));
            for record in &layout.records {
                let head = lines.next().expect("a line");
                let shape = format!("{:?}", record.shape);
                assert!(head.starts_with(&record.name) && head.contains(&shape), "{head}");
                let layers = record.layers.map_or(String::new(), |(a, b)| format!("L {a}..{b}"));
                assert!(head.ends_with(&layers), "{head}");
                for piece in record.pieces.iter().take(4) {
                    let line = lines.next().expect("a line");
                    let (at, from) = line.trim().split_once(" <- ").expect("two sides");
                    let slot = piece.target_index.map_or(String::new(), |slot| format!("[{slot}]"));
                    assert_eq!(at, format!("{slot}[{}:]", piece.target_start));
                    assert_eq!(from, format!("{}{}", piece.tensor, piece.slice));
                }
                if record.pieces.len() > 4 {
                    let more = format!("    ... {} pieces in all", record.pieces.len());
                    assert_eq!(lines.next(), Some(more.as_str()));
                }
            }
            assert_eq!(lines.next(), None);
        }
    }

    #[test]
    fn what_nothing_fills_is_said() {
        assert!(!table(&layout(2, "vllm:tp=1")).contains("no source"));
        let mut none = layout(2, "vllm:tp=1");
        none.records[0].pieces.clear();
        let text = table(&none);
        assert_eq!(text.matches("    no source: empty, padding or derived\n").count(), 1, "{text}");
    }
}
