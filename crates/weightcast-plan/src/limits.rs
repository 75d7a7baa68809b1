//! Every bound of this crate, each with its reason. Hostile input meets one of these, not the
//! machine's memory.

/// Longest tensor name in bytes. The longest real ones are under 120.
pub const MAX_NAME_BYTES: usize = 512;

/// Most dimensions of a tensor. Fused expert weights have 3 or 4.
pub const MAX_DIMS: usize = 8;

/// Most bytes of one logical tensor, of one buffer and of all buffers of a shard: 1 PiB. Small
/// enough that sums and products of validated numbers stay inside 64 bits.
pub const MAX_BYTES: u64 = 1 << 50;

/// Most logical tensors in one layout. Kimi K2 with FP8 scales has 139,583.
pub const MAX_TENSORS: usize = 1 << 18;

/// Most buffers in one layout: one per parameter, with room.
pub const MAX_BUFFERS: usize = 1 << 20;

/// Most entries in one layout. Fusion gives a few per tensor.
pub const MAX_ENTRIES: usize = 1 << 21;

/// Most axes of a mesh. Megatron names five, with expert axes seven.
pub const MAX_AXES: usize = 8;

/// Most ranks of a mesh.
pub const MAX_RANKS: u64 = 1 << 20;

/// Most pieces one dimension may fall into under interleaved strided shards.
pub const MAX_PIECES: usize = 1 << 12;

/// Most contiguous pieces that a check of interleaved memory looks at: a second of work.
pub const MAX_FRAGMENTS: u64 = 1 << 22;

/// Most copies in one plan (about 2 GB of plan).
pub const MAX_COPIES: usize = 1 << 24;

/// Bytes of a tensor that one shard of a host brings there for the others before the next shard's turn comes
/// ([`HostShares`](crate::HostShares)). All shards of a job have to use the same.
pub const SHARED_BLOCK: u64 = 1 << 20;
