//! Every figure of a process: name, meaning, and how it is worked out of the counts.

use std::time::Instant;

use weightcast_protocol::DurationHistogram;

use super::exposition::{FamilyKind, seconds};
use super::figures::{ModelFigures, WayFigures, is_update};

/// One figure.
pub(super) struct ProcessFigure {
    /// Key in the dictionary, after `weightcast/`.
    pub(super) key: &'static str,
    /// Its metric; `None` where Prometheus can work it out of another metric.
    pub(super) exposed: Option<ExposedFigure>,
    pub(super) meaning: &'static str,
    /// The figure of these models together; `None` while there is nothing to tell.
    pub(super) of: fn(&[ModelFigures], Instant) -> Option<f64>,
}

/// A figure as Prometheus knows it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct ExposedFigure {
    /// Name of the family, after `weightcast_client_`.
    pub(super) name: &'static str,
    pub(super) kind: FamilyKind,
    /// Value of the label `way`, in a family of several figures.
    pub(super) way: Option<&'static str>,
}

const fn gauge(name: &'static str) -> Option<ExposedFigure> {
    Some(ExposedFigure { name, kind: FamilyKind::Gauge, way: None })
}

const fn counter(name: &'static str) -> Option<ExposedFigure> {
    Some(ExposedFigure { name, kind: FamilyKind::Counter, way: None })
}

const fn bytes_of(way: &'static str) -> Option<ExposedFigure> {
    Some(ExposedFigure { name: "read_bytes_total", kind: FamilyKind::Counter, way: Some(way) })
}

macro_rules! figures {
    ($($key:literal, $exposed:expr, $meaning:literal, $of:expr;)*) => {
        &[$(ProcessFigure { key: $key, exposed: $exposed, meaning: $meaning, of: $of }),*]
    };
}

/// All figures; figures of one family stand beside each other.
pub(super) const FIGURES: &[ProcessFigure] = figures! {
    "handles", gauge("handles"), "Open handles.",
        |of, _| sum(of, |model| model.handles.len() as f64);
    "version", gauge("version"), "Number of the version held; the lowest, where handles hold several.",
        |of, _| held(of).map(|(version, _)| version.number).min().map(|number| number as f64);
    "version_lag", gauge("version_lag"),
        "Versions between the one held and the newest that this process has heard of; the largest.",
        |of, _| of.iter().filter_map(ModelFigures::lag).max().map(|lag| lag as f64);
    "version_age_seconds", gauge("version_age_seconds"),
        "Seconds since the version held was published or taken here; the longest.",
        |of, now| held(of).map(|(_, since)| now - since).max().map(|age| age.as_secs_f64());
    "updates", None, "Calls of update and replicate that brought a version.",
        |of, _| calls(of, |call, outcome| is_update(call) && outcome == "ok", count);
    "update_seconds", None, "Seconds in update and replicate: the stall of a rollout.",
        |of, _| calls(of, |call, _| is_update(call), length);
    "last_update_seconds", None, "Seconds of the last update or replicate that brought a version.",
        |of, _| last(of, |model| model.last_update).map(|took| took.as_secs_f64());
    "publishes", None, "Versions published.",
        |of, _| calls(of, |call, outcome| call == "publish" && outcome == "ok", count);
    "publish_seconds", None, "Seconds in publish, until the version was listed.",
        |of, _| calls(of, |call, _| call == "publish", length);
    "unpublish_seconds", None, "Seconds in unpublish: the drain, until nobody reads any more.",
        |of, _| calls(of, |call, _| call == "unpublish", length);
    "wait_seconds", None, "Seconds in wait.", |of, _| calls(of, |call, _| call == "wait", length);
    "wait_sealed_seconds", None, "Seconds in wait_sealed.",
        |of, _| calls(of, |call, _| call == "wait_sealed", length);
    "timeouts", None, "Calls that ended at their deadline.",
        |of, _| calls(of, |_, outcome| outcome == "timeout", count);
    "errors", None, "Calls that failed for another reason.",
        |of, _| calls(of, |_, outcome| !matches!(outcome, "ok" | "unchanged" | "timeout"), count);
    "bytes_shared", bytes_of("shared"), "Bytes that finished reads brought, by way.",
        |of, _| sum(of, |model| model.shared.bytes as f64);
    "bytes_direct", bytes_of("direct"), "Bytes that finished reads brought, by way.",
        |of, _| sum(of, |model| model.direct.bytes as f64);
    "bytes_tcp", bytes_of("tcp"), "Bytes that finished reads brought, by way.",
        |of, _| sum(of, |model| model.tcp.bytes as f64);
    "bytes_unchanged", counter("unchanged_bytes_total"),
        "Bytes that finished reads did not move, because the memory held them already.",
        |of, _| sum(of, |model| model.unchanged_bytes as f64);
    "gb_per_s_shared", None, "Gigabytes a second of the last read that came out of shared memory.",
        |of, _| rate(of, |model| model.shared);
    "gb_per_s_direct", None, "Gigabytes a second of the last read that came directly.",
        |of, _| rate(of, |model| model.direct);
    "gb_per_s_tcp", None, "Gigabytes a second of the last read that came over TCP.",
        |of, _| rate(of, |model| model.tcp);
    "read_seconds", counter("read_seconds_total"),
        "Seconds of finished reads, each from the choice of a source until all bytes were digested.",
        |of, _| sum(of, |model| model.read_seconds);
    "plan_seconds", counter("plan_seconds_total"), "Seconds of planning, within those of reads.",
        |of, _| sum(of, |model| model.plan_seconds);
    "install_seconds", counter("install_seconds_total"),
        "Seconds in which staged updates copied versions into place.",
        |of, _| sum(of, |model| model.install_seconds);
    "seal_seconds", counter("seal_seconds_total"),
        "Seconds in which published memory was digested, in the background.",
        |of, _| sum(of, |model| model.seal_seconds);
    "retries", counter("retries_total"), "Assignments of a source to a call beyond its first.",
        |of, _| sum(of, |model| model.retries as f64);
    "refusals", counter("refusals_total"), "Publications of this process that were refused.",
        |of, _| sum(of, |model| model.refusals as f64);
    "offloads", counter("offloads_total"), "Copies that this process made of retained versions.",
        |of, _| sum(of, |model| model.offloads as f64);
    "seeds", counter("seeds_total"), "Versions that this process brought near in the background.",
        |of, _| sum(of, |model| model.seeds as f64);
};

fn sum(of: &[ModelFigures], figure: impl Fn(&ModelFigures) -> f64) -> Option<f64> {
    Some(of.iter().map(figure).sum())
}

fn held(of: &[ModelFigures]) -> impl Iterator<Item = (weightcast_protocol::Version, Instant)> + '_ {
    of.iter().flat_map(ModelFigures::held)
}

/// Sums up the calls of these kinds and outcomes.
fn calls(
    of: &[ModelFigures],
    asked: impl Fn(&str, &str) -> bool,
    figure: impl Fn(&DurationHistogram) -> f64,
) -> Option<f64> {
    let all = of.iter().flat_map(|model| model.calls.each());
    Some(all.filter(|(call, outcome, _)| asked(call, outcome)).map(|(.., d)| figure(d)).sum())
}

fn count(of: &DurationHistogram) -> f64 {
    of.count() as f64
}

fn length(of: &DurationHistogram) -> f64 {
    seconds(of.sum())
}

/// The newest of the models' values.
fn last<T>(of: &[ModelFigures], when: impl Fn(&ModelFigures) -> Option<(Instant, T)>) -> Option<T> {
    of.iter().filter_map(when).max_by_key(|(at, _)| *at).map(|(_, what)| what)
}

fn rate(of: &[ModelFigures], way: impl Fn(&ModelFigures) -> WayFigures) -> Option<f64> {
    last(of, |model| way(model).last).map(|bytes_per_s| bytes_per_s / 1e9)
}
