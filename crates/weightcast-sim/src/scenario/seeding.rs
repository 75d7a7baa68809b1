//! Seeds: a second worker on a worker's host, with CPU memory.

use weightcast_protocol::message::{Answer, Open, Role};
use weightcast_protocol::server::seed_name;
use weightcast_protocol::{CallError, Span, Version};

use super::player::Player;
use super::worker::{Task, TaskKind};

impl Player<'_> {
    /// The place for the seeds of a worker.
    pub(super) fn seed_of(&self, index: usize) -> Option<usize> {
        self.cluster.places.iter().position(|place| place.seeds_for == Some(index))
    }

    /// A worker is asked for a seed of this version. It makes one if its last seed has gone.
    pub(super) fn begin_seed(&mut self, index: usize, version: Version, ask: u64) {
        let free = |seed: &usize| self.workers[*seed].session.is_none();
        let Some(seed) = self.seed_of(index).filter(free) else {
            self.outcome.failed("no memory for a seed".to_owned());
            return self.seed_failed(index, ask);
        };
        let replica = seed_name(&self.replica(index), version);
        let open = Open { role: Role::Seed(version), ..self.open(seed, replica) };
        self.waiting += 2;
        let worker = &mut self.workers[seed];
        worker.ask = Some(ask);
        worker.todo.push_back(Task::new(TaskKind::Replicate, false));
        self.live(seed, open);
    }

    fn seed_failed(&mut self, owner: usize, ask: u64) {
        let now = self.now;
        if let Some(session) = &mut self.workers[owner].session {
            session.handle_seed_failed(now, ask);
        }
    }

    /// Whether the ended call was a failed call of a seed. Such a seed is of no use, and closes.
    pub(super) fn seed_ended(&mut self, seed: usize, result: &Result<Answer, CallError>) -> bool {
        let (Some(_), Err(error)) = (self.workers[seed].ask, result) else { return false };
        self.outcome.failed(format!("a seed: {error}"));
        self.waiting -= 1;
        let now = self.now;
        if let Some(session) = &mut self.workers[seed].session {
            session.close(now, Span(0));
        }
        true
    }

    /// A seed's session is over.
    pub(super) fn end_seed(&mut self, seed: usize, failed: bool) {
        let ask = self.workers[seed].ask.unwrap_or_default();
        let owner = self.cluster.places[seed].seeds_for;
        self.end_life(seed);
        if let Some(owner) = owner.filter(|_| failed) {
            self.seed_failed(owner, ask);
            self.obey_session(owner);
        }
    }
}
