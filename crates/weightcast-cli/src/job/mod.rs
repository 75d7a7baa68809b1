//! A live job: its reference server, what the server knows, what the replicas hold; and the host that it is on.

pub(crate) mod asked;
pub(crate) mod doctor;
pub(crate) mod engines;
pub(crate) mod open_files;
pub(crate) mod record;
pub(crate) mod serve;
pub(crate) mod status;
pub(crate) mod verify;
pub(crate) mod why;
