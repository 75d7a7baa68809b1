//! What can happen next, and what becomes of it.

use stateright::{Model, Property};

use crate::bounds::Bounds;
use crate::cluster::Cluster;
use crate::invariants::Broken;

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
    /// This server dies.
    Die(usize),
    /// The worker has lost its server, and opens its session at the next one.
    GoOver(usize),
    /// The worker has lost its server, which acts, and finds that the next one defers to that.
    GoBack(usize),
    /// The worker has lost its server, and nothing more is heard of it for a recovery window.
    Stray(usize),
    /// The worker that had strayed opens its session.
    Come(usize),
    /// The worker asks the server again that refused it, which takes it now.
    AskAgain(usize),
    /// The worker tells another server of its term.
    Probe(usize),
    /// The recovery window of this server passes.
    Window(usize),
}

impl Bounds {
    pub(crate) fn steps(&self, state: &Cluster) -> Vec<Step> {
        let mut steps = Vec::new();
        if state.broken.is_some() {
            return steps;
        }
        for (index, worker) in state.workers.iter().enumerate() {
            let ended = worker.ended();
            let expirable = state.expiries > 0 && !ended && worker.host.stream.is_some();
            let possible = [
                (!worker.up.is_empty(), Step::Hear(index)),
                (!worker.down.is_empty(), Step::Tell(index)),
                (state.goes_on(index), Step::Read(index)),
                (worker.host.sealing.is_some(), Step::Seal(index)),
                (
                    !ended && worker.calling.is_none() && worker.next_call(self).is_some(),
                    Step::Act(index),
                ),
                (ended, Step::Restart(index)),
                (expirable, Step::Expire(index)),
                (state.may_leave(index), Step::GoOver(index)),
                (state.may_go_back(index), Step::GoBack(index)),
                (state.may_stray(index), Step::Stray(index)),
                (state.may_come(index), Step::Come(index)),
                (state.would_be_taken(index), Step::AskAgain(index)),
                (worker.tie.probe.is_some(), Step::Probe(index)),
            ];
            steps.extend(possible.into_iter().filter(|(can, _)| *can).map(|(_, step)| step));
        }
        if state.cuts > 0 && state.shows.draining {
            steps.push(Step::Cut);
        }
        if self.fails_over() {
            steps.extend(state.mortal().map(Step::Die));
            steps.extend(state.window().map(Step::Window));
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
                    if let Some(generation) = worker.host.sealing.take() {
                        worker.session.handle_sealed(worker.clock, generation, sums);
                    }
                });
                next.obey(worker);
            }
            Step::Act(worker) => next.act(worker, self),
            Step::Restart(worker) => {
                next.workers[worker].change(|worker| worker.restart(self));
                next.connect(worker);
                next.act(worker, self);
                next.pump(worker);
            }
            Step::Expire(worker) => next.expire(worker),
            Step::Cut => next.cut(),
            Step::Die(server) => next.die(server, self),
            Step::GoOver(worker) => {
                next.leave(worker, self);
                next.rest();
                next.come(worker);
            }
            Step::GoBack(worker) => {
                next.leave(worker, self);
                next.come(worker);
            }
            Step::Stray(worker) => {
                next.leave(worker, self);
                next.rest();
                next.workers[worker].change(|worker| worker.tie.strays = true);
            }
            Step::Come(worker) => next.come(worker),
            Step::AskAgain(worker) => next.ask_again(worker),
            Step::Probe(worker) => next.probe(worker),
            Step::Window(server) => next.close_window(server),
        }
        if !self.slow_up {
            for worker in 0..next.workers.len() {
                next.hear_all(worker);
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
