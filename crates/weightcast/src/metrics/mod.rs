//! Figures for people and their tools: what the handles of this process have done.
//!
//! `figures` is what is counted of one model, and `process` keeps those of all models that this
//! process has handles of. `list` names each figure, and says what it is; `report` gives all of them,
//! as a dictionary for a trainer's logger and as text for Prometheus. `exposition` writes that text,
//! and `model_label` bounds how many models have a name in it: the server has its own figures
//! (`serve/metrics`), and says them in the same form.

pub(crate) mod exposition;
pub(crate) mod figures;
mod list;
pub(crate) mod model_label;
#[cfg(test)]
pub(crate) mod page;
pub(crate) mod process;
mod report;

pub use report::{metrics, metrics_text};
