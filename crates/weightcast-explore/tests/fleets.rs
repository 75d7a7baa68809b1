//! The smallest fleets, looked at whole: a few seconds. `make model` looks at larger ones.

use weightcast_explore::{FleetBounds, fleet_without, search};

#[test]
fn without_faults_every_state_of_a_fleet_is_right() {
    let found = search(FleetBounds::quiet(), 1, None);
    assert!(found.broken.is_empty(), "{:?}", found.broken);
    assert!(found.missed.is_empty(), "never seen: {:?}", found.missed);
    assert!(found.exhaustive && found.unique > 100, "{found:?}");
}

#[test]
fn a_driver_that_dies_anywhere_leaves_nothing_that_its_successor_does_not_end() {
    let found =
        search(FleetBounds { engines: 1, driver_deaths: 1, ..FleetBounds::quiet() }, 1, None);
    assert!(found.broken.is_empty(), "{:?}", found.broken);
    assert!(found.missed.is_empty(), "never seen: {:?}", found.missed);
    assert!(found.exhaustive && found.unique > 500, "{found:?}");
}

#[test]
fn a_fleet_that_commits_in_part_is_found() {
    let safeguards = fleet_without("fleet_in_part").unwrap();
    let bounds = FleetBounds { safeguards, only: Some("E4"), ..FleetBounds::quiet() };
    let found = search(bounds, 1, None);
    let (invariant, story) = found.broken.first().expect("two versions are served");
    assert_eq!(*invariant, "E4");
    assert!(story.contains("resume"), "{story}");
}
