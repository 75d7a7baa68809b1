//! A server's recording: who held which version, how far replicas were behind, and how many read.

use std::collections::BTreeMap;

use weightcast_sim::RetoldEnd;

use super::{Chart, Curve, Ink, Period, Picture, PicturePanel, PlotAxis, Timeline, Track};
use crate::plot::reading::recording::RecordedJob;

/// Replicas whose versions are shown: more would make a picture of several screens.
const REPLICAS: usize = 32;

/// What a server saw of its job.
pub(crate) fn picture(job: &RecordedJob) -> Picture {
    let behind = curves(job, "Replica furthest behind", "versions behind", &job.behind);
    let readers = curves(job, "Replicas that read", "replicas", &job.readers);
    let title = "The last minutes of a job, as its server recorded them";
    Picture::new(title, notes(job), vec![vec![holders(job)], vec![behind, readers]])
}

fn notes(job: &RecordedJob) -> Vec<String> {
    let RecordedJob { events, cause, from_s, to_s, end, .. } = job;
    let mut notes = vec![format!("{events} events in {:.1} s, {cause}", to_s - from_s)];
    if *end != RetoldEnd::Faithful {
        notes.push(format!("drawn up to where the playing ended: {end}"));
    }
    notes
}

fn holders(job: &RecordedJob) -> PicturePanel {
    let (from_s, to_s) = (job.from_s, job.to_s);
    let models = job.behind.len();
    let tracks = job.held.iter().take(REPLICAS).map(|((model, replica), held)| Track {
        name: if models > 1 { format!("{model} {replica}") } else { replica.clone() },
        periods: held
            .iter()
            .map(|held| Period {
                version: held.version.number,
                from_s: held.from_s,
                to_s: held.to_s,
            })
            .collect(),
    });
    let mut title = "Who held which version when".to_owned();
    if job.held.len() > REPLICAS {
        title += &format!(", the first {REPLICAS} of {} replicas", job.held.len());
    }
    let tracks = tracks.collect();
    PicturePanel { title, chart: Chart::Timeline(Timeline { from_s, to_s, tracks }) }
}

/// A curve a model, each to the end of the recording, in seconds since its beginning.
fn curves(
    job: &RecordedJob,
    title: &str,
    unit: &str,
    of: &BTreeMap<String, Vec<(f64, f64)>>,
) -> PicturePanel {
    let curves = of.iter().enumerate().map(|(place, (model, points))| {
        let last = points.last().map(|&(_, number)| (job.to_s, number));
        let points = points.iter().copied().chain(last);
        let points = points.map(|(at_s, number)| (at_s - job.from_s, number)).collect();
        Curve::new(model, Ink::Other(place), points)
    });
    let x = PlotAxis::fitted(format!("seconds after {:.2} s", job.from_s));
    PicturePanel::curves(title, x, PlotAxis::linear(unit), curves)
}
