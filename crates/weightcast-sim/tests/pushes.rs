//! Worlds of pushes, with every safeguard on.

use weightcast_sim::{PushOptions, campaign_of_pushes, run_pushes};

#[test]
fn pushes_hold_in_600_worlds() {
    let campaign = campaign_of_pushes(0..600, || {});
    let first = campaign.violations.first();
    assert!(first.is_none(), "{} worlds, first: {first:?}", campaign.violations.len());
    assert_eq!((campaign.unrepeatable.len(), campaign.repeated), (0, 12));
    assert!(campaign.missed().is_empty(), "no world reached {:?}", campaign.missed());
}

#[test]
fn another_seed_is_another_world() {
    let play = |seed| run_pushes(seed, &PushOptions::drawn(seed)).fingerprint;
    assert_eq!(play(1), play(1));
    assert_ne!(play(1), play(2));
}
