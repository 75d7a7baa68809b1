//! Worker processes: the program that a process runs, the runtime of its session, and its memory.
//!
//! `process` is what a process has, `program` decides what it does next and `acting` does so; `runtime` does what
//! the session says; `memory` holds a version, `chunk_loop` and `reading` fill it, `staging`, `offload` and `seeding`
//! hold memory beside.

pub(crate) mod acting;
pub(crate) mod chunk_loop;
pub(crate) mod memory;
pub(crate) mod offload;
pub(crate) mod process;
pub(crate) mod program;
pub(crate) mod reading;
pub(crate) mod runtime;
pub(crate) mod seeding;
pub(crate) mod staging;
