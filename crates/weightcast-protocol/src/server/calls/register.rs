//! `register` and `unregister`: a group's memory.

use crate::message::{Answer, Call, Registration};
use crate::server::rooms::CallHandler;
use crate::server::stores::transaction::looks_up;
use crate::{CallError, Incarnation, OpSeq};

impl CallHandler<'_> {
    pub(in crate::server) fn start_register(
        &mut self,
        incarnation: Incarnation,
    ) -> Result<(), CallError> {
        if self.groups.of(&incarnation).registered {
            let detail = "tensors are registered already; call unregister first".to_owned();
            return Err(CallError::Misuse { detail });
        }
        Ok(())
    }

    /// One shard looks shapes up while other shards have called `register` already. The look-up
    /// becomes the call of the group: every shard gets its answer, and then all shards register.
    pub(in crate::server) fn look_up_first(
        &mut self,
        incarnation: Incarnation,
        seq: OpSeq,
        call: &Call,
    ) {
        let group = self.groups.of_mut(&incarnation);
        let Some(transaction) = group.active_transaction().filter(|t| t.seq == seq) else { return };
        if matches!(transaction.call, Call::Register { .. }) && looks_up(call) {
            transaction.call = call.clone();
            self.start_waiting(incarnation);
        }
    }

    pub(in crate::server) fn advance_register(&mut self, incarnation: Incarnation) {
        let group = self.groups.of_mut(&incarnation);
        if !group.pending().is_whole(group.num_shards) {
            return;
        }
        for (shard, call) in group.pending().arrived.clone() {
            let Call::Register { layout, export, bytes } = call else { continue };
            let member = group.member_mut(shard);
            member.registration = Some(Registration { layout, export, bytes });
            self.blobs.retain(layout);
        }
        group.registered = true;
        let (layouts, siblings) = (group.layouts(), group.siblings());
        self.finish(incarnation, Ok(Answer::Registered { layouts, siblings }));
    }

    pub(in crate::server) fn start_unregister(
        &mut self,
        incarnation: Incarnation,
    ) -> Result<(), CallError> {
        let group = self.groups.of(&incarnation);
        let detail = match &group.held {
            _ if !group.registered => "nothing is registered".to_owned(),
            Some(held) => {
                format!("version {} is published; call unpublish first", held.version)
            }
            None => return Ok(()),
        };
        Err(CallError::Misuse { detail })
    }

    pub(in crate::server) fn advance_unregister(&mut self, incarnation: Incarnation) {
        let group = self.groups.of_mut(&incarnation);
        if !group.pending().is_whole(group.num_shards) {
            return;
        }
        for member in group.members.values_mut() {
            if let Some(registration) = member.registration.take() {
                self.blobs.release(registration.layout);
            }
        }
        group.registered = false;
        // A `wait` for all rollouts has one rollout less to wait for.
        self.agenda.note_change(&group.model);
        self.finish(incarnation, Ok(Answer::Unregistered));
    }
}
