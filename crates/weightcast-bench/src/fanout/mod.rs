//! `weightcast bench fanout`: one trainer group to N rollout groups over emulated hosts.
//!
//! [`spread`] measures one number of readers, [`killing`] the cost of a source's death. [`seeding`]
//! shows that with offload seeding no update waits for another datacentre. [`report`] sets the
//! results beside the ideal, and beside the comparison in which all groups read from the trainer.

mod killing;
mod predicted;
mod report;
mod seeding;
mod spread;

use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Args;

use self::predicted::PredictedSpread;
use self::report::FanoutReport;
use self::spread::{FanoutSetting, SpreadTimes};
use crate::base::machine::machine;
use crate::emulated::network::check;
use crate::emulated::sweeper;

/// Arguments of `bench fanout`.
#[derive(Args)]
pub(crate) struct FanoutOf {
    /// Numbers of rollout groups
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "1,2,4,8,16",
          value_parser = clap::value_parser!(u16).range(1..=64))]
    readers: Vec<u16>,
    /// Shards of every group; each has a host of its own, or with --replicated all have one
    #[arg(long, value_delimiter = ',', default_value = "1,2",
          value_parser = clap::value_parser!(u16).range(1..=8))]
    shards: Vec<u16>,
    /// Size of a replica in MiB
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    size: u64,
    /// Rate of a host's link in each direction, in Mbit/s
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// Measured turns of every number of readers
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    repeat: u16,
    /// Readers that one replica serves at a time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    fanout: u16,
    /// Readers that share a host, and its link
    #[arg(long, default_value_t = 1, conflicts_with = "offload_seeding", value_name = "R",
          value_parser = clap::value_parser!(u16).range(1..=64))]
    ranks_per_host: u16,
    /// Of the 16 tensors, how many every shard of a reader holds whole. All shards of a group then share a host
    #[arg(long, value_name = "TENSORS", conflicts_with = "offload_seeding",
          value_parser = clap::value_parser!(u16).range(0..=16))]
    replicated: Option<u16>,
    /// Leave out the comparison: everybody reads from the trainer
    #[arg(long)]
    no_naive: bool,
    /// With 2, half of the readers are in a second datacentre
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    datacentres: u8,
    /// Rate between the datacentres in Mbit/s
    #[arg(long, default_value_t = 50, value_name = "MBIT",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    slow_link: u32,
    /// Readers in the second datacentre leave crossings to a seed replica, and poll meanwhile
    #[arg(long, conflicts_with = "kill")]
    offload_seeding: bool,
    /// Kill a source at this percentage of the transfer
    #[arg(long, value_delimiter = ',', value_name = "PERCENT",
          value_parser = clap::value_parser!(u8).range(1..=99))]
    kill: Vec<u8>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Only remove what a killed run left behind
    #[arg(long)]
    cleanup: bool,
}

pub(crate) fn run(arguments: &FanoutOf) -> Result<()> {
    check()?;
    sweeper::clean_up()?;
    if arguments.cleanup {
        return Ok(());
    }
    let start = Instant::now();
    let two = arguments.datacentres == 2 && arguments.readers.iter().all(|readers| *readers >= 2);
    ensure!(
        two || !arguments.offload_seeding,
        "--offload-seeding needs readers in a second datacentre: give --datacentres 2 and --readers 2 \
         or more"
    );
    ensure!(
        arguments.datacentres == 1 || arguments.ranks_per_host == 1,
        "--ranks-per-host is measured in one datacentre: leave --datacentres out"
    );
    let mut report = FanoutReport::new(machine(), arguments.size << 20, arguments.rate);
    for shards in &arguments.shards {
        for readers in &arguments.readers {
            arguments.one(*shards, *readers, &mut report)?;
        }
    }
    report.seconds = start.elapsed().as_secs_f64();
    match arguments.json {
        true => println!("{}", serde_json::to_string_pretty(&report)?),
        false => print!("{}", report.table()),
    }
    ensure!(report.verified(), "bytes arrived that are not those published: this is a bug");
    Ok(())
}

impl FanoutOf {
    fn one(&self, shards: u16, readers: u16, report: &mut FanoutReport) -> Result<()> {
        let setting = FanoutSetting {
            readers: readers.into(),
            shards: shards.into(),
            bytes: self.size << 20,
            rate: self.rate,
            datacentres: self.datacentres.into(),
            slow: self.slow_link,
            fanout: self.fanout,
            ranks: self.ranks_per_host.into(),
            replicated: self.replicated.map(u64::from),
            repeat: self.repeat.into(),
        };
        eprintln!("{readers} readers of {shards} shards");
        if !self.kill.is_empty() {
            report.killed.extend(killing::measure(&setting, &self.kill)?);
            return Ok(());
        }
        if self.offload_seeding {
            report.seeded.push(seeding::measure(&setting)?);
            return Ok(());
        }
        let stack = SpreadTimes::measure(&setting)?;
        let naive = (!self.no_naive)
            .then(|| SpreadTimes::measure(&FanoutSetting { fanout: readers, ..setting }))
            .transpose()?;
        let predicted = PredictedSpread::of(&setting)?;
        let compared = report::SpreadComparison::new(&setting, stack, naive, predicted);
        report.spreads.push(compared);
        Ok(())
    }
}
