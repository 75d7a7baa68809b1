//! Every host is entered once (D7): replicas of one host share its link, so they get a version from each other.
//!
//! One of them reads from another host. The others wait until it serves what it has, and read in a chain of their own,
//! from memory to memory. From a replica that holds the version they read at once, up to a bound of its own
//! (`host_fanout`). A replica that reads from its own host gives nothing to other hosts meanwhile, so a version
//! leaves a host as often as it enters one.

use crate::server::contexts::{GroupCtx, TransferCtx};
use crate::server::rooms::Books;
use crate::server::stores::group::{Group, Member};
use crate::{Incarnation, Safeguard, Version};

impl Group {
    /// Whether shards of the same number lie on the same host, or all shards of both on one.
    pub(in crate::server) fn is_beside(&self, other: &Group) -> bool {
        let Some(first) = self.members.values().next() else { return false };
        let with = |one: &Member, other: &Member| one.location.host == other.location.host;
        let mut pairs =
            self.members.iter().filter_map(|(shard, of)| Some((of, other.members.get(shard)?)));
        let mut all = self.members.values().chain(other.members.values());
        let named = !first.location.host.is_empty() && !other.members.is_empty();
        let alike =
            self.num_shards == other.num_shards && pairs.all(|(one, other)| with(one, other));
        named && (alike || all.all(|of| with(first, of)))
    }

    /// Whether another group on its hosts can read from it while it is being filled.
    pub(in crate::server) fn feeds(&self, other: &Group) -> bool {
        self.is_beside(other) && self.same_layouts(other)
    }
}

impl GroupCtx<'_> {
    /// Whether another group is on the reader's hosts.
    pub(in crate::server) fn is_beside(&self, other: &Group) -> bool {
        self.group.is_beside(other)
    }

    /// Whether a replica that is being filled may serve the reader: another host's only while it reads from
    /// another host itself.
    pub(super) fn serves_hosts(&self, source: &Group) -> bool {
        let own = self.edges.source_of(source.incarnation).map(|of| self.groups.of(&of));
        self.is_beside(source) || !own.is_some_and(|own| own.is_beside(source))
    }
}

/// What is beside a reader. Few groups share a host, so they are looked at one by one where all groups that hold or get
/// the version would be too many.
impl<'a> TransferCtx<'a> {
    /// Whether the reader may read from another host: nobody on its own hosts has the version, or is getting it so
    /// that the reader can read it there.
    pub(super) fn may_enter(self, version: Version) -> bool {
        let coming = |group: &Group| group.feeds(self.group) && self.comes(group, version);
        let lands = |group: &Group| self.lands(group, version);
        let mut usable = self.beside().filter(|group| self.fits(group));
        !self.config.safeguards.on(Safeguard::HostFirst)
            || !usable.any(|group| self.lists(group, version) || coming(group) || lands(group))
    }

    /// Groups on the reader's hosts that have the version, or serve what they are being filled with and have a
    /// place.
    pub(super) fn sources_beside(self, version: Version) -> impl Iterator<Item = &'a Group> {
        let relays = move |group: &Group| self.relays(group, version) && self.comes(group, version);
        self.beside().filter(move |group| {
            self.fits(group)
                && (self.lists(group, version) || (self.has_place(group) && relays(group)))
        })
    }

    /// Other groups on the reader's hosts.
    pub(super) fn beside(self) -> impl Iterator<Item = &'a Group> {
        let host = self.group.location().map_or("", |location| &location.host);
        let groups = self.model.hosts.on(host).map(move |group| self.groups.of(&group));
        groups.filter(move |group| {
            group.incarnation != self.group.incarnation && self.is_beside(group)
        })
    }

    /// Whether a group's copy of the version is listed.
    pub(super) fn lists(&self, group: &Group, version: Version) -> bool {
        let holders = self.model.visible.get(&version);
        holders.and_then(|of| of.get(&group.replica)) == Some(&group.incarnation)
    }

    /// Whether a group has read the version beside its memory, and installs it next.
    pub(super) fn lands(&self, group: &Group, version: Version) -> bool {
        self.model.landing.contains(&group.incarnation)
            && group.transfer().is_some_and(|transfer| transfer.version == Some(version))
    }

    /// Whether a group is being filled with the version, and not from the reader.
    fn comes(&self, group: &Group, version: Version) -> bool {
        self.edges.fills(group.incarnation, version) && self.comes_apart(group, version)
    }
}

impl Books<'_> {
    /// How many readers have a place at a source and are as far from it as this group: on its host, in its datacentre,
    /// or further away.
    pub(in crate::server) fn load_like(&self, source: Incarnation, reader: Incarnation) -> usize {
        let of = self.groups.of(&source);
        let distance = |reader: Incarnation| {
            let reader = self.groups.of(&reader);
            (of.is_beside(reader), of.datacentre() == reader.datacentre())
        };
        let like = distance(reader);
        self.edges.placed_at(source).filter(|other| distance(*other) == like).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Server;
    use crate::server::props::{server, version};

    /// A group with a shard on each of these hosts.
    fn on(server: &mut Server, name: &str, hosts: &[&str]) -> Incarnation {
        let group = server.prop(name, hosts.len() as u32);
        for (shard, host) in (0..).zip(hosts) {
            server.lies(group, shard, host);
        }
        group
    }

    #[test]
    fn groups_are_beside_each_other_shard_by_shard_or_on_one_host() {
        for (one, other, beside) in [
            (&["a"][..], &["a"][..], true),
            (&["a"], &["b"], false),
            (&[""], &[""], false),
            (&["a", "b"], &["a", "b"], true),
            (&["a", "b"], &["b", "a"], false),
            (&["a", "b"], &["a", "c"], false),
            (&["a", ""], &["a", ""], true),
            (&["a", "a"], &["a"], true),
            (&["a", "b"], &["a"], false),
            (&["", ""], &[""], false),
        ] {
            let mut server = server();
            let [left, right] = [("left", one), ("right", other)]
                .map(|(name, on_them)| on(&mut server, name, on_them));
            let beside_each = [(left, right), (right, left)]
                .map(|(of, to)| server.groups[&of].is_beside(&server.groups[&to]));
            assert_eq!(beside_each, [beside; 2], "{one:?} {other:?}");
            server.at(right).members.clear();
            assert!(!server.groups[&left].is_beside(&server.groups[&right]), "nobody is there");
        }
    }

    #[test]
    fn a_reader_enters_a_host_if_nobody_there_has_the_version_or_gets_it() {
        let wanted = version(2);
        // What the other group on the reader's host is, and whether the reader may read elsewhere.
        type Does = fn(&mut Server, Incarnation, Incarnation);
        let cases: [(&str, &[&str], Does, bool); 8] = [
            ("it is idle", &["a"], |_, _, _| {}, true),
            ("it holds the version", &["a"], |s, of, _| s.holds(of, version(2)), false),
            ("it holds another", &["a"], |s, of, _| s.holds(of, version(1)), true),
            ("it reads it", &["a"], |s, of, from| s.reads(of, version(2), &[from]), false),
            (
                "it reads another",
                &["a"],
                |s, of, from| {
                    s.holds(from, version(1));
                    s.reads(of, version(1), &[from]);
                },
                true,
            ),
            (
                "nobody can read from it",
                &["a", "a"],
                |s, of, from| s.reads(of, version(2), &[from]),
                true,
            ),
            (
                "all of it is of another layout",
                &["a", "a"],
                |s, of, _| s.holds(of, version(2)),
                false,
            ),
            ("it is elsewhere", &["b"], |s, of, _| s.holds(of, version(2)), true),
        ];
        for (what, hosts, does, enters) in cases {
            let mut server = server();
            let [reader, source] = [("reader", "a"), ("source", "t")]
                .map(|(name, host)| on(&mut server, name, &[host]));
            let other = on(&mut server, "other", hosts);
            server.holds(source, wanted);
            does(&mut server, other, source);
            server.reads(
                reader,
                version(if what == "it reads another" { 1 } else { 2 }),
                &[source],
            );
            server.edges.remove("policy", reader);
            assert_eq!(server.books().transfer(reader).may_enter(wanted), enters, "{what}");
            let transfer = server.groups.transfer(reader).expect("it reads");
            transfer.failures.insert(other, 3);
            assert!(server.books().transfer(reader).may_enter(wanted), "{what}, and it has failed");
        }
    }

    #[test]
    fn who_reads_from_its_own_host_serves_no_other() {
        let mut server = server();
        let source = on(&mut server, "source", &["t"]);
        let [first, second, other] = [("first", "a"), ("second", "a"), ("other", "b")]
            .map(|(n, h)| on(&mut server, n, &[h]));
        server.holds(source, version(1));
        server.reads(first, version(1), &[source]);
        server.relays(first);
        server.reads(second, version(1), &[first]);
        let serves = |to, of| server.books().group(to).serves_hosts(&server.groups[&of]);
        assert_eq!([first, second].map(|of| serves(other, of)), [true, false]);
        assert!(serves(first, second), "on the same host");
        assert!(serves(other, source), "it reads nothing");
    }

    #[test]
    fn readers_are_counted_by_how_far_they_are() {
        let mut server = server();
        let source = on(&mut server, "source", &["a"]);
        server.holds(source, version(1));
        let mut readers = Vec::new();
        for (number, (host, datacentre)) in
            [("a", ""), ("a", ""), ("b", ""), ("b", "far"), ("c", "far"), ("d", "far")]
                .into_iter()
                .enumerate()
        {
            let reader = on(&mut server, &format!("r{number}"), &[host]);
            server.at(reader).members.get_mut(&0).expect("a prop").location.datacentre =
                datacentre.to_owned();
            server.reads(reader, version(1), &[source]);
            readers.push(reader);
        }
        let loads: Vec<_> = readers.iter().map(|r| server.books().load_like(source, *r)).collect();
        assert_eq!(loads, [2, 2, 1, 3, 3, 3]);
    }
}
