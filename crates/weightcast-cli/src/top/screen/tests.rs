//! Whole screens of recorded statuses, as a terminal would show them.
//!
//! `recorded/fanout.jsonl`: three answers during a fan-out to 16 rollouts, two of them at a time from one replica, where
//! a relay is killed half-way: before, when its readers have noticed, and when its lease has run out.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use weightcast::Status;

use super::*;
use crate::top::terminal::put;

const FANOUT: &str = include_str!("recorded/fanout.jsonl");

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The state after these answers at these milliseconds.
fn heard(recorded: &str, times: &[u64]) -> TopState {
    let mut state = TopState::new("http://server:7700".to_owned(), None);
    for (line, time) in recorded.lines().zip(times) {
        let status: Status = serde_json::from_str(line).expect("a status");
        state.hear(at(*time), Ok(status));
    }
    state
}

/// What a terminal of this size shows.
fn shown(state: &TopState, now: Duration, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("no terminal fails");
    let lines = lines(state, now, width, height);
    terminal.draw(|frame| put(frame, &lines)).expect("no terminal fails");
    let cells = terminal.backend().buffer().content().chunks(usize::from(width).max(1));
    let rows = cells.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>());
    rows.map(|row| row.trim_end().to_owned() + "\n").collect()
}

#[track_caller]
fn assert_shown(shown: &str, expected: &str) {
    assert!(shown == expected, "the screen shows:\n{shown}");
}

#[test]
fn a_fanout_with_a_dead_relay() {
    let state = heard(FANOUT, &[0, 2_000, 6_500]);
    let now = at(7_000);
    assert_shown(&shown(&state, now, 120, 50), include_str!("recorded/fanout-120x50.txt"));
    assert_shown(&shown(&state, now, 80, 24), include_str!("recorded/fanout-80x24.txt"));
}

#[test]
fn a_server_that_has_gone() {
    let mut state = heard(FANOUT, &[0]);
    state.hear(at(1_000), Err("connection refused".to_owned()));
    state.hear(at(9_000), Err("connection refused".to_owned()));
    let screen = shown(&state, at(9_500), 100, 30);
    let lines: Vec<&str> = screen.lines().collect();
    assert!(lines[0].ends_with("18 sessions  term 1  9.5 s ago"), "{screen}");
    assert_eq!(lines[1], "no answer for 8.5 s, asking again: connection refused");
    assert!(screen.contains("rollout01-2"), "the last answer stays: {screen}");
}

#[test]
fn a_server_that_was_never_heard_of() {
    let mut state = TopState::new("unix:/job".to_owned(), None);
    assert!(shown(&state, at(0), 60, 5).starts_with("weightcast top  unix:/job"));
    state.hear(at(0), Err("no such file".to_owned()));
    let screen = shown(&state, at(0), 60, 5);
    assert!(screen.contains("not heard of yet") && screen.contains("no such file"), "{screen}");
    state.hear(at(1), Ok(Status::default()));
    assert!(shown(&state, at(1), 60, 5).contains("no model is open"));
}

#[test]
fn a_paused_screen_says_so() {
    let mut state = heard(FANOUT, &[0]);
    state.paused = true;
    let screen = shown(&state, at(5_000), 120, 50);
    assert!(screen.lines().next().is_some_and(|line| line.ends_with("paused")), "{screen}");
    assert!(screen.contains("p go on"), "{screen}");
}

#[test]
fn a_screen_is_as_high_as_its_terminal_whatever_the_size() {
    let mut state = heard(FANOUT, &[0, 2_000, 6_500]);
    for width in [0, 1, 7, 40, 200] {
        for height in 0..60 {
            state.first_row = usize::from(height);
            let lines = lines(&state, at(7_000), width, height);
            assert_eq!(lines.len(), usize::from(height), "{width} x {height}");
        }
    }
}
