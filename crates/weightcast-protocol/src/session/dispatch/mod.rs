//! The dispatcher: takes each input to the stores that it concerns, and alone knows what one store's change means for the
//! others.
//!
//! `calls` has the user's calls and the server's answers, `reports` what the runtime has done, `streams` the way to the
//! servers, `lease` the time on a server's word, `suspension` the time between two servers, `ending` every way out.

mod calls;
mod ending;
mod lease;
mod reports;
mod streams;
mod suspension;
