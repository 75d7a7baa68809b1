//! What a push is to be like.

use serde::{Deserialize, Serialize};

use crate::push::names::PushNumber;
use crate::{Safeguards, Span, Version};

/// One push of one version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushConfig {
    /// The push.
    pub push: PushNumber,
    /// The version.
    pub version: Version,
    /// How long each target may take from its join on.
    pub deadline: Span,
    /// How long a target may be silent.
    pub silence: Span,
    /// How long a sender may bring a target nothing before its parcels move to another holder.
    pub patience: Span,
    /// How long grants stay open when the driver is silent. Longer than `ask_every`, and than words are under way.
    pub lease: Span,
    /// How long to wait before a target is told again, and its senders.
    pub ask_every: Span,
    /// How often one parcel may leave a sender that lives.
    pub moves: u32,
    /// Switched off by test rigs only.
    pub safeguards: Safeguards,
}
