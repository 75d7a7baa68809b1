//! What a session is there for.

use serde::{Deserialize, Serialize};

use crate::Version;

/// What a session may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Publishes new versions.
    Trainer,
    /// Replicates versions, and publishes again only what it replicated.
    Rollout,
    /// Holds a copy of this version in CPU memory, on behalf of a replica that had to give up the
    /// last copy. Opened only when the server asks for it
    /// ([`Offload`](crate::message::ServerMessage::Offload)).
    Offload(Version),
    /// Brings this version to its datacentre, into CPU memory, on behalf of a replica that did not
    /// wait for the version. Opened only when the server asks for it
    /// ([`Seed`](crate::message::ServerMessage::Seed)).
    Seed(Version),
}
