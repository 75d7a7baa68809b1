//! `weightcast bench offload`: an `unpublish` that must first offload the last retained copy,
//! beside bare copies of as many bytes in the same turn.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;
use weightcast::transport::{Region, bench};
use weightcast::{
    COPY_THREADS, LayoutSource, Options, Replica, Role, Selector, ServeConfig, Server, ShardHandle,
    serve,
};

use crate::base::machine::{Machine, machine};
use crate::base::measure::{median, timed};
use crate::transfer::source::SOON;
use crate::weights::cases::TransferCase;
use crate::weights::memory::{KnownMemory, warm};

const MODEL: &str = "bench.offload";

/// Arguments of `bench offload`.
#[derive(Args)]
pub(crate) struct OffloadOf {
    /// Size of the copy in bytes
    #[arg(long, default_value_t = 1 << 30,
          value_parser = clap::value_parser!(u64).range(4096..=1 << 40))]
    bytes: u64,
    /// Turns, after one that does not count
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

/// A whole run.
#[derive(Debug, Serialize)]
struct OffloadReport {
    machine: Machine,
    bytes: u64,
    runs: usize,
    /// Seconds from the call until the owner may change its memory.
    unpublish: Times,
    limits: Vec<OffloadLimit>,
    /// Whether a rollout found every byte in the offloaded copy.
    verified: bool,
    seconds: f64,
}

#[derive(Debug, Serialize)]
struct Times {
    median_s: f64,
    gb_per_s: f64,
    all_s: Vec<f64>,
}

/// A limit of this machine: as many bytes, in the same run.
#[derive(Debug, Serialize)]
struct OffloadLimit {
    limit: String,
    times: Times,
    /// Median of `unpublish` divided by the limit's median.
    ratio: f64,
}

/// A measurement: its name and its seconds.
type Series = (String, Vec<f64>);

pub(crate) fn run(arguments: &OffloadOf) -> Result<()> {
    let start = Instant::now();
    let (server, runs) = (serve(ServeConfig::default())?, usize::from(arguments.runs));
    let layout = TransferCase::even(1, arguments.bytes).sources()?.swap_remove(0);
    let memory = KnownMemory::allocate(layout)?;
    let trainer = open(&server, Role::Trainer, "trainer", &memory)?;
    let touched = warm(memory.bytes())?;
    let (mut unpublish, mut limits) = (Vec::new(), Vec::<Series>::new());
    for turn in 0..=runs {
        eprint!(".");
        publish(&server, &trainer, &memory, turn as u64)?;
        let bare = bare(&memory.regions[0], &touched)?;
        let (result, seconds) = timed(|| trainer.unpublish(SOON));
        result.context("unpublish")?;
        if turn == 0 {
            limits = bare.into_iter().map(|(limit, _)| (limit, Vec::new())).collect();
            continue;
        }
        unpublish.push(seconds);
        limits.iter_mut().zip(bare).for_each(|((_, all), (_, seconds))| all.push(seconds));
    }
    eprintln!();
    let verified = is_kept(&server, &memory, runs as u64)?;
    trainer.close(SOON);
    let unpublish = Times::of(unpublish, memory.bytes());
    let limits = limits.into_iter().map(|(limit, all)| {
        let times = Times::of(all, memory.bytes());
        OffloadLimit { limit, ratio: unpublish.median_s / times.median_s, times }
    });
    let limits = limits.collect();
    let seconds = start.elapsed().as_secs_f64();
    let report = OffloadReport {
        machine: machine(),
        bytes: memory.bytes(),
        runs,
        unpublish,
        limits,
        verified,
        seconds,
    };
    match arguments.json {
        true => println!("{}", serde_json::to_string_pretty(&report)?),
        false => print(&report),
    }
    ensure!(report.verified, "the copy does not hold what was published: this is a bug");
    Ok(())
}

impl Times {
    fn of(all_s: Vec<f64>, bytes: u64) -> Self {
        let median_s = median(&all_s);
        Self { median_s, gb_per_s: bytes as f64 / median_s / 1e9, all_s }
    }
}

fn open(server: &Server, role: Role, name: &str, memory: &KnownMemory) -> Result<ShardHandle> {
    let options = Options {
        server: Some(server.address().to_owned()),
        data_bind: Some("127.0.0.1:0".to_owned()),
        retain: u32::from(role == Role::Trainer),
        ..Options::new(role)
    };
    let handle = ShardHandle::open(MODEL, Replica::new(name, 0, 1), &options)?;
    handle.register(LayoutSource::Known(memory.layout.clone()), memory.regions.clone(), SOON)?;
    Ok(handle)
}

/// Publishes a version and waits until the offload of the version before is released.
fn publish(
    server: &Server,
    trainer: &ShardHandle,
    memory: &KnownMemory,
    version: u64,
) -> Result<()> {
    memory.fill(version);
    trainer.publish(version, SOON)?;
    trainer.wait_sealed(SOON)?;
    let options =
        Options { server: Some(server.address().to_owned()), ..Options::new(Role::Rollout) };
    let until = Instant::now() + SOON;
    loop {
        let status = weightcast::status(&options)?;
        let replicas: usize = status.models.iter().map(|model| model.replicas.len()).sum();
        if replicas == 1 {
            return Ok(());
        }
        ensure!(Instant::now() < until, "the last offload was not released within {SOON:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Times of copies and of a digest of as many bytes, without weightcast.
fn bare(source: &Region, touched: &Region) -> Result<Vec<(String, f64)>> {
    let mut series = Vec::new();
    for threads in [1, COPY_THREADS] {
        let fresh = Region::allocate(source.len())?;
        let seconds = bench::memcpy(source, &fresh, threads);
        series.push((format!("memcpy x{threads} into fresh memory"), seconds));
    }
    for threads in [1, COPY_THREADS] {
        let seconds = bench::memcpy(source, touched, threads);
        series.push((format!("memcpy x{threads} into touched memory"), seconds));
    }
    series.push(("digest x1".to_owned(), bench::digest(touched).0));
    Ok(series)
}

/// Whether a rollout gets every byte of a version that only an offload replica still holds.
fn is_kept(server: &Server, memory: &KnownMemory, version: u64) -> Result<bool> {
    let own = KnownMemory::allocate(memory.layout.clone())?;
    let rollout = open(server, Role::Rollout, "rollout", &own)?;
    let updated = rollout.replicate(Selector::Latest, SOON)?;
    let kept = updated.version.is_some_and(|held| held.number == version) && own.holds(version);
    rollout.close(SOON);
    Ok(kept)
}

fn print(report: &OffloadReport) {
    let Machine { cpu, cpus, kernel } = &report.machine;
    println!(
        "{cpu}, {cpus} CPUs, Linux {kernel}; {:.1} MB, medians of {} turns\n\n{:34}{:>10}{:>8}{:>10}",
        report.bytes as f64 / 1e6,
        report.runs,
        "",
        "median",
        "GB/s",
        "ratio"
    );
    let row = |name: &str, times: &Times, ratio: &str| {
        let median_ms = times.median_s * 1e3;
        println!("{name:34}{median_ms:>7.1} ms{:>8.2}{ratio:>10}", times.gb_per_s);
    };
    row("unpublish that offloads", &report.unpublish, "");
    for limit in &report.limits {
        row(&format!("  {}", limit.limit), &limit.times, &format!("{:.2}", limit.ratio));
    }
    let verified = if report.verified { "every byte verified" } else { "UNVERIFIED BYTES" };
    println!("\n{verified}; {:.0} s", report.seconds);
}
