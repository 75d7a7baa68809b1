//! What a plan costs in time and extra memory.
//!
//! `predicted = fill + max(send, receive, convert, copy) + messages`, where send and receive are the
//! busiest rank's network bytes at the goodput of its NIC, convert what a source casts or quantises
//! at the rate of its memory, copy what a target takes from its own host, messages the busiest
//! source's messages and the copies gathered into them at a fixed cost each, and fill the time
//! until the first piece has passed all stages. The stages overlap otherwise.
//!
//! `lower bound = max(send bound, receive bound)` at the NIC's full rate: the busiest host's bytes
//! over its NICs, and the least that the busiest source can be made to send.

use super::FleetPlan;

/// The machines. Rates in bytes a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hardware {
    /// Ranks, and NICs, of a host.
    pub gpus_per_host: u64,
    /// Rate of a NIC.
    pub nic: f64,
    /// Memory that a source may use for what it converts.
    pub budget: u64,
}

/// Part of a NIC's rate that large messages reach.
const GOODPUT: f64 = 0.95;
/// Rate of copies between the ranks of a host (NVLink, one direction).
const HOST_COPY: f64 = 150e9;
/// Rate at which a GPU reads weights and writes them converted.
const CONVERT: f64 = 1e12;
/// Cost of a message, in seconds.
const MESSAGE: f64 = 2e-6;
/// Cost of a copy that is gathered into a message, in seconds: a range of a scatter list.
const COPY: f64 = 1e-7;
/// Pieces being converted and being sent at one time.
const IN_FLIGHT: u64 = 2;

/// Time and extra memory of a plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Seconds that the transfer is predicted to take.
    pub predicted: f64,
    /// Seconds that no routing with these NICs could beat.
    pub lower_bound: f64,
    /// Seconds that no routing could beat in which hosts do not share what they have.
    pub lower_bound_direct: f64,
    /// Bytes of converted weights that a source has at one time.
    pub peak_staged: u64,
}

impl Cost {
    /// The cost of a plan on these machines.
    pub fn of(plan: &FleetPlan, hardware: &Hardware) -> Cost {
        let nic = hardware.nic.max(1.0);
        let most = |bytes: &[u64]| bytes.iter().copied().max().unwrap_or(0) as f64;
        let sources = plan.per_source.len().max(1) as f64;
        let peak_staged = (plan.largest_converted * IN_FLIGHT).min(hardware.budget);
        let copied =
            plan.per_target.iter().zip(&plan.network_in).map(|(all, net)| all - net.min(all));
        let copied = copied.max().unwrap_or(0) as f64;
        let send = most(&plan.network_out) / (nic * GOODPUT);
        let receive = most(&plan.network_in) / (nic * GOODPUT);
        let convert = plan.converted as f64 / sources / CONVERT;
        let stages = [send, receive, convert, copied / HOST_COPY];
        let fill = peak_staged as f64 / IN_FLIGHT as f64 / CONVERT;
        let messages = plan.of_busiest.1 as f64 * MESSAGE + plan.of_busiest.0 as f64 * COPY;
        let host = most(&plan.host_in) / (nic * hardware.gpus_per_host.max(1) as f64);
        Cost {
            predicted: fill + stages.into_iter().fold(0.0, f64::max) + messages,
            lower_bound: host.max(plan.bound_network_out / nic),
            lower_bound_direct: most(&plan.per_target).max(plan.bound_out) / nic,
            peak_staged,
        }
    }
}
