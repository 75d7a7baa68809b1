//! Names of models as labels. Users choose them and a job may have thousands (adapters, say): the cost of
//! a scraper grows with every value of a label.

/// So many models are told by their names.
pub(crate) const MODEL_LABELS: usize = 64;
/// All others are told together under this one.
pub(crate) const OTHER: &str = "other";

/// How a model is told, if so many others are told by their names.
pub(crate) fn model_label(others: usize, name: &str) -> &str {
    if others < MODEL_LABELS { name } else { OTHER }
}
