//! The cost of planning.

use std::path::Path;
use std::time::Instant;

use serde::Serialize;
use weightcast_fleet::model::ModelSpec;
use weightcast_fleet::movement::{self, routes};
use weightcast_fleet::{Cluster, Spec};

use super::model;

#[derive(Serialize)]
pub(super) struct CostRow {
    pub(super) what: String,
    pub(super) tensors: u64,
    pub(super) ranks: u64,
    /// Seconds for the plan of a whole cluster.
    pub(super) cluster_s: f64,
    /// Seconds for all copies to one rank.
    pub(super) rank_s: f64,
}

/// The cost for a model of a trillion parameters on more and more ranks.
pub(super) fn by_ranks(data: &Path, runs: usize) -> anyhow::Result<Vec<CostRow>> {
    let model = model(data, "kimi-k2")?;
    let mut rows = Vec::new();
    for engines in [1, 2, 4, 8, 16, 32] {
        let source =
            format!("megatron:ep=32,dp=32,pp={engines},{}", stages(model.layers(), engines));
        let row = row(
            &model,
            &source,
            "sglang:tp=32,ep=32,attn_dp=8,moe_dense_tp=1,block=64",
            engines,
            runs,
        )?;
        rows.push(CostRow { what: format!("{}", row.ranks), ..row });
    }
    Ok(rows)
}

fn stages(layers: u64, stages: u64) -> String {
    let counts: Vec<String> = (0..stages)
        .map(|stage| layers * (stage + 1) / stages - layers * stage / stages)
        .map(|layers| layers.to_string())
        .collect();
    format!("pp_layers={}", counts.join("+"))
}

/// The cost for models of many sizes on 64 ranks.
pub(super) fn by_model(data: &Path, runs: usize) -> anyhow::Result<Vec<CostRow>> {
    let dense = ["qwen2.5-0.5b", "qwen3-4b", "llama-3.1-8b", "llama-3.1-70b"];
    let sparse = ["qwen3-30b-a3b", "glm-4.5", "deepseek-v3", "kimi-k2"];
    let of = |name: &&str, target: &str, engines| -> anyhow::Result<CostRow> {
        let row = row(&model(data, name)?, "fsdp2:dp=64", target, engines, runs)?;
        Ok(CostRow { what: (*name).to_owned(), ..row })
    };
    let dense = dense.iter().map(|name| of(name, "vllm:tp=2", 32));
    let sparse = sparse.iter().map(|name| of(name, "vllm:tp=8,ep=8", 8));
    dense.chain(sparse).collect()
}

fn row(
    model: &ModelSpec,
    source: &str,
    target: &str,
    engines: u64,
    runs: usize,
) -> anyhow::Result<CostRow> {
    let (source, target): (Spec, Spec) = (source.parse()?, target.parse()?);
    let clusters = || -> anyhow::Result<(Cluster, Cluster)> {
        Ok((Cluster::new(model, &source)?, Cluster::new(model, &target)?))
    };
    let (from, to) = clusters()?;
    anyhow::ensure!(from.ranks() == to.ranks() * engines, "{source} and {target} differ in ranks");
    let cluster_s = median(runs, || {
        let (from, to) = clusters()?;
        movement::plan(&from, &to, engines, 8)?;
        Ok(())
    })?;
    let rank_s = median(runs, || {
        let (from, to) = clusters()?;
        routes(&from, &to, Some(to.ranks() - 1), None)?;
        Ok(())
    })?;
    let tensors = to.families().iter().map(|family| family.count()).sum();
    Ok(CostRow { what: String::new(), tensors, ranks: from.ranks(), cluster_s, rank_s })
}

fn median(runs: usize, mut work: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let mut seconds = Vec::new();
    for _ in 0..runs.max(1) {
        let started = Instant::now();
        work()?;
        seconds.push(started.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[seconds.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stages differ by one layer at most, and together have all layers.
    #[test]
    fn layers_are_spread_evenly_over_stages() {
        for layers in [1, 2, 7, 61, 64] {
            for count in 1..=layers.min(40) {
                let text = stages(layers, count);
                let counts: Vec<u64> = text
                    .strip_prefix("pp_layers=")
                    .expect("a key")
                    .split('+')
                    .map(|n| n.parse().expect("a number"))
                    .collect();
                assert_eq!((counts.len() as u64, counts.iter().sum::<u64>()), (count, layers));
                let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
                assert!(most - least <= 1, "{text}");
            }
        }
    }
}
