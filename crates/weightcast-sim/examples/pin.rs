//! Writes down what the pinned worlds are now: `make pin`, in a commit of its own that says what changed and why.

use weightcast_sim::Pinned;

fn main() {
    println!("# Worlds and their fingerprints, by `make pin`: src/pinned.rs says what for.");
    for world in Pinned::now() {
        println!("{world}");
    }
}
