//! `weightcast bench nemesis`: real processes under a seeded schedule of faults.
//!
//! In every step a trainer publishes and all rollouts update, while a fault strikes one shard
//! ([`fault`]). A call may fail, and its group then starts anew. But whatever a call claims to hold
//! is compared byte by byte. After the faults every rollout must get a version.

mod fault;

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::Serialize;

use self::fault::{Fault, FaultDraw};
use crate::emulated::cluster::{EmulatedCluster, GroupSpec, WorkerGroup};
use crate::emulated::network::Shape;
use crate::emulated::orders::Order;
use crate::emulated::sweeper;

/// Arguments of `bench nemesis`.
#[derive(Args)]
pub(crate) struct NemesisOf {
    /// Draws the faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Versions published
    #[arg(long, default_value_t = 20)]
    steps: u64,
    /// Rollout groups
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=32))]
    rollouts: u8,
    /// Shards of every group
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=8))]
    shards: u8,
    /// Size of a replica in MiB
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1_024))]
    size: u64,
    /// Without emulated hosts: no root needed, no links to cut
    #[arg(long)]
    loopback: bool,
    /// The server checks itself after every event, and leaves a recording here if it gives up
    #[arg(long, value_name = "DIR")]
    record_dir: Option<String>,
}

/// The report of a run.
#[derive(Debug, Default, Serialize)]
struct NemesisReport {
    seed: u64,
    steps: u64,
    faults: BTreeMap<&'static str, u64>,
    /// Updates that returned as committed; every byte of each was right.
    commits: u64,
    /// Calls that failed. Their groups were started anew.
    failed: u64,
    /// Errors of the first few failed calls.
    causes: Vec<String>,
}

/// Most causes that are kept.
const CAUSES: usize = 8;
/// The server's lease in seconds, so short that a stopped process is noticed within a step.
const LEASE: &str = "1";
const DRAIN: &str = "2";
/// Rate of a host's link in Mbit/s.
const RATE: &str = "400mbit";
/// Most tries to publish a version, and most versions that are published after the faults until all
/// rollouts get one.
const TRIES: usize = 20;

pub(crate) fn run(arguments: &NemesisOf) -> Result<()> {
    let mut rig = Rig::start(arguments)?;
    let mut random = FaultDraw(arguments.seed);
    for _ in 0..arguments.steps {
        let fault = Fault::draw(&mut random, &rig.size());
        *rig.report.faults.entry(fault.name()).or_default() += 1;
        rig.step(Some(fault)).with_context(|| format!("seed {}", arguments.seed))?;
    }
    rig.recover().with_context(|| format!("seed {}", arguments.seed))?;
    println!("{}", serde_json::to_string(&rig.report)?);
    Ok(())
}

/// Everything under test.
pub(crate) struct Rig {
    trainer: WorkerGroup,
    rollouts: Vec<WorkerGroup>,
    shards: usize,
    started: usize,
    version: u64,
    report: NemesisReport,
    cluster: EmulatedCluster,
}

impl Rig {
    fn start(arguments: &NemesisOf) -> Result<Self> {
        let shards = u32::from(arguments.shards);
        let bytes = arguments.size << 20;
        let mut serve = vec!["--lease", LEASE, "--drain-deadline", DRAIN];
        if let Some(directory) = &arguments.record_dir {
            serve.extend(["--paranoid", "--record-dir", directory]);
        }
        let cluster = if arguments.loopback {
            EmulatedCluster::on_loopback(shards, bytes, &serve)?
        } else {
            sweeper::clean_up()?;
            let hosts = (1 + usize::from(arguments.rollouts)) * usize::from(arguments.shards);
            let slow = "1000mbit".to_owned();
            let shape = Shape { hosts: vec![0; hosts], rate: RATE.to_owned(), slow };
            EmulatedCluster::start(&shape, shards, bytes, &serve)?
        };
        let trainer =
            cluster.group("trainer-0", GroupSpec { trainer: true, ..GroupSpec::default() })?;
        let (seed, steps) = (arguments.seed, arguments.steps);
        let mut rig = Self {
            trainer,
            rollouts: Vec::new(),
            shards: arguments.shards.into(),
            started: 0,
            version: 0,
            report: NemesisReport { seed, steps, ..NemesisReport::default() },
            cluster,
        };
        for index in 0..arguments.rollouts.into() {
            let group = rig.rollout(index)?;
            rig.rollouts.push(group);
        }
        Ok(rig)
    }

    fn size(&self) -> fault::RigSize {
        let emulated = self.cluster.network().is_ok();
        fault::RigSize { rollouts: self.rollouts.len(), shards: self.shards, emulated }
    }

    /// Starts a group under a new name, because the lease of the old group may still run.
    fn rollout(&mut self, index: usize) -> Result<WorkerGroup> {
        self.started += 1;
        let host = (1 + index) * self.shards;
        let place = GroupSpec { host, ..GroupSpec::default() };
        self.cluster.group(&format!("rollout{index}-{}", self.started), place)
    }

    /// Publishes the next version, with a new trainer if the old one fails.
    fn publish(&mut self) -> Result<()> {
        self.version += 1;
        for _ in 0..TRIES {
            match self.trainer.publish(self.version) {
                Ok(_) => return Ok(()),
                Err(error) => self.note(&error),
            }
            self.started += 1;
            self.trainer.kill();
            let place = GroupSpec { trainer: true, ..GroupSpec::default() };
            self.trainer = self.cluster.group(&format!("trainer-{}", self.started), place)?;
        }
        bail!("version {} could not be published: {:?}", self.version, self.report.causes)
    }

    /// Publishes one version under one fault. Returns how many rollouts got the version.
    fn step(&mut self, fault: Option<Fault>) -> Result<usize> {
        self.publish()?;
        let order = Order::Update { version: self.version };
        for rollout in &mut self.rollouts {
            // A worker that can't be reached is found by `settle`.
            let _gone = rollout.order(&order);
        }
        if let Some(fault) = fault {
            let groups: Vec<&WorkerGroup> =
                [&self.trainer].into_iter().chain(&self.rollouts).collect();
            fault.happen(&groups, &self.cluster)?;
        }
        let mut reached = 0;
        for index in 0..self.rollouts.len() {
            reached += usize::from(self.settle(index)?);
        }
        Ok(reached)
    }

    /// Compares what a rollout claims to hold. Starts the rollout anew if it failed.
    fn settle(&mut self, index: usize) -> Result<bool> {
        let (version, rollout) = (self.version, &mut self.rollouts[index]);
        match rollout.updated() {
            Ok(updated) => {
                ensure!(updated.version == Some(version), "{} holds {updated:?}", rollout.name);
                let holds = rollout.holds(version);
                // A group may end after its commit; what it held then does not matter.
                if let Ok(holds) = holds {
                    ensure!(holds, "{} says version {version}, its bytes differ", rollout.name);
                    self.report.commits += 1;
                    return Ok(true);
                }
            }
            Err(error) => self.note(&error),
        }
        self.rollouts[index].kill();
        self.rollouts[index] = self.rollout(index)?;
        Ok(false)
    }

    /// Publishes without faults until every rollout gets a version.
    fn recover(&mut self) -> Result<()> {
        for _ in 0..TRIES {
            if self.step(None)? == self.rollouts.len() {
                return Ok(());
            }
        }
        bail!("without faults some rollout still fails: {:?}", self.report.causes)
    }

    fn note(&mut self, error: &anyhow::Error) {
        self.report.failed += 1;
        if self.report.causes.len() < CAUSES {
            self.report.causes.push(format!("{error:#}"));
        }
    }
}
