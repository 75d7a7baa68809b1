//! `weightcast bench control`: thousands of client sessions on one reference server.
//!
//! The server runs in a process of its own on the same machine. Sessions are light ([`session`]),
//! and groups of them are a [`crowd`]. [`mixed`] loads the server at a set rate, [`herd`] makes all
//! groups ask at once, [`failover`] kills the server. [`report`] sets what was measured beside the
//! aims.

mod crowd;
mod failover;
mod herd;
mod mixed;
mod record;
mod report;
mod session;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

use self::crowd::{Crowd, CrowdSize};
use self::record::Operation;
use self::report::{Connected, ControlReport, Swept};
use crate::base::machine::machine;
use crate::base::program::ServerProcess;

/// Arguments of `bench control`.
#[derive(Args)]
pub(crate) struct ControlOf {
    /// Sessions of the mixed load
    #[arg(long, default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(2..=16_384))]
    sessions: u32,
    /// Shards of every group
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    shards: u32,
    /// Operations a second; latency is also measured at half of it
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    rate: u32,
    /// Seconds of each mixed load
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=3_600))]
    seconds: u16,
    /// Groups that ask for the latest version at once
    #[arg(long, default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(1..=2_047))]
    herd: u32,
    /// Only these; mixed and herd if none is named
    #[arg(long, value_name = "PART")]
    part: Vec<ControlPart>,
    /// Cost against the number of shards: 64, 256, 1,024, 4,096, 16,384
    #[arg(long)]
    sweep: bool,
    /// The server's lease in seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=600))]
    lease: u16,
    /// Newest versions that the trainers retain: two copies of each are then asked to show their bytes
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=64))]
    retain: u32,
    /// Threads of the load generator
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ControlPart {
    /// Mixed operations at a set rate
    Mixed,
    /// All groups ask for the latest version at once
    Herd,
    /// The server is killed, and the sessions go over to its backup
    Failover,
}

/// The version that the rollouts hold, and that trainers publish and unpublish during the mixed
/// load. An older version would be refused, and the rollouts would read a newer one.
const HELD: u64 = 1 << 40;
const SWEEP: [usize; 5] = [64, 256, 1_024, 4_096, 16_384];
/// Operations a second in every step of the sweep.
const SWEEP_RATE: f64 = 6_000.0;
/// Seconds of every step of the sweep.
const SWEEP_SECONDS: f64 = 5.0;
/// Lease of the sweep's servers, in seconds. Under a short lease the heartbeats of 16,384 sessions
/// alone would be a load.
const SWEEP_LEASE: u16 = 15;

pub(crate) fn run(arguments: &ControlOf) -> Result<()> {
    let start = Instant::now();
    weightcast_cli::allow_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(arguments.threads.into())
        .enable_all()
        .build()
        .context("start the load generator")?;
    let mut report = ControlReport::new(machine(), arguments.threads);
    runtime.block_on(arguments.measure(&mut report))?;
    report.seconds = start.elapsed().as_secs_f64();
    match arguments.json {
        true => println!("{}", serde_json::to_string_pretty(&report)?),
        false => print!("{}", report.table()),
    }
    ensure!(report.herds.iter().all(|herd| herd.split == 0), "groups were split: this is a bug");
    Ok(())
}

impl ControlOf {
    async fn measure(&self, report: &mut ControlReport) -> Result<()> {
        let usual = |part| part != ControlPart::Failover && self.part.is_empty() && !self.sweep;
        let wanted = |part| self.part.contains(&part) || usual(part);
        if wanted(ControlPart::Mixed) {
            let size = CrowdSize::of(self.sessions as usize, self.shards);
            let (server, crowd, connected) = settled(size, self.lease, self.retain).await?;
            report.connected = Some(connected);
            for share in [0.5, 1.0] {
                let rate = f64::from(self.rate) * share;
                eprintln!("{rate} operations a second");
                let lease = Duration::from_secs(self.lease.into());
                let seconds = self.seconds.into();
                report.mixed.push(mixed::measure(&crowd, &server, rate, lease, seconds).await?);
            }
        }
        if wanted(ControlPart::Herd) {
            // Four trainers: the first keeps `HELD`, the others publish while the herd asks.
            let size = CrowdSize { trainers: 4, rollouts: self.herd as usize, shards: self.shards };
            let (_server, crowd, _) = settled(size, self.lease, self.retain).await?;
            for (kind, above) in [(Operation::Describe, HELD), (Operation::Update, HELD + 10)] {
                eprintln!("{} groups call {kind:?}", self.herd);
                if kind == Operation::Update {
                    crowd.retire().await?;
                }
                report.herds.push(herd::measure(&crowd, kind, above).await?);
            }
        }
        if wanted(ControlPart::Failover) {
            let size = CrowdSize::of(self.sessions as usize, self.shards);
            let (server, crowd, _) = settled(size, self.lease, self.retain).await?;
            let lease = self.lease.to_string();
            let backup = ["--index", "1", "--lease", &lease];
            let backup = start(&backup)?;
            let lease = Duration::from_secs(self.lease.into());
            let measured = failover::measure(&crowd, server, &backup, lease, HELD).await?;
            report.failover = Some(measured);
        }
        if self.sweep {
            for sessions in SWEEP {
                match step(sessions, self).await {
                    Ok(swept) => report.sweep.push(swept),
                    // A failed step ends the sweep, and the steps before it are still reported.
                    Err(error) => {
                        report.sweep_ended = Some(format!("{sessions} sessions: {error:#}"));
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Starts a server that asks for no token.
fn start(arguments: &[&str]) -> Result<ServerProcess> {
    let open = ["--address", "127.0.0.1:0", "--insecure-no-auth"];
    ServerProcess::start(None, &[&open[..], arguments].concat())
}

/// Starts a server and connects a crowd that holds [`HELD`].
async fn settled(
    size: CrowdSize,
    lease: u16,
    retain: u32,
) -> Result<(ServerProcess, Crowd, Connected)> {
    eprintln!("{} sessions", size.sessions());
    let server = start(&["--lease", &lease.to_string()])?;
    let memory = server.memory()?;
    let (crowd, connect_s) = Crowd::connect(server.address(), size, retain).await?;
    let bytes_per_session = server.memory()?.saturating_sub(memory) / size.sessions() as u64;
    let cpu = server.cpu_seconds()?;
    let fill_s = crowd.settle(HELD).await?;
    let fill_cpu_s = server.cpu_seconds()? - cpu;
    let sessions = size.sessions();
    let connected = Connected { sessions, connect_s, bytes_per_session, fill_s, fill_cpu_s };
    Ok((server, crowd, connected))
}

/// One step of the sweep.
async fn step(sessions: usize, of: &ControlOf) -> Result<Swept> {
    let (server, crowd, connected) =
        settled(CrowdSize::of(sessions, of.shards), SWEEP_LEASE, of.retain).await?;
    let lease = Duration::from_secs(SWEEP_LEASE.into());
    let mixed = mixed::measure(&crowd, &server, SWEEP_RATE, lease, SWEEP_SECONDS).await?;
    Ok(Swept { connected, mixed })
}
