//! Compares what the shards of a group believe with what their server's books say, while no message is on its way
//! between them (L8).

use weightcast_protocol::server::{ReplicaSnapshot, ReplicaState, ShardSnapshot, Snapshot};
use weightcast_protocol::session::{Session, SessionState};
use weightcast_protocol::{Term, Time};

use crate::parts::process::Process;
use crate::world::World;

impl World {
    /// Where sessions disagree with the books of the acting servers.
    pub(crate) fn disagreements(&self) -> Vec<String> {
        let servers = self.hosts.iter().filter(|host| host.term() > Term(0));
        let books = servers.filter_map(|host| Some(host.server.as_ref()?.snapshot(self.now)));
        books.flat_map(|books| self.disagreements_with(&books)).collect()
    }

    fn disagreements_with(&self, books: &Snapshot) -> Vec<String> {
        let replicas = books.models.values().flat_map(|model| &model.replicas);
        let wrong = |replica: &ReplicaSnapshot| {
            let shards = self.at_rest(books.term, replica)?;
            shards.into_iter().find_map(|(process, session, shard)| {
                let what = disagreement(process, session, replica, shard)?;
                Some(format!("{}/{}, whose group is at rest, {what}", replica.name, shard.shard))
            })
        };
        replicas.filter_map(wrong).collect()
    }

    /// The shards of a group at rest: each has the answer to its last call, and acts on its lease.
    fn at_rest<'a>(
        &'a self,
        term: Term,
        replica: &'a ReplicaSnapshot,
    ) -> Option<Vec<(&'a Process, &'a Session, &'a ShardSnapshot)>> {
        // In the other states messages are on their way: of the group's end, or of its coming over.
        let stands = matches!(
            replica.state,
            ReplicaState::Empty
                | ReplicaState::Published
                | ReplicaState::Sealed
                | ReplicaState::Draining
                | ReplicaState::Fenced
        );
        if !stands
            || replica.pending.is_some()
            || replica.shards.len() < replica.num_shards as usize
        {
            return None;
        }
        let member = |shard: &'a ShardSnapshot| {
            let process = self.processes.iter().find(|process| {
                process.incarnation() == Some(replica.incarnation) && process.shard == shard.shard
            })?;
            let session: &Session = process.session.as_ref()?;
            let own = session.lease().map(|lease| lease.term);
            let rests = rests(process, self.now) && own == Some(term);
            rests.then_some((process, session, shard))
        };
        replica.shards.iter().map(member).collect()
    }
}

fn rests(process: &Process, now: Time) -> bool {
    let state = process.session.as_ref().map(|session| session.state());
    let open = [SessionState::Empty, SessionState::Holding, SessionState::Refused];
    let acts = state.is_some_and(|state| open.contains(&state));
    acts && process.program.pending.is_none() && process.paused_until < now
}

fn disagreement(
    process: &Process,
    session: &Session,
    replica: &ReplicaSnapshot,
    shard: &ShardSnapshot,
) -> Option<String> {
    let (own, books) = (session.version(), replica.version);
    if own != books {
        return Some(format!("holds {own:?}, and its server says {books:?}"));
    }
    if *session.retains() != replica.retains {
        let (own, books) = (session.retains(), &replica.retains);
        return Some(format!("has {own:?} kept, and its server says {books:?}"));
    }
    let (own, books) = (process.program.registered, shard.bytes.is_some());
    if own != books {
        return Some(format!("has memory registered: {own}, and its server says {books}"));
    }
    // By the server's books a refused copy is not served; the shard may hear of the refusal later.
    let served = session.state() == SessionState::Holding && replica.state != ReplicaState::Fenced;
    let own = process.host.serves();
    (served && own != shard.generation)
        .then(|| format!("serves {own:?}, and its server says {:?}", shard.generation))
}
