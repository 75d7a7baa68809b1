//! Pipeline stages: which layers a stage has.

use std::ops::Range;

use crate::error::RuleError;

/// The layers of a stage: as many as given for it, or the same for all.
pub(crate) fn layers_of(
    layers: u64,
    stages: u64,
    given: &[u64],
    stage: u64,
) -> Result<Range<u64>, RuleError> {
    if given.is_empty() {
        if !layers.is_multiple_of(stages) {
            let what = format!(
                "{layers} layers on {stages} pipeline stages; give pp_layers=..., one number a stage"
            );
            return Err(RuleError::Indivisible { what, size: layers, parts: stages });
        }
        let each = layers / stages;
        return Ok(stage * each..(stage + 1) * each);
    }
    let total: u64 = given.iter().sum();
    if given.len() as u64 != stages || total != layers {
        let what = format!(
            "pp_layers gives {} stages {total} layers; the model has {layers}, pp={stages}",
            given.len()
        );
        return Err(RuleError::Degrees { what });
    }
    let first: u64 = given[..stage as usize].iter().sum();
    Ok(first..first + given[stage as usize])
}
