//! Tensors of which both sides have the name, and mean something else.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::Cluster;
use crate::model::Family;

/// What does not fit between two sides.
#[derive(Default)]
pub(super) struct Unlike {
    /// Names of tensors of another shape, which have no plan.
    pub(super) shapes: BTreeSet<String>,
    /// What is wrong, for people.
    pub(super) defects: Vec<String>,
}

impl Unlike {
    /// Compares shapes; and types, where a file says what the target takes: that is exactly what arrives. By rule, either
    /// side may convert. Two sides by rule are of one model.
    pub(super) fn of(source: &Cluster, target: &Cluster) -> Unlike {
        let mut unlike = Unlike::default();
        if source.model().is_some() {
            return unlike;
        }
        let published: BTreeMap<&str, &Family> =
            source.families().iter().map(|family| (&*family.name, family)).collect();
        for taken in target.families() {
            let Some(given) = published.get(&*taken.name) else { continue };
            let name = &taken.name;
            if given.shape != taken.shape {
                let (given, taken) = (&given.shape, &taken.shape);
                let defect = format!("{name} is published as {given:?} and taken as {taken:?}");
                unlike.defects.push(defect);
                unlike.shapes.insert(name.clone());
            } else if given.dtype != taken.dtype && target.is_read() {
                let (given, taken) = (given.dtype, taken.dtype);
                unlike.defects.push(format!(
                    "{name} is published as {given} and taken as {taken}; have the trainer publish {taken} (cast or \
                     quantise of its layout)"
                ));
            }
        }
        unlike
    }
}
