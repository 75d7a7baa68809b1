//! The data port of a process: who is let in, how long he stays, and how he is answered.
//!
//! Reading order: [`server`] accepts over a [`listener`] and gives each reader a thread and one of the
//! [`seats`]; [`serve`] answers his requests.

mod bounds;
mod descriptors;
pub mod door;
mod holder;
mod input;
pub(crate) mod listener;
mod output;
mod seats;
mod serve;
pub(crate) mod server;
mod slices;
