//! What a shard brings into its host for siblings, which take it while it arrives.

use std::sync::{Arc, OnceLock};

use weightcast_protocol::{Attempt, OpSeq};
use weightcast_transport::Filling;

/// What this shard brings into its host, for siblings that take it in the same call.
#[derive(Clone, Debug)]
pub(crate) struct EnteringBytes {
    /// The call.
    pub(in crate::client) seq: OpSeq,
    /// The assignment at which all of the group began anew.
    pub(in crate::client) since: Attempt,
    /// Progress of what comes from the source.
    pub(in crate::client) filling: Arc<Filling>,
    /// Whether this shard brings its part alone, and not all that it holds; the first read of them decides. What is final
    /// in `filling` depends on that.
    pub(in crate::client) split: Arc<OnceLock<bool>>,
}
