//! Worlds of engine updates, with every safeguard on.

use weightcast_sim::{UpdateOptions, campaign_of_updates, run_updates};

#[test]
fn updates_hold_in_300_worlds() {
    let campaign = campaign_of_updates(0..300, || {});
    let first = campaign.violations.first();
    assert!(first.is_none(), "{} worlds, first: {first:?}", campaign.violations.len());
    assert_eq!((campaign.unrepeatable.len(), campaign.repeated), (0, 6));
    assert!(campaign.missed().is_empty(), "no world reached {:?}", campaign.missed());
}

#[test]
fn another_seed_is_another_world() {
    let play = |seed| run_updates(seed, &UpdateOptions::drawn(seed)).fingerprint;
    assert_eq!(play(1), play(1));
    assert_ne!(play(1), play(2));
}
