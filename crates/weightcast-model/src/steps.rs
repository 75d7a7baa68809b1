//! What can happen next, and what becomes of it.

use stateright::{Model, Property};

use crate::bounds::Bounds;
use crate::cluster::Cluster;
use crate::invariants::Broken;
use crate::worker::SESSION_TIME;

/// One thing that happens. The number is the worker's place in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The server takes the worker's next message.
    Hear(usize),
    /// The worker takes the server's next message.
    Tell(usize),
    /// The worker's read copies a chunk, or ends.
    Read(usize),
    /// The worker has digested what it published.
    Seal(usize),
    /// The worker's program makes its next call.
    Act(usize),
    /// The worker, whose session is over, starts again.
    Restart(usize),
    /// The server takes the worker's lease for expired.
    Expire(usize),
    /// A drain deadline passes.
    Cut,
}

impl Bounds {
    pub(crate) fn steps(&self, state: &Cluster) -> Vec<Step> {
        let mut steps = Vec::new();
        if state.broken.is_some() {
            return steps;
        }
        for (index, worker) in state.workers.iter().enumerate() {
            let ended = worker.ended();
            let expirable = state.expiries > 0 && !ended && worker.stream.is_some();
            let possible = [
                (!worker.up.is_empty(), Step::Hear(index)),
                (!worker.down.is_empty(), Step::Tell(index)),
                (state.goes_on(index), Step::Read(index)),
                (worker.sealing.is_some(), Step::Seal(index)),
                (
                    !ended && worker.calling.is_none() && worker.next_call(self.versions).is_some(),
                    Step::Act(index),
                ),
                (ended, Step::Restart(index)),
                (expirable, Step::Expire(index)),
            ];
            steps.extend(possible.into_iter().filter(|(can, _)| *can).map(|(_, step)| step));
        }
        if state.cuts > 0 && state.shows.draining {
            steps.push(Step::Cut);
        }
        steps
    }

    pub(crate) fn take(&self, state: &Cluster, step: Step) -> Cluster {
        let mut next = state.clone();
        match step {
            Step::Hear(worker) => next.hear(worker),
            Step::Tell(worker) => next.tell(worker),
            Step::Read(worker) => next.read(worker),
            Step::Seal(worker) => {
                next.workers[worker].change(|worker| {
                    let sums = worker.memory.sums();
                    if let Some(generation) = worker.sealing.take() {
                        worker.session.handle_sealed(SESSION_TIME, generation, sums);
                    }
                });
                next.obey(worker);
            }
            Step::Act(worker) => next.act(worker, self),
            Step::Restart(worker) => {
                next.workers[worker].change(|worker| worker.restart(self.mutants));
                next.connect(worker);
                next.act(worker, self);
                next.pump(worker);
            }
            Step::Expire(worker) => next.expire(worker),
            Step::Cut => next.cut(),
        }
        if !self.slow_up {
            for worker in 0..next.workers.len() {
                while !next.workers[worker].up.is_empty() {
                    next.hear(worker);
                }
            }
        }
        let other = |broken: &Broken| self.only.is_some_and(|only| only != broken.invariant);
        next.broken = next.broken.filter(|broken| !other(broken));
        next
    }
}

impl Model for Bounds {
    type State = Cluster;
    type Action = Step;

    fn init_states(&self) -> Vec<Cluster> {
        vec![Cluster::new(self)]
    }

    fn actions(&self, state: &Cluster, actions: &mut Vec<Step>) {
        actions.extend(self.steps(state));
    }

    fn next_state(&self, state: &Cluster, step: Step) -> Option<Cluster> {
        Some(self.take(state, step))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        crate::invariants::properties()
    }
}
