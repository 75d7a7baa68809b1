//! Stalls of N rollout groups, while a trainer publishes one version after another.

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::base::measure::median;
use crate::emulated::cluster::{EmulatedCluster, GroupSpec, WorkerGroup};
use crate::emulated::network::{GOODPUT, Shape};
use crate::emulated::orders::Order;
use crate::emulated::worker::TENSORS;

/// The network and the groups of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FanoutSetting {
    pub(crate) readers: usize,
    pub(crate) shards: usize,
    pub(crate) bytes: u64,
    /// Mbit/s.
    pub(crate) rate: u32,
    pub(crate) datacentres: usize,
    /// Mbit/s.
    pub(crate) slow: u32,
    pub(crate) fanout: u16,
    /// Readers on one host.
    pub(crate) ranks: usize,
    /// How many tensors all shards of a group hold. `None`: no two shards of a group are on one host.
    pub(crate) replicated: Option<u64>,
    pub(crate) repeat: usize,
}

impl FanoutSetting {
    /// Datacentre of a reader: the last half of the readers is in the second datacentre, if there are two.
    pub(crate) fn datacentre(&self, reader: usize) -> usize {
        usize::from(self.datacentres == 2 && reader >= self.readers.div_ceil(2))
    }

    /// The host of a reader's first shard, if the trainer's are the first ones.
    pub(crate) fn host(&self, reader: usize) -> usize {
        (1 + reader / self.ranks) * self.hosts()
    }

    /// Hosts of each group.
    pub(crate) fn hosts(&self) -> usize {
        if self.replicated.is_some() { 1 } else { self.shards }
    }

    /// Sets of hosts that readers share.
    pub(crate) fn sets(&self) -> usize {
        self.readers.div_ceil(self.ranks)
    }

    /// Bytes that the shards of a group hold together.
    pub(crate) fn held(&self) -> u64 {
        let replicated = self.replicated.unwrap_or_default() * (self.bytes / TENSORS);
        self.bytes + (self.shards as u64 - 1) * replicated
    }

    /// The network for a trainer, its readers and `spare` more groups near the trainer.
    pub(crate) fn shape(&self, spare: usize) -> Shape {
        let near = vec![0; (1 + spare) * self.hosts()];
        let hosts = self.sets() * self.hosts();
        let readers = (0..hosts).map(|i| self.datacentre(i / self.hosts() * self.ranks));
        Shape {
            hosts: near.into_iter().chain(readers).collect(),
            rate: format!("{}mbit", self.rate),
            slow: format!("{}mbit", self.slow),
        }
    }

    /// How rollouts are started.
    pub(crate) fn rollout(&self) -> GroupSpec {
        let (one_host, replicated) = (self.replicated.is_some(), self.replicated.unwrap_or(0));
        GroupSpec { one_host, replicated, ..GroupSpec::default() }
    }

    /// How the trainer is started, which shards everything.
    pub(crate) fn trainer(&self) -> GroupSpec {
        GroupSpec { trainer: true, replicated: 0, ..self.rollout() }
    }

    /// Bytes that each set of readers' hosts has received, behind the trainer's and those of `spare` more groups.
    pub(crate) fn received(&self, cluster: &EmulatedCluster, spare: usize) -> Result<Vec<u64>> {
        let (network, hosts) = (cluster.network()?, self.hosts());
        let first = |set: usize| (1 + spare + set) * hosts;
        let set = |set| (first(set)..first(set + 1)).map(|host| network.received(host)).sum();
        (0..self.sets()).map(set).collect()
    }

    /// Copies of the version that entered a host meanwhile. Where the reader that died was alone, no copy is needed.
    pub(crate) fn copies(&self, before: &[u64], after: &[u64], dead: Option<usize>) -> f64 {
        let readers = |set: usize| self.ranks.min(self.readers - set * self.ranks);
        let lost = dead.map(|reader| reader / self.ranks).filter(|set| readers(*set) == 1);
        let sets: Vec<usize> = (0..self.sets()).filter(|set| Some(*set) != lost).collect();
        let entered: u64 = sets.iter().map(|set| after[*set] - before[*set]).sum();
        entered as f64 / (sets.len() as u64 * self.bytes) as f64
    }

    /// Ideal seconds of what a host holds over the host's link.
    pub(crate) fn ideal_s(&self) -> f64 {
        seconds(self.bytes / self.hosts() as u64, self.rate)
    }

    /// Ideal seconds of a replica over the slow link, or over its hosts' links if these take
    /// longer.
    pub(crate) fn ideal_crossing_s(&self) -> f64 {
        self.ideal_s().max(seconds(self.bytes, self.slow))
    }

    /// Ideal seconds of a reader. All shards of a far reader share the slow link.
    fn ideal_of(&self, reader: usize) -> f64 {
        match self.datacentre(reader) {
            0 => self.ideal_s(),
            _ => self.ideal_crossing_s(),
        }
    }

    /// Sum of the ideal seconds of all readers.
    pub(crate) fn ideal_sum_s(&self) -> f64 {
        (0..self.readers).map(|reader| self.ideal_of(reader)).sum()
    }

    /// Ideal seconds of the slowest reader.
    pub(crate) fn ideal_max_s(&self) -> f64 {
        (0..self.readers).map(|reader| self.ideal_of(reader)).fold(0.0, f64::max)
    }
}

fn seconds(bytes: u64, mbit: u32) -> f64 {
    bytes as f64 * 8.0 / (f64::from(mbit) * 1e6 * GOODPUT)
}

/// Medians over all turns, and every turn.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SpreadTimes {
    /// Sum over the readers of the time from the publish to their commit.
    pub(crate) sum_s: f64,
    /// Time from the publish to the last reader's commit.
    pub(crate) max_s: f64,
    /// CPU seconds of all processes.
    pub(crate) cpu_s: f64,
    /// Copies of the version that crossed to the second datacentre.
    pub(crate) crossed: f64,
    /// Copies of the version that entered a host of readers.
    pub(crate) entered: f64,
    pub(crate) content_ok: bool,
    pub(crate) turns: Vec<SpreadTurn>,
}

/// One turn.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SpreadTurn {
    pub(crate) stalls_s: Vec<f64>,
    /// The last source of each reader.
    pub(crate) sources: Vec<String>,
    pub(crate) cpu_s: f64,
    pub(crate) crossed: f64,
    pub(crate) entered: f64,
    pub(crate) content_ok: bool,
}

impl SpreadTimes {
    /// Builds the hosts, plays all turns, and removes the hosts.
    pub(crate) fn measure(setting: &FanoutSetting) -> Result<Self> {
        let fanout = setting.fanout.to_string();
        let serve = ["--fanout", &fanout];
        let shards = setting.shards as u32;
        let cluster = EmulatedCluster::start(&setting.shape(0), shards, setting.bytes, &serve)?;
        let mut trainer = cluster.group("trainer", setting.trainer())?;
        let readers = (0..setting.readers).map(|reader| {
            let host = setting.host(reader);
            let datacentre = setting.datacentre(reader);
            let place = GroupSpec { host, datacentre, ..setting.rollout() };
            cluster.group(&format!("rollout{reader:02}"), place)
        });
        let mut readers = readers.collect::<Result<Vec<_>>>()?;
        // The first turn connects and plans, so it is not counted.
        turn(&cluster, setting, &mut trainer, &mut readers, 1)?;
        let turns = (2..2 + setting.repeat as u64)
            .map(|version| turn(&cluster, setting, &mut trainer, &mut readers, version));
        Ok(Self::of(turns.collect::<Result<Vec<_>>>()?))
    }

    fn of(turns: Vec<SpreadTurn>) -> Self {
        let over = |value: &dyn Fn(&SpreadTurn) -> f64| {
            median(&turns.iter().map(value).collect::<Vec<_>>())
        };
        Self {
            sum_s: over(&|turn| turn.stalls_s.iter().sum()),
            max_s: over(&|turn| turn.stalls_s.iter().copied().fold(0.0, f64::max)),
            cpu_s: over(&|turn| turn.cpu_s),
            crossed: over(&|turn| turn.crossed),
            entered: over(&|turn| turn.entered),
            content_ok: turns.iter().all(|turn| turn.content_ok),
            turns,
        }
    }
}

fn turn(
    cluster: &EmulatedCluster,
    setting: &FanoutSetting,
    trainer: &mut WorkerGroup,
    readers: &mut [WorkerGroup],
    version: u64,
) -> Result<SpreadTurn> {
    // A group that held a version would keep it, and not wait, while the next version still
    // crosses.
    if setting.datacentres > 1 {
        for reader in readers.iter_mut() {
            reader.order(&Order::Clear)?;
            reader.replies()?;
        }
    }
    let (crossed, received) = (cluster.network()?.crossed()?, setting.received(cluster, 0)?);
    let published = trainer.publish(version)?;
    let cpu = cpu_seconds(cluster, trainer, readers)?;
    readers.iter_mut().try_for_each(|reader| reader.order(&Order::Update { version }))?;
    let updates = readers.iter_mut().map(WorkerGroup::updated).collect::<Result<Vec<_>>>()?;
    let cpu_s = cpu_seconds(cluster, trainer, readers)? - cpu;
    let crossed = (cluster.network()?.crossed()? - crossed) as f64 / setting.bytes as f64;
    let entered = setting.copies(&received, &setting.received(cluster, 0)?, None);
    let mut content_ok = true;
    for (update, reader) in updates.iter().zip(readers) {
        ensure!(update.version == Some(version), "{} holds {:?}", reader.name, update.version);
        ensure!(update.way == "tcp", "bytes came past the emulated network: {}", update.way);
        content_ok &= update.verified == setting.held() && update.bytes == setting.held();
        content_ok &= reader.holds(version)?;
    }
    let stall = |done_ns: u64| done_ns.saturating_sub(published) as f64 / 1e9;
    Ok(SpreadTurn {
        stalls_s: updates.iter().map(|update| stall(update.done_ns)).collect(),
        sources: updates.into_iter().filter_map(|update| update.source).collect(),
        cpu_s,
        crossed,
        entered,
        content_ok,
    })
}

fn cpu_seconds(
    cluster: &EmulatedCluster,
    trainer: &WorkerGroup,
    readers: &[WorkerGroup],
) -> Result<f64> {
    let workers = readers.iter().chain([trainer]).map(WorkerGroup::cpu_seconds);
    Ok(workers.sum::<Result<f64>>()? + cluster.cpu_seconds()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_told_as_medians() {
        let turn = |stalls_s: &[f64], cpu_s, crossed, content_ok| SpreadTurn {
            stalls_s: stalls_s.to_vec(),
            sources: Vec::new(),
            cpu_s,
            crossed,
            entered: 2.0 * cpu_s,
            content_ok,
        };
        for wrong in 0..4 {
            let turns = vec![
                turn(&[1.0, 3.0, 2.0], 5.0, 1.0, wrong != 0),
                turn(&[2.0, 2.0, 8.0], 9.0, 0.0, wrong != 1),
                turn(&[1.0, 4.0, 3.0], 4.0, 2.0, wrong != 2),
            ];
            let spread = SpreadTimes::of(turns);
            assert_eq!((spread.sum_s, spread.max_s), (8.0, 4.0));
            assert_eq!((spread.cpu_s, spread.crossed, spread.entered), (5.0, 1.0, 10.0));
            assert_eq!((spread.content_ok, spread.turns.len()), (wrong == 3, 3));
        }
    }

    fn setting(readers: usize, datacentres: usize) -> FanoutSetting {
        let (shards, bytes, rate, slow) = (2, 100_000_000, 800, 200);
        let (fanout, ranks, repeat) = (1, 1, 1);
        let replicated = None;
        FanoutSetting {
            readers,
            shards,
            bytes,
            rate,
            datacentres,
            slow,
            fanout,
            ranks,
            replicated,
            repeat,
        }
    }

    #[test]
    fn readers_share_hosts() {
        for (ranks, sets, of_each) in
            [(1, 5, [2, 4, 6, 8, 10]), (2, 3, [2, 2, 4, 4, 6]), (8, 1, [2; 5])]
        {
            let of = FanoutSetting { ranks, ..setting(5, 1) };
            assert_eq!(of.shape(0).hosts.len(), 2 + 2 * sets, "{ranks}");
            assert_eq!([0, 1, 2, 3, 4].map(|reader| of.host(reader)), of_each, "{ranks}");
            assert_eq!(of.sets(), sets, "{ranks}");
        }
    }

    /// The hosts of a reader that died count if another reader has them too.
    #[test]
    fn copies_are_those_that_survivors_need() {
        let of = FanoutSetting { ranks: 2, ..setting(5, 1) };
        let copies = |after: [u64; 3], dead| {
            of.copies(&[7; 3], &after.map(|copies| 7 + copies * of.bytes), dead)
        };
        assert_eq!(copies([1, 1, 1], None), 1.0);
        assert_eq!(copies([1, 2, 3], None), 2.0);
        assert_eq!(copies([1, 2, 3], Some(3)), 2.0);
        assert_eq!(copies([1, 2, 3], Some(4)), 1.5);
    }

    #[test]
    fn the_last_half_of_the_readers_is_far_away() {
        let far = |readers, datacentres| {
            let of = setting(readers, datacentres);
            (0..readers).map(|reader| of.datacentre(reader)).collect::<Vec<_>>()
        };
        assert_eq!(far(4, 1), [0; 4]);
        assert_eq!(far(4, 2), [0, 0, 1, 1]);
        assert_eq!(far(5, 2), [0, 0, 0, 1, 1]);
        // A trainer of two shards, one group more, then three readers.
        assert_eq!(setting(3, 2).shape(1).hosts, [0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
    }

    #[test]
    fn what_would_be_ideal() {
        // Half of the bytes over each link; all of them over the slow one.
        let near = 4e8 / (8e8 * GOODPUT);
        let far = 8e8 / (2e8 * GOODPUT);
        let alike = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{a} {b}");
        alike(setting(3, 1).ideal_sum_s(), 3.0 * near);
        alike(setting(3, 1).ideal_max_s(), near);
        alike(setting(3, 2).ideal_sum_s(), 2.0 * near + far);
        alike(setting(3, 2).ideal_max_s(), far);
    }
}
