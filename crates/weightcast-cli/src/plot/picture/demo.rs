//! The demo: what sync is worth (reward, staleness), what it costs (stalls), and who held which version.

use std::collections::BTreeMap;

use super::{Chart, Curve, Ink, Period, Picture, PicturePanel, PlotAxis, Timeline, Track};
use crate::plot::reading::demo::{DemoFile, DemoRun, DemoStep, DemoUpdate};

/// Versions whose holders are shown: more would have no room for their numbers.
const SHOWN: usize = 12;

/// Workers whose versions are shown: more would make a picture of several screens.
const WORKERS: usize = 32;

/// What the runs of the demo came to.
pub(crate) fn picture(file: &DemoFile) -> Picture {
    let over_steps = |title: &str, unit: &str, of: fn(&DemoStep) -> f64| {
        let curves = file.runs.iter().map(|run| {
            let points = run.steps.iter().map(|step| (step.step as f64, of(step))).collect();
            Curve::new(name(run), ink(run), points)
        });
        PicturePanel::curves(title, PlotAxis::fitted("step"), PlotAxis::linear(unit), curves)
    };
    let reward = over_steps("Reward", "fraction of right tokens", |step| step.reward);
    let staleness =
        over_steps("Staleness of the samples", "versions behind", |step| step.staleness);
    let mut rows = vec![vec![reward], vec![staleness]];
    // Stalls and versions are those of a run with sync, if there is one.
    if let Some(told) = file.runs.iter().min_by_key(|run| run.settings.no_sync) {
        rows[1].push(stalls(told));
        rows.push(vec![holders(told)]);
    }
    let title = "Reinforcement learning whose rollouts follow the trainers' weights";
    Picture::new(title, file.runs.iter().map(note).collect(), rows)
}

fn name(run: &DemoRun) -> &'static str {
    if run.settings.no_sync { "without sync" } else { "with sync" }
}

fn ink(run: &DemoRun) -> Ink {
    if run.settings.no_sync { Ink::Compared } else { Ink::Weightcast }
}

fn note(run: &DemoRun) -> String {
    let (settings, total) = (&run.settings, &run.total);
    format!(
        "{}: {} steps in {:.0} s, FSDP2 ranks: {}, rollouts of TP size {}; {:.1} MB moved, {} bytes unverified",
        name(run),
        run.steps.len(),
        run.seconds,
        settings.trainers,
        settings.rollouts,
        total.bytes as f64 / 1e6,
        total.bytes.saturating_sub(total.verified)
    )
}

/// `rollout-0` of `rollout-0/1`.
fn group(update: &DemoUpdate) -> &str {
    update.worker.split('/').next().unwrap_or_default()
}

/// For how long each rollout stood still for a version: as long as its slowest shard. The first
/// version is left out, since that wait is for the trainers' start.
fn stalls(run: &DemoRun) -> PicturePanel {
    let mut groups: BTreeMap<&str, BTreeMap<u64, f64>> = BTreeMap::new();
    for update in &run.updates {
        let slowest = groups.entry(group(update)).or_default().entry(update.version).or_default();
        *slowest = slowest.max(update.committed_s - update.asked_s);
    }
    let curves = groups.into_iter().enumerate().map(|(index, (name, stalls))| {
        let stalls = stalls.into_iter().skip(1);
        let points = stalls.map(|(version, seconds)| (version as f64, seconds * 1e3)).collect();
        Curve::new(name, Ink::Other(index), points)
    });
    let title = format!("Stall of an update, {}", name(run));
    PicturePanel::curves(
        title,
        PlotAxis::fitted("version"),
        PlotAxis::linear("milliseconds"),
        curves,
    )
}

fn holders(run: &DemoRun) -> PicturePanel {
    let shown = &run.steps[run.steps.len().saturating_sub(SHOWN)..];
    let from_s = shown.first().map_or(0.0, |step| step.published_s);
    let to_s = shown.last().map_or(run.seconds, |step| step.unpublished_s);
    let mut tracks = vec![Track { name: "trainers".to_owned(), periods: published(&run.steps) }];
    let mut workers: BTreeMap<&str, Vec<&DemoUpdate>> = BTreeMap::new();
    for update in &run.updates {
        workers.entry(&update.worker).or_default().push(update);
    }
    let all = workers.len();
    tracks.extend(workers.into_iter().take(WORKERS).map(|(name, updates)| Track {
        name: name.to_owned(),
        periods: held(&updates, run.seconds),
    }));
    for track in &mut tracks {
        track.periods.retain(|period| period.from_s < to_s && period.to_s > from_s);
    }
    let mut title = format!(
        "Who held which version when, {}: the last {} of {} versions",
        name(run),
        shown.len(),
        run.steps.len()
    );
    if all > WORKERS {
        title += &format!(", the first {WORKERS} of {all} workers");
    }
    PicturePanel { title, chart: Chart::Timeline(Timeline { from_s, to_s, tracks }) }
}

fn published(steps: &[DemoStep]) -> Vec<Period> {
    let period = |step: &DemoStep| Period {
        version: step.step,
        from_s: step.published_s,
        to_s: step.unpublished_s,
    };
    steps.iter().map(period).collect()
}

/// From each commit until the shard asks for the next version, whose bytes then take the place; the
/// last until the end.
fn held(updates: &[&DemoUpdate], end_s: f64) -> Vec<Period> {
    let next = updates.iter().skip(1).map(|update| update.asked_s).chain([end_s]);
    let period = |(update, to_s): (&&DemoUpdate, f64)| Period {
        version: update.version,
        from_s: update.committed_s,
        to_s,
    };
    updates.iter().zip(next).map(period).collect()
}
