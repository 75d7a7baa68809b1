//! What a read leaves behind for a search for differences.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use weightcast_plan::{Layout, Plan};
use weightcast_protocol::message::Assignment;
use weightcast_transport::Digest;

use crate::client::memory::registration::RegisteredShard;

/// All that is needed to look at a read again.
pub(crate) struct Evidence {
    pub(crate) registration: Arc<RegisteredShard>,
    pub(crate) assignment: Assignment,
    pub(crate) sources: Vec<Arc<Layout>>,
    pub(crate) plan: Arc<Plan>,
    /// Digests of the registration's cells, as the bytes arrived.
    pub(crate) digests: Vec<Digest>,
    /// Raised when the memory is about to be written again.
    pub(crate) overwritten: Arc<AtomicBool>,
}
