//! What the server knows of one shard, and of a group that makes no call.

use super::{NAMED, WaitGraph};
use crate::Incarnation;
use crate::server::stores::group::{Group, Member};
use crate::server::stores::transaction::name_shards;

impl<'a> WaitGraph<'a> {
    /// A replica's name.
    pub(super) fn name(self, group: Incarnation) -> &'a str {
        &self.of(group).group.replica
    }

    /// Whether the shard's process seems to live, and what it called last.
    pub(super) fn shard(self, group: &Group, shard: u32) -> String {
        let Some(member) = group.members.get(&shard) else {
            return format!("shard {shard} has not opened");
        };
        format!("shard {shard} {}, and {}", self.liveness(member), self.last_call(group, member))
    }

    /// A source: where its bytes are served, and the shard that speaks most against it.
    pub(super) fn source(self, incarnation: Incarnation) -> String {
        let group = self.of(incarnation).group;
        let silent = |of: &&Member| self.connections.stream(of.session).is_none();
        let members = || group.members.values();
        let Some(member) = members().find(silent).or_else(|| members().next()) else {
            return group.replica.clone();
        };
        let (at, lives) = (&member.data_address, self.liveness(member));
        format!("{} (a shard of it, at data port {at}, {lives})", group.replica)
    }

    fn liveness(self, member: &Member) -> String {
        let lease = self.sessions.of(&member.session).lease_until;
        let heard = self.books.config.lease_with_margin().0.saturating_sub((lease - self.now).0);
        let heard = crate::Span(heard);
        match self.connections.stream(member.session) {
            Some(_) => format!("is connected, last heard {heard} ago"),
            None => format!(
                "has no connection, last heard {heard} ago, evicted in {}",
                lease - self.now
            ),
        }
    }

    fn last_call(self, group: &Group, member: &Member) -> String {
        match group.transactions.get(&member.last_seq) {
            Some(call) => format!("last called {} {} ago", call.call, self.now - call.started),
            None if member.last_seq.0 == 0 => "has called nothing yet".to_owned(),
            None => format!("last made call {}", member.last_seq.0),
        }
    }

    /// What is known of a group whose own wait is not followed: it waits for nothing, or the chain ends here.
    pub(super) fn doing(self, incarnation: Incarnation) -> String {
        let caller = self.of(incarnation);
        let group = caller.group;
        let replica = &group.replica;
        if let Some(over) = &group.over {
            return format!("replica {replica} has ended: {}", over.error);
        }
        if let Some(call) = group.active_call() {
            let age = self.now - call.started;
            return format!("replica {replica} waits itself, in {} for {age}", call.call);
        }
        let holds =
            group.held.as_ref().map_or("nothing".to_owned(), |held| held.version.to_string());
        let last = group.transactions.last_key_value().map(|(_, call)| {
            format!(", last called {} {} ago", call.call, self.now - call.started)
        });
        let last = last.unwrap_or_else(|| ", has called nothing yet".to_owned());
        let silent =
            group.members.iter().filter(|(_, m)| self.connections.stream(m.session).is_none());
        let silent = silent
            .take(NAMED)
            .map(|(shard, m)| format!("; its shard {shard} {}", self.liveness(m)));
        let undigested = name_shards(&caller.undigested());
        let undigested = undigested.map(|shards| format!("; the digests of {shards} are missing"));
        let more: String = silent.chain(undigested).collect();
        format!("replica {replica} makes no call now, holds {holds}{last}{more}")
    }
}
