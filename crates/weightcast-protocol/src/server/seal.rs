//! Seals: a published copy's digests are in, and say whether it is what it claims (S6, S7).

use super::Server;
use crate::message::ServerMessage;
use crate::{CallError, Generation, Incarnation, SessionId, ShardSums, Version};

impl Server {
    pub(super) fn sealed(&mut self, session: SessionId, generation: Generation, sums: ShardSums) {
        let entry = &self.sessions[&session];
        let (incarnation, shard) = (entry.group, entry.shard);
        let group = self.groups.get_mut(&incarnation).expect("sessions have a group");
        let num_shards = group.num_shards as usize;
        let Some(held) = &mut group.held else { return };
        if held.generations.get(shard as usize) != Some(&generation) || held.settled() {
            return;
        }
        held.sums.insert(shard, sums);
        if held.sums.len() == num_shards {
            self.check_seal(incarnation);
        }
    }

    /// All shards have sealed: the first copy defines the version, others must equal it.
    pub(super) fn check_seal(&mut self, incarnation: Incarnation) {
        let group = self.groups.get_mut(&incarnation).expect("checked");
        let held = group.held.as_mut().expect("checked");
        let version = held.version;
        let total = held.sums.values().copied().fold(ShardSums::default(), |a, b| a + b);
        let model = self.models.get_mut(&group.model).expect("groups have a model");
        // A version is forgotten only when it is old and nobody shows it.
        let known = model.known.get_mut(&version);
        let other = |sum| sum != total.counted && !self.config.mutants.any_content;
        let wrong = if !total.copies_agree() {
            Some("shards of the group hold different copies of the same slice")
        } else if known.as_ref().is_none_or(|known| known.sum.is_some_and(other)) {
            Some("its bytes differ")
        } else {
            None
        };
        if let Some(detail) = wrong {
            return self.fence(incarnation, version, detail);
        }
        held.sealed = true;
        self.counters.seals += 1;
        let known = known.expect("checked just now");
        if known.sum.replace(total.counted).is_none() {
            // Whoever has read it already can commit now.
            self.agenda.extend(self.edges.filling(&group.model, version));
        }
        self.agenda.insert(incarnation);
        self.note_seal(incarnation);
    }

    /// Takes a copy out of use for good: it stays where it is until its owner unpublishes it.
    pub(super) fn fence(&mut self, incarnation: Incarnation, version: Version, detail: &str) {
        self.hide_copy(incarnation);
        let group = self.groups.get_mut(&incarnation).expect("checked");
        let error = CallError::ContentMismatch {
            version,
            replica: group.replica.clone(),
            detail: detail.to_owned(),
        };
        let held = group.held.as_mut().expect("checked by the caller");
        held.fenced = Some(error.clone());
        let reason = format!("replica {} turned out to hold other content", group.replica);
        let members: Vec<(SessionId, Generation)> =
            group.members.iter().map(|(s, m)| (m.session, held.generations[*s as usize])).collect();
        self.counters.fenced += 1;
        self.spoil_readers(incarnation, &reason);
        for (session, generation) in members {
            self.send(session, ServerMessage::Fenced { generation, error: error.clone() });
        }
        self.note_end(incarnation);
        self.agenda.insert(incarnation);
    }
}
