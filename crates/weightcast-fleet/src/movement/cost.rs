//! What an update by a plan costs in time and extra memory.
//!
//! An update is predicted part by part, each after the other: pause, gather, transfer, install, post-process. The
//! transfer follows the ways that exist. Bytes enter a host once: the ranks of an engine bring each other what several
//! of them hold, and further engines of the host read from the first. Engines stand in a chain, since a replica serves
//! one reader at a time; each hop costs a 256th of what the busiest rank brings in. Then
//!
//! `transfer = fill + max(send, receive, within host, convert) + hops + messages`
//!
//! where `fill` is the time until the first piece is converted. The lower bound is the least that the busiest NIC
//! carries in any schedule, over the NIC's full rate.

use serde::Serialize;

use super::FleetPlan;
use super::machine::AssumedMachine;

/// Pieces being converted and being sent at one time.
const IN_FLIGHT: u64 = 2;
/// Units of a rank's memory: what a relay serves at once.
const UNITS: f64 = 256.0;

/// Time and extra memory of an update.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    /// The parts of the update, one after the other.
    pub parts: Vec<UpdatePart>,
    /// Seconds that no schedule with these NICs could beat.
    pub lower_bound: f64,
    /// Seconds that no schedule could beat in which hosts do not copy.
    pub lower_bound_direct: f64,
    /// Bytes of converted weights that a source has at one time.
    pub peak_staged: u64,
}

/// A part of an update, and what its seconds are made of.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UpdatePart {
    /// What is done.
    pub name: &'static str,
    /// Predicted seconds.
    pub seconds: f64,
    /// Which bytes at which rate, and where the rate comes from.
    pub from: String,
}

impl Cost {
    /// The cost of an update on this machine, whose sources use so many bytes for what they convert.
    pub fn of(plan: &FleetPlan, machine: &AssumedMachine, budget: u64) -> Cost {
        let nic = machine.nic.value.max(1.0);
        let peak_staged = (plan.largest_converted * IN_FLIGHT).min(budget);
        let received = most(&plan.per_target);
        let staged = |name, bytes| match machine.staging {
            Some(rate) => over(name, bytes, rate.value, rate.from),
            None => UpdatePart { name, seconds: 0.0, from: "weights are read in place".into() },
        };
        let pause = machine.pause;
        let parts = vec![
            UpdatePart { name: "pause", seconds: pause.value, from: pause.from.into() },
            staged("gather", plan.largest_source as f64),
            transfer(plan, machine, peak_staged as f64 / IN_FLIGHT as f64),
            staged("install", received),
            over("post-process", received, machine.process.value, machine.process.from),
        ];
        Cost {
            parts,
            lower_bound: plan.least.most() / nic,
            lower_bound_direct: plan.least_direct.most() / nic,
            peak_staged,
        }
    }

    /// Seconds of the whole update.
    pub fn predicted(&self) -> f64 {
        self.parts.iter().map(|part| part.seconds).sum()
    }
}

/// The transfer; `filling` bytes are converted before anything is sent.
fn transfer(plan: &FleetPlan, machine: &AssumedMachine, filling: f64) -> UpdatePart {
    let (replicas, sources) = (plan.replicas.max(1), plan.per_source.len().max(1) as f64);
    let ranks = (plan.per_target.len() as u64 / replicas).max(1);
    let on_host = (machine.gpus_per_host / ranks).clamp(1, replicas);
    let network = machine.network_rate();
    // Engines that stand in the chain: one of those on a host, which brings all of the host's bytes in.
    let chained = replicas.div_ceil(on_host);
    let received = (most(&plan.network_in) * on_host as f64).min(most(&plan.per_target));
    let taken = plan.per_target.iter().zip(&plan.network_in).map(|(all, own)| all - own);
    let within = if on_host > 1 { most(&plan.per_target) } else { taken.max().unwrap_or(0) as f64 };
    let stages = [
        ("send", most(&plan.network_out) / chained as f64, network, machine.network_from()),
        ("receive", received, network, machine.network_from()),
        ("copy within hosts", within, machine.host.value, machine.host.from),
        ("convert", plan.converted as f64 / sources, machine.convert.value, machine.convert.from),
    ];
    let stages = stages.map(|(name, bytes, rate, from)| over(name, bytes, rate, from));
    let slowest = stages.into_iter().reduce(|a, b| if b.seconds > a.seconds { b } else { a });
    let slowest = slowest.expect("there are four");
    let hops = chained - 1;
    let chain = hops as f64 * received / UNITS / network;
    let (copies, messages) = plan.of_busiest;
    let each = messages as f64 * machine.message.value + copies as f64 * machine.copy.value;
    let rest = filling / machine.convert.value + chain + each / chained as f64;
    UpdatePart {
        name: "transfer",
        seconds: slowest.seconds + rest,
        from: format!("{}, {}; {hops} hops and messages {rest:.3} s", slowest.name, slowest.from),
    }
}

fn over(name: &'static str, bytes: f64, rate: f64, from: &str) -> UpdatePart {
    let (gigabytes, per_second) = (bytes / 1e9, rate / 1e9);
    let from = format!("{gigabytes:.3} GB of the busiest rank at {per_second:.1} GB/s, {from}");
    UpdatePart { name, seconds: bytes / rate.max(1.0), from }
}

fn most(bytes: &[u64]) -> f64 {
    bytes.iter().copied().max().unwrap_or(0) as f64
}
