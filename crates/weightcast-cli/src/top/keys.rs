//! What each key does.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::state::TopState;

/// Handles a pressed key. False if the program is to end.
pub(super) fn press(state: &mut TopState, key: KeyEvent) -> bool {
    match key.code {
        KeyCode::Char('q') => return false,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Char('p') => state.paused = !state.paused,
        KeyCode::Char('s') => state.sort = state.sort.next(),
        KeyCode::Tab | KeyCode::Right => state.turn_model(1),
        KeyCode::BackTab | KeyCode::Left => state.turn_model(-1),
        KeyCode::Down => state.scroll(1),
        KeyCode::Up => state.scroll(-1),
        _ => {}
    }
    true
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weightcast::Status;
    use weightcast::wire::{ModelStatus, ReplicaStatus};

    use super::*;
    use crate::top::state::Sort;

    fn shown() -> TopState {
        let model = |name: &str| ModelStatus {
            name: name.to_owned(),
            replicas: vec![ReplicaStatus::default(); 3],
            ..ModelStatus::default()
        };
        let models = ["a", "b", "c"].map(model).into();
        let mut state = TopState::new(String::new(), Some("b".to_owned()));
        state.hear(Duration::ZERO, Ok(Status { models, ..Status::default() }));
        state
    }

    fn model(state: &TopState) -> &str {
        &state.model().expect("there are three").name
    }

    #[test]
    fn each_key_does_what_the_help_says() {
        let mut state = shown();
        let mut press = |code, modifiers| {
            let goes_on = super::press(&mut state, KeyEvent::new(code, modifiers));
            (goes_on, model(&state).to_owned(), state.paused, state.sort, state.first_row)
        };
        let none = KeyModifiers::NONE;
        let state = |model: &str, paused, sort, row| (true, model.to_owned(), paused, sort, row);
        let Sort::Activity = Sort::default() else { panic!("another order") };
        for (code, then) in [
            (KeyCode::Tab, state("c", false, Sort::Activity, 0)),
            (KeyCode::Right, state("a", false, Sort::Activity, 0)),
            (KeyCode::Left, state("c", false, Sort::Activity, 0)),
            (KeyCode::BackTab, state("b", false, Sort::Activity, 0)),
            (KeyCode::Up, state("b", false, Sort::Activity, 0)),
            (KeyCode::Down, state("b", false, Sort::Activity, 1)),
            (KeyCode::Down, state("b", false, Sort::Activity, 2)),
            (KeyCode::Down, state("b", false, Sort::Activity, 2)),
            (KeyCode::Up, state("b", false, Sort::Activity, 1)),
            (KeyCode::Char('p'), state("b", true, Sort::Activity, 1)),
            (KeyCode::Char('p'), state("b", false, Sort::Activity, 1)),
            (KeyCode::Char('s'), state("b", false, Sort::Name, 1)),
            (KeyCode::Char('s'), state("b", false, Sort::Staleness, 1)),
            (KeyCode::Char('s'), state("b", false, Sort::Activity, 1)),
            (KeyCode::Char('c'), state("b", false, Sort::Activity, 1)),
            (KeyCode::Tab, state("c", false, Sort::Activity, 0)),
        ] {
            assert_eq!(press(code, none), then, "{code:?}");
        }
        assert!(!press(KeyCode::Char('q'), none).0);
        assert!(!press(KeyCode::Char('c'), KeyModifiers::CONTROL).0);
    }
}
