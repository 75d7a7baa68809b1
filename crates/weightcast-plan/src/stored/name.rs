//! What a stored plan was made for.

use std::fmt;

use crate::group::Cell;
use crate::layout::Layout;
use crate::tensor::first_half;

/// What a plan was made for. Equal names mean equal arguments to the planner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlanName {
    /// The target's layout and cells.
    pub target: [u8; 16],
    /// The sources' layouts, in order.
    pub sources: [u8; 16],
}

impl PlanName {
    /// Of the plan for these arguments. Sources are given by names of their layouts, of any kind as
    /// long as equal names mean equal layouts: digests, or those of manifests.
    pub fn new(
        target: &Layout,
        cells: &[Cell],
        sources: impl IntoIterator<Item = [u8; 16]>,
    ) -> PlanName {
        let mut hasher = blake3::Hasher::new_derive_key("weightcast plan target 1");
        hasher.update(&target.digest().0);
        for cell in cells {
            hasher.update(&cell.entry.to_le_bytes());
            hasher.update(&(cell.slice.ndim() as u64).to_le_bytes());
            for number in cell.slice.start.iter().chain(&cell.slice.len) {
                hasher.update(&number.to_le_bytes());
            }
        }
        let target = first_half(&hasher);
        let mut hasher = blake3::Hasher::new_derive_key("weightcast plan sources 1");
        for name in sources {
            hasher.update(&name);
        }
        PlanName { target, sources: first_half(&hasher) }
    }
}

impl fmt::Display for PlanName {
    /// Sources and target, 65 characters that may be a file's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sources.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("-")?;
        self.target.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PlanName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlanName({self})")
    }
}
