//! The counts of all models of this process, and the part of each handle.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Instant;

use weightcast_protocol::Version;

use super::figures::ModelFigures;
use super::model_label::model_label;
use crate::per_process::PerProcess;

/// The counts of one model, which outlive its handles. The lock is held for a few additions, never
/// while bytes move.
pub(crate) type SharedFigures = Arc<Mutex<ModelFigures>>;

/// Counts by model label. None is ever removed: counts of closed handles stay.
type ProcessFigures = BTreeMap<String, SharedFigures>;

fn process_figures() -> MutexGuard<'static, ProcessFigures> {
    static FIRST: OnceLock<PerProcess<ProcessFigures>> = OnceLock::new();
    PerProcess::lock(&FIRST)
}

/// The counts of one model, which begin with its first handle.
fn listed(all: &mut ProcessFigures, model: &str) -> SharedFigures {
    let label = if all.contains_key(model) { model } else { model_label(all.len(), model) };
    Arc::clone(all.entry(label.to_owned()).or_default())
}

/// A copy of the counts of all models, or of one.
pub(super) fn look(model: Option<&str>) -> BTreeMap<String, ModelFigures> {
    let all = process_figures().clone();
    let asked = all.into_iter().filter(|(name, _)| model.is_none_or(|model| model == name));
    asked.map(|(name, figures)| (name, lock(&figures).clone())).collect()
}

fn lock(figures: &SharedFigures) -> MutexGuard<'_, ModelFigures> {
    figures.lock().expect("no panic while held")
}

/// A handle's access to the counts of its model.
pub(crate) struct HandleFigures {
    handle: u64,
    model: SharedFigures,
}

impl HandleFigures {
    /// For a handle that the user opens.
    pub(crate) fn listed(model: &str) -> Self {
        Self::of(listed(&mut process_figures(), model))
    }

    /// For a handle of a copy aside: its calls hold up no user, and are left out of all reports.
    pub(crate) fn apart() -> Self {
        Self::of(SharedFigures::default())
    }

    fn of(model: SharedFigures) -> Self {
        static HANDLES: AtomicU64 = AtomicU64::new(0);
        let handle = HANDLES.fetch_add(1, Ordering::Relaxed);
        let figures = Self { handle, model };
        figures.holds(None);
        figures
    }

    /// The counts of the model, for threads that outlive the handle.
    pub(crate) fn model(&self) -> SharedFigures {
        Arc::clone(&self.model)
    }

    /// Changes the counts.
    pub(crate) fn count<T>(&self, change: impl FnOnce(&mut ModelFigures) -> T) -> T {
        change(&mut lock(&self.model))
    }

    /// The handle holds this from now on.
    pub(crate) fn holds(&self, version: Option<Version>) {
        let held = version.map(|version| (version, Instant::now()));
        self.count(|figures| figures.handles.insert(self.handle, held));
    }
}

impl Drop for HandleFigures {
    fn drop(&mut self) {
        self.count(|figures| figures.handles.remove(&self.handle));
    }
}

#[cfg(test)]
mod tests {
    use super::super::model_label::{MODEL_LABELS, OTHER};
    use super::*;

    #[test]
    fn so_many_models_have_their_names_and_the_others_are_counted_together() {
        let named = |models: usize| {
            let mut all = ProcessFigures::new();
            for model in 0..models {
                let figures = listed(&mut all, &format!("model-{model:03}"));
                lock(&figures).retries += 1;
            }
            // A known model keeps its name.
            lock(&listed(&mut all, "model-000")).retries += 10;
            let other = all.get(OTHER).map(|other| lock(other).retries);
            (all.len(), lock(&all["model-000"]).retries, other)
        };
        assert_eq!(named(MODEL_LABELS - 1), (MODEL_LABELS - 1, 11, None));
        assert_eq!(named(MODEL_LABELS), (MODEL_LABELS, 11, None));
        assert_eq!(named(MODEL_LABELS + 1), (MODEL_LABELS + 1, 11, Some(1)));
        assert_eq!(named(MODEL_LABELS + 2), (MODEL_LABELS + 1, 11, Some(2)));
    }

    #[test]
    fn what_was_counted_outlives_the_handle_and_what_it_held_does_not() {
        let model = "of process::tests";
        let (first, second) = (HandleFigures::listed(model), HandleFigures::listed(model));
        let version = Version { epoch: weightcast_protocol::Epoch(0), number: 3 };
        first.holds(Some(version));
        first.count(|figures| figures.retries += 2);
        second.count(|figures| figures.retries += 1);
        HandleFigures::apart().count(|figures| figures.retries += 100);
        let seen = || {
            let figures = look(Some(model)).remove(model).unwrap();
            let held: Vec<_> = figures.held().map(|(version, _)| version).collect();
            (figures.handles.len(), held, figures.retries)
        };
        assert_eq!(seen(), (2, vec![version], 3));
        drop(first);
        assert_eq!(seen(), (1, vec![], 3));
        drop(second);
        assert_eq!(seen(), (0, vec![], 3));
        assert!(look(Some("of nobody")).is_empty());
    }
}
