//! Every mutant of the protocol: found, recorded, replayed.

mod cli;
mod found;
mod page;
mod recorded;
mod recordings;
mod replay;
