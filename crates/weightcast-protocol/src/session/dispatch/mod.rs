//! The dispatcher passes each input to the stores that it concerns. It alone knows what a change of
//! one store means for the others.
//!
//! `calls` has the user's calls and the server's answers, `reports` the runtime's reports,
//! `streams` the way to the servers, `lease` the limits of the lease, `suspension` the time between
//! two servers, `ending` every end of a session.

mod calls;
mod ending;
mod lease;
mod reports;
mod streams;
mod suspension;
