//! How long a step and an update may take.

use super::{config, version};
use crate::Span;
use crate::engine_update::UpdateStep::*;
use crate::engine_update::{
    FleetConfig, FleetTransaction, InstallMeans, PauseMode, StepDeadlines, UpdateConfig, UpdateStep,
};

/// Deadlines that can be told apart in a sum.
const APART: StepDeadlines =
    StepDeadlines { bytes: Span(10_000), pause: Span(1_000), parameters: Span(100), word: Span(1) };

#[test]
fn a_step_may_take_as_long_as_what_it_does() {
    let seconds = |step| StepDeadlines::default().of(step);
    for (steps, deadline, default) in [
        (&[Fetch, Install][..], APART.bytes, 120),
        (&[Pause], APART.pause, 60),
        (&[PostProcess, Verify], APART.parameters, 30),
        (&[Negotiate, Begin, Invalidate, Stamp, Resume, Discard, Inspect], APART.word, 10),
    ] {
        for step in steps {
            assert_eq!(APART.of(*step), deadline, "{step}");
            assert_eq!(seconds(*step), Span::from_secs(default), "{step}");
        }
    }
    assert_eq!(UpdateStep::ALL.len(), 12);
}

/// Each step of the course once, then twice the way back: for the first try and for each retry.
#[test]
fn the_bound_of_an_update_is_the_sum_of_what_its_steps_may_take() {
    for (means, prefetch, once) in [
        (InstallMeans::Staged, true, 21_411),
        (InstallMeans::Staged, false, 21_411),
        (InstallMeans::InPlace, false, 11_411),
    ] {
        for retries in [0, 1, 4] {
            let config =
                UpdateConfig { means, prefetch, retries, deadlines: APART, workers: 9, ..config() };
            assert_eq!(config.bound(), Span(once * (u64::from(retries) + 1)));
        }
    }
}

/// Engines prepare, the register decides, and each engine may need its bound for what follows, and once more for going on.
#[test]
fn the_bound_of_a_fleets_update_has_both_waits_and_twice_an_engines_bound() {
    let update = UpdateConfig { deadlines: APART, retries: 0, ..config() };
    let fleet = FleetConfig {
        update,
        transaction: FleetTransaction::default(),
        members: Vec::new(),
        prepare: Span(7_000_000),
        decide: Span(300_000),
        ask_every: Span(1),
    };
    assert_eq!(fleet.bound(), Span(7_300_000 + 2 * 21_411));
}

#[test]
fn sequences_keep_their_caches_only_where_a_mix_is_declared() {
    for (mode, keeps) in [
        (PauseMode::Abort, false),
        (PauseMode::Wait, false),
        (PauseMode::Keep { mixed: false }, false),
        (PauseMode::Keep { mixed: true }, true),
    ] {
        let config = UpdateConfig { mode, new: version(3), ..config() };
        assert_eq!(config.keeps_caches(), keeps, "{mode:?}");
    }
}
