//! What a world is made of, and nothing of how a world goes on.
//!
//! `queue` is what happens next, and `network` the streams between processes and servers. `process` is what one worker
//! process has: the `chunk_loop` of its read, what its `siblings` on the host give, the `action` that its program
//! decided. `host` is a machine with a reference server, and `pretender` a client that lies.

pub(crate) mod action;
pub(crate) mod chunk_loop;
pub(crate) mod host;
pub(crate) mod network;
pub(crate) mod pretender;
pub(crate) mod process;
pub(crate) mod queue;
pub(crate) mod siblings;
