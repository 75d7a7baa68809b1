//! The wait-for graph: what a group's call waits for, who holds the call up, and what ends the wait (L1).
//!
//! The graph is read off the books when somebody asks: `weightcast why`, a status, a call whose deadline has passed.
//! Nothing of the graph is stored, so an answer can't be stale. [`WaitCause`] is what one group waits for; `chain` follows the
//! groups that hold each other up, to the last one or round a cycle; `shard` says what is known of one shard.
//!
//! - `call`: the cause, by the call that is pending;
//! - `transfer`: the causes of `replicate` and `update`, by phase;
//! - `unpublish`, `condition`, `version`: those of `unpublish`, of `wait`, and of all calls that need a version.

mod call;
mod chain;
mod condition;
mod shard;
mod transfer;
mod unpublish;
mod version;

use std::collections::BTreeMap;

use crate::limits::DETAIL_CHARS;
use crate::server::Server;
use crate::server::contexts::GroupCtx;
use crate::server::rooms::Books;
use crate::server::stores::connections::Connections;
use crate::server::stores::sessions::Sessions;
use crate::{CallError, Incarnation, Time};

/// How many replicas or shards a sentence names.
const NAMED: usize = 4;

/// Why a replica waits, or that it does not: the answer of `weightcast why`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Why {
    /// One sentence for people.
    pub sentence: String,
    /// Whether a call of the replica, or its opening, waits.
    pub waits: bool,
    /// The replicas that hold it up, the nearest first: each waits for the next.
    pub held_up_by: Vec<String>,
    /// The replicas of a cycle, if the chain closes one: none of them goes on before a deadline.
    pub cycle: Vec<String>,
}

/// What a group waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::server) struct WaitCause {
    /// Completes the sentence "timed out waiting for".
    pub(in crate::server) waits_for: String,
    /// What else is known, and what ends the wait.
    facts: Vec<String>,
    /// Shards of the group itself that the group waits for.
    shards: Vec<u32>,
    /// Other groups that the group waits for, the first one followed.
    groups: Vec<Incarnation>,
}

impl WaitCause {
    fn new(waits_for: impl Into<String>) -> Self {
        Self { waits_for: waits_for.into(), ..Self::default() }
    }

    fn fact(mut self, fact: impl Into<String>) -> Self {
        self.facts.push(fact.into());
        self
    }
}

/// What the wait-for graph is read off, at one moment.
#[derive(Clone, Copy)]
struct WaitGraph<'a> {
    now: Time,
    books: Books<'a>,
    sessions: &'a Sessions,
    connections: &'a Connections,
}

impl<'a> WaitGraph<'a> {
    fn of(self, group: Incarnation) -> GroupCtx<'a> {
        self.books.group(group)
    }
}

impl Server {
    fn waits(&self, now: Time) -> WaitGraph<'_> {
        let (sessions, connections) = (&self.sessions, &self.connections);
        WaitGraph { now, books: self.books(), sessions, connections }
    }

    /// Why a replica waits, or that it does not. Without `model`, the name may be of any model. Of several lives of one
    /// name the newest one that is in the books.
    ///
    /// # Errors
    /// [`CallError::Misuse`] if no replica has the name, or replicas of several models have it.
    pub fn why(&self, now: Time, model: Option<&str>, replica: &str) -> Result<Why, CallError> {
        let mut newest: BTreeMap<&str, Incarnation> = BTreeMap::new();
        for group in self.groups.values() {
            let asked = model.is_none_or(|model| group.model == model);
            if asked && group.replica == replica {
                let life = newest.entry(&group.model).or_insert(group.incarnation);
                *life = group.incarnation.max(*life);
            }
        }
        match newest.len() {
            1 => Ok(newest
                .values()
                .map(|group| self.waits(now).why(*group))
                .next()
                .unwrap_or_default()),
            0 => Err(self.unknown(model, replica)),
            _ => {
                let models: Vec<&str> = newest.into_keys().take(NAMED).collect();
                let models = models.join(", ");
                let detail =
                    format!("models {models} have a replica {replica}: name one (--model)");
                Err(CallError::Misuse { detail })
            }
        }
    }

    fn unknown(&self, model: Option<&str>, replica: &str) -> CallError {
        let asked = self.models.iter().filter(|(name, _)| model.is_none_or(|model| *name == model));
        let mut known = asked.flat_map(|(_, model)| model.replicas.keys());
        let named: Vec<&str> = known.by_ref().take(NAMED).map(String::as_str).collect();
        let more = if known.next().is_some() { ", ..." } else { "" };
        let there = match named.is_empty() {
            true => "there is none".to_owned(),
            false => format!("there are {}{more}", named.join(", ")),
        };
        let detail = format!("no replica {replica} is known: {there} (weightcast status)");
        CallError::Misuse { detail }
    }

    /// What a group's pending call waits for, and who holds it up: the two halves of a timeout's sentence.
    pub(in crate::server) fn waited_for(&self, now: Time, group: Incarnation) -> (String, String) {
        let waits = self.waits(now);
        let cause = waits.cause(group).unwrap_or_default();
        let detail = cut(waits.chain(group, &cause).parts.join("; "));
        (cause.waits_for, detail)
    }
}

/// Names may be long, and chains too: at most a page.
fn cut(text: String) -> String {
    text.chars().take(DETAIL_CHARS).collect()
}

#[cfg(test)]
mod tests;
