//! What can happen next, and what becomes of it.

use stateright::{Model, Property};

use crate::bounds::Bounds;
use crate::cluster::ClusterState;
use crate::invariants::Broken;

/// One thing that happens. The number is the worker's place in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
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
    pub(crate) fn steps(&self, state: &ClusterState) -> Vec<Transition> {
        let mut steps = Vec::new();
        if state.broken.is_some() {
            return steps;
        }
        for (index, worker) in state.workers.iter().enumerate() {
            let ended = worker.ended();
            let expirable = state.expiries > 0 && !ended && worker.host.stream.is_some();
            let possible = [
                (!worker.up.is_empty(), Transition::Hear(index)),
                (!worker.down.is_empty(), Transition::Tell(index)),
                (state.goes_on(index), Transition::Read(index)),
                (worker.host.sealing.is_some(), Transition::Seal(index)),
                (
                    !ended && worker.calling.is_none() && worker.next_call(self).is_some(),
                    Transition::Act(index),
                ),
                (ended, Transition::Restart(index)),
                (expirable, Transition::Expire(index)),
                (state.may_leave(index), Transition::GoOver(index)),
                (state.may_go_back(index), Transition::GoBack(index)),
                (state.may_stray(index), Transition::Stray(index)),
                (state.may_come(index), Transition::Come(index)),
                (state.would_be_taken(index), Transition::AskAgain(index)),
                (worker.tie.probe.is_some(), Transition::Probe(index)),
            ];
            steps.extend(possible.into_iter().filter(|(can, _)| *can).map(|(_, step)| step));
        }
        if state.cuts > 0 && state.shows.draining {
            steps.push(Transition::Cut);
        }
        if self.fails_over() {
            steps.extend(state.mortal().map(Transition::Die));
            steps.extend(state.window().map(Transition::Window));
        }
        steps
    }

    pub(crate) fn take(&self, state: &ClusterState, step: Transition) -> ClusterState {
        let mut next = state.clone();
        match step {
            Transition::Hear(worker) => next.hear(worker),
            Transition::Tell(worker) => next.tell(worker),
            Transition::Read(worker) => next.read(worker),
            Transition::Seal(worker) => {
                next.workers[worker].change(|worker| {
                    let sums = worker.memory.sums();
                    if let Some(generation) = worker.host.sealing.take() {
                        worker.session.handle_sealed(worker.clock, generation, sums);
                    }
                });
                next.obey(worker);
            }
            Transition::Act(worker) => next.act(worker, self),
            Transition::Restart(worker) => {
                next.workers[worker].change(|worker| worker.restart(self));
                next.connect(worker);
                next.act(worker, self);
                next.pump(worker);
            }
            Transition::Expire(worker) => next.expire(worker),
            Transition::Cut => next.cut(),
            Transition::Die(server) => next.die(server, self),
            Transition::GoOver(worker) => {
                next.leave(worker, self);
                next.rest();
                next.come(worker);
            }
            Transition::GoBack(worker) => {
                next.leave(worker, self);
                next.come(worker);
            }
            Transition::Stray(worker) => {
                next.leave(worker, self);
                next.rest();
                next.workers[worker].change(|worker| worker.tie.strays = true);
            }
            Transition::Come(worker) => next.come(worker),
            Transition::AskAgain(worker) => next.ask_again(worker),
            Transition::Probe(worker) => next.probe(worker),
            Transition::Window(server) => next.close_window(server),
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
    type State = ClusterState;
    type Action = Transition;

    fn init_states(&self) -> Vec<ClusterState> {
        vec![ClusterState::new(self)]
    }

    fn actions(&self, state: &ClusterState, actions: &mut Vec<Transition>) {
        actions.extend(self.steps(state));
    }

    fn next_state(&self, state: &ClusterState, step: Transition) -> Option<ClusterState> {
        Some(self.take(state, step))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        crate::invariants::properties()
    }
}
