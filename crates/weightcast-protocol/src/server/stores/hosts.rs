//! Which groups of a model have shards on which host.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::Incarnation;

/// Groups by the names of hosts. Shards whose host has no name are not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::server) struct Hosts(BTreeMap<String, BTreeSet<Incarnation>>);

impl Hosts {
    /// A shard of a group is on a host.
    pub(in crate::server) fn add(&mut self, host: &str, group: Incarnation) {
        if !host.is_empty() {
            self.0.entry(host.to_owned()).or_default().insert(group);
        }
    }

    /// No shard of the group is on the host any more.
    pub(in crate::server) fn remove(&mut self, host: &str, group: Incarnation) {
        let Some(groups) = self.0.get_mut(host) else { return };
        groups.remove(&group);
        if groups.is_empty() {
            self.0.remove(host);
        }
    }

    /// Groups with shards on a host, in order.
    pub(in crate::server) fn on(&self, host: &str) -> impl Iterator<Item = Incarnation> + '_ {
        self.0.get(host).into_iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::props::server;

    #[test]
    fn a_host_is_there_as_long_as_a_group_is_on_it() {
        let mut server = server();
        let [a, b] = ["a", "b"].map(|name| server.prop(name, 1));
        let mut hosts = Hosts::default();
        hosts.add("", a);
        hosts.add("one", b);
        hosts.add("one", a);
        hosts.add("two", a);
        let on = |hosts: &Hosts, host| hosts.on(host).collect::<Vec<_>>();
        assert_eq!(["", "one", "two"].map(|host| on(&hosts, host)), [vec![], vec![a, b], vec![a]]);
        for (host, group) in [("", a), ("three", a), ("two", b), ("one", a), ("two", a)] {
            hosts.remove(host, group);
        }
        assert_eq!(["one", "two"].map(|host| on(&hosts, host)), [vec![b], vec![]]);
        hosts.remove("one", b);
        assert_eq!(hosts, Hosts::default(), "nothing is left of a host without groups");
    }
}
