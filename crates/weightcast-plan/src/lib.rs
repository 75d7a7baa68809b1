//! Slices, layouts and the planner that intersects them.
//!
//! One idea: a version is a set of slices of logical tensors, held in place by workers, and a
//! transfer is the intersection of two layouts. This crate is that idea and nothing else: no I/O,
//! no clock, no threads, no randomness; equal arguments give equal answers everywhere.
//!
//! # Reading order
//!
//! 1. [`DType`], [`Tensor`]: what is published, by name.
//! 2. [`Slice`]: a box of elements. [`Mesh`] and [`Placement`] say which box a rank holds
//!    ([`local_slices`]: torch's rules).
//! 3. [`Layout`] and its [`Entry`]s: which slices lie where in one shard's memory, checked.
//!    [`LayoutBuilder`] and [`Part`] write one by hand: fusion is where a box lies, not an
//!    operation.
//! 4. [`cells`]: a shard's entries cut so that each is held by the same shards of its group; every
//!    element is counted by exactly one.
//! 5. [`plan()`]: for every cell the source bytes that fill it, as two-dimensional [`struct@Copy`]s.
//!    [`runs`]: what a publisher digests in place.
//! 6. [`prove`]: that a plan writes every target byte exactly once from the right place, by other
//!    arithmetic than the planner's.
//! 7. [`PlanComparison`]: which copies need not be made, because the version that the target holds has
//!    the same bytes there.
//! 8. [`HostShares`]: which shard of a group brings into its host what several of them hold.
//! 9. [`mod@stored`]: plans as a few bytes a copy, to be kept from one process to the next; what comes
//!    back is proved first.
//! 10. [`mod@transform`]: slices in another representation, cast or quantised: the one place where
//!     bytes change on the way. [`mod@quantise`] is its arithmetic.
//!
//! Numbers in bytes, everywhere: offsets, strides, pitches, positions. Only shapes and slices count
//! elements. A *position* is a byte of a tensor's global row-major order, whoever holds it; digests
//! are keyed by it.

#![forbid(unsafe_code)]

mod buffer;
mod builder;
mod codec;
mod coverage;
mod dtype;
mod entry;
mod entry_check;
mod error;
mod extent;
mod fold;
mod group;
pub mod hint;
mod host_shares;
mod index;
mod layout;
pub mod limits;
mod memory_check;
mod mesh;
mod nearest;
mod overlap;
mod packed;
mod part;
mod placed;
mod placement;
mod plan;
mod planner;
pub mod quantise;
mod slice;
pub mod stored;
mod tensor;
pub mod transform;
mod unchanged;
mod window;

pub use builder::LayoutBuilder;
pub use codec::Codec;
pub use coverage::{CoverageError, prove};
pub use dtype::DType;
pub use error::{LayoutError, PlanError, Unmatched};
pub use group::{Cell, cells, disagreement, missing};
pub use host_shares::{HostShares, TakenCopies};
pub use layout::{Entry, Layout, LayoutDigest};
pub use mesh::{Mesh, MeshError};
pub use nearest::nearest;
pub use overlap::{Overlap, OverlapShare};
pub use part::Part;
pub use placed::{Placed, overlap};
pub use placement::{Placement, PlacementError, chunk, local_slices};
pub use plan::{Copy, Plan, Run, runs};
pub use planner::plan;
pub use slice::Slice;
pub use tensor::{Catalog, Tensor, TensorError, catalog_digest};
pub use unchanged::{EntryDigests, KnownDigests, PlanComparison, Unchanged};
