//! How a transfer loses its source, and how it goes on.

use crate::server::rooms::TransferHandler;
use crate::server::stores::transaction::Phase;
use crate::{CallError, Incarnation, Safeguard};

/// Why a transfer loses its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Loss {
    /// How many failures this loss counts against the source.
    pub(in crate::server) failures: u32,
    /// The bytes that were read are void: the source's content was proved bad.
    pub(in crate::server) suspect: bool,
    /// Which of several sources was lost.
    pub(in crate::server) stripe: usize,
}

impl TransferHandler<'_> {
    /// A transfer loses its source, and looks for another one or fails. A transfer with several
    /// sources releases all of them. The bytes read are kept, unless they are suspect: then the
    /// readers of this group lose it too.
    pub(super) fn lose_source(&mut self, reader: Incarnation, reason: &str, loss: Loss) {
        let sources = self.release_edge(reader);
        let lost = sources.get(loss.stripe).or(sources.first()).copied();
        let Some(source) = lost else { return };
        let source_replica = self.groups.get(&source).map(|g| g.replica.clone());
        let Some(transfer) = self.groups.transfer(reader) else { return };
        *transfer.failures.entry(source).or_default() += loss.failures;
        transfer.prepared.clear();
        let was = std::mem::replace(&mut transfer.phase, Phase::Waiting);
        transfer.last_error = transfer.version.map(|version| CallError::SourceLost {
            version,
            source_replica: source_replica.unwrap_or_default(),
            reason: reason.to_owned(),
        });
        match was {
            Phase::Reading if loss.suspect => {
                transfer.void = true;
                transfer.filling.clear();
                transfer.progress.clear();
                // Readers of a group with a staged update read its old copy, which is good.
                if !transfer.staged {
                    self.spoil_readers(reader, reason);
                }
            }
            Phase::Draining => self.keep_copy(reader),
            _ => {}
        }
        self.agenda.wake(reader);
    }

    /// The group's transfer ends without success: its sources are free, and its old copy is kept if
    /// nothing has been read over it. Call this before the call is finished: it looks at the
    /// pending transfer.
    pub(in crate::server) fn abandon_transfer(&mut self, incarnation: Incarnation) {
        self.release_edge(incarnation);
        let Some(transfer) = self.groups.transfer(incarnation) else { return };
        let served = !std::mem::take(&mut transfer.filling).is_empty();
        let phase = std::mem::take(&mut transfer.phase);
        self.end_landing(incarnation);
        if served {
            // The readers keep what they have read: nothing speaks against those bytes.
            self.cut_readers(incarnation, "it has given up the version");
        }
        if phase == Phase::Draining && self.groups.of(&incarnation).over.is_none() {
            self.keep_copy(incarnation);
        }
    }

    /// The old copy is not given up after all: ends the drain, and lists the copy again.
    fn keep_copy(&mut self, incarnation: Incarnation) {
        self.end_drain(incarnation);
        self.durability().end_hold(incarnation);
        let held = self.groups.of(&incarnation).held.as_ref();
        if held.is_some_and(|held| !held.visible && held.fenced.is_none()) {
            self.copies().show(incarnation);
        }
    }

    /// The stream of a group's shard broke: the group leaves the place that it has at its sources to others.
    pub(in crate::server) fn lose_sight(&mut self, group: Incarnation) {
        if self.edges.lose_sight(group) {
            self.agenda.note_change(&self.groups.of(&group).model);
        }
    }

    /// Releases the reader's sources, which may be drained now, or have a free place for the next
    /// reader.
    pub(in crate::server) fn release_edge(&mut self, reader: Incarnation) -> Vec<Incarnation> {
        let model = self.groups.of(&reader).model.clone();
        let sources = self.edges.remove(&model, reader);
        self.agenda.wake_all(sources.iter().copied());
        if !sources.is_empty() && self.config.safeguards.on(Safeguard::Wakeup) {
            self.agenda.note_change(&model);
        }
        sources
    }
}

#[cfg(test)]
#[path = "source_loss_tests.rs"]
mod tests;
