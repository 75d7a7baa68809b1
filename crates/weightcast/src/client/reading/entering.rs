//! What a shard brings into its host for siblings, which take it while it arrives.

use std::sync::Arc;

use weightcast_protocol::session::Opening;
use weightcast_transport::Filling;

/// What this shard brings into its host, for siblings that take it in the same call.
#[derive(Clone, Debug)]
pub(crate) struct EnteringBytes {
    /// What they know it by.
    pub(in crate::client) opening: Opening,
    /// Progress of what comes from the source.
    pub(in crate::client) filling: Arc<Filling>,
}
