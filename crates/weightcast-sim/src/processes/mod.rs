//! How worker processes go on: the program that a process runs, and the runtime of its session.
//!
//! `program` decides what a process does next, and `acting` does so; `runtime` tells the session what happens, and `hosting`
//! does what the session asks for. `reading` fills the memory from another process; `staging`, `offload` and `seeding`
//! hold memory beside.

pub(crate) mod acting;
pub(crate) mod hosting;
pub(crate) mod offload;
pub(crate) mod program;
pub(crate) mod reading;
pub(crate) mod runtime;
pub(crate) mod seeding;
pub(crate) mod staging;
