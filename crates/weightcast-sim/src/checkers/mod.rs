//! One checker per invariant. Each sees every fact of the world and keeps what it needs.

mod d1;
mod g1;
mod g4;
mod l1;
mod s1;
mod s10;
mod s3;
mod s5;
mod s8;

use weightcast_protocol::message::{Answer, ClientMessage, ServerMessage};
use weightcast_protocol::server::Snapshot;
use weightcast_protocol::{CallError, Generation, Incarnation, OpSeq, Time, Version};

use crate::options::Options;
use crate::report::Report;

/// A shard, as the checkers know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    /// The group that this life of it has joined.
    pub(crate) incarnation: Option<Incarnation>,
    pub(crate) shard: u32,
    pub(crate) num_shards: u32,
}

/// Something that happened.
#[derive(Debug)]
pub(crate) enum Fact<'a> {
    /// The server is about to handle this.
    Heard { who: Who, message: &'a ClientMessage },
    /// The server sends this.
    Said { who: Who, message: &'a ServerMessage },
    /// The server's books after an event.
    Books(&'a Snapshot),
    /// A call ended at a shard, which by then holds memory that is `foreign` to its version.
    Done {
        who: Who,
        seq: OpSeq,
        result: &'a Result<Answer, CallError>,
        foreign: Option<(Version, u32)>,
        /// By when it had to end.
        due: Option<Time>,
    },
    /// A shard's memory is written; this is what its data port serves, and what it says it holds.
    Changes { replica: &'a str, exposed: Option<Generation>, held: Option<Version> },
    /// A source serves a chunk of a version.
    Served { version: Version, chunk: u32, tag: u64 },
}

/// Looks for one kind of bug.
pub(crate) trait Checker {
    /// The invariant's name.
    fn name(&self) -> &'static str;

    /// Takes a fact in; says what is wrong, if it shows.
    fn observe(&mut self, now: Time, fact: &Fact<'_>) -> Option<String>;
}

pub(crate) struct Checkers(Vec<Box<dyn Checker>>);

impl Checkers {
    pub(crate) fn new(options: &Options) -> Self {
        Self(vec![
            Box::new(s1::NoTornAccept),
            Box::new(s3::FenceBeforeMutate),
            Box::new(s5::TransitiveCommit::default()),
            Box::new(s8::WholeReplicas::default()),
            Box::new(s10::Snapshots::default()),
            Box::new(g1::SameAnswer::default()),
            Box::new(g4::AllOrNone::default()),
            Box::new(d1::Fanout(options.fanout)),
            Box::new(l1::InTime),
        ])
    }

    pub(crate) fn observe(&mut self, now: Time, fact: &Fact<'_>, report: &mut Report) {
        for checker in &mut self.0 {
            if let Some(detail) = checker.observe(now, fact) {
                report.violated(now, checker.name(), detail);
            }
        }
    }
}
