//! The facts of this host and job: all that the doctor does is done here, and nothing is judged.

pub(super) mod choice;
pub(super) mod data_port;
pub(super) mod environment;
pub(super) mod limits;
pub(super) mod server;
pub(super) mod token;
pub(super) mod ways;
