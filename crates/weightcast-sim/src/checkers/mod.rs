//! One checker per invariant. Each sees every fact of the world and keeps what it needs.

mod d1;
mod d2;
mod d3;
mod d4;
mod d5;
mod d6;
mod g1;
mod g4;
mod l1;
mod s1;
mod s10;
mod s3;
mod s4;
mod s5;
mod s8;

use std::rc::Rc;

use weightcast_protocol::message::{Answer, ClientMessage, ServerMessage};
use weightcast_protocol::server::Snapshot;
use weightcast_protocol::{CallError, Generation, Incarnation, OpSeq, Time, Version};

use crate::fault_kinds::FaultKind;
use crate::options::Options;

/// A shard, as the checkers know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    /// The group that this life of it has joined.
    pub(crate) incarnation: Option<Incarnation>,
    pub(crate) process: usize,
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
    Books(&'a Rc<Snapshot>),
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
    /// A source, which says that it holds `held`, serves a chunk of a version. Whether it was there:
    /// within what the source has of the generation that it serves.
    Served { version: Version, held: Option<Version>, chunk: u32, tag: u64, there: bool },
    /// A shard's read ended.
    ReadEnded { who: Who, failure: Option<&'a str> },
    /// A shard's memory is served from now on.
    Exposed { who: Who, generation: Generation },
    /// It is not served any more.
    Fenced { who: Who, generation: Generation },
    /// A session is over.
    Left { who: Who, error: Option<&'a CallError> },
    /// A fault strikes a process, or the world.
    Struck { kind: FaultKind, process: Option<usize> },
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
            Box::new(s4::TaggedProgress),
            Box::new(s5::TransitiveCommit::default()),
            Box::new(s8::WholeReplicas::default()),
            Box::new(s10::Snapshots::default()),
            Box::new(g1::SameAnswer::default()),
            Box::new(g4::AllOrNone::default()),
            Box::new(d1::Fanout(options.fanout)),
            Box::new(d2::Acyclic::default()),
            Box::new(d3::NearFirst::new(options.fanout)),
            Box::new(d4::OneCrossing),
            Box::new(d5::NewGeneration::default()),
            Box::new(d6::Depth(options.depth_limit)),
            Box::new(l1::InTime),
        ])
    }

    /// What the checkers have to say: the invariant, and what is wrong.
    pub(crate) fn observe(&mut self, now: Time, fact: &Fact<'_>) -> Vec<(&'static str, String)> {
        let says = |checker: &mut Box<dyn Checker>| {
            checker.observe(now, fact).map(|detail| (checker.name(), detail))
        };
        self.0.iter_mut().filter_map(says).collect()
    }
}
