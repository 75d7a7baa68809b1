//! Figures of this process: what its handles have done, for a trainer's logger and for Prometheus.
//!
//! `figures` are the counts of one model, and `process` keeps the counts of all models. `list` names
//! each figure and says how to work it out; `report` gives the list to users, as a dictionary and as
//! text. `exposition` writes Prometheus' text, and `model_label` bounds the models named in it. The
//! server's own figures are in `serve/metrics`, and use these two as well.

pub(crate) mod exposition;
pub(crate) mod figures;
mod list;
pub(crate) mod model_label;
#[cfg(test)]
pub(crate) mod page;
pub(crate) mod process;
mod report;

pub use report::{metrics, metrics_text};
