//! Measured values beside the aims.

use std::fmt::Write;

use serde::Serialize;

use super::failover::Failover;
use super::herd::Herd;
use super::mixed::Mixed;
use super::record::Operation;
use crate::base::machine::Machine;

/// Aims for 2 cores, with server and load on one machine.
const CONNECT_S: f64 = 1.4;
const RATE: f64 = 20_000.0;
const P99_MS: f64 = 2.0;
const HERD_S: f64 = 1.0;
const FAILOVER_S: f64 = 10.0;
const SESSION_KIB: f64 = 45.0;

/// A whole run.
#[derive(Debug, Serialize)]
pub(crate) struct ControlReport {
    machine: Machine,
    load_threads: u16,
    pub(crate) connected: Option<Connected>,
    /// The loads at half of the rate and at the rate.
    pub(crate) mixed: Vec<Mixed>,
    pub(crate) herds: Vec<Herd>,
    pub(crate) failover: Option<Failover>,
    pub(crate) sweep: Vec<Swept>,
    /// Why the sweep ended early, if it did.
    pub(crate) sweep_ended: Option<String>,
    pub(crate) seconds: f64,
}

/// A crowd on its server.
#[derive(Debug, Serialize)]
pub(crate) struct Connected {
    pub(crate) sessions: usize,
    pub(crate) connect_s: f64,
    /// Bytes of the server's resident memory for each session.
    pub(crate) bytes_per_session: u64,
    /// Seconds until every rollout had replicated, with readers that take no time.
    pub(crate) fill_s: f64,
    /// CPU seconds that the server used for that.
    pub(crate) fill_cpu_s: f64,
}

/// One step of the sweep.
#[derive(Debug, Serialize)]
pub(crate) struct Swept {
    pub(crate) connected: Connected,
    pub(crate) mixed: Mixed,
}

impl ControlReport {
    pub(crate) fn new(machine: Machine, load_threads: u16) -> Self {
        Self {
            machine,
            load_threads,
            connected: None,
            mixed: Vec::new(),
            herds: Vec::new(),
            failover: None,
            sweep: Vec::new(),
            sweep_ended: None,
            seconds: 0.0,
        }
    }

    /// The report as text.
    pub(crate) fn table(&self) -> String {
        let Machine { cpu, cpus, kernel } = &self.machine;
        let mut text = format!(
            "{cpu}, {cpus} CPUs, Linux {kernel}; server and load on this machine, {} load thread(s)\n",
            self.load_threads
        );
        if let Some(connected) = &self.connected {
            connected_rows(&mut text, connected);
        }
        self.mixed_rows(&mut text);
        for herd in &self.herds {
            herd_row(&mut text, herd);
        }
        if let Some(failover) = &self.failover {
            failover_row(&mut text, failover);
        }
        sweep_rows(&mut text, &self.sweep);
        if let Some(why) = &self.sweep_ended {
            let _ = writeln!(text, "the sweep ended early: {why}");
        }
        let _ = writeln!(text, "\n{:.0} s", self.seconds);
        text
    }

    fn mixed_rows(&self, text: &mut String) {
        for (index, mixed) in self.mixed.iter().enumerate() {
            let _ = writeln!(
                text,
                "\n{:.0} operations a second asked for: {:.0} answered{}; server {:.0} % of a core \
                 ({:.1} us each), load {:.0} %, generator late by p99 {:.2} ms",
                mixed.asked_per_s,
                mixed.reached_per_s,
                // The calls of the last tenth of a second are still unanswered when the time is up.
                aim(index == 1, RATE, mixed.reached_per_s, mixed.reached_per_s >= 0.99 * RATE),
                mixed.server_cpu * 100.0,
                mixed.server_us_per_op,
                mixed.load_cpu * 100.0,
                mixed.generator_late_p99_ms,
            );
            let _ = writeln!(
                text,
                "  {:12}{:>9}{:>10}{:>10}{:>10}  ms",
                "", "count", "p50", "p99", "max"
            );
            let all = [("all".to_owned(), &mixed.all)];
            let kinds = mixed.kinds.iter().map(|(kind, l)| (format!("{kind:?}").to_lowercase(), l));
            for (name, latency) in all.into_iter().chain(kinds) {
                let aim = aim(
                    name == "all" && index == 0,
                    P99_MS,
                    latency.p99_ms,
                    latency.p99_ms <= P99_MS,
                );
                let _ = writeln!(
                    text,
                    "  {name:12}{:>9}{:>10.2}{:>10.2}{:>10.2}{aim}",
                    latency.count, latency.p50_ms, latency.p99_ms, latency.max_ms
                );
            }
        }
    }
}

/// `(aim 2: reached)`, where something is aimed at.
fn aim(applies: bool, aim: f64, got: f64, reached: bool) -> String {
    match (applies, reached) {
        (false, _) => String::new(),
        (true, true) => format!("  (aim {aim}: reached)"),
        (true, false) => format!("  (aim {aim}: MISSED, {:.2} of it)", got / aim),
    }
}

fn connected_rows(text: &mut String, connected: &Connected) {
    let kib = connected.bytes_per_session as f64 / 1024.0;
    let _ = writeln!(
        text,
        "\n{} sessions connected in {:.2} s (a bare echo: {CONNECT_S}); {kib:.0} KiB of server \
         memory each (a bare echo: {SESSION_KIB})\nevery rollout filled once, by readers that take \
         no time: {:.2} s, {:.2} CPU s of the server",
        connected.sessions, connected.connect_s, connected.fill_s, connected.fill_cpu_s
    );
}

fn herd_row(text: &mut String, herd: &Herd) {
    let what = match herd.call {
        Operation::Describe => "resolved",
        _ => "resolved, read (at no cost) and committed",
    };
    let _ = writeln!(
        text,
        "\n{} groups of {} ask for `latest` within 100 ms ({:?}): all {what} after {:.2} s{}; \
         p50 {:.1} ms, p99 {:.1} ms; {} versions, {} groups split",
        herd.groups,
        herd.shards,
        herd.call,
        herd.seconds,
        aim(true, HERD_S, herd.seconds, herd.seconds <= HERD_S),
        herd.latency.p50_ms,
        herd.latency.p99_ms,
        herd.versions,
        herd.split
    );
}

fn failover_row(text: &mut String, failover: &Failover) {
    let _ = writeln!(
        text,
        "\n{} sessions lose their server (lease {} s): the first turns to the backup after {:.2} s, \
         95 % are in whole groups after {:.2} s{}, all after {:.2} s; {:.2} CPU s of the backup",
        failover.sessions,
        failover.lease_s,
        failover.first_s,
        failover.most_s,
        aim(true, FAILOVER_S, failover.most_s, failover.most_s <= FAILOVER_S),
        failover.all_s,
        failover.cpu_s
    );
}

fn sweep_rows(text: &mut String, sweep: &[Swept]) {
    if sweep.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\n{:>9}{:>11}{:>10}{:>11}{:>13}{:>10}{:>10}  server CPU per operation",
        "sessions", "connect s", "KiB each", "fill CPU s", "us each op", "p50 ms", "p99 ms"
    );
    let most = sweep.iter().map(|s| s.mixed.server_us_per_op).fold(1.0, f64::max);
    for Swept { connected, mixed } in sweep {
        let bar = "#".repeat((mixed.server_us_per_op / most * 40.0).round() as usize);
        let _ = writeln!(
            text,
            "{:>9}{:>11.2}{:>10}{:>11.3}{:>13.1}{:>10.2}{:>10.2}  {bar}",
            connected.sessions,
            connected.connect_s,
            connected.bytes_per_session / 1024,
            connected.fill_cpu_s,
            mixed.server_us_per_op,
            mixed.all.p50_ms,
            mixed.all.p99_ms
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aim_is_told_where_there_is_one() {
        assert_eq!(aim(false, 2.0, 3.0, false), "");
        assert_eq!(aim(true, 2.0, 1.0, true), "  (aim 2: reached)");
        assert_eq!(aim(true, 2.0, 3.0, false), "  (aim 2: MISSED, 1.50 of it)");
    }
}
