//! The figures of this process, as users get them.

use std::collections::BTreeMap;
use std::time::Instant;

use super::exposition::{Exposition, FamilyKind};
use super::figures::ModelFigures;
use super::list::FIGURES;
use super::process::look;

/// What the handles of this process have done since it started, closed handles included, and what
/// they hold now: numbers under keys such as `weightcast/update_seconds`, for a trainer's logger.
/// The page `docs/guides/metrics.md` lists all keys. A key is missing while there is nothing to tell:
/// the version of a process that holds none, say.
///
/// With a model, only its handles count; without any handle of the model, there are no figures.
/// Beyond 64 models, all further models are one, named `other`.
pub fn metrics(model: Option<&str>) -> BTreeMap<String, f64> {
    dictionary(look(model).into_values().collect(), Instant::now())
}

fn dictionary(models: Vec<ModelFigures>, now: Instant) -> BTreeMap<String, f64> {
    let figures = FIGURES.iter().filter(|_| !models.is_empty());
    let told = figures.filter_map(|figure| {
        Some((format!("weightcast/{}", figure.key), (figure.of)(&models, now)?))
    });
    told.collect()
}

/// The figures of [`metrics`] by model, as text for Prometheus. For a process that serves the text on
/// a port of its own. Names begin with `weightcast_client_`.
pub fn metrics_text() -> String {
    text(&look(None), Instant::now())
}

fn text(models: &BTreeMap<String, ModelFigures>, now: Instant) -> String {
    let mut text = Exposition::default();
    let exposed = FIGURES.iter().filter_map(|figure| Some((figure, figure.exposed?)));
    let exposed: Vec<_> = exposed.collect();
    for figures in exposed.chunk_by(|(_, one), (_, next)| one.name == next.name) {
        let (first, as_family) = figures[0];
        let name = format!("weightcast_client_{}", as_family.name);
        let mut family = text.family(&name, as_family.kind, first.meaning);
        for (model, counted) in models {
            for (figure, exposed) in figures {
                let Some(value) = (figure.of)(std::slice::from_ref(counted), now) else { continue };
                let model = ("model", model.as_str());
                match exposed.way {
                    None => family.sample(&[model], value),
                    Some(way) => family.sample(&[model, ("way", way)], value),
                }
            }
        }
    }
    let meaning = "How long calls took, as the caller saw them.";
    let mut calls = text.family("weightcast_client_call_seconds", FamilyKind::Histogram, meaning);
    for (model, counted) in models {
        for (call, outcome, durations) in counted.calls.each() {
            calls.histogram(&[("model", model), ("call", call), ("outcome", outcome)], durations);
        }
    }
    text.into_text()
}

#[cfg(test)]
mod tests;
