//! The layout that a caller registers.

use weightcast_plan::{Layout, LayoutBuilder};

/// A layout, or a builder whose missing shapes are looked up in a published version.
#[derive(Clone, Debug)]
pub enum LayoutSource {
    /// All shapes are known.
    Known(Layout),
    /// Missing global shapes come from the newest version.
    Open(LayoutBuilder),
}
