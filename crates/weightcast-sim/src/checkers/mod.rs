//! One checker per invariant. Each sees every fact of the world and keeps what it needs.

mod a1;
mod a2;
mod a3;
mod a4;
mod a5;
mod d1;
mod d2;
mod d3;
mod d4;
mod d5;
mod d6;
mod d7;
mod d8;
mod g1;
mod g4;
mod g5;
mod l1;
mod l2;
mod l3;
mod l5;
mod l6;
mod l7;
mod l8;
mod o1;
mod o2;
mod o3;
mod s1;
mod s10;
mod s11;
mod s3;
mod s4;
mod s5;
mod s7;
mod s8;
mod s9;
mod t1;
mod t2;
mod t3;
mod t4;
mod t5;
mod t6;
mod w1;

use std::collections::BTreeMap;
use std::rc::Rc;

use weightcast_protocol::message::{Answer, ClientMessage, ServerMessage};
use weightcast_protocol::server::Snapshot;
use weightcast_protocol::session::{Session, SessionState};
use weightcast_protocol::{
    CallError, ConnectionId, Generation, Incarnation, OpSeq, Term, Time, Version,
};

use crate::settings::fault_kinds::FaultKind;
use crate::settings::options::WorldOptions;

/// A shard, as the checkers know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    /// The group that this life of the shard has joined.
    pub(crate) incarnation: Option<Incarnation>,
    pub(crate) process: usize,
    pub(crate) shard: u32,
    pub(crate) num_shards: u32,
}

/// Something that happened.
#[derive(Debug)]
pub(crate) enum Fact<'a> {
    /// A server that acts in this term (zero: in none) is about to handle this message.
    Heard { who: Who, term: Term, message: &'a ClientMessage },
    /// A server sends this message.
    Said { who: Who, term: Term, message: &'a ServerMessage },
    /// A shard's stream breaks. Until the server hears the shard again, the server's messages to it
    /// are not shown as facts.
    Unlinked { who: Who, term: Term },
    /// A server's books after an event.
    Books(&'a Rc<Snapshot>),
    /// A call ended at a shard, which by then holds memory that is `foreign` to its version.
    Done {
        who: Who,
        seq: OpSeq,
        result: &'a Result<Answer, CallError>,
        foreign: Option<(Version, u32)>,
        /// When the call had to end at the latest.
        due: Option<Time>,
        /// The term that the session was in.
        term: Option<Term>,
        /// Whether the session is over or closing, so that the shard has left its group.
        leaves: bool,
    },
    /// A session's message leaves on a stream. `life` is one life of a process, `local` the time by
    /// that process's clock.
    Sent { life: (usize, u32), stream: ConnectionId, local: Time, message: &'a ClientMessage },
    /// A session does something that needs a lease.
    Acts { life: (usize, u32), local: Time, act: Act },
    /// A session has taken a message from this stream; the server sent it in term `sent_in`.
    Took {
        life: (usize, u32),
        stream: ConnectionId,
        local: Time,
        sent_in: Term,
        message: &'a ServerMessage,
        before: SessionFacts,
        after: SessionFacts,
    },
    /// A shard's memory is written. `exposed` is the generation whose bytes must not change, `held`
    /// the version that the session says it holds.
    Changes { replica: &'a str, exposed: Option<Generation>, held: Option<Version> },
    /// A source, whose session says that it holds `held`, serves a chunk of a version. `there`: the
    /// source has the chunk at the generation that it serves. `in_circle`: the source itself reads,
    /// directly or through others, from this reader.
    Served {
        /// The process that reads.
        reader: usize,
        version: Version,
        held: Option<Version>,
        chunk: u32,
        tag: u64,
        there: bool,
        in_circle: bool,
    },
    /// A shard whose siblings hold the same reads a chunk from another host.
    Entered { who: Who, seq: OpSeq, chunk: u32 },
    /// A shard takes a chunk of a version from a sibling. `pure`: no fault has changed a byte of the world.
    Taken { who: Who, term: Term, seq: OpSeq, version: Version, chunk: u32, tag: u64, pure: bool },
    /// A sibling gave a shard nothing. `unreachable`: it will give nothing until the group registers anew.
    SiblingMissed { who: Who, seq: OpSeq, unreachable: bool },
    /// A shard's data port gives a chunk to a reader at this generation.
    Gave { who: Who, generation: Generation },
    /// A shard's read ended.
    ReadEnded { who: Who, failure: Option<&'a str> },
    /// A shard has shown a version's digests to a server of this term without having read the
    /// bytes.
    Claimed { who: Who, term: Term, version: Version },
    /// A shard's memory is served from now on.
    Exposed { who: Who, generation: Generation },
    /// A shard's memory is no longer served.
    Fenced { who: Who, generation: Generation },
    /// A session is over.
    Left { who: Who, error: Option<&'a CallError> },
    /// A fault strikes a process, or the world. Its effect ends at `until`.
    Struck { kind: FaultKind, process: Option<usize>, until: Time },
    /// How much memory a server that acts in this term takes, as the length of its `{:?}` text.
    Weighed { term: Term, bytes: usize },
    /// A look at the world between two events: where sessions and books disagree. `settled` is
    /// there only if faults have been over for so long that all must be well.
    Looked { settled: Option<ActingTerms<'a>>, disagreements: &'a [String] },
    /// The end of the world: the same, and what is left over (L6).
    Over { terms: ActingTerms<'a>, leftovers: &'a [String], disagreements: &'a [String] },
}

impl Fact<'_> {
    /// The server's term, if the fact is one of a server.
    fn term(&self) -> Option<Term> {
        match self {
            Fact::Heard { term, .. }
            | Fact::Said { term, .. }
            | Fact::Unlinked { term, .. }
            | Fact::Claimed { term, .. }
            | Fact::Taken { term, .. }
            | Fact::Weighed { term, .. } => Some(*term),
            Fact::Books(snapshot) => Some(snapshot.term),
            _ => None,
        }
    }
}

/// The terms in which servers act, and the sessions' own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActingTerms<'a> {
    pub(crate) acting: &'a [Term],
    pub(crate) sessions: &'a [(String, Option<Term>)],
}

/// What a session does under its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// The data port answers at this generation.
    Serves(Generation),
    /// The same while the session is suspended: the memory is offered to the next server.
    Offers(Generation),
    /// Begins to read.
    Reads,
    /// Installs a staged version.
    Installs,
    /// Ends a call well.
    Succeeds,
    /// Sends the server anything but `Open`, `Heartbeat` or `Close`.
    Reports,
}

impl std::fmt::Display for Act {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Act::Serves(generation) | Act::Offers(generation) => {
                write!(f, "serves generation {generation}")
            }
            Act::Reads => f.write_str("begins to read"),
            Act::Installs => f.write_str("puts in place what it has read"),
            Act::Succeeds => f.write_str("ends a call well"),
            Act::Reports => f.write_str("reports"),
        }
    }
}

/// What a session knows and holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionFacts {
    pub(crate) term: Option<Term>,
    state: SessionState,
    version: Option<Version>,
    generation: Generation,
}

impl SessionFacts {
    pub(crate) fn of(session: &Session) -> Self {
        Self {
            term: session.lease().map(|lease| lease.term),
            state: session.state(),
            version: session.version(),
            generation: session.generation(),
        }
    }
}

/// Checks one invariant.
pub(crate) trait Checker {
    /// The invariant's name.
    fn name(&self) -> &'static str;

    /// Takes a fact in; returns what is wrong, if anything is.
    fn observe(&mut self, now: Time, fact: &Fact<'_>) -> Option<String>;
}

type CheckerRow = Vec<Box<dyn Checker>>;

pub(crate) struct Checkers {
    options: WorldOptions,
    /// Checkers of what must hold over all terms.
    world: CheckerRow,
    /// Checkers of what must hold within a term: one row for each term.
    terms: BTreeMap<Term, CheckerRow>,
}

/// Checkers of what a session may rely on, over all terms.
fn of_world(options: &WorldOptions) -> CheckerRow {
    vec![
        Box::new(s1::NoTornAccept),
        Box::new(s3::FenceBeforeMutate),
        Box::new(s4::TaggedProgress),
        Box::new(g1::SameAnswer::default()),
        Box::new(g1::AllCalled::default()),
        Box::new(s7::RunsApart::default()),
        Box::new(s9::NoLateReads::default()),
        Box::new(g4::AllOrNone::default()),
        Box::new(t1::WithinLease::default()),
        Box::new(s10::Onwards::default()),
        Box::new(t2::NoEffect::default()),
        Box::new(t3::OneTerm::default()),
        Box::new(t6::ProvedPast::default()),
        Box::new(l1::InTime::new(options.think_time)),
        Box::new(l5::SameTerm::new(options.servers)),
        Box::new(l6::Baseline),
        Box::new(l7::Sealed::new(options.lease, options.digest_time)),
        Box::new(l8::Agreement),
        Box::new(d2::AcyclicReads::new(options.lease)),
        Box::new(d8::EnteredOnce::default()),
        Box::new(s11::TakenAsRead),
    ]
}

/// Checkers of what one server does in its term.
fn of_term(options: &WorldOptions) -> CheckerRow {
    let WorldOptions { fanout, host_fanout, depth_limit, .. } = *options;
    let places = l2::NoIdleSource { fanout, host_fanout, depth_limit };
    vec![
        Box::new(s5::TransitiveCommit::default()),
        Box::new(s5::EveryHelper::default()),
        Box::new(s7::OneContent::default()),
        Box::new(s8::WholeReplicas::default()),
        Box::new(s9::NoNewReaders::default()),
        Box::new(s9::NobodyLeft::new(options.lease, options.drain_deadline)),
        Box::new(g1::OneVerdict::default()),
        Box::new(s10::Snapshots::default()),
        Box::new(g5::OneAnswer::default()),
        Box::new(d1::Fanout { fanout, host_fanout }),
        Box::new(d2::Acyclic),
        Box::new(d3::NearFirst::new(options.fanout)),
        Box::new(d4::OneCrossing),
        Box::new(d5::NewGeneration::default()),
        Box::new(d6::Depth(options.depth_limit)),
        Box::new(d7::HostFirst::default()),
        Box::new(a1::Resolvable::default()),
        Box::new(a2::LastCopy::default()),
        Box::new(a3::Needed::default()),
        Box::new(a4::OneOffload),
        Box::new(a5::RecoveryWindow::new(options.lease)),
        Box::new(t4::TwoAccusers::default()),
        Box::new(places),
        Box::new(l2::LeavesSlow::new(places)),
        Box::new(t4::VoidReports::default()),
        Box::new(t4::Accusers::default()),
        Box::new(t5::BoundedServer::new(options.lease)),
        Box::new(l3::BoundedDrain::new(options.drain_deadline)),
        Box::new(w1::Conditions::default()),
        Box::new(w1::Woken::default()),
        Box::new(o1::NoStall::new(options.seed_deadline)),
        Box::new(o2::OneSeed),
        Box::new(o3::SeedNeeded),
    ]
}

impl Checkers {
    pub(crate) fn new(options: &WorldOptions) -> Self {
        Self { options: options.clone(), world: of_world(options), terms: BTreeMap::new() }
    }

    /// Shows a fact to all checkers. Returns each violation: the invariant, and what is wrong.
    pub(crate) fn observe(&mut self, now: Time, fact: &Fact<'_>) -> Vec<(&'static str, String)> {
        // Facts of a passive server go to no row of a term.
        let term = fact.term().filter(|term| term.0 > 0);
        let own = term.map(|term| {
            let options = &self.options;
            self.terms.entry(term).or_insert_with(|| of_term(options))
        });
        let says = |checker: &mut Box<dyn Checker>| {
            checker.observe(now, fact).map(|detail| (checker.name(), detail))
        };
        self.world.iter_mut().chain(own.into_iter().flatten()).filter_map(says).collect()
    }
}
