//! The queue of waiting calls: when a model changes they are tried again, first come, first served.

use crate::server::Server;
use crate::server::rooms::Books;
use crate::server::stores::group::Group;
use crate::{Condition, Incarnation, Time, Version};

impl Server {
    /// Something has changed in a model: tries the waiting calls again, first come, first served.
    pub(super) fn serve_waiting(&mut self, now: Time, model: &str) {
        let Some(model) = self.models.get(model) else { return };
        let waiting: Vec<Incarnation> = model.waiting.values().copied().collect();
        // Once a group has found no free source, later groups with the same sources need not look.
        let mut exhausted: Vec<(Version, Incarnation)> = Vec::new();
        // A condition that does not hold for one group holds for none.
        let mut unmet: Vec<Condition> = Vec::new();
        for group in waiting {
            let until = self.groups.get(&group).and_then(Group::waits_until);
            let wants = self.books().waits_for_source(group);
            if until.is_some_and(|until| unmet.contains(&until))
                || exhausted.iter().any(|(version, other)| {
                    wants == Some(*version) && self.books().have_same_sources(*other, group)
                })
            {
                continue;
            }
            self.advance(now, group);
            unmet.extend(self.groups.get(&group).and_then(Group::waits_until));
            exhausted.extend(self.books().waits_for_source(group).map(|version| (version, group)));
        }
    }
}

impl Books<'_> {
    /// Whether two groups can read a version from the same sources: no source serves only one of
    /// them, as one on its own hosts would (D7).
    fn have_same_sources(&self, a: Incarnation, b: Incarnation) -> bool {
        // A group that was looked at before may have gone since.
        let (Some(a), Some(b)) = (self.groups.get(&a), self.groups.get(&b)) else { return false };
        a.datacentre() == b.datacentre() && a.same_hosts(b) && a.same_layouts(b)
    }

    /// The version that a group could read from any source, if the group lacks nothing but a
    /// source.
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
    use crate::Selector;
    use crate::message::Call;
    use crate::server::props::{SEQ, server, version};

    #[test]
    fn groups_read_from_the_same_sources_if_they_are_in_one_place_and_of_one_layout() {
        let mut server = server();
        let [a, b, wide] = [("a", 1), ("b", 1), ("wide", 2)].map(|(n, s)| server.prop(n, s));
        assert!(
            server.books().have_same_sources(a, b) && !server.books().have_same_sources(a, wide)
        );
        for (member, (host, datacentre), same) in [
            (a, ("near", ""), false),
            (b, ("near", ""), true),
            (b, ("other", ""), false),
            (b, ("near", "far"), false),
        ] {
            let location = &mut server.at(member).members.get_mut(&0).unwrap().location;
            (location.host, location.datacentre) = (host.to_owned(), datacentre.to_owned());
            assert_eq!(server.books().have_same_sources(a, b), same, "{host} {datacentre}");
        }
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
        call.transfer = Some(crate::server::stores::transaction::GroupTransfer {
            version: Some(version(1)),
            ..Default::default()
        });
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
}
