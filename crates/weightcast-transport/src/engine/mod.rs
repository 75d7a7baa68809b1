//! The transfer engine: many copies from many sources, a few threads, digests on the way.
//!
//! Reading order: [`job`] says what is read from which [`peer`], or written to it, [`options`] how; [`read`]
//! and [`write`](self::write) check the jobs and make a [`checked_job`] of each; a [`stock`] is
//! what one source gives, or several together; [`run`] has the threads, and [`gauge`] tells how far they are. A `view`
//! moves nothing: the memory is mapped.

mod checked_job;
pub(crate) mod gauge;
pub(crate) mod job;
pub(crate) mod options;
pub(crate) mod peer;
pub(crate) mod read;
mod run;
mod stock;
mod view;
pub(crate) mod write;
