//! A source is killed in the middle of a transfer. All others must finish; how much later do they?
//!
//! The trainer is never killed, because only the trainer is sure to have all bytes. The victim is a
//! relay that others read from, if there is one, else a rollout that holds the whole version.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use super::spread::{FanoutSetting, received};
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
    /// Copies of the version that entered a host of readers, the median of the turns with a death.
    pub(crate) entered: f64,
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
    let undisturbed = (0..setting.repeat).map(|_| Ok(scene.turn(None)?.0));
    let undisturbed_s = median(&undisturbed.collect::<Result<Vec<_>>>()?);
    let mut killed = Vec::new();
    for percent in percents {
        let (mut last, mut victims, mut content_ok) = (Vec::new(), Vec::new(), true);
        let mut entered = Vec::new();
        for _ in 0..setting.repeat {
            let before = scene.entered()?;
            let (max_s, victim, ok) = scene.turn(Some(*percent))?;
            entered.push((scene.entered()? - before) as f64 / setting.entering() as f64);
            last.push(max_s);
            victims.extend(victim);
            content_ok &= ok;
        }
        let max_s = median(&last);
        killed.push(Killed {
            readers: setting.readers,
            shards: setting.shards,
            percent: *percent,
            undisturbed_s,
            max_s,
            extra_s: max_s - undisturbed_s,
            ideal_s: setting.ideal_s(),
            ranks: setting.ranks,
            entered: median(&entered),
            victims,
            content_ok,
        });
    }
    Ok(killed)
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
        let trainer =
            cluster.group("trainer", GroupSpec { trainer: true, ..GroupSpec::default() })?;
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
        let host = before + self.setting.shards;
        self.cluster.group(
            &format!("rollout{index:02}-{}", self.started),
            GroupSpec { host, ..GroupSpec::default() },
        )
    }

    /// Bytes that the hosts of readers have received, without the first rollout's.
    fn entered(&self) -> Result<u64> {
        let end = self.setting.host(self.setting.readers - 1) + 2 * self.setting.shards;
        received(&self.cluster, 2 * self.setting.shards..end)
    }

    /// One turn: publishes, fills the first rollout, orders all others to update, and kills a
    /// source after a percentage of the ideal time. Returns the last survivor's stall, the victim,
    /// and whether all content was right.
    fn turn(&mut self, percent: Option<u8>) -> Result<(f64, Option<Victim>, bool)> {
        self.version += 1;
        let version = self.version;
        self.trainer.publish(version)?;
        self.rollouts[0].order(&Order::Update { version })?;
        self.rollouts[0].updated()?;
        for reader in &mut self.rollouts[1..] {
            reader.order(&Order::Update { version })?;
        }
        let victim = percent.map(|percent| self.kill(percent)).transpose()?;
        let (mut called, mut done, mut content_ok) = (u64::MAX, 0, true);
        for (index, reader) in self.rollouts.iter_mut().enumerate() {
            if index == 0 || victim.as_ref().is_some_and(|(dead, _)| *dead == index) {
                continue;
            }
            let updated = reader.updated()?;
            ensure!(
                updated.version == Some(version),
                "{} holds {:?}",
                reader.name,
                updated.version
            );
            content_ok &= reader.holds(version)? && updated.verified == self.setting.bytes;
            called = called.min(updated.called_ns);
            done = done.max(updated.done_ns);
        }
        let mut died = None;
        if let Some((index, victim)) = victim {
            self.rollouts[index] = self.rollout(index)?;
            died = Some(victim);
        }
        Ok((done.saturating_sub(called) as f64 / 1e9, died, content_ok))
    }

    fn kill(&mut self, percent: u8) -> Result<(usize, Victim)> {
        thread::sleep(Duration::from_secs_f64(self.setting.ideal_s() * f64::from(percent) / 100.0));
        let edges = self.cluster.edges()?;
        let in_flight = |name: &str| edges.iter().any(|(reader, _)| reader == name);
        let sources = edges.iter().map(|(_, source)| source.as_str());
        let source = sources
            .filter(|source| *source != "trainer")
            .max_by_key(|source| in_flight(source))
            .context("nobody but the trainer is a source")?;
        let index = self.rollouts.iter().position(|group| group.name == source);
        let index = index.context("a source that was never started")?;
        let victim = Victim { name: source.to_owned(), in_flight: in_flight(source) };
        self.rollouts[index].kill();
        Ok((index, victim))
    }
}
