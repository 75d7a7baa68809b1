//! Contexts: what an id stands for, found once. Read-only rules are written over a context. A
//! context holds references to everything that it names, so no part can be missing.
//!
//! A context shows the books at one moment: make a new one after a change. The borrow checker
//! enforces that.

use std::ops::Deref;

use crate::server::rooms::Books;
use crate::server::stores::group::Group;
use crate::server::stores::model::Model;
use crate::server::stores::transaction::{GroupTransfer, Transaction};
use crate::{Incarnation, OpSeq};

/// A group and its model, within the books.
#[derive(Clone, Copy)]
pub(in crate::server) struct GroupCtx<'a> {
    pub(in crate::server) books: Books<'a>,
    pub(in crate::server) group: &'a Group,
    pub(in crate::server) model: &'a Model,
}

/// A group whose pending call is a transfer.
#[derive(Clone, Copy)]
pub(in crate::server) struct TransferCtx<'a> {
    pub(in crate::server) reader: GroupCtx<'a>,
    pub(in crate::server) call: &'a Transaction,
    pub(in crate::server) transfer: &'a GroupTransfer,
}

impl<'a> Books<'a> {
    /// The context of a group that is in the books.
    #[track_caller]
    pub(in crate::server) fn group(self, id: Incarnation) -> GroupCtx<'a> {
        let group = self.groups.of(&id);
        GroupCtx { books: self, group, model: self.models.of(&group.model) }
    }

    /// The context of a group's transfer. Panics unless the group's pending call is a transfer.
    #[track_caller]
    pub(in crate::server) fn transfer(self, id: Incarnation) -> TransferCtx<'a> {
        let reader = self.group(id);
        let call = reader.group.pending();
        TransferCtx { reader, call, transfer: call.as_transfer() }
    }
}

impl<'a> GroupCtx<'a> {
    /// Whether another group is in the same datacentre.
    pub(in crate::server) fn is_near(&self, other: &Group) -> bool {
        other.datacentre() == self.group.datacentre()
    }

    /// The transfer that a member reports on, by the number of its call. A call that was answered is over.
    pub(in crate::server) fn transfer_of(self, seq: OpSeq) -> Option<TransferCtx<'a>> {
        let call = self.group.active_call().filter(|call| call.seq == seq)?;
        Some(TransferCtx { reader: self, call, transfer: call.transfer.as_ref()? })
    }
}

impl<'a> Deref for GroupCtx<'a> {
    type Target = Books<'a>;
    fn deref(&self) -> &Books<'a> {
        &self.books
    }
}

impl<'a> Deref for TransferCtx<'a> {
    type Target = GroupCtx<'a>;
    fn deref(&self) -> &GroupCtx<'a> {
        &self.reader
    }
}
