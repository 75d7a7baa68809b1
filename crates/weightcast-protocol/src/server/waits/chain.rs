//! The chain of groups that hold each other up, and the sentence that tells it.

use super::{NAMED, WaitCause, WaitGraph, Why, cut};
use crate::Incarnation;

/// How many groups a chain follows: a longer one is cut, the sentence stays readable.
const LINKS: usize = 8;

/// Who holds a group up, and who holds those up.
#[derive(Default)]
pub(super) struct Chain {
    /// The second half of the sentence, in clauses.
    pub(super) parts: Vec<String>,
    /// The groups that were followed, the nearest first.
    followed: Vec<Incarnation>,
    cycle: Vec<Incarnation>,
}

impl<'a> WaitGraph<'a> {
    pub(super) fn chain(self, start: Incarnation, first: &WaitCause) -> Chain {
        let mut chain = Chain::default();
        let mut path = vec![start];
        let mut cause = first.clone();
        loop {
            let at = path[path.len() - 1];
            chain.parts.append(&mut cause.facts);
            let group = self.of(at).group;
            chain
                .parts
                .extend(cause.shards.iter().take(NAMED).map(|shard| self.shard(group, *shard)));
            let Some(next) = cause.groups.first().copied() else { return chain };
            if let Some(from) = path.iter().position(|group| *group == next) {
                chain.cycle = path[from..].to_vec();
                let names: Vec<&str> = chain.cycle.iter().map(|group| self.name(*group)).collect();
                let names = names.join(", ");
                chain.parts.push(format!(
                    "this closes a cycle of {names}, in which each waits for the next: only a deadline ends it"
                ));
                return chain;
            }
            path.push(next);
            chain.followed.push(next);
            let waits = self.cause(next).filter(|_| path.len() <= LINKS);
            let Some(of_next) = waits else {
                chain.parts.push(self.doing(next));
                return chain;
            };
            let call = self.call_text(next);
            chain.parts.push(format!(
                "{} waits in {call} for {}",
                self.name(next),
                of_next.waits_for
            ));
            cause = of_next;
        }
    }

    /// The call that a group waits in, as a person would write it.
    fn call_text(self, group: Incarnation) -> String {
        let call = self.of(group).group.active_call();
        call.map_or("open".to_owned(), |transaction| transaction.call.to_string())
    }

    pub(super) fn why(self, group: Incarnation) -> Why {
        let Some(cause) = self.cause(group) else {
            let sentence = format!("nothing is waited for: {}", self.doing(group));
            return Why { sentence, ..Why::default() };
        };
        let chain = self.chain(group, &cause);
        let replica = self.name(group);
        let (call, waits_for) = (self.call_text(group), &cause.waits_for);
        let mut parts = vec![match self.of(group).group.active_call() {
            Some(call) => {
                let age = self.now - call.started;
                format!("{} of replica {replica} has waited {age} for {waits_for}", call.call)
            }
            None => format!("{call} of replica {replica} waits for {waits_for}"),
        }];
        parts.extend(chain.parts);
        if let Some(call) = self.of(group).group.active_call() {
            parts.push(format!(
                "the deadline of the call ends the wait in {}",
                call.deadline - self.now
            ));
        }
        let named =
            |groups: &[Incarnation]| groups.iter().map(|of| self.name(*of).to_owned()).collect();
        Why {
            sentence: cut(parts.join("; ")),
            waits: true,
            held_up_by: named(&chain.followed),
            cycle: named(&chain.cycle),
        }
    }
}
