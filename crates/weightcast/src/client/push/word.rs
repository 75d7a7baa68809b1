//! What the processes of a push say to each other: JSON, in the words of data ports, which prove the token.
//!
//! A word may come twice, late or not at all. Each names whom it is meant for, and carries the address to answer at.
//! None carries a secret: a grant's is derived at both of its ends.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use weightcast_protocol::push::{
    ParcelsWritten, PushCommand, PushGrant, PushNumber, PushOrder, PushReport, SendRefused,
    SenderId, TargetId,
};
use weightcast_protocol::{ContentDigest, Sum, Version};
use weightcast_transport::limits::MAX_WORD_BYTES;

use crate::limits::{PUSH_PARCELS, PUSH_SHARDS};

/// Longest name or address in a word.
const NAME_BYTES: usize = 512;
/// Longest text for people.
const TEXT_BYTES: usize = 4_096;

/// One word.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum PushWord {
    /// A driver asks a shard whether it takes part.
    Ask(PushQuestion),
    /// The shard's answer.
    Offer(PushOffer),
    /// A driver tells a target what is to be.
    Order(OrderWord),
    /// A target tells a driver what it is.
    Report(ReportWord),
    /// A driver passes a target's grant on to the grant's sender.
    Grant(GrantWord),
    /// A sender tells a target what it has written.
    Written(WrittenWord),
    /// A sender tells a driver that it does not write.
    Refused(SendRefused),
    /// A target tells a driver that the push has ended there, before it was ready.
    Over(OverWord),
}

/// Whether this shard of this replica takes part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PushQuestion {
    pub(crate) replica: String,
    pub(crate) shard: u32,
    /// Where the driver hears the answer.
    pub(crate) driver: String,
}

/// What a shard says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PushOffer {
    pub(crate) replica: String,
    pub(crate) shard: u32,
    pub(crate) target: TargetId,
    /// The layouts of all shards of its replica.
    #[serde(with = "names")]
    pub(crate) layouts: Vec<ContentDigest>,
    /// It waits for a push.
    pub(crate) accepts: bool,
    pub(crate) holds: Option<Version>,
}

/// An order, and what the target needs to know of the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OrderWord {
    pub(crate) order: PushOrder,
    pub(crate) driver: String,
    /// The layouts of the replica whose plan it is.
    #[serde(with = "names")]
    pub(crate) base: Vec<ContentDigest>,
    /// Of the parcels that the driver has made of that plan.
    pub(crate) parcels: u64,
}

/// A report, and the names of the grants that are open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReportWord {
    pub(crate) report: PushReport,
    pub(crate) opened: Vec<OpenedGrant>,
}

/// A grant as the data port knows it. What its secret is made of, together with the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OpenedGrant {
    /// The grant's number at its target.
    pub(crate) number: u64,
    /// The grant's name at the data port.
    pub(crate) id: u64,
    /// Drawn by the target for this grant.
    pub(crate) nonce: [u8; 32],
}

/// A grant on its way to its sender, and what the sender needs to know of the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct GrantWord {
    pub(crate) grant: PushGrant,
    pub(crate) opened: OpenedGrant,
    /// The target's data port.
    pub(crate) at: String,
    pub(crate) driver: String,
    #[serde(with = "names")]
    pub(crate) base: Vec<ContentDigest>,
    /// The layouts of the target's replica, and which of them is the target's.
    #[serde(with = "names")]
    pub(crate) layouts: Vec<ContentDigest>,
    pub(crate) shard: u32,
    pub(crate) parcels: u64,
}

/// What was written, with the sum of each parcel as its bytes left the sender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WrittenWord {
    pub(crate) written: ParcelsWritten,
    pub(crate) sums: BTreeMap<u32, Sum>,
}

/// The push has ended at a target that is not ready.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OverWord {
    pub(crate) target: TargetId,
    pub(crate) push: PushNumber,
    pub(crate) why: TargetOver,
    /// For people.
    pub(crate) detail: String,
}

/// Why a target ended a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TargetOver {
    /// The group's content is not the version's.
    Differs,
    /// The target left, or its call ended.
    Left,
}

/// Bytes that are no word.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum WordError {
    #[error("not a word of a push: {0}")]
    Malformed(String),
    #[error("a word of a push has {what} beyond the limit of {limit}")]
    Beyond { what: &'static str, limit: usize },
}

impl PushWord {
    /// # Errors
    /// The word is larger than a data port takes.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, WordError> {
        let bytes = serde_json::to_vec(self).map_err(|e| WordError::Malformed(e.to_string()))?;
        match bytes.len() <= MAX_WORD_BYTES {
            true => Ok(bytes),
            false => Err(WordError::Beyond { what: "bytes", limit: MAX_WORD_BYTES }),
        }
    }

    /// # Errors
    /// The bytes are no word, or say more than a word may.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, WordError> {
        if bytes.len() > MAX_WORD_BYTES {
            return Err(WordError::Beyond { what: "bytes", limit: MAX_WORD_BYTES });
        }
        let word: Self =
            serde_json::from_slice(bytes).map_err(|e| WordError::Malformed(e.to_string()))?;
        word.check().map(|()| word)
    }

    fn check(&self) -> Result<(), WordError> {
        match self {
            Self::Ask(of) => {
                short(&of.replica, NAME_BYTES)?;
                short(&of.driver, NAME_BYTES)
            }
            Self::Offer(of) => {
                few("shards", of.layouts.len(), PUSH_SHARDS)?;
                short(&of.replica, NAME_BYTES)
            }
            Self::Order(of) => {
                if let PushCommand::Fill { routes } = &of.order.command {
                    numbered(routes.keys())?;
                }
                few("shards", of.base.len(), PUSH_SHARDS)?;
                short(&of.driver, NAME_BYTES)
            }
            Self::Report(of) => {
                numbered(&of.report.written)?;
                numbered(of.report.differing.keys())?;
                of.report.grants.iter().try_for_each(|grant| numbered(&grant.parcels))
            }
            Self::Grant(of) => {
                numbered(&of.grant.parcels)?;
                few("shards", of.base.len().max(of.layouts.len()), PUSH_SHARDS)?;
                short(&of.at, NAME_BYTES)?;
                short(&of.driver, NAME_BYTES)
            }
            Self::Written(of) => {
                numbered(&of.written.parcels)?;
                numbered(of.sums.keys())
            }
            Self::Refused(_) => Ok(()),
            Self::Over(of) => short(&of.detail, TEXT_BYTES),
        }
    }
}

impl OverWord {
    /// A detail of any length, cut to what a word may have.
    pub(crate) fn new(
        target: TargetId,
        push: PushNumber,
        why: TargetOver,
        detail: impl fmt::Display,
    ) -> Self {
        let mut detail = detail.to_string();
        while detail.len() > TEXT_BYTES {
            detail.pop();
        }
        Self { target, push, why, detail }
    }
}

impl ReportWord {
    /// How many parcels the target's plan has, at least.
    pub(super) fn most_parcels(&self) -> usize {
        let granted = self.report.grants.iter().flat_map(|grant| &grant.parcels);
        let named = self.report.written.iter().chain(self.report.differing.keys()).chain(granted);
        named.max().map_or(0, |most| *most as usize + 1)
    }
}

impl OpenedGrant {
    /// What both ends know of the grant: its secret is bound to all of that ([`Auth::grant_secret`]).
    ///
    /// [`Auth::grant_secret`]: weightcast_transport::Auth::grant_secret
    pub(crate) fn known(&self, target: TargetId, sender: SenderId, generation: u64) -> Vec<u8> {
        let mut known = self.nonce.to_vec();
        for number in [self.number, target.0, sender.0, generation] {
            known.extend_from_slice(&number.to_le_bytes());
        }
        known
    }
}

fn few(what: &'static str, count: usize, limit: usize) -> Result<(), WordError> {
    if count <= limit { Ok(()) } else { Err(WordError::Beyond { what, limit }) }
}

fn short(text: &str, limit: usize) -> Result<(), WordError> {
    few("a text", text.len(), limit)
}

fn numbered<'a>(parcels: impl IntoIterator<Item = &'a u32>) -> Result<(), WordError> {
    let most = parcels.into_iter().max().map_or(0, |most| *most as usize + 1);
    few("parcels", most, PUSH_PARCELS)
}

/// Digests of layouts, in hexadecimal.
mod names {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use weightcast_protocol::ContentDigest;

    pub(super) fn serialize<S: Serializer>(
        names: &[ContentDigest],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(names.iter().map(ContentDigest::to_string))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<ContentDigest>, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        texts.iter().map(|text| name(text).ok_or_else(|| D::Error::custom("no digest"))).collect()
    }

    fn name(text: &str) -> Option<ContentDigest> {
        let digits = text.as_bytes();
        if digits.len() != 32 || !digits.iter().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let mut name = [0; 16];
        for (byte, at) in name.iter_mut().zip((0..32).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
        }
        Some(ContentDigest(name))
    }
}

#[cfg(test)]
mod tests;
