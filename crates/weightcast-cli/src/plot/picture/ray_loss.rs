//! What the loss of a node costs a job on Ray: reward, staleness and time of each step.

use super::{Curve, Ink, Mark, Picture, PicturePanel, PlotAxis};
use crate::plot::reading::ray_loss::{RayEvent, RayLossFile, RayRun, RayStep};

/// The event from which on a run is without a node.
const LOST: &str = "node lost";

/// Runs that lost a node, and runs that lost none.
pub(crate) fn picture(file: &RayLossFile) -> Picture {
    let panel = |title: &str, unit: &str, of: fn(&RayStep) -> f64| {
        let points = |run: &RayRun| -> Vec<(f64, f64)> {
            run.steps.iter().map(|step| (step.step as f64, of(step))).collect()
        };
        let runs = file.runs.iter().enumerate();
        let curves = runs.map(|(place, run)| Curve::new(name(run), ink(place, run), points(run)));
        let axes = (PlotAxis::fitted("step"), PlotAxis::linear(unit));
        PicturePanel::curves(title, axes.0, axes.1, curves).marked(marks(file))
    };
    let rows = vec![
        vec![panel("Reward", "fraction of right answers", |step| step.reward)],
        vec![
            panel("The worst batch learnt from", "versions behind", |step| step.stalest),
            panel("The rollout furthest behind", "versions behind", |step| step.furthest),
        ],
        vec![panel("When steps ended", "seconds since the job began", |step| step.ended_s)],
    ];
    let notes = [file.machine.line()].into_iter().chain(file.runs.iter().map(note)).collect();
    Picture::new("A job on Ray, and the loss of a node", notes, rows)
}

fn name(run: &RayRun) -> String {
    match &run.lost {
        None => "no loss".to_owned(),
        Some(whose) => format!("node of the {whose} lost"),
    }
}

fn ink(place: usize, run: &RayRun) -> Ink {
    match run.lost.as_deref() {
        None => Ink::Limit,
        Some("server") => Ink::Weightcast,
        Some(_) => Ink::Other(place),
    }
}

/// Nodes are lost between two steps: half-way in all runs.
fn marks(file: &RayLossFile) -> Vec<Mark> {
    let lost = file.runs.iter().flat_map(|run| &run.events).filter(|event| event.what == LOST);
    let mut marks: Vec<Mark> = Vec::new();
    for event in lost {
        let mark = Mark { x: event.step as f64 - 0.5, name: LOST.to_owned() };
        if !marks.contains(&mark) {
            marks.push(mark);
        }
    }
    marks
}

/// What happened in a run: each kind of event once, when it was first.
fn note(run: &RayRun) -> String {
    let mut told: Vec<&RayEvent> = Vec::new();
    for event in &run.events {
        if told.iter().all(|other| other.what != event.what) {
            told.push(event);
        }
    }
    let from_s = told.iter().find(|event| event.what == LOST).map_or(0.0, |event| event.at_s);
    let words = told.iter().map(|event| match event.what.as_str() {
        LOST => format!("{LOST} before step {} ({})", event.step, event.detail),
        what => format!("{what} after {:.1} s", event.at_s - from_s),
    });
    let words: Vec<String> = words.collect();
    let steps = format!("{}: {} steps", name(run), run.steps.len());
    [steps].into_iter().chain(words).collect::<Vec<_>>().join("; ")
}
