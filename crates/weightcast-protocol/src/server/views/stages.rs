//! At which stage a group's call is, told when it changes (`ServerConfig::tell_stages`).

use std::collections::BTreeSet;

use crate::message::Call;
use crate::server::Server;
use crate::server::contexts::GroupCtx;
use crate::server::stores::agenda::EndedCall;
use crate::server::stores::stages::{CallStage, StageChange, StagedCall, Stages};
use crate::server::stores::transaction::{Phase, Transaction};
use crate::{Incarnation, OpSeq, TraceId};

impl Server {
    /// The next change of a call's stage. There are changes only with
    /// [`ServerConfig::tell_stages`](crate::server::ServerConfig::tell_stages); call this until it is
    /// `None`, as [`Server::poll_output`].
    pub fn poll_stage(&mut self) -> Option<StageChange> {
        self.stages.0.changes.pop_front()
    }

    /// Tells the stages that the last event has changed: first ends, since a group's next call can have
    /// begun.
    pub(in crate::server) fn tell_stages(&mut self, ended: &[EndedCall]) {
        for EndedCall { group, seq, outcome, .. } in ended {
            // A call that begins and ends in one event has not been told of.
            if !self.stages.0.knows(*group, *seq) {
                self.tell_stage(*group, Some(*seq), |_, _| CallStage::Group);
            }
            self.stages.0.end(*group, *seq, outcome);
        }
        let moved: BTreeSet<_> = self.agenda.moved.drain(..).collect();
        for group in moved {
            let active = self.groups.get(&group).and_then(|group| group.active);
            self.tell_stage(group, active, |group, call| group.stage(call));
        }
        let known = self.stages.0.told.iter().map(|(group, (seq, ..))| (*group, *seq));
        let gone: Vec<_> = known.filter(|(group, _)| self.groups.get(group).is_none()).collect();
        gone.into_iter().for_each(|(group, seq)| self.stages.0.end(group, seq, "lost"));
    }

    /// Tells a stage of a group's call, if another was told last.
    fn tell_stage(
        &mut self,
        incarnation: Incarnation,
        seq: Option<OpSeq>,
        stage: impl Fn(GroupCtx<'_>, &Transaction) -> CallStage,
    ) {
        let Some(seq) = seq.filter(|_| self.groups.get(&incarnation).is_some()) else { return };
        let group = self.books().group(incarnation);
        let Some(call) = group.group.transactions.get(&seq) else { return };
        let (stage, of) = (stage(group, call), Some(group.staged_call(call)));
        let told = self.stages.0.told.get(&incarnation).filter(|(told, ..)| *told == seq);
        let trace = match told {
            Some((.., at)) if *at == stage => return,
            Some((_, trace, _)) => *trace,
            None => TraceId::of(&self.terms.own, incarnation, seq),
        };
        let stages = &mut self.stages.0;
        stages.told.insert(incarnation, (seq, trace, stage));
        stages.changes.push_back(StageChange { trace, stage, of });
    }
}

impl Stages {
    fn knows(&self, group: Incarnation, seq: OpSeq) -> bool {
        self.told.get(&group).is_some_and(|(told, ..)| *told == seq)
    }

    fn end(&mut self, group: Incarnation, seq: OpSeq, outcome: &'static str) {
        if self.knows(group, seq)
            && let Some((_, trace, _)) = self.told.remove(&group)
        {
            let stage = CallStage::Ended(outcome);
            self.changes.push_back(StageChange { trace, stage, of: None });
        }
    }
}

impl GroupCtx<'_> {
    fn stage(self, call: &Transaction) -> CallStage {
        let whole = call.is_whole(self.group.num_shards);
        let Some(transfer) = &call.transfer else {
            return match call.call {
                _ if !whole => CallStage::Group,
                Call::Unpublish => CallStage::Drain,
                _ => CallStage::Wait,
            };
        };
        match transfer.phase {
            Phase::Waiting if !whole => CallStage::Group,
            Phase::Waiting => CallStage::Choose,
            Phase::Draining => CallStage::Drain,
            Phase::Reading if transfer.prepared.len() == self.group.num_shards as usize => {
                CallStage::Commit
            }
            Phase::Reading => CallStage::Read,
            Phase::Installing => CallStage::Install,
        }
    }

    fn staged_call(self, call: &Transaction) -> StagedCall {
        let sources = self.edges.sources_of(self.group.incarnation);
        let sources = sources.iter().filter_map(|source| self.groups.get(source));
        StagedCall {
            model: self.group.model.clone(),
            replica: self.group.replica.clone(),
            call: call.call.to_string(),
            version: call.transfer.as_ref().and_then(|transfer| transfer.version),
            sources: sources.map(|source| source.replica.clone()).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
