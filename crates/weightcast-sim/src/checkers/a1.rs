//! A1: a version of which there is a copy that counts can be had.

use std::rc::Rc;

use weightcast_protocol::message::ServerMessage;
use weightcast_protocol::server::Snapshot;
use weightcast_protocol::{CallError, Selector, Time};

use super::{Checker, Fact, Who};
use crate::retained::{countable, is_seed, same_life};

#[derive(Default)]
pub(super) struct Resolvable {
    before: Option<Rc<Snapshot>>,
    /// Numbers that somebody was told are not available, in this event.
    denied: Vec<u64>,
}

impl Resolvable {
    /// Whether it is a seed's shard: to that a number means a version of one run.
    fn seeds(&self, who: &Who) -> bool {
        let models = self.before.iter().flat_map(|before| before.models.values());
        let life = who.incarnation;
        models.into_iter().any(|m| life.and_then(|l| same_life(m, l)).is_some_and(is_seed))
    }
}

impl Checker for Resolvable {
    fn name(&self) -> &'static str {
        "A1"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Said {
                who, message: ServerMessage::Answered { result: Err(error), .. }, ..
            } if !self.seeds(who) => {
                if let CallError::VersionUnavailable { selector: Selector::Exact(number), .. } =
                    error
                {
                    self.denied.push(*number);
                }
                None
            }
            Fact::Books(after) => {
                let before = self.before.replace((*after).clone());
                let denied = std::mem::take(&mut self.denied);
                after.models.iter().find_map(|(name, model)| {
                    let held = countable(model);
                    let unlisted = held.iter().find(|v| !model.versions.contains_key(v));
                    if let Some(version) = unlisted {
                        return Some(format!("version {version} is held, but not listed"));
                    }
                    // Before and after the event: within it, the order is not seen.
                    let before = before.as_ref().and_then(|before| before.models.get(name));
                    let before = before.map(countable).unwrap_or_default();
                    let wrong = |v: &&_| before.contains(v) && denied.contains(&v.number);
                    let wrong = held.iter().find(wrong)?;
                    Some(format!("version {wrong} is held, and somebody was told that it is not"))
                })
            }
            _ => None,
        }
    }
}
