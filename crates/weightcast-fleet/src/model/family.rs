//! Families: tensors of a checkpoint that differ only in their layer and expert.

use weightcast_plan::DType;

use super::role::{ModuleTensor, TensorRole};

/// Tensors of one shape whose names differ in a layer (`{L}`) and an expert (`{E}`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Family {
    /// What they are for.
    pub role: TensorRole,
    /// Weight, bias or scale.
    pub member: ModuleTensor,
    /// The published name, with `{L}` and `{E}` where they range.
    pub name: String,
    /// Global shape, in elements.
    pub shape: Vec<u64>,
    /// Element type.
    pub dtype: DType,
    /// The layers, as inclusive intervals that ascend; none for a tensor outside of layers.
    pub layers: Vec<(u64, u64)>,
    /// Number of experts, counted from 0; 0 for a tensor outside of experts.
    pub experts: u64,
}

impl Family {
    /// Number of tensors.
    pub fn count(&self) -> u64 {
        let layers: u64 = self.layers.iter().map(|(first, last)| last - first + 1).sum();
        layers.max(1) * self.experts.max(1)
    }

    /// Bytes of one of the tensors.
    pub fn tensor_bytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * self.dtype.bits() / 8
    }

    /// Whether it has a tensor in this layer.
    pub fn is_in(&self, layer: u64) -> bool {
        self.layers.iter().any(|&(first, last)| (first..=last).contains(&layer))
    }

    /// Its tensors one by one.
    pub(crate) fn written_out(&self) -> Vec<Family> {
        let one = |name| Family { name, layers: Vec::new(), experts: 0, ..self.clone() };
        self.names().map(one).collect()
    }

    /// All names, layer by layer.
    pub fn names(&self) -> impl Iterator<Item = String> {
        let layers: Vec<Option<u64>> = match self.layers.is_empty() {
            true => vec![None],
            false => self.layers.iter().flat_map(|&(a, b)| (a..=b).map(Some)).collect(),
        };
        let experts: Vec<Option<u64>> = match self.experts {
            0 => vec![None],
            n => (0..n).map(Some).collect(),
        };
        layers.into_iter().flat_map(move |layer| {
            experts.clone().into_iter().map(move |expert| fill(&self.name, layer, expert))
        })
    }
}

/// The name with its layer and its expert in place of `{L}` and `{E}`.
pub fn fill(name: &str, layer: Option<u64>, expert: Option<u64>) -> String {
    let mut filled = name.to_owned();
    if let Some(layer) = layer {
        filled = filled.replace("{L}", &layer.to_string());
    }
    if let Some(expert) = expert {
        filled = filled.replace("{E}", &expert.to_string());
    }
    filled
}

/// Ascending numbers as inclusive intervals.
pub(crate) fn intervals(numbers: impl IntoIterator<Item = u64>) -> Vec<(u64, u64)> {
    let mut intervals: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match intervals.last_mut() {
            Some(last) if last.1 + 1 == number => last.1 = number,
            _ => intervals.push((number, number)),
        }
    }
    intervals
}
