//! What may happen to a process, its host, or its link.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;

use crate::emulated::cluster::{EmulatedCluster, WorkerGroup};

/// Random numbers from a seed (SplitMix64).
pub(crate) struct FaultDraw(pub(crate) u64);

impl FaultDraw {
    /// A number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// The groups that faults can strike.
pub(crate) struct RigSize {
    pub(crate) rollouts: usize,
    pub(crate) shards: usize,
    /// Whether hosts are emulated, so that there are links to strike.
    pub(crate) emulated: bool,
}

/// One fault of one shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    kind: ProcessFault,
    /// 0 is the trainer.
    group: usize,
    shard: usize,
    /// Time from the order to update until the fault.
    after: Duration,
    /// How long the fault lasts.
    lasting: Duration,
}

#[derive(Clone, Copy, Debug)]
enum ProcessFault {
    Nothing,
    /// SIGKILL.
    Kill,
    /// SIGSTOP, then SIGCONT. The process is a zombie if the stop outlasts its lease.
    Stop,
    /// The link goes down and up again.
    Cut,
    /// The host receives at a hundredth of its usual rate.
    Slow,
}

const NORMAL: &str = "400mbit";
const SLOW: &str = "4mbit";

impl Fault {
    /// Draws a fault. The trainer is never killed, because no other group is sure to have the
    /// version.
    pub(crate) fn draw(random: &mut FaultDraw, size: &RigSize) -> Self {
        let kinds: &[ProcessFault] = match size.emulated {
            true => &[
                ProcessFault::Nothing,
                ProcessFault::Kill,
                ProcessFault::Stop,
                ProcessFault::Cut,
                ProcessFault::Slow,
            ],
            false => &[ProcessFault::Nothing, ProcessFault::Kill, ProcessFault::Stop],
        };
        let kind = kinds[random.below(kinds.len() as u64) as usize];
        let group = random.below(size.rollouts as u64 + 1) as usize;
        let group = if matches!(kind, ProcessFault::Kill) { group.max(1) } else { group };
        let shard = random.below(size.shards as u64) as usize;
        // Without slow links a transfer takes milliseconds.
        let after = Duration::from_millis(random.below(if size.emulated { 200 } else { 10 }));
        // Shorter than the lease of one second, and longer.
        let lasting = Duration::from_millis([50, 300, 1_800][random.below(3) as usize]);
        Self { kind, group, shard, after, lasting }
    }

    pub(crate) fn name(self) -> &'static str {
        match self.kind {
            ProcessFault::Nothing => "nothing",
            ProcessFault::Kill => "kill",
            ProcessFault::Stop => "stop",
            ProcessFault::Cut => "cut",
            ProcessFault::Slow => "slow",
        }
    }

    /// Lets the fault happen, and ends it.
    pub(crate) fn happen(self, groups: &[&WorkerGroup], cluster: &EmulatedCluster) -> Result<()> {
        thread::sleep(self.after);
        let group = groups.get(self.group).context("a group that is there")?;
        let worker = &group.workers[self.shard];
        let host = self.group * group.workers.len() + self.shard;
        match self.kind {
            ProcessFault::Nothing => {}
            ProcessFault::Kill => worker.signal(Signal::KILL),
            ProcessFault::Stop => {
                worker.signal(Signal::STOP);
                thread::sleep(self.lasting);
                worker.signal(Signal::CONT);
            }
            ProcessFault::Cut => {
                cluster.network()?.set_link(host, false)?;
                thread::sleep(self.lasting);
                cluster.network()?.set_link(host, true)?;
            }
            ProcessFault::Slow => {
                cluster.network()?.set_rate(host, SLOW)?;
                thread::sleep(self.lasting);
                cluster.network()?.set_rate(host, NORMAL)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every fault strikes every shard, but the trainer is never killed. Links are struck only
    /// where there are any.
    #[test]
    fn every_fault_is_drawn_and_the_trainer_lives() {
        for (emulated, names) in [
            (true, &["nothing", "kill", "stop", "cut", "slow"][..]),
            (false, &["nothing", "kill", "stop"]),
        ] {
            let (size, mut random) = (RigSize { rollouts: 3, shards: 2, emulated }, FaultDraw(1));
            let drawn: Vec<Fault> = (0..2_000).map(|_| Fault::draw(&mut random, &size)).collect();
            for name in names {
                for (group, shard) in (0..=3).flat_map(|group| [(group, 0), (group, 1)]) {
                    let hit =
                        |f: &&Fault| f.name() == *name && (f.group, f.shard) == (group, shard);
                    let dies = drawn.iter().any(|fault| hit(&fault));
                    assert_eq!(dies, (*name, group) != ("kill", 0), "{name} {group} {shard}");
                }
            }
            assert!(drawn.iter().all(|fault| names.contains(&fault.name()) && fault.group <= 3));
        }
    }
}
