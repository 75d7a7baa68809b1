//! Names of models as labels. A job may have thousands of models (adapters, say), and each value of a
//! label costs memory in the scraper: the names are bounded.

/// Models that have a label of their own.
pub(crate) const MODEL_LABELS: usize = 64;
/// The label of all further models together.
pub(crate) const OTHER: &str = "other";

/// The label of a model, when so many other models have labels of their own.
pub(crate) fn model_label(others: usize, name: &str) -> &str {
    if others < MODEL_LABELS { name } else { OTHER }
}
