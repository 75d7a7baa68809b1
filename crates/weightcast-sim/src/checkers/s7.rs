//! S7: a version has one content: every sealed copy has it, in whatever layout; and no two runs have
//! one number, also where a lost server is followed by one that knows of none. And a group whose
//! publication was refused is told so when it gives the copy up.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::message::{Answer, ClientMessage, ServerMessage};
use weightcast_protocol::server::{ReplicaSnapshot, ReplicaState, Snapshot};
use weightcast_protocol::{
    Attempt, Epoch, Generation, Incarnation, OpSeq, ShardSums, Sum, Term, Time, Version,
};

use super::{Checker, Fact};

/// Servers of two lines know nothing of each other, so two runs of theirs with one number would be
/// taken for one.
#[derive(Default)]
pub(super) struct RunsApart {
    /// The line in which each run was counted: its first term.
    lines: BTreeMap<Epoch, Term>,
}

impl Checker for RunsApart {
    fn name(&self) -> &'static str {
        "S7"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Said { message: ServerMessage::Opened { ticket, .. }, .. } = fact else {
            return None;
        };
        let (run, here) = (ticket.epoch, ticket.proof.origin);
        let line = *self.lines.entry(run).or_insert(here);
        (run > Epoch(0) && line != here)
            .then(|| format!("run {run} was counted in the lines of terms {line} and {here}"))
    }
}

#[derive(Default)]
pub(super) struct OneContent {
    /// The digests that each shard has told of what it holds.
    told: BTreeMap<(Incarnation, u32, Generation), Sum>,
    /// Staged assignments. Their digests are not those of the copy that is served at the same
    /// generation, whose digests may come later.
    staged: BTreeSet<(Incarnation, OpSeq, Attempt)>,
    /// The digests of staged reads, until the version is installed.
    beside: BTreeMap<(Incarnation, u32, OpSeq, Attempt), Sum>,
    /// The content of each version: the sum of its first sealed copy.
    contents: BTreeMap<Version, Sum>,
    /// Copies that have been compared.
    compared: BTreeSet<(Incarnation, Vec<Option<Generation>>)>,
    /// Groups whose publication is refused.
    refused: BTreeSet<Incarnation>,
}

impl Checker for OneContent {
    fn name(&self) -> &'static str {
        "S7"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Said {
                who,
                message: ServerMessage::Assigned { seq, attempt, assignment, .. },
                ..
            } if assignment.staged => {
                self.staged.insert((who.incarnation?, *seq, *attempt));
                None
            }
            Fact::Said {
                who,
                message: ServerMessage::Answered { result: Ok(Answer::Unpublished), .. },
                ..
            } if self.refused.contains(&who.incarnation?) => {
                Some(format!("shard {} was not told that its publication was refused", who.shard))
            }
            Fact::Heard { who, message, .. } => {
                self.heard(who.incarnation?, who.shard, message);
                None
            }
            Fact::Books(books) => self.books(books),
            _ => None,
        }
    }
}

fn digests(message: &ClientMessage) -> Option<(Generation, ShardSums)> {
    match message {
        ClientMessage::Sealed { generation, sums }
        | ClientMessage::Prepared { generation, sums, .. } => Some((*generation, *sums)),
        ClientMessage::Announce(announced) => Some((announced.generation, announced.held?.sums?)),
        _ => None,
    }
}

impl OneContent {
    fn heard(&mut self, group: Incarnation, shard: u32, message: &ClientMessage) {
        match message {
            ClientMessage::Prepared { seq, attempt, sums, .. }
                if self.staged.contains(&(group, *seq, *attempt)) =>
            {
                self.beside.insert((group, shard, *seq, *attempt), sums.counted);
            }
            ClientMessage::Installed { seq, attempt, generation } => {
                if let Some(sum) = self.beside.remove(&(group, shard, *seq, *attempt)) {
                    self.told.insert((group, shard, *generation), sum);
                }
            }
            _ => {
                if let Some((generation, sums)) = digests(message) {
                    self.told.insert((group, shard, generation), sums.counted);
                }
            }
        }
    }

    fn books(&mut self, books: &Snapshot) -> Option<String> {
        let replicas = books.models.values().flat_map(|model| &model.replicas);
        let fenced = replicas.clone().filter(|replica| replica.state == ReplicaState::Fenced);
        self.refused = fenced.map(|replica| replica.incarnation).collect();
        let sealed = replicas.filter(|replica| replica.state == ReplicaState::Sealed);
        sealed.filter_map(|replica| self.compare(replica)).next()
    }

    fn compare(&mut self, replica: &ReplicaSnapshot) -> Option<String> {
        let generations = replica.shards.iter().map(|shard| shard.generation).collect();
        if !self.compared.insert((replica.incarnation, generations)) {
            return None;
        }
        let (version, name) = (replica.version?, &replica.name);
        let told = replica.shards.iter().map(|shard| {
            self.told.get(&(replica.incarnation, shard.shard, shard.generation?)).copied()
        });
        let Some(sum) = told.reduce(|a, b| Some(a? + b?)).flatten() else {
            return Some(format!("{name} is sealed, and not all of its digests were told"));
        };
        let content = *self.contents.entry(version).or_insert(sum);
        (sum != content).then(|| format!("{name} holds {version} with another content"))
    }
}
