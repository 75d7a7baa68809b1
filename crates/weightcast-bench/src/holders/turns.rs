//! One reader that updates to version after version, which all holders have published.

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::base::measure::median;
use crate::emulated::cluster::{EmulatedCluster, GroupSpec, WorkerGroup};
use crate::emulated::network::{GOODPUT, Shape};
use crate::emulated::orders::Order;

/// The links and the sizes of a measurement.
#[derive(Clone, Debug)]
pub(crate) struct HoldersSetting {
    /// At which each holder sends, in Mbit/s.
    pub(crate) rates: Vec<u32>,
    pub(crate) bytes: u64,
    /// Of the reader, in Mbit/s.
    pub(crate) rate: u32,
    pub(crate) repeat: usize,
}

impl HoldersSetting {
    /// Seconds over the reader's link, or over those of all holders together, if these are slower.
    pub(crate) fn ideal_s(&self) -> f64 {
        self.seconds(self.rates.iter().sum())
    }

    /// Seconds from the fastest holder alone.
    pub(crate) fn fastest_alone_s(&self) -> f64 {
        self.seconds(self.rates.iter().copied().max().unwrap_or_default())
    }

    fn seconds(&self, rate: u32) -> f64 {
        self.bytes as f64 * 8.0 / (f64::from(rate.min(self.rate)) * 1e6 * GOODPUT)
    }
}

/// The median over all turns, and every turn.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ReadTimes {
    /// Seconds of the update.
    pub(crate) update_s: f64,
    /// Bytes that each holder gave, over all turns, in the order of the rates.
    pub(crate) given: Vec<u64>,
    pub(crate) content_ok: bool,
    pub(crate) turns_s: Vec<f64>,
}

/// One update.
struct ReadTurn {
    seconds: f64,
    given: Vec<u64>,
    content_ok: bool,
}

impl ReadTimes {
    /// Builds the hosts, plays all turns, and removes the hosts. `together`: as a server does by default; else
    /// the reader never draws from several.
    pub(crate) fn measure(setting: &HoldersSetting, together: bool) -> Result<Self> {
        let holders = setting.rates.len();
        let rate = format!("{}mbit", setting.rate);
        let shape = Shape { hosts: vec![0; 1 + holders], rate: rate.clone(), slow: rate };
        let serve: &[&str] = if together { &[] } else { &["--stripes", "1"] };
        let cluster = EmulatedCluster::start(&shape, 1, setting.bytes, serve)?;
        let mut trainers = Vec::with_capacity(holders);
        for (holder, rate) in setting.rates.iter().enumerate() {
            cluster.network()?.set_sending_rate(1 + holder, &format!("{rate}mbit"))?;
            let place = GroupSpec { host: 1 + holder, trainer: true, ..GroupSpec::default() };
            trainers.push(cluster.group(&name(holder), place)?);
        }
        let mut reader = cluster.group("rollout", GroupSpec::default())?;
        // The first turn connects and plans, so it is not counted.
        turn(setting, &mut trainers, &mut reader, 1)?;
        let turns = (2..2 + setting.repeat as u64)
            .map(|version| turn(setting, &mut trainers, &mut reader, version))
            .collect::<Result<Vec<_>>>()?;
        let turns_s: Vec<f64> = turns.iter().map(|turn| turn.seconds).collect();
        let given = |holder: usize| turns.iter().map(|turn| turn.given[holder]).sum();
        Ok(Self {
            update_s: median(&turns_s),
            given: (0..holders).map(given).collect(),
            content_ok: turns.iter().all(|turn| turn.content_ok),
            turns_s,
        })
    }
}

fn name(holder: usize) -> String {
    format!("trainer{holder:02}")
}

fn turn(
    setting: &HoldersSetting,
    trainers: &mut [WorkerGroup],
    reader: &mut WorkerGroup,
    version: u64,
) -> Result<ReadTurn> {
    for trainer in trainers.iter_mut() {
        trainer.publish(version)?;
    }
    // Who is not sealed when a read begins does not help.
    for trainer in trainers.iter_mut() {
        trainer.order(&Order::Seal)?;
        trainer.replies()?;
    }
    reader.order(&Order::Update { version })?;
    let update = reader.updated()?;
    ensure!(update.version == Some(version), "the reader holds {:?}", update.version);
    ensure!(update.way == "tcp", "bytes came past the emulated network: {}", update.way);
    let mut given = vec![0; trainers.len()];
    for (replica, bytes) in update.source.iter().chain(&update.helpers).zip(&update.given) {
        let holder = (0..given.len()).find(|holder| name(*holder) == *replica);
        given[holder.ok_or_else(|| anyhow::anyhow!("{replica} holds nothing"))?] = *bytes;
    }
    let content_ok = update.verified == setting.bytes && reader.holds(version)?;
    let seconds = update.done_ns.saturating_sub(update.called_ns) as f64 / 1e9;
    Ok(ReadTurn { seconds, given, content_ok })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_links_say_what_is_ideal() {
        let setting = |rates: &[u32], rate| HoldersSetting {
            rates: rates.to_vec(),
            bytes: 1_000_000,
            rate,
            repeat: 1,
        };
        let alike = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{a} {b}");
        alike(setting(&[10, 30], 100).ideal_s(), 8e6 / (40e6 * GOODPUT));
        alike(setting(&[10, 30], 20).ideal_s(), 8e6 / (20e6 * GOODPUT));
        alike(setting(&[10, 30], 100).fastest_alone_s(), 8e6 / (30e6 * GOODPUT));
        alike(setting(&[10, 30], 20).fastest_alone_s(), 8e6 / (20e6 * GOODPUT));
    }
}
