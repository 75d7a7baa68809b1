//! A path as a person would tell it.

use std::fmt::Write;

use stateright::Path;

use crate::bounds::Bounds;
use crate::cluster::ClusterState;
use crate::steps::Transition;

/// A story that ends with the invariant broken, without what could be left out; one line a step.
pub(crate) fn tell(
    bounds: &Bounds,
    invariant: &str,
    path: Path<ClusterState, Transition>,
) -> String {
    let steps = shorten(bounds, invariant, path.into_actions());
    let mut state = ClusterState::new(bounds);
    let mut story = String::new();
    for (number, step) in steps.into_iter().enumerate() {
        let after = bounds.take(&state, step);
        let line = line(&state, step, &after);
        writeln!(story, "{:>3}. {line}", number + 1).expect("writing to a string");
        state = after;
    }
    match state.broken {
        Some(broken) => writeln!(story, "     {}: {}", broken.invariant, broken.detail),
        None => writeln!(story, "     nothing more can happen, and a call was not answered"),
    }
    .expect("writing to a string");
    story
}

/// Leaves steps out as long as the rest still tells of the invariant.
fn shorten(bounds: &Bounds, invariant: &str, mut steps: Vec<Transition>) -> Vec<Transition> {
    let mut index = 0;
    while index < steps.len() {
        let mut fewer = steps.clone();
        fewer.remove(index);
        match replay(bounds, &fewer).filter(|end| end.breaks_now(bounds, invariant)) {
            Some(_) => (steps, index) = (fewer, 0),
            None => index += 1,
        }
    }
    steps
}

/// Takes the steps, if each can be taken.
fn replay(bounds: &Bounds, steps: &[Transition]) -> Option<ClusterState> {
    steps.iter().try_fold(ClusterState::new(bounds), |state, step| {
        bounds.steps(&state).contains(step).then(|| bounds.take(&state, *step))
    })
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

/// The beginning of what `{:?}` says.
fn first<T: std::fmt::Debug>(value: Option<T>) -> String {
    let text = value.map(|value| format!("{value:?}")).unwrap_or_default();
    match text.char_indices().nth(160) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
