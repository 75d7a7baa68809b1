//! Seals: the digests of a published copy have come in, and decide whether it is the version (S6,
//! S7).

use crate::message::Call;
use crate::server::rooms::VersionHandler;
use crate::server::stores::sessions::MemberId;
use crate::server::stores::trust::Trust;
use crate::{CallError, Generation, Incarnation, Safeguard, ShardSums, Version};

/// Why a copy whose shards disagree is refused, and what to do.
const COPIES_DIFFER: &str = "its shards hold different copies of the same slice; unpublish it, \
    make them equal (broadcast from one of them), then publish it again";
/// Why a copy with other content than its version is refused, and what to do.
const OTHER_BYTES: &str = "its bytes differ from those that the version was sealed with; \
    unpublish it, then publish them under a higher number, or in a new run (epoch=\"new\")";

impl VersionHandler<'_> {
    pub(in crate::server) fn sealed(
        &mut self,
        from: MemberId,
        generation: Generation,
        sums: ShardSums,
    ) {
        let MemberId { group: incarnation, shard, .. } = from;
        let group = self.groups.of_mut(&incarnation);
        let num_shards = group.num_shards as usize;
        let Some(held) = &mut group.held else { return };
        if held.generations.get(shard as usize) != Some(&generation) {
            return;
        }
        if held.settled() {
            if !self.config.safeguards.on(Safeguard::VerdictRepeated) {
                return;
            }
            return self.tell_verdict(incarnation, shard); // the shard may have missed the verdict
        }
        held.sums.insert(shard, sums);
        if held.sums.len() == num_shards {
            self.check_seal(incarnation);
        }
    }

    /// All shards have sealed: the first copy defines the version, others must equal it.
    pub(in crate::server) fn check_seal(&mut self, incarnation: Incarnation) {
        let group = self.groups.of_mut(&incarnation);
        let name = group.model.clone();
        let held = group.copy_mut();
        let version = held.version;
        let total = held.sums.values().copied().fold(ShardSums::default(), |a, b| a + b);
        let model = self.models.of_mut(&name);
        let fenced = self.config.safeguards.on(Safeguard::OneContent);
        let known = match model.known.get_mut(&version) {
            _ if !total.copies_agree() => return self.fence(incarnation, version, COPIES_DIFFER),
            // A version is forgotten only while no group holds or reads it (`remember`).
            None => return self.fence(incarnation, version, OTHER_BYTES),
            Some(known) if fenced && known.sum.is_some_and(|sum| sum != total.counted) => {
                return self.fence(incarnation, version, OTHER_BYTES);
            }
            Some(known) => known,
        };
        held.sealed = true;
        self.counters.seals += 1;
        if known.sum.replace(total.counted).is_none() {
            if held.authored {
                held.trust = Trust::Proved; // what this copy holds is the version
            }
            // Groups that have read the version already can commit now.
            self.agenda.wake_all(self.edges.filling(&name, version));
            if self.books().recovers() {
                // An offload replica of the version that came over first can be published now.
                self.agenda.wake_all(self.groups.ids().copied());
            }
        }
        self.agenda.wake(incarnation);
        self.agenda.sealed.insert(incarnation);
        self.durability().note_seal(incarnation);
        self.tell_all(incarnation);
    }

    /// Takes a copy out of use for good. The copy stays where it is until its owner unpublishes it. A call under
    /// way ends with the reason, as later calls will; only `unpublish` goes on, and answers with the reason at its
    /// end.
    pub(in crate::server) fn fence(
        &mut self,
        incarnation: Incarnation,
        version: Version,
        detail: &str,
    ) {
        self.copies().hide(incarnation);
        let group = self.groups.of_mut(&incarnation);
        let error = CallError::ContentMismatch {
            version,
            replica: group.replica.clone(),
            detail: detail.to_owned(),
        };
        group.copy_mut().fenced = Some(error.clone());
        let reason = format!("replica {} turned out to hold other content", group.replica);
        self.counters.fenced += 1;
        self.transfers().spoil_readers(incarnation, &reason);
        self.tell_all(incarnation);
        self.durability().note_end(incarnation);
        self.agenda.wake(incarnation);
        let pending = self.groups.of(&incarnation).active_call();
        if pending.is_some_and(|call| call.call != Call::Unpublish) {
            self.transfers().abandon_transfer(incarnation);
            self.calls().finish(incarnation, Err(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sum;
    use crate::server::Server;
    use crate::server::props::{server, version};
    use crate::server::stores::observed::Observed;

    fn sums(part: u64) -> ShardSums {
        let sum = Sum([part, 0]);
        ShardSums { counted: sum, held: sum, expected: sum }
    }

    /// A group of two shards that has published version 1, and nobody has digested it.
    fn published(authored: bool) -> (Server, Incarnation) {
        let mut server = server();
        let group = server.prop("g", 2);
        server.holds(group, version(1));
        let held = server.at(group).held.as_mut().expect("just set");
        (held.sealed, held.authored) = (false, authored);
        let content = crate::server::stores::model::Content {
            catalog: held.catalog,
            sum: None,
            since: Observed(crate::Time(0)),
        };
        server.copies().remember("policy", version(1), content);
        (server, group)
    }

    fn state(server: &Server, group: Incarnation) -> (bool, bool, Trust) {
        let held = server.groups[&group].held.as_ref().expect("it holds it");
        (held.sealed, held.fenced.is_some(), held.trust)
    }

    /// Its shards serve at 10 and 11.
    #[test]
    fn digests_count_of_what_is_held_now_and_the_last_of_each_shard() {
        for (shard, generation) in [(0, 9), (0, 11), (1, 10), (1, 12)] {
            let (mut server, group) = published(true);
            let member = server.member(group, shard);
            server.versions().sealed(member, Generation(generation), sums(1));
            let held = server.groups[&group].held.as_ref().expect("it holds it");
            assert!(held.sums.is_empty(), "{shard} at {generation}");
        }
        let (mut server, group) = published(true);
        for part in [1, 2] {
            let member = server.member(group, 0);
            server.versions().sealed(member, Generation(10), sums(part));
            assert_eq!(state(&server, group), (false, false, Trust::Claimed), "one shard alone");
        }
        server.agenda.groups.clear();
        let member = server.member(group, 1);
        server.versions().sealed(member, Generation(11), sums(5));
        assert_eq!(server.models["policy"].known[&version(1)].sum, Some(Sum([7, 0])));
        assert!(server.agenda.groups.contains(&group), "an unpublish may wait for it");
        assert_eq!((server.counters.seals, server.counters.fenced), (1, 0));
        // It is settled.
        let member = server.member(group, 1);
        server.versions().sealed(member, Generation(11), sums(6));
        assert_eq!(server.models["policy"].known[&version(1)].sum, Some(Sum([7, 0])));
        assert_eq!((server.counters.seals, server.counters.fenced), (1, 0));
    }

    #[test]
    fn whoever_published_it_first_of_its_own_is_proved_and_nobody_else() {
        for (authored, first) in [(true, true), (true, false), (false, true), (false, false)] {
            for same in [false, true] {
                let (mut server, group) = published(authored);
                if !first {
                    let known = &mut server.models.get_mut("policy").expect("a prop").known;
                    let sum = Some(Sum([if same { 3 } else { 4 }, 0]));
                    known.get_mut(&version(1)).expect("published").sum = sum;
                }
                let member = server.member(group, 0);
                server.versions().sealed(member, Generation(10), sums(1));
                let member = server.member(group, 1);
                server.versions().sealed(member, Generation(11), sums(2));
                let right = first || same;
                let trust = if authored && first { Trust::Proved } else { Trust::Claimed };
                assert_eq!(state(&server, group), (right, !right, trust), "{authored}, {first}");
                let held = server.groups[&group].held.as_ref().expect("it stays");
                assert_eq!(held.visible, right);
                // What was refused stays refused, whatever is digested then.
                let member = server.member(group, 1);
                server.versions().sealed(member, Generation(11), sums(3));
                assert_eq!(state(&server, group), (right, !right, trust));
                assert_eq!(server.counters.fenced, u64::from(!right));
            }
        }
    }

    #[test]
    fn a_digest_that_becomes_known_lets_those_go_on_who_came_over_first() {
        for recovers in [false, true] {
            let (mut server, group) = published(true);
            let copy = server.prop("copy", 1);
            server.terms.window_until = recovers.then_some(crate::Time(99));
            server.agenda.groups.clear();
            if let Some(held) = &mut server.at(group).held {
                held.sums = [(0, sums(1)), (1, sums(2))].into();
            }
            server.versions().check_seal(group);
            assert_eq!(server.agenda.groups.contains(&copy), recovers);
        }
    }
}
