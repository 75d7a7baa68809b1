//! Worker processes: the program that a process runs, and the runtime of the process's session.
//!
//! `program` decides what a process does next, and `acting` does it; `runtime` tells the session what happens, and `hosting`
//! does what the session asks for. `reading` fills the memory from another process, and `sharing` from shards of the same
//! host; `staging`, `offload` and `seeding` have memory beside the registered memory.

pub(crate) mod acting;
pub(crate) mod hosting;
pub(crate) mod offload;
pub(crate) mod program;
pub(crate) mod reading;
pub(crate) mod runtime;
pub(crate) mod seeding;
pub(crate) mod sharing;
pub(crate) mod staging;
