//! Servers, trainers and rollouts over real sockets and memory, in one process.

mod budgets;
mod end_to_end;
mod failover;
mod fleet_register;
mod fp8;
#[path = "support/gate.rs"]
mod gate;
mod refused;
mod relays;
mod retention;
mod seeding;
mod siblings;
mod slow;
mod staged;
mod strangers;
mod striping;
mod support;
mod transform;
mod unchanged;
mod verify;
