//! A1: a version that has a copy that counts can be had.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use weightcast_protocol::message::{ClientMessage, ServerMessage};
use weightcast_protocol::server::{ModelSnapshot, Snapshot};
use weightcast_protocol::{CallError, Incarnation, OpSeq, Selector, Time, Version};

use super::{Checker, Fact, Who};
use crate::books::retained::{countable, is_seed, same_life};

#[derive(Default)]
pub(super) struct Resolvable {
    before: Option<Rc<Snapshot>>,
    /// Groups that were told in this event that no version matches their call's selector.
    refused: BTreeMap<Incarnation, (OpSeq, Selector)>,
    /// The last call of each group.
    calls: BTreeMap<Incarnation, OpSeq>,
    /// The call that its first shard made in this event. A call that is made again, or by a later
    /// shard, is answered as was decided then (G1).
    begins: Option<(Incarnation, OpSeq)>,
}

impl Resolvable {
    fn called(&mut self, who: &Who, seq: OpSeq) {
        let Some(group) = who.incarnation else { return };
        if self.calls.get(&group).is_none_or(|last| seq > *last) {
            self.calls.insert(group, seq);
            self.begins = Some((group, seq));
        }
    }

    fn told(&mut self, who: &Who, seq: OpSeq, selector: Selector) {
        self.refused.extend(who.incarnation.map(|group| (group, (seq, selector))));
    }

    fn books(&mut self, after: &Rc<Snapshot>) -> Option<String> {
        let before = self.before.replace(Rc::clone(after));
        let refused = std::mem::take(&mut self.refused);
        let begins = self.begins.take();
        after.models.iter().find_map(|(name, model)| {
            let held = countable(model);
            let unlisted = held.iter().find(|v| !model.versions.contains_key(v));
            if let Some(version) = unlisted {
                return Some(format!("version {version} is held, but not listed"));
            }
            let old = before.as_ref().and_then(|before| before.models.get(name))?;
            // A version counts only if it is held both before and after the event: the order within
            // the event is not seen.
            let before = countable(old);
            let held: BTreeSet<Version> = held.intersection(&before).copied().collect();
            let wrong = refused.iter().find(|(group, (seq, selector))| {
                let waited = waited_for(old, **group, *seq);
                let meant = waited.or_else(|| {
                    let begins = begins == Some((**group, *seq));
                    begins.then(|| picked(old, model, **group, *selector)).flatten()
                });
                meant.is_some_and(|version| held.contains(&version))
            });
            wrong.map(|(group, (_, selector))| {
                format!("group {group} was told that there is no {selector}, which is held")
            })
        })
    }
}

/// The version that a call waited for, if the call ended in this event.
fn waited_for(old: &ModelSnapshot, group: Incarnation, seq: OpSeq) -> Option<Version> {
    let pending = same_life(old, group)?.pending.as_ref();
    pending.filter(|pending| pending.seq == seq)?.wants
}

/// The version that a call meant that was answered at once: its selector picks the same version
/// before and after the event. None for a seed: its number means a version of one run, so the pick
/// is not known.
fn picked(
    old: &ModelSnapshot,
    new: &ModelSnapshot,
    group: Incarnation,
    selector: Selector,
) -> Option<Version> {
    same_life(old, group).filter(|replica| !is_seed(replica))?;
    let pick = |model: &ModelSnapshot| {
        selector.pick(&model.versions.keys().copied().collect::<Vec<Version>>())
    };
    pick(old).filter(|version| pick(new) == Some(*version))
}

impl Checker for Resolvable {
    fn name(&self) -> &'static str {
        "A1"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Heard { who, message: ClientMessage::Call { seq, .. }, .. } => {
                self.called(who, *seq);
                None
            }
            Fact::Said {
                who,
                message: ServerMessage::Answered { seq, result: Err(error) },
                ..
            } => {
                if let CallError::VersionUnavailable { selector, .. } = error {
                    self.told(who, *seq, *selector);
                }
                None
            }
            Fact::Books(after) => self.books(after),
            _ => None,
        }
    }
}
