//! What `weightcast plan` predicts of a fan-out, from the same layouts and by the same code.
//!
//! A plan puts the ranks of an engine beside each other on hosts. Where each shard of a group has a host of its own,
//! each shard is therefore planned apart, as an engine of one rank.

use anyhow::{Context, Result};
use serde::Serialize;
use weightcast_fleet::movement::{self, Assumed, AssumedMachine, Cost, FleetPlan};
use weightcast_fleet::{Cluster, LayoutFile};

use super::spread::FanoutSetting;
use crate::emulated::network::GOODPUT;
use crate::emulated::worker::TENSORS;
use crate::weights::layouts;

/// Bytes and time of one version, without a death.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct PredictedSpread {
    /// Copies of the version that enter a host of readers.
    pub(crate) entered: f64,
    /// Seconds until the last reader has the version. Plans know one datacentre, and one reader of a replica.
    pub(crate) max_s: Option<f64>,
}

impl PredictedSpread {
    pub(crate) fn of(setting: &FanoutSetting) -> Result<Self> {
        let plans = (0..setting.hosts()).map(|host| plan(setting, host));
        let plans = plans.collect::<Result<Vec<_>>>()?;
        let entered: u64 = plans.iter().flat_map(|plan| &plan.host_in).sum();
        let one_chain = setting.datacentres == 1 && setting.fanout == 1;
        let seconds = plans.iter().map(|plan| seconds(setting, plan));
        Ok(Self {
            entered: entered as f64 / (setting.sets() as u64 * setting.bytes) as f64,
            max_s: one_chain.then(|| seconds.fold(0.0, f64::max)),
        })
    }
}

/// The plan of the shards that a group has on one of its hosts.
fn plan(setting: &FanoutSetting, host: usize) -> Result<FleetPlan> {
    let shards = host * on_host(setting)..(host + 1) * on_host(setting);
    let source = cluster(setting, 0..setting.shards, 0)?;
    let target = cluster(setting, shards, setting.replicated.unwrap_or(0))?;
    let ranks = setting.ranks * on_host(setting);
    Ok(movement::plan(&source, &target, setting.readers as u64, ranks as u64)?)
}

/// Shards of a group on one host.
fn on_host(setting: &FanoutSetting) -> usize {
    setting.shards / setting.hosts()
}

/// What these shards hold.
fn cluster(setting: &FanoutSetting, shards: std::ops::Range<usize>, whole: u64) -> Result<Cluster> {
    let tensors = layouts::even(TENSORS, setting.bytes / TENSORS);
    let ranks = shards.map(|shard| {
        let layout = layouts::rows(&tensors, shard as u64, setting.shards as u64, whole as usize)?;
        Ok(LayoutFile::of_rank(&layout, &[]))
    });
    let file = LayoutFile::joined(ranks.collect::<Result<Vec<_>>>()?)?;
    Cluster::of_file(&file).context("plan the fan-out")
}

/// Seconds of the transfer: no engine stands still or goes over its weights here. Plans give each rank a NIC; the
/// shards of a group on one host have equal parts of the host's link.
fn seconds(setting: &FanoutSetting, plan: &FleetPlan) -> f64 {
    let link = f64::from(setting.rate) * 1e6 / 8.0;
    let nic = Assumed { value: link / on_host(setting) as f64, from: "given: --rate" };
    let machine = AssumedMachine {
        gpus_per_host: (setting.ranks * on_host(setting)) as u64,
        nic,
        goodput: Assumed { value: GOODPUT, from: "what TCP delivers of the set rate" },
        ..AssumedMachine::ALL[0]
    };
    let parts = Cost::of(plan, &machine, 0).parts;
    parts.iter().filter(|part| part.name == "transfer").map(|part| part.seconds).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(readers: usize, shards: usize, ranks: usize) -> FanoutSetting {
        FanoutSetting {
            readers,
            shards,
            bytes: 32 << 20,
            rate: 200,
            datacentres: 1,
            slow: 50,
            fanout: 1,
            ranks,
            replicated: None,
            repeat: 1,
        }
    }

    /// Each host is entered once, whatever its shards and readers hold in common.
    #[test]
    fn a_copy_enters_each_set_of_hosts() {
        for (readers, shards, ranks) in [(1, 1, 1), (32, 1, 4), (5, 2, 4), (16, 2, 4), (4, 3, 1)] {
            for replicated in [None, Some(0), Some(8), Some(16)] {
                let of = FanoutSetting { replicated, ..setting(readers, shards, ranks) };
                let predicted = PredictedSpread::of(&of).expect("a plan");
                assert_eq!(predicted.entered, 1.0, "{of:?}");
            }
        }
    }

    /// A link's time, and a 256th of it for each further host.
    #[test]
    fn the_last_reader_is_a_link_and_hops_behind() {
        for replicated in [None, Some(8)] {
            for (shards, hosts) in [(1, 1), (1, 8), (4, 1), (4, 8)] {
                let of = FanoutSetting { replicated, ..setting(4 * hosts, shards, 4) };
                let seconds = PredictedSpread::of(&of).expect("a plan").max_s.expect("one chain");
                let wanted = of.ideal_s() * (1.0 + (hosts - 1) as f64 / 256.0);
                assert!((seconds / wanted - 1.0).abs() < 1e-3, "{seconds} {wanted} {of:?}");
            }
        }
    }

    #[test]
    fn no_seconds_of_what_plans_do_not_know() {
        let of = setting(4, 1, 1);
        for unknown in [FanoutSetting { fanout: 2, ..of }, FanoutSetting { datacentres: 2, ..of }] {
            let predicted = PredictedSpread::of(&unknown).expect("a plan");
            assert_eq!((predicted.entered, predicted.max_s), (1.0, None));
        }
    }
}
