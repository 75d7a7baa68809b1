//! What readers that wait find on their own hosts, found out for many of them at once.
//!
//! Thousands may wait while a version spreads, most of them for a replica of their own host that has no place
//! yet. If each of them chose anew at each change, the server would walk up long chains for nothing.

use std::collections::BTreeMap;

use crate::server::contexts::TransferCtx;
use crate::server::rooms::Books;
use crate::server::stores::group::Group;
use crate::{Incarnation, Safeguard, Version};

/// What there is on a reader's hosts (D7), from the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::server) enum PlaceBeside {
    /// Nobody has the version or gets it, so the reader may read from other hosts.
    Nobody,
    /// Somebody has the version or gets it, so the reader may not; and has no place for the reader.
    Taken,
    /// Somebody has a place.
    Free,
}

/// Whether versions come to groups from a holder. Right as long as no edge goes.
#[derive(Debug, Default)]
pub(in crate::server) struct WholeChains(BTreeMap<(Version, Incarnation), bool>);

impl WholeChains {
    /// Whether a version comes to a group, which is being filled with it, from a holder. Each group of a chain is
    /// passed once, however many ask.
    fn comes(&mut self, books: Books<'_>, group: Incarnation, version: Version) -> bool {
        let (mut passed, mut whole) = (Vec::new(), false);
        for at in std::iter::once(group).chain(books.edges.chain(group)) {
            if let Some(known) = self.0.get(&(version, at)) {
                whole = *known;
                break;
            }
            whole = books.groups.of(&at).holds(version);
            passed.push((version, at));
        }
        self.0.extend(passed.into_iter().map(|at| (at, whole)));
        whole
    }
}

impl TransferCtx<'_> {
    /// What the reader, which has no source, finds on its hosts.
    pub(in crate::server) fn place_beside(
        self,
        version: Version,
        chains: &mut WholeChains,
    ) -> PlaceBeside {
        if !self.config.safeguards.on(Safeguard::HostFirst) {
            return PlaceBeside::Nobody;
        }
        let usable = self.beside().filter(|group| self.fits(group));
        let places = usable.map(|group| self.place_at(group, version, chains));
        places.max().unwrap_or(PlaceBeside::Nobody)
    }

    fn place_at(self, group: &Group, version: Version, chains: &mut WholeChains) -> PlaceBeside {
        let comes = group.feeds(self.group)
            && self.edges.fills(group.incarnation, version)
            && chains.comes(self.books, group.incarnation, version);
        let serves = self.lists(group, version) || (comes && self.relays(group, version));
        if serves && self.has_place(group) {
            PlaceBeside::Free
        } else if serves || comes || self.lands(group, version) {
            PlaceBeside::Taken
        } else {
            PlaceBeside::Nobody
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Server;
    use crate::server::props::{server, version};

    /// A group of one shard on this host.
    fn on(server: &mut Server, name: &str, host: &str) -> Incarnation {
        let group = server.prop(name, 1);
        server.lies(group, 0, host);
        group
    }

    fn place(server: &Server, reader: Incarnation) -> PlaceBeside {
        server.books().transfer(reader).place_beside(version(1), &mut WholeChains::default())
    }

    /// A reader on host a without a source, a group beside it, and a holder elsewhere.
    fn scene() -> (Server, [Incarnation; 3]) {
        let mut server = server();
        (server.config.fanout, server.config.host_fanout) = (1, 1);
        let [reader, other, holder] =
            [("reader", "a"), ("other", "a"), ("holder", "t")].map(|(n, h)| on(&mut server, n, h));
        server.holds(holder, version(1));
        server.reads(reader, version(1), &[holder]);
        server.edges.remove("policy", reader);
        (server, [reader, other, holder])
    }

    #[test]
    fn a_place_is_what_the_choice_would_find() {
        use PlaceBeside::{Free, Nobody, Taken};
        type Does = fn(&mut Server, Incarnation, Incarnation);
        let cases: [(&str, Does, PlaceBeside); 7] = [
            ("it is idle", |_, _, _| {}, Nobody),
            ("it holds the version", |s, of, _| s.holds(of, version(1)), Free),
            ("it holds another", |s, of, _| s.holds(of, version(2)), Nobody),
            ("it reads", |s, of, from| s.reads(of, version(1), &[from]), Taken),
            (
                "it reads and relays",
                |s, of, from| {
                    s.reads(of, version(1), &[from]);
                    s.relays(of);
                },
                Free,
            ),
            (
                "it reads from a chain that has lost its holder",
                |s, of, from| {
                    let lost = on(s, "lost", "b");
                    s.reads(lost, version(1), &[from]);
                    s.relays(lost);
                    s.reads(of, version(1), &[lost]);
                    s.edges.remove("policy", lost);
                },
                Nobody,
            ),
            (
                "it has a reader already",
                |s, of, _| {
                    s.holds(of, version(1));
                    let third = on(s, "third", "a");
                    s.reads(third, version(1), &[of]);
                },
                Taken,
            ),
        ];
        for (what, does, expected) in cases {
            let (mut server, [reader, other, holder]) = scene();
            does(&mut server, other, holder);
            assert_eq!(place(&server, reader), expected, "{what}");
            let enters = server.books().transfer(reader).may_enter(version(1));
            assert_eq!(enters, expected == Nobody, "{what}: as the choice says");
            let transfer = server.groups.transfer(reader).expect("it reads");
            transfer.failures.insert(other, 3);
            let after = if what.contains("has a reader") { Taken } else { Nobody };
            assert_eq!(place(&server, reader), after, "{what}, and has failed");
        }
    }

    /// What was found out for one group holds for all that follow on its chain.
    #[test]
    fn a_chain_is_whole_for_each_group_of_it_or_for_none() {
        let (mut server, [_, first, holder]) = scene();
        let rest = ["b", "c", "d"].map(|host| on(&mut server, host, host));
        let mut above = holder;
        for group in [first, rest[0], rest[1], rest[2]] {
            server.reads(group, version(1), &[above]);
            server.relays(group);
            above = group;
        }
        let asks = |server: &Server, order: &[Incarnation]| {
            let mut chains = WholeChains::default();
            let comes = |of: &Incarnation| chains.comes(server.books(), *of, version(1));
            let found: Vec<bool> = order.iter().map(comes).collect();
            (found, chains.0.len())
        };
        let order = [rest[1], rest[2], rest[0], first];
        assert_eq!(asks(&server, &order), (vec![true; 4], 5));
        server.edges.remove("policy", first);
        assert_eq!(asks(&server, &order), (vec![false; 4], 4));
    }
}
