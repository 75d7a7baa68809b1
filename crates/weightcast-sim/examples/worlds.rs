//! `worlds N P`: plays the worlds of seeds 0 to N, as `weightcast sim --seeds N` does, but builds the simulator
//! alone and ends with the first batch in which an invariant breaks, then the first P pinned ones (all of them). `.ci/mutate` asks it
//! about each mutant.

use std::process::ExitCode;

use weightcast_sim::{Harshness, Pinned, campaign};

/// Played before anybody looks.
const BATCH: u64 = 20;

fn main() -> ExitCode {
    let Some(worlds) = std::env::args().nth(1).and_then(|worlds| worlds.parse::<u64>().ok()) else {
        eprintln!("usage: worlds N P");
        return ExitCode::from(2);
    };
    for first in (0..worlds).step_by(BATCH as usize) {
        let summary = campaign(first..worlds.min(first + BATCH), Harshness::default(), || ());
        if let Some((seed, violation)) = summary.violations.first() {
            println!("seed {seed}: {violation:?}");
            return ExitCode::FAILURE;
        }
        if let Some(seed) = summary.unrepeatable.first() {
            println!("seed {seed} came out different when it was played again");
            return ExitCode::FAILURE;
        }
    }
    let pinned =
        std::env::args().nth(2).and_then(|pinned| pinned.parse().ok()).unwrap_or(usize::MAX);
    let mut pinned = Pinned::recorded().into_iter().take(pinned);
    if let Some(world) = pinned.find(|world| world.again() != *world) {
        println!("pinned world {world} goes another way");
        return ExitCode::FAILURE;
    }
    println!("{worlds} worlds, no violation");
    ExitCode::SUCCESS
}
