//! The data port of a process: who is let in, how long he stays, and how he is answered.
//!
//! Reading order: [`server`] accepts over a [`listener`] and gives each reader a thread and one of the
//! [`seats`]; [`serve`] answers his requests, [`write_side`] takes what a
//! grant lets him write, and an [`ear`] the words that he says.

mod answer_writer;
mod bounds;
mod descriptors;
pub mod door;
mod ear;
mod holder;
pub(crate) mod listener;
mod request_reader;
mod seats;
mod serve;
pub(crate) mod server;
mod slices;
mod write_side;
