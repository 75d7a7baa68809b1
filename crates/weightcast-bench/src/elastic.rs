//! `weightcast bench elastic`: a stable group, and spot groups that a script lets join and kills.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::Serialize;

use crate::base::machine::{Machine, machine};
use crate::base::measure::median;
use crate::emulated::cluster::{EmulatedCluster, GroupSpec, WorkerGroup};
use crate::emulated::network::{GOODPUT, Shape};
use crate::emulated::orders::Order;
use crate::emulated::sweeper;

/// The groups join alone, in pairs and all at once. Between these steps groups die and versions
/// appear.
const SCRIPT: &str = "publish; join a; join b; join c; kill a b c; publish; join a b; kill a; \
                      join a; kill a b; publish; join a b c; kill b; join b; kill a b c";

/// Arguments of `bench elastic`.
#[derive(Args)]
pub(crate) struct ElasticOf {
    /// Steps: publish; join NAMES; kill NAMES. Those named together join at once
    #[arg(long, default_value = SCRIPT)]
    script: String,
    /// How often the script is played
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    rounds: u16,
    /// Size of a replica in MiB
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    size: u64,
    /// Rate of a host's link in each direction, in Mbit/s
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

/// A whole run.
#[derive(Debug, Serialize)]
struct ElasticReport {
    machine: Machine,
    bytes: u64,
    rate_mbit: u32,
    ideal_s: f64,
    joins: Vec<Join>,
    /// Median stall by the number of groups that joined at once.
    by_number: BTreeMap<usize, f64>,
    /// All stalls, the shortest first.
    cdf_s: Vec<f64>,
    content_ok: bool,
    seconds: f64,
}

/// How one group joined.
#[derive(Debug, Serialize)]
struct Join {
    name: String,
    at_once: usize,
    /// Seconds from the group's call until its commit.
    stall_s: f64,
    source: String,
}

pub(crate) fn run(arguments: &ElasticOf) -> Result<()> {
    let start = Instant::now();
    sweeper::clean_up()?;
    let mut play = Play::start(arguments)?;
    for _ in 0..arguments.rounds {
        for step in arguments.script.split(';').map(str::trim).filter(|step| !step.is_empty()) {
            eprintln!("{step}");
            play.step(step).with_context(|| format!("step {step:?}"))?;
        }
    }
    let report = play.report(arguments, start);
    match arguments.json {
        true => println!("{}", serde_json::to_string_pretty(&report)?),
        false => print(&report),
    }
    ensure!(report.content_ok, "bytes arrived that are not those published: this is a bug");
    Ok(())
}

struct Play {
    trainer: WorkerGroup,
    stable: WorkerGroup,
    spots: BTreeMap<String, WorkerGroup>,
    /// The names in the script; a name's host follows from its index.
    hosts: Vec<String>,
    started: usize,
    version: u64,
    bytes: u64,
    joins: Vec<Join>,
    content_ok: bool,
    cluster: EmulatedCluster,
}

impl Play {
    fn start(arguments: &ElasticOf) -> Result<Self> {
        let words = arguments.script.split([';', ' ']).map(str::trim);
        let mut hosts: Vec<_> = words
            .filter(|word| !["", "publish", "join", "kill"].contains(word))
            .map(str::to_owned)
            .collect();
        hosts.sort();
        hosts.dedup();
        let shape = Shape {
            hosts: vec![0; 2 + hosts.len()],
            rate: format!("{}mbit", arguments.rate),
            slow: "1000mbit".to_owned(),
        };
        let bytes = arguments.size << 20;
        let cluster = EmulatedCluster::start(&shape, 1, bytes, &[])?;
        let trainer =
            cluster.group("trainer", GroupSpec { trainer: true, ..GroupSpec::default() })?;
        let stable = cluster.group("stable", GroupSpec { host: 1, ..GroupSpec::default() })?;
        Ok(Self {
            trainer,
            stable,
            spots: BTreeMap::new(),
            hosts,
            started: 0,
            version: 0,
            bytes,
            joins: Vec::new(),
            content_ok: true,
            cluster,
        })
    }

    fn step(&mut self, step: &str) -> Result<()> {
        let mut words = step.split_whitespace();
        let action = words.next().unwrap_or_default();
        let names: Vec<&str> = words.collect();
        match action {
            "publish" => self.publish(),
            "join" => self.join(&names),
            "kill" => self.kill(&names),
            other => bail!("{other:?} is none of publish, join, kill"),
        }
    }

    /// Publishes the next version, and makes all live groups update to it.
    fn publish(&mut self) -> Result<()> {
        self.version += 1;
        let version = self.version;
        self.trainer.publish(version)?;
        let mut groups: Vec<_> = self.spots.values_mut().chain([&mut self.stable]).collect();
        groups.iter_mut().try_for_each(|group| group.order(&Order::Update { version }))?;
        for group in groups {
            let updated = group.updated()?;
            self.content_ok &= updated.verified == self.bytes && group.holds(version)?;
        }
        Ok(())
    }

    /// Starts these groups. They call at the same moment, when the last one is ready.
    fn join(&mut self, names: &[&str]) -> Result<()> {
        let mut joining = Vec::new();
        for name in names {
            ensure!(!self.spots.contains_key(*name), "{name} is there already");
            let place = self.hosts.iter().position(|host| host == name);
            let host = 2 + place.context("every name has a host")?;
            self.started += 1;
            let place = GroupSpec { host, spot: true, ..GroupSpec::default() };
            let group = self.cluster.group(&format!("{name}-{}", self.started), place)?;
            joining.push(((*name).to_owned(), group));
        }
        joining.iter_mut().try_for_each(|(_, group)| group.order(&Order::Latest))?;
        for (name, mut group) in joining {
            let updated = group.updated()?;
            self.content_ok &= updated.version == Some(self.version)
                && updated.verified == self.bytes
                && group.holds(self.version)?;
            self.joins.push(Join {
                name: name.clone(),
                at_once: names.len(),
                stall_s: (updated.done_ns - updated.called_ns) as f64 / 1e9,
                source: updated.source.unwrap_or_default(),
            });
            self.spots.insert(name, group);
        }
        Ok(())
    }

    fn kill(&mut self, names: &[&str]) -> Result<()> {
        for name in names {
            self.spots.remove(*name).with_context(|| format!("{name} is not there"))?.kill();
        }
        Ok(())
    }

    fn report(self, arguments: &ElasticOf, start: Instant) -> ElasticReport {
        let seconds = start.elapsed().as_secs_f64();
        ElasticReport::of(self.joins, self.bytes, arguments.rate, self.content_ok, seconds)
    }
}

impl ElasticReport {
    fn of(joins: Vec<Join>, bytes: u64, rate_mbit: u32, content_ok: bool, seconds: f64) -> Self {
        let mut by_number: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for join in &joins {
            by_number.entry(join.at_once).or_default().push(join.stall_s);
        }
        let mut cdf_s: Vec<f64> = joins.iter().map(|join| join.stall_s).collect();
        cdf_s.sort_by(f64::total_cmp);
        Self {
            machine: machine(),
            bytes,
            rate_mbit,
            ideal_s: bytes as f64 * 8.0 / (f64::from(rate_mbit) * 1e6 * GOODPUT),
            joins,
            by_number: by_number.into_iter().map(|(n, all)| (n, median(&all))).collect(),
            cdf_s,
            content_ok,
            seconds,
        }
    }
}

fn print(report: &ElasticReport) {
    let Machine { cpu, cpus, kernel } = &report.machine;
    println!(
        "{cpu}, {cpus} CPUs, Linux {kernel}; {:.1} MB a replica, {} Mbit/s a host, ideal {:.2} s",
        report.bytes as f64 / 1e6,
        report.rate_mbit,
        report.ideal_s
    );
    for (number, stall) in &report.by_number {
        let ratio = stall / report.ideal_s;
        println!("{number} joining at once: median stall {stall:.2} s, {ratio:.2} of the ideal");
    }
    println!("\nstall of {} joiners, shortest first", report.cdf_s.len());
    for (index, stall) in report.cdf_s.iter().enumerate() {
        let share = (index + 1) as f64 / report.cdf_s.len() as f64;
        println!(
            "  {:>5.0} %{stall:>9.2} s  {}",
            share * 100.0,
            "#".repeat((share * 40.0) as usize)
        );
    }
    println!("\n{:.0} s", report.seconds);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Medians by the number that joined at once; all stalls, the shortest first.
    #[test]
    fn stalls_are_set_beside_the_ideal() {
        let joins = [(1, 4.0), (2, 9.0), (2, 5.0), (1, 2.0), (1, 3.0)].map(|(at_once, stall_s)| {
            Join { name: "a".to_owned(), at_once, stall_s, source: "t".to_owned() }
        });
        let report = ElasticReport::of(joins.into(), 25_000_000, 200, true, 7.0);
        assert_eq!(report.by_number, BTreeMap::from([(1, 3.0), (2, 7.0)]));
        assert_eq!(report.cdf_s, [2.0, 3.0, 4.0, 5.0, 9.0]);
        // 200 Mbit at 200 Mbit/s.
        assert!((report.ideal_s * GOODPUT - 1.0).abs() < 1e-9, "{}", report.ideal_s);
        assert_eq!((report.bytes, report.rate_mbit, report.seconds), (25_000_000, 200, 7.0));
        let json = serde_json::to_string(&report).expect("JSON");
        let svg = weightcast_cli::svg_of(&json).expect("a report that can be drawn");
        assert!(svg.contains(">Stall of 5 joiners</text>"), "{svg}");
    }
}
