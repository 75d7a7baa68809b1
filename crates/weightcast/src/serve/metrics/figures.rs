//! The text of one scrape.

use std::collections::BTreeMap;

use weightcast_protocol::server::{Counters, Snapshot};
use weightcast_protocol::{CallDurations, Span};

use super::by_model::{ModelSums, by_model};
use super::usage::ProcessUsage;
use crate::metrics::exposition::FamilyKind::{Counter, Gauge, Histogram};
use crate::metrics::exposition::{Exposition, seconds};

/// The state of the server and the usage of its process, as Prometheus reads them. The page
/// `docs/guides/metrics.md` lists every family.
pub(super) fn text(snapshot: &Snapshot, usage: ProcessUsage) -> String {
    let mut text = Exposition::default();
    server(&mut text, snapshot);
    let models = by_model(snapshot);
    replicas(&mut text, &models);
    versions(&mut text, &models);
    pending(&mut text, &models);
    durations(&mut text, &snapshot.durations);
    counters(&mut text, &snapshot.counters);
    process(&mut text, usage);
    text.into_text()
}

fn server(text: &mut Exposition, snapshot: &Snapshot) {
    text.family("weightcast_build_info", Gauge, "Which release this is; always 1.")
        .sample(&[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    let term = snapshot.term.0;
    for (name, meaning, value) in [
        (
            "weightcast_acting",
            "Whether the server acts: 0 until its first client, and while another of its list does.",
            f64::from(term > 0),
        ),
        ("weightcast_term", "The term in which the server acts; 0 while it does not.", term as f64),
        (
            "weightcast_recovering",
            "Whether clients of an earlier term may still come over.",
            f64::from(snapshot.recovers),
        ),
        ("weightcast_sessions", "Open sessions, one for each shard.", snapshot.sessions as f64),
        ("weightcast_models", "Models with at least one replica.", snapshot.models.len() as f64),
        ("weightcast_manifests", "Stored manifests and catalogs.", snapshot.manifests as f64),
        (
            "weightcast_manifest_bytes",
            "Bytes of stored manifests and catalogs.",
            snapshot.manifests_bytes as f64,
        ),
    ] {
        text.one(name, Gauge, meaning, value);
    }
}

type SumsByModel<'a> = BTreeMap<&'a str, ModelSums>;

fn replicas(text: &mut Exposition, models: &SumsByModel<'_>) {
    let meaning = "Replicas, by role and state.";
    let mut family = text.family("weightcast_replicas", Gauge, meaning);
    for (model, sums) in models {
        for ((role, state), count) in &sums.replicas {
            family.sample(&[("model", model), ("role", role), ("state", state)], *count as f64);
        }
    }
}

/// A figure of a model; `None` while there is nothing to tell.
type OfModel = fn(&ModelSums) -> Option<f64>;

const OF_VERSIONS: [(&str, &str, OfModel); 8] = [
    ("weightcast_readers", "Replicas that read from another, once for each source.", |of| {
        Some(of.readers as f64)
    }),
    ("weightcast_versions", "Available versions.", |of| Some(of.versions as f64)),
    ("weightcast_newest_version", "Number of the newest available version.", |of| {
        of.newest.map(|(version, _)| version.number as f64)
    }),
    (
        "weightcast_newest_version_age_seconds",
        "For how long the newest version has been the newest.",
        |of| of.newest.map(|(_, age)| seconds(age)),
    ),
    ("weightcast_rollouts_behind", "Rollouts that hold an older version than the newest.", |of| {
        Some(of.rollouts_behind as f64)
    }),
    (
        "weightcast_versions_behind",
        "The newest version's number minus the one held, summed up over rollouts of the same run.",
        |of| Some(of.versions_behind as f64),
    ),
    (
        "weightcast_version_lag_max",
        "The newest version's number minus the one held by the rollout furthest behind.",
        |of| Some(of.lag_max as f64),
    ),
    (
        "weightcast_staleness_seconds",
        "Age of the newest version, if a rollout holds an older one; else 0.",
        |of| Some(seconds(of.stale_for)),
    ),
];

fn versions(text: &mut Exposition, models: &SumsByModel<'_>) {
    for (name, meaning, of) in OF_VERSIONS {
        let mut family = text.family(name, Gauge, meaning);
        for (model, sums) in models {
            if let Some(value) = of(sums) {
                family.sample(&[("model", model)], value);
            }
        }
    }
}

fn pending(text: &mut Exposition, models: &SumsByModel<'_>) {
    let by_call = models.iter().flat_map(|(model, sums)| {
        sums.pending.iter().map(move |(call, (count, oldest))| (*model, *call, *count, *oldest))
    });
    let by_call: Vec<(&str, &str, u64, Span)> = by_call.collect();
    let meaning = "Calls of groups without an answer yet.";
    let mut family = text.family("weightcast_pending_calls", Gauge, meaning);
    for (model, call, count, _) in &by_call {
        family.sample(&[("model", model), ("call", call)], *count as f64);
    }
    let meaning = "Age of the oldest call without an answer, since its first shard called.";
    let mut family = text.family("weightcast_oldest_pending_call_seconds", Gauge, meaning);
    for (model, call, _, oldest) in &by_call {
        family.sample(&[("model", model), ("call", call)], seconds(*oldest));
    }
}

fn durations(text: &mut Exposition, durations: &CallDurations) {
    let meaning = "How long calls of groups took, from their first shard's call to the answer.";
    let mut family = text.family("weightcast_call_seconds", Histogram, meaning);
    for (call, outcome, durations) in durations.each() {
        family.histogram(&[("call", call), ("outcome", outcome)], durations);
    }
}

fn counters(text: &mut Exposition, counters: &Counters) {
    for (name, meaning, count) in counters.each() {
        text.one(&format!("weightcast_{name}_total"), Counter, meaning, count as f64);
    }
}

fn process(text: &mut Exposition, usage: ProcessUsage) {
    let meaning = "CPU seconds of the server's process.";
    text.one("weightcast_process_cpu_seconds_total", Counter, meaning, usage.cpu_seconds);
    let resident = usage.resident_bytes.map(|bytes| bytes as f64);
    let descriptors = usage.open_descriptors.map(|count| count as f64);
    for (name, meaning, value) in [
        (
            "weightcast_process_resident_memory_bytes",
            "Resident bytes of the server's process.",
            resident,
        ),
        ("weightcast_process_open_fds", "Open descriptors of the server's process.", descriptors),
    ] {
        let mut family = text.family(name, Gauge, meaning);
        if let Some(value) = value {
            family.sample(&[], value);
        }
    }
}

#[cfg(test)]
mod tests;
