//! A source is killed in the middle of a transfer. All others must finish; how much later do they?
//!
//! The trainer is never killed, because only the trainer is sure to have all bytes. The victim is a
//! relay that others read from, if there is one, else a rollout that holds the whole version. All
//! shards of the victim die at once.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use super::predicted::PredictedSpread;
use super::spread::FanoutSetting;
use crate::base::measure::median;
use crate::emulated::cluster::{EmulatedCluster, GroupSpec, WorkerGroup};
use crate::emulated::orders::Order;

/// The cost of deaths at one percentage.
#[derive(Debug, Serialize)]
pub(crate) struct Killed {
    pub(crate) readers: usize,
    pub(crate) shards: usize,
    pub(crate) percent: u8,
    /// Median of the last reader's stall without a death.
    pub(crate) undisturbed_s: f64,
    /// Median of the last survivor's stall.
    pub(crate) max_s: f64,
    pub(crate) extra_s: f64,
    pub(crate) ideal_s: f64,
    /// Readers on one host.
    pub(crate) ranks: usize,
    /// How many of the 16 tensors all shards of a group hold, on one host.
    pub(crate) replicated: Option<u64>,
    /// Copies of the version that entered a host of survivors, the median of the turns with a death.
    pub(crate) entered: f64,
    /// Without a death.
    pub(crate) predicted: PredictedSpread,
    /// The source that was killed in each turn.
    pub(crate) victims: Vec<Victim>,
    pub(crate) content_ok: bool,
}

/// A source that was killed, and whether it was still receiving.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Victim {
    pub(crate) name: String,
    pub(crate) in_flight: bool,
}

/// Measures all percentages on one network.
pub(crate) fn measure(setting: &FanoutSetting, percents: &[u8]) -> Result<Vec<Killed>> {
    let mut scene = KillingRun::start(setting)?;
    scene.turn(None)?;
    let undisturbed = (0..setting.repeat).map(|_| Ok(scene.turn(None)?.max_s));
    let undisturbed_s = median(&undisturbed.collect::<Result<Vec<_>>>()?);
    let predicted = PredictedSpread::of(setting)?;
    let mut killed = Vec::new();
    for percent in percents {
        let turns = (0..setting.repeat).map(|_| scene.turn(Some(*percent)));
        let turns = turns.collect::<Result<Vec<_>>>()?;
        let over =
            |value: fn(&KillingTurn) -> f64| median(&turns.iter().map(value).collect::<Vec<_>>());
        let max_s = over(|turn| turn.max_s);
        killed.push(Killed {
            readers: setting.readers,
            shards: setting.shards,
            percent: *percent,
            undisturbed_s,
            max_s,
            extra_s: max_s - undisturbed_s,
            ideal_s: setting.ideal_s(),
            ranks: setting.ranks,
            replicated: setting.replicated,
            entered: over(|turn| turn.entered),
            predicted,
            content_ok: turns.iter().all(|turn| turn.content_ok),
            victims: turns.into_iter().filter_map(|turn| turn.victim).collect(),
        });
    }
    Ok(killed)
}

/// One turn.
struct KillingTurn {
    /// The last survivor's stall.
    max_s: f64,
    entered: f64,
    victim: Option<Victim>,
    content_ok: bool,
}

struct KillingRun<'a> {
    setting: &'a FanoutSetting,
    trainer: WorkerGroup,
    /// The first group is filled before the others ask, so that the trainer is not the only source.
    rollouts: Vec<WorkerGroup>,
    version: u64,
    started: usize,
    cluster: EmulatedCluster,
}

impl<'a> KillingRun<'a> {
    fn start(setting: &'a FanoutSetting) -> Result<Self> {
        let fanout = setting.fanout.to_string();
        let serve = ["--fanout", &fanout];
        let shards = setting.shards as u32;
        let cluster = EmulatedCluster::start(&setting.shape(1), shards, setting.bytes, &serve)?;
        let trainer = cluster.group("trainer", setting.trainer())?;
        let mut scene =
            Self { setting, trainer, rollouts: Vec::new(), version: 0, started: 0, cluster };
        for index in 0..=setting.readers {
            let group = scene.rollout(index)?;
            scene.rollouts.push(group);
        }
        Ok(scene)
    }

    /// Starts a rollout under a new name, because the lease of the old name may still run.
    fn rollout(&mut self, index: usize) -> Result<WorkerGroup> {
        self.started += 1;
        // The first one's hosts follow the trainer's.
        let before = index.checked_sub(1).map_or(0, |reader| self.setting.host(reader));
        let host = before + self.setting.hosts();
        self.cluster.group(
            &format!("rollout{index:02}-{}", self.started),
            GroupSpec { host, ..self.setting.rollout() },
        )
    }

    /// One turn: publishes, fills the first rollout, orders all others to update, and kills a
    /// source after a percentage of the ideal time.
    fn turn(&mut self, percent: Option<u8>) -> Result<KillingTurn> {
        self.version += 1;
        let version = self.version;
        self.trainer.publish(version)?;
        self.rollouts[0].order(&Order::Update { version })?;
        self.rollouts[0].updated()?;
        let before = self.setting.received(&self.cluster, 1)?;
        for reader in &mut self.rollouts[1..] {
            reader.order(&Order::Update { version })?;
        }
        let victim = percent.map(|percent| self.kill(percent)).transpose()?;
        let dead = victim.as_ref().map(|(dead, _)| *dead);
        let (mut called, mut done, mut content_ok) = (u64::MAX, 0, true);
        for (index, reader) in self.rollouts.iter_mut().enumerate() {
            if index == 0 || dead == Some(index) {
                continue;
            }
            let updated = reader.updated()?;
            ensure!(
                updated.version == Some(version),
                "{} holds {:?}",
                reader.name,
                updated.version
            );
            ensure!(updated.way == "tcp", "bytes came past the emulated network: {}", updated.way);
            content_ok &= reader.holds(version)? && updated.verified == self.setting.held();
            called = called.min(updated.called_ns);
            done = done.max(updated.done_ns);
        }
        let after = self.setting.received(&self.cluster, 1)?;
        if let Some(index) = dead {
            self.rollouts[index] = self.rollout(index)?;
        }
        Ok(KillingTurn {
            max_s: done.saturating_sub(called) as f64 / 1e9,
            entered: self.setting.copies(
                &before,
                &after,
                dead.and_then(|index| index.checked_sub(1)),
            ),
            victim: victim.map(|(_, victim)| victim),
            content_ok,
        })
    }

    fn kill(&mut self, percent: u8) -> Result<(usize, Victim)> {
        thread::sleep(Duration::from_secs_f64(self.setting.ideal_s() * f64::from(percent) / 100.0));
        let edges = self.cluster.edges()?;
        let in_flight = |name: &str| edges.iter().any(|(reader, _)| reader == name);
        let sources = edges.iter().map(|(_, source)| source.as_str());
        let source = sources
            .filter(|source| *source != "trainer")
            .max_by_key(|source| in_flight(source))
            .context("nobody but the trainer is a source: give --readers 2 or more")?;
        let index = self.rollouts.iter().position(|group| group.name == source);
        let index = index.context("a source that was never started")?;
        let victim = Victim { name: source.to_owned(), in_flight: in_flight(source) };
        self.rollouts[index].kill();
        Ok((index, victim))
    }
}
