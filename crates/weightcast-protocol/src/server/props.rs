//! Groups put into the books by hand, for tests of rules that only look at them.

use crate::message::{Call, EpochPolicy, Open, Registration, Role};
use crate::server::Server;
use crate::server::ServerConfig;
use crate::server::rooms::CopyHandler;
use crate::server::stores::group::{Group, Member};
use crate::server::stores::sessions::{MemberId, SessionEntry};
use crate::server::stores::transaction::{GroupTransfer, Phase, Transaction};
use crate::{
    Attempt, ContentDigest, Epoch, ExportId, Generation, Incarnation, OpSeq, PROTOCOL, Selector,
    SessionId, Time, Version,
};

/// Number of the call that has no result yet, in every group that has one.
pub(super) const SEQ: OpSeq = OpSeq(3);

pub(super) const CATALOG: ContentDigest = ContentDigest([7; 16]);

pub(super) fn server() -> Server {
    Server::new(ServerConfig::default())
}

/// A group of three shards whose call 3 waits. Shard 0 has made the call, shards 1 and 2 have not;
/// shard 2 claims to have made it.
pub(super) fn waiting() -> (Server, Incarnation) {
    let mut server = server();
    let group = server.prop("g", 3);
    let call = Call::Unpublish;
    server.has_called(group, call.clone()).arrived.insert(0, call);
    server.at(group).members.get_mut(&1).unwrap().last_seq = OpSeq(SEQ.0 - 1);
    (server, group)
}

pub(super) fn version(number: u64) -> Version {
    Version { epoch: Epoch(0), number }
}

pub(super) fn opening(model: &str, replica: &str, num_shards: u32) -> Open {
    Open {
        protocol: PROTOCOL,
        session: SessionId(0),
        model: model.into(),
        replica: replica.into(),
        shard: 0,
        num_shards,
        role: Role::Rollout,
        epoch: EpochPolicy::Current,
        retain: 0,
        offload_seeding: false,
        location: Default::default(),
        data_address: String::new(),
        ticket: None,
        rejoins: false,
        activate: true,
    }
}

pub(super) fn called(call: Call) -> Transaction {
    Transaction::new(SEQ, call, 0, Time(0), Time(9))
}

impl Server {
    /// Only rooms above `copies` have this handler; tests need it on the server.
    pub(super) fn copies(&mut self) -> CopyHandler<'_> {
        CopyHandler {
            config: &self.config,
            groups: &mut self.groups,
            models: &mut self.models,
            agenda: &mut self.agenda,
        }
    }

    /// A group of the model `policy`, complete and registered.
    pub(super) fn prop(&mut self, replica: &str, num_shards: u32) -> Incarnation {
        let incarnation = self.numbers.last_incarnation.next();
        self.numbers.last_incarnation = incarnation;
        let open = opening("policy", replica, num_shards);
        self.membership().found_group(&open, incarnation).expect("there is room");
        for shard in 0..num_shards {
            let session = SessionId(u128::from(incarnation.number) << 32 | u128::from(shard));
            self.sessions.insert(session, SessionEntry::new(incarnation, shard));
            let registration = Registration {
                layout: ContentDigest([shard as u8; 16]),
                export: ExportId(incarnation.number * 10 + u64::from(shard)),
                bytes: 8,
            };
            let member = Member {
                session,
                location: Default::default(),
                data_address: format!("{replica}:{shard}"),
                registration: Some(registration),
                last_seq: SEQ,
                closing: false,
                announced: None,
                proved: None,
            };
            self.at(incarnation).members.insert(shard, member);
        }
        self.at(incarnation).registered = true;
        incarnation
    }

    /// A shard of the group is on this host.
    pub(super) fn lies(&mut self, group: Incarnation, shard: u32, host: &str) {
        let member = self.at(group).members.get_mut(&shard).expect("a prop");
        let was = std::mem::replace(&mut member.location.host, host.to_owned());
        let members = self.groups[&group].members.values();
        let left = !members.into_iter().any(|member| member.location.host == was);
        let hosts = &mut self.models.get_mut("policy").expect("the model of props").hosts;
        hosts.add(host, group);
        if left {
            hosts.remove(&was, group);
        }
    }

    pub(super) fn at(&mut self, group: Incarnation) -> &mut Group {
        self.groups.get_mut(&group).expect("a prop")
    }

    pub(super) fn session(&self, group: Incarnation, shard: u32) -> SessionId {
        self.groups[&group].members[&shard].session
    }

    pub(super) fn member(&self, group: Incarnation, shard: u32) -> MemberId {
        self.sessions.member(self.session(group, shard))
    }

    /// The group holds this version from now on, sealed; its shards serve it at generations 10, 11
    /// and so on.
    pub(super) fn holds(&mut self, group: Incarnation, version: Version) {
        let shards = u64::from(self.groups[&group].num_shards);
        self.copies().add(group, version, CATALOG, (10..10 + shards).map(Generation).collect());
        self.at(group).held.as_mut().expect("just set").sealed = true;
    }

    /// The group makes a call that has no result yet.
    pub(super) fn has_called(&mut self, group: Incarnation, call: Call) -> &mut Transaction {
        let group = self.at(group);
        group.active = Some(SEQ);
        group.transactions.insert(SEQ, called(call));
        group.transactions.get_mut(&SEQ).expect("just put there")
    }

    /// The group reads this version with its first assignment, and serves none of it yet.
    pub(super) fn reads(&mut self, group: Incarnation, version: Version, from: &[Incarnation]) {
        let assignment = self.books().assignment(from, version);
        let call = Call::Replicate { selector: Selector::Exact(version.number) };
        self.has_called(group, call).transfer = Some(GroupTransfer {
            version: Some(version),
            phase: Phase::Reading,
            attempt: Attempt(1),
            since: Attempt(1),
            assignment: Some(assignment),
            ..GroupTransfer::default()
        });
        self.transfers().read_from(group, version, from.to_vec());
    }

    /// All shards of the group serve what they have read so far, at generations 20, 21 and so on.
    pub(super) fn relays(&mut self, group: Incarnation) {
        let shards = self.groups[&group].num_shards;
        let transfer = self.groups.transfer(group).expect("it reads");
        transfer.filling = (0..shards).map(|s| (s, Generation(20 + u64::from(s)))).collect();
    }
}
