//! Bounds of the runtime, each with its reason. Those of the protocol are in its own crate.

/// One control-plane message: a source with 4,096 shards fits many times over.
pub(crate) const FRAME_BYTES: usize = 4 << 20;
/// One page of a manifest: well under a frame.
pub(crate) const PAGE_BYTES: usize = 1 << 20;
/// One manifest: 200,000 tensors at 300 bytes.
pub(crate) const MANIFEST_BYTES: usize = 64 << 20;
/// Layouts of other shards and plans kept by one handle.
pub(crate) const CACHED_PLANS: usize = 8;
