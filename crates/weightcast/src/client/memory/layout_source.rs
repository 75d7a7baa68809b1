//! The layout that a caller registers.

use weightcast_plan::{Layout, LayoutBuilder};

/// A layout, or one whose shapes are still to be looked up in a published version.
#[derive(Clone, Debug)]
pub enum LayoutSource {
    /// All shapes are known.
    Known(Layout),
    /// Global shapes that it lacks come from the newest version.
    Open(LayoutBuilder),
}
