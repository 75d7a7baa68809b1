//! `weightcast bench holders`: one reader, and several replicas that hold the version and have nothing else to do,
//! over emulated hosts whose links differ.
//!
//! [`turns`] measures one number of holders, [`report`] sets the results beside the ideal, and beside a server that
//! never lets a reader draw from several.

mod report;
mod turns;

use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Args;

use self::report::{HoldersReport, HoldersRow};
use self::turns::{HoldersSetting, ReadTimes};
use crate::base::machine::machine;
use crate::emulated::network::check;
use crate::emulated::sweeper;

/// Arguments of `bench holders`.
#[derive(Args)]
pub(crate) struct HoldersOf {
    /// Numbers of replicas that hold the version
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "1,2,4,8",
          value_parser = clap::value_parser!(u16).range(1..=32))]
    holders: Vec<u16>,
    /// Size of a replica in MiB
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    size: u64,
    /// Rate of the reader's link in Mbit/s
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// Rate at which the fastest holder sends, in Mbit/s
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    holder_rate: u32,
    /// Measured turns of every number of holders
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    repeat: u16,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

/// How fast holders are beside each other: the reader's ideal is to draw from all.
const MIXES: [(&str, &[u32]); 2] = [("equal", &[1]), ("unequal", &[8, 4, 2, 1])];

pub(crate) fn run(arguments: &HoldersOf) -> Result<()> {
    check()?;
    sweeper::clean_up()?;
    let start = Instant::now();
    let mut report = HoldersReport::new(machine(), arguments.size << 20, arguments.rate);
    for (mix, slower) in MIXES {
        for holders in &arguments.holders {
            if *holders == 1 && mix != "equal" {
                continue;
            }
            eprintln!("{holders} holders, {mix} links");
            let setting = HoldersSetting {
                rates: rates(arguments.holder_rate, slower, (*holders).into()),
                bytes: arguments.size << 20,
                rate: arguments.rate,
                repeat: arguments.repeat.into(),
            };
            let together = ReadTimes::measure(&setting, true)?;
            let alone = ReadTimes::measure(&setting, false)?;
            report.rows.push(HoldersRow::new(mix, &setting, together, alone));
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

/// The rate of each holder in Mbit/s: the fastest divided by these numbers, over and over.
fn rates(fastest: u32, slower: &[u32], holders: usize) -> Vec<u32> {
    slower.iter().cycle().take(holders).map(|slower| (fastest / slower).max(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_as_fast_as_the_mix_says() {
        assert_eq!(rates(100, MIXES[0].1, 3), [100, 100, 100]);
        assert_eq!(rates(100, MIXES[1].1, 6), [12, 25, 50, 100, 12, 25]);
        assert_eq!(rates(1, MIXES[1].1, 2), [1, 1]);
    }
}
