//! Two workers bring the two halves of a unit; a third serves it once it is final.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;

macro_rules! a_final_unit_is_whole {
    ($unit:path) => {
        loom::model(|| {
            let unit = Arc::new(<$unit>::new());
            unit.plan(2);
            let halves = Arc::new([UnsafeCell::new(0_u8), UnsafeCell::new(0_u8)]);
            for half in 0..2 {
                let (unit, halves) = (Arc::clone(&unit), Arc::clone(&halves));
                thread::spawn(move || {
                    bring(&halves[half]);
                    unit.arrived(1);
                });
            }
            if unit.is_final() {
                assert_eq!((seen(&halves[0]), seen(&halves[1])), (1, 1));
                // A later transfer keeps it.
                unit.plan(2);
                assert!(unit.is_final());
            }
        });
    };
}

/// Writes a half, as its worker alone does.
#[allow(unsafe_code)]
fn bring(half: &UnsafeCell<u8>) {
    // SAFETY: loom panics if another thread could read or write it at the same time.
    half.with_mut(|byte| unsafe { *byte = 1 });
}

/// Reads a half.
#[allow(unsafe_code)]
fn seen(half: &UnsafeCell<u8>) -> u8 {
    // SAFETY: loom panics if another thread could write it at the same time.
    half.with(|byte| unsafe { *byte })
}

#[test]
fn who_sees_a_unit_final_sees_all_its_bytes() {
    a_final_unit_is_whole!(super::sound::unit::Unit);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn without_ordering_it_sees_bytes_that_are_still_being_written() {
    a_final_unit_is_whole!(super::relaxed::unit::Unit);
}

#[test]
fn the_last_bytes_are_noticed_by_one_worker() {
    loom::model(|| {
        let unit = Arc::new(super::sound::unit::Unit::new());
        unit.plan(2);
        let bring = |unit: Arc<super::sound::unit::Unit>| thread::spawn(move || unit.arrived(1));
        let workers = [bring(Arc::clone(&unit)), bring(Arc::clone(&unit))];
        let last = workers.map(|worker| worker.join().expect("it only counts"));
        assert_eq!(last.iter().filter(|last| **last).count(), 1);
        assert!(unit.is_final());
    });
}
