//! Bounds of the runtime, each with its reason. Those of the protocol are in its own crate.

use std::time::Duration;

/// One control-plane message: a source with 4,096 shards fits many times over.
pub(crate) const FRAME_BYTES: usize = 4 << 20;
/// One page of a manifest: well under a frame.
pub(crate) const PAGE_BYTES: usize = 1 << 20;
/// One manifest: 200,000 tensors at 300 bytes.
pub(crate) const MANIFEST_BYTES: usize = 64 << 20;
/// Plans kept by one handle: a trainer's layout, a few of its peers'.
pub(crate) const CACHED_PLANS: usize = 8;
/// Plans that stay in a directory, the newest: those of all ranks of a host and of a few jobs. At a
/// few bytes a copy, some 2 MB each for the largest models.
pub(crate) const STORED_PLANS: usize = 128;
/// One stored plan: as many copies as a plan may have, at the bytes that one takes.
pub(crate) const STORED_PLAN_BYTES: u64 = 128 << 20;
/// Data ports that one handle stays connected to: as many as a large source has shards. Rollouts
/// that came and went must not add up.
pub(crate) const CACHED_PEERS: usize = 1_024;
/// Layouts of other shards kept by one handle: those of two large sources.
pub(crate) const CACHED_LAYOUTS: usize = 8_192;
/// Connections to the control port that have not shown the token yet. Each costs a file descriptor
/// and some 50 KB, in a process that may be a trainer's; one that means well needs its place for
/// a round trip. The newest are kept.
pub(crate) const STRANGERS: usize = 256;
/// How long such a connection may take: a client sends its first request with the first packet.
pub(crate) const STRANGER_DEADLINE: Duration = Duration::from_secs(5);
/// Connections to the control port that have shown the token: one for each of 16,384 sessions, and
/// one more while a client that lost the first connects again.
pub(crate) const CONNECTIONS: usize = 32_768;
/// Requests under way on one connection: a session's stream, and manifests one after another.
pub(crate) const REQUESTS: u32 = 64;
/// Headers of one request: a token and what gRPC adds.
pub(crate) const HEADER_BYTES: u32 = 8 << 10;
/// Path of a Unix socket: `sun_path` has 108 bytes, the last one is zero.
pub(crate) const SOCKET_PATH_BYTES: usize = 107;
/// A token: 256 bits in hexadecimal have 64; it is one of the headers.
pub(crate) const TOKEN_BYTES: u64 = 1 << 10;
