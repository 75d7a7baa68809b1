//! A group: the shards that opened one replica together, in one life.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::message::{Announcement, Location, Open, Registration, Role, Sibling};
use crate::server::stores::sessions::MemberId;
use crate::server::stores::store::Store;
use crate::server::stores::transaction::{GroupTransfer, Kept, Phase, Transaction, name_shards};
use crate::server::stores::trust::Trust;
use crate::{
    CallError, ContentDigest, Epoch, Generation, Incarnation, OpSeq, Proved, SessionId, ShardSums,
    Time, Version,
};

/// One life of one group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::server) struct Group {
    pub(in crate::server) incarnation: Incarnation,
    pub(in crate::server) model: String,
    pub(in crate::server) replica: String,
    pub(in crate::server) role: Role,
    /// The run that it publishes into.
    pub(in crate::server) epoch: Epoch,
    pub(in crate::server) num_shards: u32,
    /// Whether its updates leave crossings to a seed replica.
    pub(in crate::server) offload_seeding: bool,
    /// The seed that the group was asked for last has failed: its next update crosses by itself.
    pub(in crate::server) seed_failed: bool,
    pub(in crate::server) members: BTreeMap<u32, Member>,
    /// Whether all shards have registered their memory.
    pub(in crate::server) registered: bool,
    /// The copy that it holds.
    pub(in crate::server) held: Option<Held>,
    /// The version that the group replicated last. A rollout that publishes this number again means
    /// this version.
    pub(in crate::server) replicated: Option<Version>,
    /// Calls that not every shard has gone past, by number.
    pub(in crate::server) transactions: BTreeMap<OpSeq, Transaction>,
    /// The call that has no result yet. There is at most one, since a shard goes on only after its
    /// answer.
    pub(in crate::server) active: Option<OpSeq>,
    /// Place in the queue, left by a transfer that ran out of time. The next transfer takes it;
    /// otherwise groups with short deadlines starve (L4).
    pub(in crate::server) place: Option<u64>,
    /// Slow sources that the group has left, and the bytes a second that each gave.
    pub(in crate::server) slow: BTreeMap<Incarnation, u64>,
    /// What the last transfer had read when it ran out of time.
    pub(in crate::server) kept: Option<Kept>,
    /// A shard's stream broke a while ago, and no other was opened: most likely its process has died.
    pub(in crate::server) unheard: bool,
    /// When its readers are cut off, while the group is draining.
    pub(in crate::server) drain_until: Option<Time>,
    /// How long its copy may be held back for an offload, while the group gives the copy up.
    pub(in crate::server) hold_until: Option<Time>,
    /// The group is an offload or seed replica that was told to go.
    pub(in crate::server) released: bool,
    /// Set once the group is at its end: nothing is served, no call starts any more.
    pub(in crate::server) over: Option<Over>,
    /// The group comes over from an earlier term, and does nothing until all its shards have
    /// announced.
    pub(in crate::server) recovering: bool,
}

/// The groups, by incarnation.
pub(in crate::server) type Groups = Store<Incarnation, Group>;

impl Groups {
    /// The transfer of a group's pending call. Panics unless the pending call is a transfer.
    #[track_caller]
    pub(in crate::server) fn pending_transfer(&mut self, group: Incarnation) -> &mut GroupTransfer {
        self.of_mut(&group).pending_mut().as_transfer_mut()
    }

    /// Whether this call of a group has no result yet.
    pub(in crate::server) fn is_pending(&self, group: Incarnation, seq: OpSeq) -> bool {
        self.get(&group).is_some_and(|group| group.active == Some(seq))
    }

    /// A group's transfer, if its pending call is one.
    pub(in crate::server) fn transfer(&mut self, group: Incarnation) -> Option<&mut GroupTransfer> {
        self.get_mut(&group)?.active_transaction()?.transfer.as_mut()
    }
}

/// The end of a group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::server) struct Over {
    /// What calls fail with from now on.
    pub(in crate::server) error: CallError,
    /// `true` after `close`: members are not told, and readers are drained. `false` after a break:
    /// members are told, and readers are cut off at once.
    pub(in crate::server) closing: bool,
}

/// One shard of a group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::server) struct Member {
    pub(in crate::server) session: SessionId,
    pub(in crate::server) location: Location,
    pub(in crate::server) data_address: String,
    pub(in crate::server) registration: Option<Registration>,
    /// Its newest call.
    pub(in crate::server) last_seq: OpSeq,
    /// The member has asked to leave, and waits for readers to be drained.
    pub(in crate::server) closing: bool,
    /// What the member announced from an earlier term.
    pub(in crate::server) announced: Option<Announcement>,
    /// The version that a server last saw the member's group hold.
    pub(in crate::server) proved: Option<Proved>,
}

/// The copy that a group holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::server) struct Held {
    pub(in crate::server) version: Version,
    pub(in crate::server) catalog: ContentDigest,
    /// Generation at which each shard serves the copy, in order of the shards.
    pub(in crate::server) generations: Vec<Generation>,
    /// Digests of the shards that have sealed.
    pub(in crate::server) sums: BTreeMap<u32, ShardSums>,
    /// All shards have sealed, and the content is the version's.
    pub(in crate::server) sealed: bool,
    /// A trainer published the copy in this term. If no copy was sealed before, this copy defines
    /// the version.
    pub(in crate::server) authored: bool,
    /// Whether its shards have shown that they hold the bytes.
    pub(in crate::server) trust: Trust,
    /// Names of replicas that have read other bytes than the publisher's from this copy (T4).
    pub(in crate::server) accusers: BTreeSet<String>,
    /// Set when the copy is refused: its content is not the version's, or its shards disagree.
    pub(in crate::server) fenced: Option<CallError>,
    /// Why the copy can't be offloaded, once that has been tried.
    pub(in crate::server) offload_failed: Option<String>,
    /// The copy is listed, and readers may be sent to it.
    pub(in crate::server) visible: bool,
}

impl Held {
    /// At which generation a shard serves the copy.
    #[track_caller]
    pub(in crate::server) fn generation(&self, shard: u32) -> Generation {
        *self.generations.get(shard as usize).expect("each shard has a generation")
    }

    /// Whether the copy was judged: sealed or refused. Until then its shards may be digesting it,
    /// so the memory must not change.
    pub(in crate::server) fn settled(&self) -> bool {
        self.sealed || self.fenced.is_some()
    }
}

impl Group {
    /// A new group, without members yet.
    pub(in crate::server) fn founded(incarnation: Incarnation, open: &Open, epoch: Epoch) -> Self {
        Self {
            incarnation,
            model: open.model.clone(),
            replica: open.replica.clone(),
            role: open.role,
            epoch,
            num_shards: open.num_shards,
            offload_seeding: open.offload_seeding,
            seed_failed: false,
            members: BTreeMap::new(),
            registered: false,
            held: None,
            replicated: None,
            transactions: BTreeMap::new(),
            active: None,
            place: None,
            slow: BTreeMap::new(),
            kept: None,
            unheard: false,
            drain_until: None,
            hold_until: None,
            released: false,
            over: None,
            recovering: false,
        }
    }

    /// The error of the group's calls if it breaks for this reason.
    pub(in crate::server) fn broken(&self, reason: impl Into<String>) -> CallError {
        CallError::GroupBroken { replica: self.replica.clone(), reason: reason.into() }
    }

    /// Whether all shards have joined.
    pub(in crate::server) fn complete(&self) -> bool {
        self.members.len() == self.num_shards as usize
    }

    /// Names the shards that have not joined, for errors.
    pub(in crate::server) fn waits_to_open(&self) -> String {
        let absent: Vec<u32> =
            (0..self.num_shards).filter(|shard| !self.members.contains_key(shard)).collect();
        let absent = name_shards(&absent).unwrap_or_default();
        let (replica, of) = (&self.replica, self.num_shards);
        format!("{absent} of replica {replica} to open: the others say that num_shards is {of}")
    }

    /// The location of the group: that of its first shard.
    pub(in crate::server) fn location(&self) -> Option<&Location> {
        self.members.values().next().map(|member| &member.location)
    }

    /// All layouts that its shards have registered, or name in a pending `register`.
    pub(in crate::server) fn named_layouts(&self) -> impl Iterator<Item = ContentDigest> {
        let registered = self.members.values().filter_map(|m| m.registration.map(|r| r.layout));
        let active = self.active.and_then(|seq| self.transactions.get(&seq));
        registered.chain(active.into_iter().flat_map(Transaction::pinned))
    }

    /// Layouts of its shards, in order; empty if they are not registered.
    pub(in crate::server) fn layouts(&self) -> Arc<[ContentDigest]> {
        self.members.values().filter_map(|m| m.registration.map(|r| r.layout)).collect()
    }

    /// Whether what it has read in this transfer may have come over its other shards on a host.
    pub(in crate::server) fn read_from_siblings(&self) -> bool {
        self.transfer().is_some_and(GroupTransfer::shared) && !self.siblings().is_empty()
    }

    /// Its registered shards that share their hosts with others of them, in order.
    pub(in crate::server) fn siblings(&self) -> Arc<[Sibling]> {
        let mut hosts = BTreeMap::<&str, Vec<u32>>::new();
        for (shard, member) in &self.members {
            hosts.entry(&member.location.host).or_default().push(*shard);
        }
        let sibling = |(shard, member): (&u32, &Member)| {
            let host = member.location.host.as_str();
            // Without a name nobody knows who is there too.
            let host = hosts.get(host).filter(|on| on.len() > 1 && !host.is_empty())?;
            Some(Sibling {
                shard: *shard,
                host: host[0],
                data_address: member.data_address.clone(),
                export: member.registration?.export,
            })
        };
        self.members.iter().filter_map(sibling).collect()
    }

    /// Whether its shards have the same layouts as another group's, one by one.
    pub(in crate::server) fn same_layouts(&self, other: &Group) -> bool {
        fn layouts(group: &Group) -> impl Iterator<Item = Option<ContentDigest>> {
            group.members.values().map(|member| member.registration.map(|r| r.layout))
        }
        self.num_shards == other.num_shards && layouts(self).eq(layouts(other))
    }

    /// Whether the group holds the version, and the copy was not refused.
    pub(in crate::server) fn holds(&self, version: Version) -> bool {
        self.held.as_ref().is_some_and(|held| held.version == version && held.fenced.is_none())
    }

    /// Its datacentre; empty if there is only one.
    pub(in crate::server) fn datacentre(&self) -> &str {
        self.location().map_or("", |location| &location.datacentre)
    }

    /// The transfer of the call that has no result yet.
    pub(in crate::server) fn transfer(&self) -> Option<&GroupTransfer> {
        self.transactions.get(&self.active?)?.transfer.as_ref()
    }

    /// The transfer that a member reports on, by the number of its call. A call that was answered is over.
    pub(in crate::server) fn transfer_of_mut(&mut self, call: OpSeq) -> Option<&mut GroupTransfer> {
        self.active_transaction().filter(|active| active.seq == call)?.transfer.as_mut()
    }

    /// The version that the group holds, and the version that it reads or installs.
    pub(in crate::server) fn versions(&self) -> impl Iterator<Item = Version> {
        let held = self.held.as_ref().map(|held| held.version);
        let read = self.transfer().and_then(|transfer| transfer.version);
        held.into_iter().chain(read)
    }

    /// Whether its shards are installing a staged version.
    pub(in crate::server) fn installs(&self) -> bool {
        self.transfer().is_some_and(|transfer| transfer.phase == Phase::Installing)
    }

    /// The copy that the group holds. Panics if the group holds none.
    #[track_caller]
    pub(in crate::server) fn copy(&self) -> &Held {
        self.held.as_ref().expect("the group holds a copy")
    }

    /// The same, to change it.
    #[track_caller]
    pub(in crate::server) fn copy_mut(&mut self) -> &mut Held {
        self.held.as_mut().expect("the group holds a copy")
    }

    /// The shard of a session.
    #[track_caller]
    pub(in crate::server) fn member(&self, shard: u32) -> &Member {
        self.members.get(&shard).expect("sessions are members")
    }

    /// The same, to change it.
    #[track_caller]
    pub(in crate::server) fn member_mut(&mut self, shard: u32) -> &mut Member {
        self.members.get_mut(&shard).expect("sessions are members")
    }

    /// Its members, in order of their shards.
    pub(in crate::server) fn member_ids(&self) -> Vec<MemberId> {
        let ids = self.members.iter().map(|(shard, member)| MemberId {
            session: member.session,
            group: self.incarnation,
            shard: *shard,
        });
        ids.collect()
    }

    /// A call that came in and that some shard may ask for again. Panics if there is none.
    #[track_caller]
    pub(in crate::server) fn recorded(&self, seq: OpSeq) -> &Transaction {
        self.transactions.get(&seq).expect("the call came in")
    }

    /// The call that has no result yet, if there is one, to look at it.
    pub(in crate::server) fn active_call(&self) -> Option<&Transaction> {
        self.transactions.get(&self.active?)
    }

    /// The call that has no result yet. Panics if there is none.
    #[track_caller]
    pub(in crate::server) fn pending(&self) -> &Transaction {
        self.active_call().expect("a call is pending")
    }

    /// The same, to change it.
    #[track_caller]
    pub(in crate::server) fn pending_mut(&mut self) -> &mut Transaction {
        self.active_transaction().expect("a call is pending")
    }

    /// The call that has no result yet, if there is one.
    pub(in crate::server) fn active_transaction(&mut self) -> Option<&mut Transaction> {
        let seq = self.active?;
        self.transactions.get_mut(&seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Answer, Call};
    use crate::server::Server;
    use crate::server::props::{SEQ, server, version};
    use crate::{Attempt, ExportId, Selector};

    fn refused() -> CallError {
        CallError::Misuse { detail: "refused".to_owned() }
    }

    #[test]
    fn a_group_holds_to_be_read_what_it_has_and_what_was_not_refused() {
        let mut server = server();
        let group = server.prop("a", 1);
        assert!(!server.at(group).holds(version(1)));
        server.holds(group, version(1));
        let group = server.at(group);
        assert!(group.holds(version(1)) && !group.holds(version(2)));
        assert!(!group.holds(Version { epoch: Epoch(1), number: 1 }), "of another run");
        group.held.as_mut().unwrap().fenced = Some(refused());
        assert!(!group.holds(version(1)) && !group.holds(version(2)));
    }

    #[test]
    fn a_copy_has_settled_when_it_was_judged() {
        let mut server = server();
        let group = server.prop("a", 1);
        server.holds(group, version(1));
        let held = server.at(group).held.as_mut().unwrap();
        for (sealed, fenced) in [(false, false), (false, true), (true, false), (true, true)] {
            (held.sealed, held.fenced) = (sealed, fenced.then(refused));
            assert_eq!(held.settled(), sealed || fenced);
        }
    }

    #[test]
    fn a_group_waits_for_those_shards_that_have_not_opened() {
        let mut server = server();
        let group = server.prop("a", 4);
        let group = server.at(group);
        assert!(group.complete());
        group.members.remove(&1);
        assert!(!group.complete());
        group.members.remove(&3);
        let text = "shards 1, 3 of replica a to open: the others say that num_shards is 4";
        assert_eq!(group.waits_to_open(), text);
    }

    #[test]
    fn a_group_is_where_its_first_shard_is() {
        let mut server = server();
        let group = server.prop("a", 2);
        let group = server.at(group);
        for (shard, at) in [(0, "eu"), (1, "us")] {
            group.members.get_mut(&shard).unwrap().location.datacentre = at.to_owned();
        }
        assert_eq!(group.datacentre(), "eu");
        group.members.remove(&0);
        assert_eq!(group.datacentre(), "us");
        group.members.remove(&1);
        assert_eq!((group.datacentre(), group.location()), ("", None));
    }

    #[test]
    fn layouts_are_the_same_shard_by_shard() {
        let mut server = server();
        let [one, other, wide] = [("a", 2), ("b", 2), ("c", 3)].map(|(n, s)| server.prop(n, s));
        let same = |server: &Server, a, b| server.groups[&a].same_layouts(&server.groups[&b]);
        assert!(same(&server, one, other) && !same(&server, one, wide));
        assert_eq!(
            *server.groups[&one].layouts(),
            [ContentDigest([0; 16]), ContentDigest([1; 16])]
        );
        let last = server.at(other).members.get_mut(&1).unwrap();
        last.registration.as_mut().unwrap().layout = ContentDigest([9; 16]);
        assert!(!same(&server, one, other), "the last shard's differs");
        let last = server.at(other).members.get_mut(&1).unwrap();
        last.registration = None;
        assert!(!same(&server, one, other));
        assert_eq!(*server.groups[&other].layouts(), [ContentDigest([0; 16])]);
        // As many have come so far, but one group will have more.
        server.at(wide).members.remove(&2);
        assert!(!same(&server, one, wide));
    }

    #[test]
    fn a_group_has_the_version_that_it_holds_and_the_one_that_it_gets() {
        let mut server = server();
        let [source, group] = ["s", "g"].map(|name| server.prop(name, 1));
        let versions = |server: &Server| server.groups[&group].versions().collect::<Vec<_>>();
        assert!(versions(&server).is_empty());
        server.holds(source, version(2));
        server.holds(group, version(1));
        assert_eq!(versions(&server), [version(1)]);
        server.reads(group, version(2), &[source]);
        assert_eq!(versions(&server), [version(1), version(2)]);
        server.at(group).held = None;
        assert_eq!(versions(&server), [version(2)]);
        assert!(!server.at(group).installs());
        let transfer = server.groups.transfer(group).unwrap();
        (transfer.phase, transfer.attempt) = (Phase::Installing, Attempt(2));
        assert!(server.at(group).installs());
        // A call that has ended is none any more.
        server.at(group).active = None;
        assert!(versions(&server).is_empty() && !server.at(group).installs());
    }

    #[test]
    fn siblings_are_shards_whose_host_has_a_name_and_further_shards() {
        let mut server = server();
        let group = server.prop("a", 5);
        let on = |server: &mut Server, hosts: [&str; 5]| {
            for (member, host) in server.at(group).members.values_mut().zip(hosts) {
                member.location.host = host.to_owned();
            }
            let siblings = server.groups[&group].siblings();
            siblings.iter().map(|of| (of.shard, of.host)).collect::<Vec<_>>()
        };
        assert_eq!(on(&mut server, ["a", "b", "c", "d", "e"]), []);
        assert_eq!(on(&mut server, [""; 5]), []);
        assert_eq!(on(&mut server, ["a", "b", "c", "b", "a"]), [(0, 0), (1, 1), (3, 1), (4, 0)]);
        let of = server.groups[&group].siblings()[2].clone();
        let (data_address, export) = ("a:3".to_owned(), ExportId(10 * group.number + 3));
        assert_eq!(of, Sibling { shard: 3, host: 1, data_address, export });
        server.at(group).members.get_mut(&3).unwrap().registration = None;
        let left = server.groups[&group].siblings();
        assert!(left.iter().all(|of| of.shard != 3), "it has no memory");
    }

    #[test]
    fn layouts_are_named_by_those_that_have_them_and_by_those_that_ask_for_them() {
        let mut server = server();
        let group = server.prop("a", 2);
        let layout = ContentDigest([5; 16]);
        let register = Call::Register { layout, export: ExportId(1), bytes: 8 };
        let named = |server: &mut Server| -> Vec<u8> {
            let names: Vec<ContentDigest> = server.at(group).named_layouts().collect();
            names.iter().map(|digest| digest.0[0]).collect()
        };
        assert_eq!(named(&mut server), [0, 1]);
        server.has_called(group, register.clone()).arrived.insert(1, register);
        assert_eq!(named(&mut server), [0, 1, 5]);
        server.at(group).members.get_mut(&0).unwrap().registration = None;
        assert_eq!(named(&mut server), [1, 5]);
        let call = server.at(group).transactions.get_mut(&SEQ).unwrap();
        call.result = Some(Ok(Answer::Unpublished));
        assert_eq!(named(&mut server), [1], "the call has ended");
        let list = Call::Replicate { selector: Selector::Latest };
        server.has_called(group, list.clone()).arrived.insert(0, list);
        assert_eq!(named(&mut server), [1]);
    }
}
