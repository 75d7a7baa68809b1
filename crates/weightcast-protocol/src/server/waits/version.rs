//! Calls that need a version which is not there.

use super::{NAMED, WaitCause, WaitGraph};
use crate::Incarnation;
use crate::message::Role;
use crate::server::stores::group::Group;
use crate::server::stores::transaction::Transaction;

impl Transaction {
    /// Whether the call waits for a version that has not come.
    pub(super) fn waits_for_version(&self) -> bool {
        let resolved = self.transfer.as_ref().is_some_and(|transfer| transfer.version.is_some());
        self.selector().is_some() && !resolved
    }
}

impl WaitGraph<'_> {
    pub(super) fn version_cause(self, incarnation: Incarnation) -> WaitCause {
        let caller = self.of(incarnation);
        let selector = caller.group.active_call().and_then(Transaction::selector);
        let selector = selector.map_or(String::new(), |selector| selector.to_string());
        let latest = caller.model.latest().map_or("none".to_owned(), |latest| latest.to_string());
        let model = &caller.group.model;
        let cause =
            WaitCause::new(format!("version {selector} of model {model} (latest is {latest})"));
        let live = caller.model.replicas.values().map(|group| self.of(*group).group);
        let trainers = live.filter(|group: &&Group| group.role == Role::Trainer);
        let groups: Vec<Incarnation> = trainers.map(|group| group.incarnation).collect();
        match groups.as_slice() {
            [] => cause.fact(format!("no trainer of model {model} is open")),
            [_] => WaitCause { groups, ..cause },
            [_, others @ ..] => {
                let others = others.iter().take(NAMED).map(|other| self.doing(*other));
                let facts = others.collect();
                WaitCause { facts, groups, ..cause }
            }
        }
    }
}
