//! Bounds of the runtime, each with its reason. Those of the protocol are in its own crate.

/// One control-plane message: a source with 4,096 shards fits many times over.
pub(crate) const FRAME_BYTES: usize = 4 << 20;
/// One page of a manifest: well under a frame.
pub(crate) const PAGE_BYTES: usize = 1 << 20;
/// One manifest: 200,000 tensors at 300 bytes.
pub(crate) const MANIFEST_BYTES: usize = 64 << 20;
/// Plans kept by one handle: a trainer's layout, a few of its peers'.
pub(crate) const CACHED_PLANS: usize = 8;
/// Data ports that one handle stays connected to: as many as a large source has shards. Rollouts
/// that came and went must not add up.
pub(crate) const CACHED_PEERS: usize = 1_024;
/// Layouts of other shards kept by one handle: those of two large sources.
pub(crate) const CACHED_LAYOUTS: usize = 8_192;
