//! What engines, drivers, wires and faults do in a world of updates.

mod doubting;
mod driving;
mod ending;
mod generating;
mod looking;
mod ordering;
mod planning;
mod routing;
mod striking;
mod wires;
