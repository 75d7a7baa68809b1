//! The steps of a group's call: which room starts it, and which moves it on.

use crate::limits::DETAIL_CHARS;
use crate::message::Call;
use crate::server::Server;
use crate::{CallError, Incarnation, Time};

impl Server {
    /// Decides what the first shard's call decides for the whole group.
    pub(super) fn start(&mut self, now: Time, incarnation: Incarnation) {
        let group = self.groups.of_mut(&incarnation);
        let call = group.pending().call.clone();
        let fenced = group.held.as_ref().and_then(|held| held.fenced.clone());
        if let Some(error) = fenced.filter(|_| call != Call::Unpublish) {
            return self.calls().finish(incarnation, Err(error));
        }
        let started = match call {
            Call::Register { .. } => self.calls().start_register(incarnation),
            Call::Unregister => self.calls().start_unregister(incarnation),
            Call::Publish { version, .. } => self.versions().start_publish(incarnation, version),
            Call::Unpublish => self.versions().start_unpublish(now, incarnation),
            Call::Replicate { selector } => self.transfers().start_replicate(incarnation, selector),
            Call::Update { selector, allow_rollback, staged } => {
                self.transfers().start_update(incarnation, selector, allow_rollback, staged)
            }
            Call::LetGo { .. } => Ok(()),
            Call::Describe { .. } | Call::Retain { .. } | Call::Wait { .. } => {
                self.calls().start_waiting(incarnation);
                Ok(())
            }
            Call::List => return self.versions().finish_listed(incarnation),
            Call::Decline { .. } => {
                let shard = group.pending().first_shard;
                return self.declined(incarnation, shard);
            }
        };
        if let Err(error) = started {
            self.calls().finish(incarnation, Err(error));
        }
    }

    /// Advances a group's pending call as far as possible.
    pub(in crate::server) fn advance(&mut self, now: Time, incarnation: Incarnation) {
        let Some(group) = self.groups.get_mut(&incarnation) else { return };
        if group.over.is_some() {
            return self.membership().advance_closing(now, incarnation);
        }
        let Some(transaction) = group.active_transaction() else { return };
        if transaction.decided.is_some() {
            return;
        }
        match transaction.call {
            Call::Register { .. } => self.calls().advance_register(incarnation),
            Call::Unregister => self.calls().advance_unregister(incarnation),
            Call::Publish { .. } => self.versions().advance_publish(now, incarnation),
            Call::Unpublish => self.versions().advance_unpublish(now, incarnation),
            Call::Replicate { .. } | Call::Update { .. } => {
                let onward = self.transfers().advance(now, incarnation);
                self.go_on(incarnation, onward);
            }
            Call::Describe { selector } => self.versions().advance_describe(incarnation, selector),
            Call::Retain { selector } => self.versions().advance_retain(incarnation, selector),
            Call::Wait { until } => self.versions().advance_wait(incarnation, until),
            Call::LetGo { version } => self.versions().advance_let_go(incarnation, version),
            Call::List | Call::Decline { .. } => {}
        }
    }

    /// A shard can't make the group's call. The call fails for all shards, and names the reason.
    pub(super) fn declined(&mut self, incarnation: Incarnation, shard: u32) {
        self.transfers().abandon_transfer(incarnation);
        let group = self.groups.of_mut(&incarnation);
        let replica = group.replica.clone();
        let transaction = group.pending_mut();
        transaction.decided = None;
        let Some(Call::Decline { detail }) = transaction.arrived.get(&shard) else { return };
        let detail: String = detail.chars().take(DETAIL_CHARS).collect();
        let detail = format!("shard {shard}: {detail}");
        self.calls().finish(incarnation, Err(CallError::LayoutMismatch { replica, detail }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Selector;
    use crate::server::props::{SEQ, waiting};

    #[test]
    fn what_a_shard_says_against_a_call_is_cut_to_a_page() {
        for length in [DETAIL_CHARS - 1, DETAIL_CHARS, DETAIL_CHARS + 1] {
            let (mut server, group) = waiting();
            let detail = "ü".repeat(length);
            server.arrive(Time(1), server.member(group, 2), SEQ, Time(9), Call::Decline { detail });
            let result = server.groups[&group].transactions[&SEQ].result.clone();
            let detail = format!("shard 2: {}", "ü".repeat(length.min(DETAIL_CHARS)));
            let replica = "g".to_owned();
            assert_eq!(result, Some(Err(CallError::LayoutMismatch { replica, detail })));
            assert_eq!(server.groups[&group].active, None);
        }
    }

    #[test]
    fn who_holds_what_was_refused_can_only_unpublish_it() {
        for (call, goes_on) in [
            (Call::Unpublish, true),
            (Call::List, false),
            (Call::Unregister, false),
            (Call::Replicate { selector: Selector::Latest }, false),
        ] {
            let (mut server, group) = waiting();
            server.holds(group, crate::server::props::version(1));
            let error = CallError::Misuse { detail: "refused".to_owned() };
            server.at(group).held.as_mut().unwrap().fenced = Some(error.clone());
            server.at(group).active = None;
            server.at(group).transactions.clear();
            server.arrive(Time(1), server.member(group, 0), SEQ, Time(9), call.clone());
            let result = server.groups[&group].transactions[&SEQ].result.clone();
            assert_eq!(result, (!goes_on).then_some(Err(error)), "{call:?}");
            assert_eq!(server.groups[&group].active.is_some(), goes_on);
        }
    }
}
