//! G1: all shards that hold a copy hear the same verdict. Once one shard was told that the copy is
//! refused, no other shard is told that it is accepted, and a shard that asks is told of the
//! refusal.

use std::collections::BTreeMap;

use weightcast_protocol::message::{Answer, Call, ClientMessage, ServerMessage};
use weightcast_protocol::{CallError, Generation, Incarnation, OpSeq, Time};

use crate::checkers::{Checker, Fact, Who};

/// Uses only the messages of one term.
#[derive(Default)]
pub(in crate::checkers) struct OneVerdict {
    /// Groups that were told that their copy is refused, and the first shard that was told.
    refused: BTreeMap<Incarnation, u32>,
    /// The generation at which each shard holds its copy.
    generations: BTreeMap<(Incarnation, u32), Generation>,
    unpublishes: BTreeMap<Incarnation, OpSeq>,
    /// A shard of a refused group that has asked in this event and has not been told yet.
    asks: Option<(Incarnation, u32)>,
}

impl OneVerdict {
    fn heard(&mut self, who: &Who, message: &ClientMessage) {
        self.asks = None;
        let Some(group) = who.incarnation else { return };
        let shard = (group, who.shard);
        match message {
            ClientMessage::Announce(announcement) => {
                self.generations.insert(shard, announcement.generation);
            }
            ClientMessage::Prepared { generation, .. }
            | ClientMessage::Installed { generation, .. }
            | ClientMessage::Call { call: Call::Publish { generation, .. }, .. } => {
                self.generations.insert(shard, *generation);
            }
            ClientMessage::Call { seq, call: Call::Unpublish, .. } => {
                self.unpublishes.insert(group, *seq);
            }
            ClientMessage::Sealed { generation, .. }
                if self.generations.get(&shard) == Some(generation)
                    && self.refused.contains_key(&group) =>
            {
                self.asks = Some(shard);
            }
            _ => {}
        }
    }

    fn said(&mut self, who: &Who, message: &ServerMessage) -> Option<String> {
        let group = who.incarnation?;
        match message {
            ServerMessage::Fenced { .. } => {
                self.asks = self.asks.filter(|asks| *asks != (group, who.shard));
                self.refused.entry(group).or_insert(who.shard);
            }
            ServerMessage::Sealed { .. } => {
                let other = self.refused.get(&group)?;
                let shard = who.shard;
                return Some(format!(
                    "what {group} holds was refused at shard {other}, and is accepted at {shard}"
                ));
            }
            ServerMessage::Answered { seq, result } if self.gives_up(group, *seq, result) => {
                self.refused.remove(&group);
            }
            ServerMessage::Broken { .. } => {
                self.refused.remove(&group);
            }
            _ => {}
        }
        None
    }

    fn gives_up(&self, group: Incarnation, seq: OpSeq, result: &Result<Answer, CallError>) -> bool {
        let gone =
            matches!(result, Ok(Answer::Unpublished) | Err(CallError::ContentMismatch { .. }));
        gone && self.unpublishes.get(&group) == Some(&seq)
    }
}

impl Checker for OneVerdict {
    fn name(&self) -> &'static str {
        "G1"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Heard { who, message, .. } => {
                self.heard(who, message);
                None
            }
            Fact::Said { who, message, .. } => self.said(who, message),
            Fact::Books(_) => {
                let (group, shard) = self.asks.take()?;
                let first = self.refused.get(&group)?;
                Some(format!(
                    "what {group} holds was refused at shard {first}; shard {shard} asks, and is not told"
                ))
            }
            _ => None,
        }
    }
}
