//! The steps of a cluster as a person would tell them.

use crate::bounds::Bounds;
use crate::cluster::ClusterState;
use crate::invariants::Broken;
use crate::search::ExploredWorld;
use crate::steps::Transition;
use crate::story::first;

impl ExploredWorld for Bounds {
    fn broken(state: &ClusterState) -> Option<&Broken> {
        state.broken.as_ref()
    }

    fn breaks_now(&self, state: &ClusterState, invariant: &str) -> bool {
        state.breaks_now(self, invariant)
    }

    fn line(&self, before: &ClusterState, step: Transition, after: &ClusterState) -> String {
        line(before, step, after)
    }
}

fn line(state: &ClusterState, step: Transition, after: &ClusterState) -> String {
    let name = |worker: usize| {
        let place = &state.workers[worker].place;
        match place.num_shards {
            1 => place.replica.clone(),
            _ => format!("{}/{}", place.replica, place.shard),
        }
    };
    match step {
        Transition::Hear(w) => {
            format!("server takes from {}: {}", name(w), first(state.workers[w].up.front()))
        }
        Transition::Tell(w) => {
            let next = &after.workers[w];
            let done = if next.ended() { "; it ends, and its memory is written" } else { "" };
            format!("{} takes: {}{done}", name(w), first(state.workers[w].down.front()))
        }
        Transition::Read(w) => read_line(state, w, &name(w)),
        Transition::Seal(w) => format!("{} has digested its memory", name(w)),
        Transition::Act(w) => {
            let call = after.workers[w].calling.as_ref().map(|(_, call)| call);
            format!("{} calls {}", name(w), first(call))
        }
        Transition::Restart(w) => format!("{} starts again", name(w)),
        Transition::Expire(w) => format!("server takes the lease of {} for expired", name(w)),
        Transition::Cut => "a drain deadline passes".to_owned(),
        Transition::Die(s) => format!("server {s} dies"),
        Transition::Stray(w) => {
            format!("{} has lost server {}", name(w), state.workers[w].tie.server)
        }
        Transition::GoOver(w)
        | Transition::GoBack(w)
        | Transition::Come(w)
        | Transition::AskAgain(w) => {
            let (before, tie) = (&state.workers[w].tie, &after.workers[w].tie);
            let lost = if matches!(step, Transition::GoOver(_) | Transition::GoBack(_)) {
                format!("has lost server {}, and ", before.server)
            } else {
                String::new()
            };
            let refused = if tie.refused { ", which refuses it" } else { "" };
            format!("{} {lost}opens its session at server {}{refused}", name(w), tie.server)
        }
        Transition::Probe(w) => format!("{} tells another server of its term", name(w)),
        Transition::Window(s) => format!("the recovery window of server {s} passes"),
    }
}

fn read_line(state: &ClusterState, worker: usize, name: &str) -> String {
    let worker = &state.workers[worker];
    let Some(read) = &worker.host.reading else { return String::new() };
    let source = format!("{} of {}", read.assignment.replica, read.assignment.version);
    if read.next == worker.memory.range().end {
        format!("{name} has read all of {source}, and reports its digest")
    } else {
        format!("{name} reads chunk {} from {source}", read.next)
    }
}
