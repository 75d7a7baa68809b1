//! Meshes: named axes over ranks.

use thiserror::Error;

use crate::limits::{MAX_AXES, MAX_RANKS};

/// Ranks arranged along named axes, row-major: the last axis varies fastest, as in torch's
/// `DeviceMesh`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mesh {
    axes: Vec<(String, u64)>,
}

/// Why a mesh cannot be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs)] // fields are named in the message
pub enum MeshError {
    /// More axes than [`MAX_AXES`].
    #[error("a mesh of {axes} axes; at most {MAX_AXES} are supported")]
    Axes { axes: usize },
    /// An axis without ranks, or with more than [`MAX_RANKS`] in all.
    #[error(
        "mesh axis {axis} of size {size}: sizes are at least 1 and multiply to at most {MAX_RANKS}"
    )]
    Size { axis: String, size: u64 },
    /// Two axes with one name.
    #[error("mesh axis {axis} is named twice")]
    Twice { axis: String },
}

impl Mesh {
    /// Checks names and sizes. No axes at all is the mesh of one rank.
    pub fn new<N: Into<String>>(
        axes: impl IntoIterator<Item = (N, u64)>,
    ) -> Result<Mesh, MeshError> {
        let axes: Vec<(String, u64)> = axes.into_iter().map(|(n, s)| (n.into(), s)).collect();
        if axes.len() > MAX_AXES {
            return Err(MeshError::Axes { axes: axes.len() });
        }
        let mut ranks = 1u64;
        for (at, (axis, size)) in axes.iter().enumerate() {
            if axes[..at].iter().any(|(other, _)| other == axis) {
                return Err(MeshError::Twice { axis: axis.clone() });
            }
            ranks = ranks.saturating_mul(*size);
            if ranks == 0 || ranks > MAX_RANKS {
                return Err(MeshError::Size { axis: axis.clone(), size: *size });
            }
        }
        Ok(Mesh { axes })
    }

    /// Names and sizes, slowest axis first.
    pub fn axes(&self) -> &[(String, u64)] {
        &self.axes
    }

    /// Number of ranks.
    pub fn size(&self) -> u64 {
        self.axes.iter().map(|(_, size)| size).product()
    }

    /// The place of `rank` on each axis, if there is such a rank.
    pub fn coordinate(&self, rank: u64) -> Option<Vec<u64>> {
        if rank >= self.size() {
            return None;
        }
        let mut rest = rank;
        let mut coordinate = vec![0; self.axes.len()];
        for (at, (_, size)) in self.axes.iter().enumerate().rev() {
            coordinate[at] = rest % size;
            rest /= size;
        }
        Some(coordinate)
    }

    /// The ranks split into groups that differ only along `axes`: the sub-meshes of those axes.
    /// Groups and their ranks ascend. Unknown names are ignored.
    pub fn groups(&self, axes: &[&str]) -> Vec<Vec<u64>> {
        let mut groups = std::collections::BTreeMap::<Vec<u64>, Vec<u64>>::new();
        for rank in 0..self.size() {
            let place = self.coordinate(rank).unwrap_or_default();
            let fixed = (0..place.len()).filter(|&at| !axes.contains(&self.axes[at].0.as_str()));
            groups.entry(fixed.map(|at| place[at]).collect()).or_default().push(rank);
        }
        groups.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_row_major() {
        let mesh = Mesh::new([("fsdp", 2), ("pp", 2), ("ep", 8)]).unwrap();
        assert_eq!(mesh.size(), 32);
        for rank in 0..32 {
            assert_eq!(mesh.coordinate(rank), Some(vec![rank / 16, rank / 8 % 2, rank % 8]));
        }
        assert_eq!(mesh.coordinate(32), None);
        assert_eq!(Mesh::new::<&str>([]).unwrap().coordinate(0), Some(vec![]));
    }

    #[test]
    fn refuses_bad_axes() {
        assert!(Mesh::new([("a", 0)]).is_err());
        assert!(Mesh::new([("a", 2), ("a", 2)]).is_err());
        assert!(Mesh::new([("a", u64::MAX), ("b", u64::MAX)]).is_err());
        assert!(Mesh::new((0..9).map(|n| (n.to_string(), 1))).is_err());
        // As many as there may be, of each.
        assert!(Mesh::new((0..8).map(|n| (n.to_string(), 1))).is_ok());
        assert_eq!(Mesh::new([("a", MAX_RANKS / 2), ("b", 2)]).unwrap().size(), MAX_RANKS);
        assert!(Mesh::new([("a", MAX_RANKS), ("b", 2)]).is_err());
        assert!(Mesh::new([("a", MAX_RANKS + 1)]).is_err());
    }
}
