//! Pushes: the machines of `weightcast_protocol::push`, bound to memory, data ports and threads.
//!
//! A push fills memory in a call of the target's session, an update whose bytes are written by others: so the target's
//! group, its fence, its commit and what the server knows of it are those of every update.
//!
//! Reading order: [`word`] is what processes say to each other over their data ports, and [`lines`] what is on its way.
//! [`parcels`] cuts the plan of a read into what is routed, and [`plans`] keeps that. [`target`], with its [`opened`]
//! grants, and [`sending`] are what a handle has as a target and as a sender; [`desk`] is all of it. Then what is done:
//! [`outbox`] says words, [`hearing`] hears them, [`server`] asks the server. [`accept`] is the call of a target, and
//! [`fill`] its thread; [`sender`] writes, and [`early`] grants wait for their version. [`driver`] is the push itself: [`base`] is who holds the version, [`looking`] finds the
//! [`candidates`], [`numbers`] orders its pushes among those of others, and [`outcome`] is what became of them. [`explain`] says what a push would do.

mod accept;
mod base;
mod candidates;
pub(in crate::client) mod desk;
mod driver;
mod early;
mod explain;
mod fill;
pub(in crate::client) mod hearing;
mod lines;
mod looking;
mod numbers;
mod opened;
mod outbox;
pub(crate) mod outcome;
mod parcels;
mod plans;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod samples;
#[cfg(test)]
mod scene;
pub(in crate::client) mod sender;
mod sending;
pub(in crate::client) mod server;
pub(in crate::client) mod target;
pub(crate) mod word;

#[cfg(test)]
mod whole;
