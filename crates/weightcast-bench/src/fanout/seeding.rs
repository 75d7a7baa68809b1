//! Two datacentres with offload seeding: readers far from the trainer poll while a version crosses.
//! How long does each poll take, and how long the poll that reads the version once it has crossed?

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Serialize;

use super::spread::FanoutSetting;
use crate::base::measure::median;
use crate::emulated::cluster::{EmulatedCluster, GroupSpec, WorkerGroup};
use crate::emulated::orders::{Order, WorkerUpdate};

/// Pause between two polls of a reader.
const EVERY: Duration = Duration::from_millis(50);

/// How long readers poll for one version: longer than any crossing worth measuring.
const PATIENCE: Duration = Duration::from_secs(300);

/// Medians over all turns, and every turn. Times are in seconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Seeded {
    pub(crate) readers: usize,
    pub(crate) shards: usize,
    /// Ideal time of a shard over a host's link.
    pub(crate) ideal_s: f64,
    /// Ideal time of a replica over the slow link.
    pub(crate) ideal_crossing_s: f64,
    /// Copies of the version that crossed.
    pub(crate) crossed: f64,
    /// From the publish until the call of the first far reader that got the version.
    pub(crate) crossing_s: f64,
    /// How many updates of far readers came back unchanged.
    pub(crate) polls: usize,
    /// The longest of these, of all turns.
    pub(crate) longest_poll_s: f64,
    /// Median time of a far reader's update that read the version.
    pub(crate) consume_s: f64,
    /// The longest of these, of all turns.
    pub(crate) longest_consume_s: f64,
    /// From the publish to the last commit in the trainer's datacentre.
    pub(crate) near_s: f64,
    pub(crate) content_ok: bool,
    pub(crate) turns: Vec<SeedingTurn>,
}

/// One turn.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct SeedingTurn {
    pub(crate) crossed: f64,
    pub(crate) crossing_s: f64,
    pub(crate) near_s: f64,
    /// Time of each update that came back unchanged.
    pub(crate) polls_s: Vec<f64>,
    /// Time of each update that read the version.
    pub(crate) consumes_s: Vec<f64>,
    /// The source of each of these.
    pub(crate) sources: Vec<String>,
    pub(crate) content_ok: bool,
}

/// Builds the hosts, plays all turns, and removes the hosts.
pub(crate) fn measure(setting: &FanoutSetting) -> Result<Seeded> {
    let fanout = setting.fanout.to_string();
    let shards = setting.shards as u32;
    let shape = setting.shape(0);
    let cluster = EmulatedCluster::start(&shape, shards, setting.bytes, &["--fanout", &fanout])?;
    let mut trainer =
        cluster.group("trainer", GroupSpec { trainer: true, ..GroupSpec::default() })?;
    let reader = |reader: usize| {
        let (host, datacentre) = (setting.host(reader), setting.datacentre(reader));
        let offload_seeding = datacentre > 0;
        let place = GroupSpec { host, datacentre, offload_seeding, ..GroupSpec::default() };
        cluster.group(&format!("rollout{reader:02}"), place)
    };
    let mut near = (0..setting.readers)
        .filter(|reader| setting.datacentre(*reader) == 0)
        .map(reader)
        .collect::<Result<Vec<_>>>()?;
    let mut far = (0..setting.readers)
        .filter(|reader| setting.datacentre(*reader) > 0)
        .map(reader)
        .collect::<Result<Vec<_>>>()?;
    // A group that holds nothing waits for its first version, so all groups hold a version before
    // the measurement begins.
    trainer.publish(1)?;
    for group in near.iter_mut().chain(&mut far) {
        group.order(&Order::Update { version: 1 })?;
    }
    near.iter_mut().chain(&mut far).try_for_each(|group| group.updated().map(drop))?;
    let turns = (2..2 + setting.repeat as u64)
        .map(|version| turn(&cluster, setting, &mut trainer, &mut near, &mut far, version));
    Ok(Seeded::of(setting, turns.collect::<Result<Vec<_>>>()?))
}

impl Seeded {
    fn of(setting: &FanoutSetting, turns: Vec<SeedingTurn>) -> Self {
        let over = |value: &dyn Fn(&SeedingTurn) -> f64| {
            median(&turns.iter().map(value).collect::<Vec<_>>())
        };
        let polls: Vec<f64> = turns.iter().flat_map(|turn| turn.polls_s.clone()).collect();
        let consumes: Vec<f64> = turns.iter().flat_map(|turn| turn.consumes_s.clone()).collect();
        Self {
            readers: setting.readers,
            shards: setting.shards,
            ideal_s: setting.ideal_s(),
            ideal_crossing_s: setting.ideal_crossing_s(),
            crossed: over(&|turn| turn.crossed),
            crossing_s: over(&|turn| turn.crossing_s),
            polls: polls.len(),
            longest_poll_s: longest(&polls),
            consume_s: median(&consumes),
            longest_consume_s: longest(&consumes),
            near_s: over(&|turn| turn.near_s),
            content_ok: turns.iter().all(|turn| turn.content_ok),
            turns,
        }
    }
}

fn longest(times: &[f64]) -> f64 {
    times.iter().copied().fold(0.0, f64::max)
}

fn turn(
    cluster: &EmulatedCluster,
    setting: &FanoutSetting,
    trainer: &mut WorkerGroup,
    near: &mut [WorkerGroup],
    far: &mut [WorkerGroup],
    version: u64,
) -> Result<SeedingTurn> {
    let before = cluster.network()?.crossed()?;
    let published = trainer.publish(version)?;
    near.iter_mut().try_for_each(|group| group.order(&Order::Update { version }))?;
    let mut turn = SeedingTurn { content_ok: true, ..SeedingTurn::default() };
    let mut first = u64::MAX;
    let mut waiting: Vec<&mut WorkerGroup> = far.iter_mut().collect();
    let until = Instant::now() + PATIENCE;
    while !waiting.is_empty() {
        ensure!(Instant::now() < until, "nobody seeded version {version} within {PATIENCE:?}");
        waiting.iter_mut().try_for_each(|group| group.order(&Order::Latest))?;
        let mut unchanged = Vec::new();
        for group in waiting {
            let updated = group.updated()?;
            let stall = seconds(updated.called_ns, updated.done_ns);
            if updated.version == Some(version) {
                first = first.min(updated.called_ns);
                turn.consumes_s.push(stall);
                turn.sources.extend(updated.source.clone());
                turn.content_ok &= verified(setting, group, &updated, version)?;
            } else {
                turn.polls_s.push(stall);
                unchanged.push(group);
            }
        }
        waiting = unchanged;
        thread::sleep(EVERY);
    }
    for group in near {
        let updated = group.updated()?;
        ensure!(updated.version == Some(version), "{} holds {:?}", group.name, updated.version);
        turn.near_s = turn.near_s.max(seconds(published, updated.done_ns));
        turn.content_ok &= verified(setting, group, &updated, version)?;
    }
    turn.crossing_s = seconds(published, first);
    turn.crossed = (cluster.network()?.crossed()? - before) as f64 / setting.bytes as f64;
    Ok(turn)
}

fn seconds(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e9
}

fn verified(
    setting: &FanoutSetting,
    group: &mut WorkerGroup,
    updated: &WorkerUpdate,
    version: u64,
) -> Result<bool> {
    ensure!(updated.way == "tcp", "bytes came past the emulated network: {}", updated.way);
    let all = updated.verified == setting.bytes && updated.bytes == setting.bytes;
    Ok(all && group.holds(version)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_told_as_medians_and_the_longest() {
        let turn = |crossing_s, polls_s: &[f64], consumes_s: &[f64], content_ok| SeedingTurn {
            crossed: crossing_s * 2.0,
            crossing_s,
            near_s: crossing_s * 3.0,
            polls_s: polls_s.to_vec(),
            consumes_s: consumes_s.to_vec(),
            sources: Vec::new(),
            content_ok,
        };
        let setting = FanoutSetting {
            readers: 4,
            shards: 2,
            bytes: 1 << 20,
            rate: 100,
            datacentres: 2,
            slow: 50,
            fanout: 1,
            ranks: 1,
            replicated: None,
            repeat: 3,
        };
        for wrong in 0..4 {
            let turns = vec![
                turn(1.0, &[0.5, 0.25], &[4.0], wrong != 0),
                turn(3.0, &[], &[1.0, 2.0], wrong != 1),
                turn(2.0, &[0.125], &[3.0, 9.0], wrong != 2),
            ];
            let seeded = Seeded::of(&setting, turns);
            assert_eq!((seeded.crossing_s, seeded.crossed, seeded.near_s), (2.0, 4.0, 6.0));
            assert_eq!((seeded.polls, seeded.longest_poll_s), (3, 0.5));
            assert_eq!((seeded.consume_s, seeded.longest_consume_s), (3.0, 9.0));
            assert_eq!((seeded.ideal_s, seeded.content_ok), (setting.ideal_s(), wrong == 3));
            assert_eq!(seeded.ideal_crossing_s, setting.ideal_crossing_s());
        }
        assert_eq!(seconds(1_000_000_000, 3_500_000_000), 2.5);
        assert_eq!(seconds(2, 1), 0.0);
    }
}
