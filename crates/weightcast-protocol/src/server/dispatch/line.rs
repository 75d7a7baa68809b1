//! The queue of waiting calls: when a model changes they are tried again, first come, first served.

use crate::server::Server;
use crate::server::rooms::Books;
use crate::server::stores::group::Group;
use crate::server::transfers::beside::{PlaceBeside, WholeChains};
use crate::{Condition, Incarnation, Time, Version};

impl Server {
    /// Something has changed in a model: tries the waiting calls again, first come, first served.
    pub(super) fn serve_waiting(&mut self, now: Time, model: &str) {
        let Some(model) = self.models.get(model) else { return };
        let waiting: Vec<Incarnation> = model.waiting.values().copied().collect();
        // Once a group has found no free source, later groups with the same sources need not look.
        let mut exhausted: Vec<(Version, Incarnation)> = Vec::new();
        let mut chains = WholeChains::default();
        // A condition that does not hold for one group holds for none.
        let mut unmet: Vec<Condition> = Vec::new();
        for group in waiting {
            let until = self.groups.get(&group).and_then(Group::waits_until);
            let wants = self.books().waits_for_source(group);
            let beside = wants
                .map(|version| self.books().transfer(group).place_beside(version, &mut chains));
            let in_vain = match beside {
                None | Some(PlaceBeside::Free) => false,
                Some(PlaceBeside::Taken) => true,
                Some(PlaceBeside::Nobody) => exhausted.iter().any(|(version, other)| {
                    wants == Some(*version) && self.books().have_same_sources(*other, group)
                }),
            };
            if in_vain || until.is_some_and(|until| unmet.contains(&until)) {
                continue;
            }
            self.advance(now, group);
            unmet.extend(self.groups.get(&group).and_then(Group::waits_until));
            if beside == Some(PlaceBeside::Nobody) {
                let still = self.books().waits_for_source(group);
                exhausted.extend(still.map(|version| (version, group)));
            }
        }
    }
}

impl Books<'_> {
    /// Whether two groups that may read from any host can read a version from the same sources: no
    /// source serves only one of them.
    fn have_same_sources(&self, a: Incarnation, b: Incarnation) -> bool {
        // A group that was looked at before may have gone since.
        let (Some(a), Some(b)) = (self.groups.get(&a), self.groups.get(&b)) else { return false };
        a.datacentre() == b.datacentre() && a.same_layouts(b)
    }

    /// The version that a group could read from any source of its hosts, or of all hosts (D7), if the group lacks
    /// nothing but a source.
    fn waits_for_source(&self, incarnation: Incarnation) -> Option<Version> {
        let group = self.groups.get(&incarnation)?;
        let transaction = group.active_call()?;
        let transfer = transaction.transfer.as_ref()?;
        // A staged update can't read from the group's own readers; other groups can.
        let waits = transfer.failures.is_empty() && !transfer.staged;
        transaction.wants(group.num_shards).filter(|_| waits)
    }
}

#[cfg(test)]
mod tests {
    use crate::message::Call;
    use crate::server::props::{SEQ, server, version};
    use crate::server::stores::transaction::GroupTransfer;
    use crate::{Selector, Time};

    #[test]
    fn groups_read_from_the_same_sources_if_they_are_in_one_place_and_of_one_layout() {
        let mut server = server();
        let [a, b, wide] = [("a", 1), ("b", 1), ("wide", 2)].map(|(n, s)| server.prop(n, s));
        assert!(
            server.books().have_same_sources(a, b) && !server.books().have_same_sources(a, wide)
        );
        server.at(b).members.get_mut(&0).unwrap().location.datacentre = "far".to_owned();
        assert!(!server.books().have_same_sources(a, b));
        server.groups.remove(&b);
        assert!(!server.books().have_same_sources(a, b) && !server.books().have_same_sources(b, a));
    }

    #[test]
    fn a_group_waits_for_nothing_but_a_source_if_all_others_are_as_good_for_it() {
        let mut server = server();
        let group = server.prop("g", 1);
        assert_eq!(server.books().waits_for_source(group), None);
        let wait = Call::Replicate { selector: Selector::Latest };
        server.has_called(group, wait.clone());
        assert_eq!(server.books().waits_for_source(group), None, "it is no transfer yet");
        let call = server.at(group).transactions.get_mut(&SEQ).unwrap();
        call.arrived.insert(0, wait);
        call.transfer = Some(GroupTransfer { version: Some(version(1)), ..Default::default() });
        assert_eq!(server.books().waits_for_source(group), Some(version(1)));
        server.groups.transfer(group).unwrap().failures.insert(group, 0);
        assert_eq!(
            server.books().waits_for_source(group),
            None,
            "one that it has lost is not for it"
        );
        server.groups.transfer(group).unwrap().failures.clear();
        server.groups.transfer(group).unwrap().staged = true;
        assert_eq!(server.books().waits_for_source(group), None);
        server.groups.transfer(group).unwrap().staged = false;
        server.at(group).transactions.get_mut(&SEQ).unwrap().arrived.clear();
        assert_eq!(server.books().waits_for_source(group), None, "a shard is missing");
    }

    /// One of them finds every place for readers of other hosts taken, the other has a holder beside it.
    #[test]
    fn who_waits_beside_a_holder_is_looked_at_after_another_has_found_nothing() {
        let mut server = server();
        server.config.fanout = 1;
        let [holder, reader] = [("holder", "a"), ("reader", "b")].map(|(name, host)| {
            let group = server.prop(name, 1);
            server.lies(group, 0, host);
            group
        });
        server.holds(holder, version(1));
        server.reads(reader, version(1), &[holder]);
        let [first, second] = [("first", "c"), ("second", "a")].map(|(name, host)| {
            let group = server.prop(name, 1);
            server.lies(group, 0, host);
            let call = Call::Replicate { selector: Selector::Latest };
            let called = server.has_called(group, call.clone());
            called.arrived.insert(0, call);
            called.transfer =
                Some(GroupTransfer { version: Some(version(1)), ..Default::default() });
            server.calls().start_waiting(group);
            group
        });
        server.serve_waiting(Time(1), "policy");
        let sources = [first, second].map(|group| server.edges.source_of(group));
        assert_eq!(sources, [None, Some(holder)]);
    }
}
