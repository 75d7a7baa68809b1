//! A path as a person would tell it.

use std::fmt::Write;

use stateright::Path;

use crate::search::ExploredWorld;

/// A story that ends with the invariant broken, without what could be left out; one line a step.
pub(crate) fn tell<W: ExploredWorld>(
    world: &W,
    invariant: &str,
    path: Path<W::State, W::Action>,
) -> String {
    let steps = shorten(world, invariant, path.into_actions());
    let mut state = first_state(world);
    let mut story = String::new();
    for (number, step) in steps.into_iter().enumerate() {
        let after = world.next_state(&state, step).expect("a step that can be taken");
        let line = world.line(&state, step, &after);
        writeln!(story, "{:>3}. {line}", number + 1).expect("writing to a string");
        state = after;
    }
    match W::broken(&state) {
        Some(broken) => writeln!(story, "     {}: {}", broken.invariant, broken.detail),
        None => writeln!(story, "     nothing more can happen, and not all is as it should be"),
    }
    .expect("writing to a string");
    story
}

/// Leaves steps out as long as the rest still tells of the invariant.
fn shorten<W: ExploredWorld>(
    world: &W,
    invariant: &str,
    mut steps: Vec<W::Action>,
) -> Vec<W::Action> {
    let mut index = 0;
    while index < steps.len() {
        let mut fewer = steps.clone();
        fewer.remove(index);
        match replay(world, &fewer).filter(|end| world.breaks_now(end, invariant)) {
            Some(_) => (steps, index) = (fewer, 0),
            None => index += 1,
        }
    }
    steps
}

/// Takes the steps, if each can be taken.
fn replay<W: ExploredWorld>(world: &W, steps: &[W::Action]) -> Option<W::State> {
    steps.iter().try_fold(first_state(world), |state, step| {
        let mut possible = Vec::new();
        world.actions(&state, &mut possible);
        if possible.contains(step) { world.next_state(&state, *step) } else { None }
    })
}

fn first_state<W: ExploredWorld>(world: &W) -> W::State {
    world.init_states().into_iter().next().expect("a world begins somehow")
}

/// The beginning of what `{:?}` says.
pub(crate) fn first<T: std::fmt::Debug>(value: Option<T>) -> String {
    let text = value.map(|value| format!("{value:?}")).unwrap_or_default();
    match text.char_indices().nth(160) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
