//! The reference servers: the machines that they run on, and the runtime that hands them messages.

pub(crate) mod hosting;
pub(crate) mod hosts;
