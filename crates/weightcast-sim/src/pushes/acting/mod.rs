//! What targets, senders, drivers, wires and faults do in a world of pushes.

mod driving;
mod ending;
mod filling;
mod looking;
mod moving;
mod sending;
mod starting;
mod striking;
mod wires;
