//! The story of one world: a line for each fact that people want to know of a run.

use std::fmt;
use std::ops::RangeInclusive;

use serde::Serialize;
use weightcast_protocol::message::{Answer, Call, ClientMessage, ServerMessage};
use weightcast_protocol::{Ticket, Time};

use crate::checkers::Fact;
use crate::report::Report;
use crate::settings::options::WorldOptions;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoryEvent {
    /// Number of the world's event in which it happened.
    pub step: u64,
    /// When, on the world's clock.
    pub at: Time,
    /// The process, as `replica/shard`, or `world`.
    pub who: String,
    /// What happened, in words.
    pub what: String,
    /// The invariant that did not hold, if the line is about a violation.
    pub invariant: Option<String>,
}

impl fmt::Display for StoryEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = self.invariant.as_ref().map_or(String::new(), |name| format!("!! {name}: "));
        let seconds = self.at.0 as f64 / 1e9;
        write!(f, "{:>7} {:>9.4} s  {:<14} {mark}{}", self.step, seconds, self.who, self.what)
    }
}

/// The story of a world, for people (`Display`) and for programs (`Serialize`).
#[derive(Debug, Serialize)]
pub struct Story<'a> {
    seed: u64,
    options: String,
    events: u64,
    lines: Vec<StoryLine<'a>>,
    violations: Vec<StoryViolation<'a>>,
    #[serde(skip)]
    told: Vec<&'a StoryEvent>,
}

#[derive(Debug, Serialize)]
pub(super) struct StoryLine<'a> {
    step: u64,
    seconds: f64,
    who: &'a str,
    what: &'a str,
    invariant: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct StoryViolation<'a> {
    invariant: &'a str,
    step: u64,
    detail: &'a str,
}

impl<'a> StoryLine<'a> {
    pub(super) fn of(event: &'a StoryEvent) -> Self {
        Self {
            step: event.step,
            seconds: event.at.0 as f64 / 1e9,
            who: &event.who,
            what: &event.what,
            invariant: event.invariant.as_deref(),
        }
    }
}

impl<'a> Story<'a> {
    /// The story of these steps, and all violations of the world.
    pub fn of(
        report: &'a Report,
        options: &WorldOptions,
        events: &'a [StoryEvent],
        steps: RangeInclusive<u64>,
    ) -> Self {
        let told: Vec<&StoryEvent> = events.iter().filter(|e| steps.contains(&e.step)).collect();
        let violations = report.violations.iter().map(|violation| StoryViolation {
            invariant: &violation.invariant,
            step: violation.step,
            detail: &violation.detail,
        });
        Self {
            seed: report.seed,
            options: options.to_string(),
            events: report.events,
            lines: told.iter().map(|event| StoryLine::of(event)).collect(),
            violations: violations.collect(),
            told,
        }
    }
}

impl fmt::Display for Story<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}\n{}", self.seed, self.options)?;
        self.told.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        write!(f, "\n{} events, {} violations", self.events, self.violations.len())
    }
}

/// The process that a fact is about, and the fact in words; `None` for facts that a story leaves
/// out.
pub(crate) fn tell(fact: &Fact<'_>) -> Option<(Option<usize>, String)> {
    let (process, what) = match fact {
        Fact::Heard { who, message, .. } => (who.process, heard(message)?),
        Fact::Said { who, message, .. } => (who.process, said(message)?),
        Fact::Done { who, seq, result: Err(error), .. } => {
            (who.process, format!("call {seq} failed: {error}"))
        }
        Fact::Done { who, seq, result: Ok(answer), .. } => {
            (who.process, format!("call {seq} ended: {}", ended(answer)))
        }
        Fact::Exposed { who, generation } => {
            (who.process, format!("serves generation {generation}"))
        }
        Fact::Claimed { who, version, .. } => {
            (who.process, format!("says that it holds {version}, and has not read it"))
        }
        Fact::Fenced { who, generation } => {
            (who.process, format!("no longer serves generation {generation}"))
        }
        Fact::ReadEnded { who, failure: None } => (who.process, "has read everything".to_owned()),
        Fact::ReadEnded { who, failure: Some(failure) } => {
            (who.process, format!("stops reading: {failure}"))
        }
        Fact::Left { who, error } => {
            let why = error.map_or("as it was told".to_owned(), |error| error.to_string());
            (who.process, format!("its session is over: {why}"))
        }
        Fact::Struck { kind, process, .. } => {
            return Some((*process, format!("fault: {}", kind.name())));
        }
        Fact::SiblingMissed { who, unreachable, .. } => {
            let until = if *unreachable { ", until it registers anew" } else { "" };
            (who.process, format!("misses a shard of its host{until}: the source gives the rest"))
        }
        Fact::Books(_)
        | Fact::Unlinked { .. }
        | Fact::Changes { .. }
        | Fact::Served { .. }
        | Fact::Took { .. }
        | Fact::Sent { .. }
        | Fact::Acts { .. }
        | Fact::Gave { .. }
        | Fact::Entered { .. }
        | Fact::Taken { .. }
        | Fact::Weighed { .. }
        | Fact::Looked { .. }
        | Fact::Over { .. } => return None,
    };
    Some((Some(process), what))
}

pub(super) fn heard(message: &ClientMessage) -> Option<String> {
    Some(match message {
        ClientMessage::Open(open) if open.ticket.is_none() => "opens".to_owned(),
        ClientMessage::Open(_) => "resumes".to_owned(),
        ClientMessage::Call { seq, call, .. } => format!("call {seq}: {}", called(call)),
        ClientMessage::Sealed { generation, .. } => format!("sealed generation {generation}"),
        ClientMessage::Prepared { attempt, .. } => format!("prepared, attempt {attempt}"),
        ClientMessage::Installed { attempt, .. } => format!("has it in place, attempt {attempt}"),
        ClientMessage::Slow { attempt, bytes_per_s, .. } => {
            format!("finds its source slow, attempt {attempt}: {bytes_per_s} bytes a second")
        }
        ClientMessage::ReadFailed { attempt, failure, .. } => {
            format!("accuses its source, attempt {attempt}: {failure:?}")
        }
        ClientMessage::Close { .. } => "closes".to_owned(),
        ClientMessage::Heartbeat { .. } | ClientMessage::Progress { .. } => return None,
        #[allow(unreachable_patterns, reason = "messages to come")]
        other => format!("{other:?}"),
    })
}

pub(super) fn said(message: &ServerMessage) -> Option<String> {
    Some(match message {
        ServerMessage::Opened { ticket: Ticket { proof, incarnation, epoch, .. }, .. } => {
            let term = proof.term;
            format!("is a member of group {incarnation}, term {term}, epoch {epoch}")
        }
        ServerMessage::Refused { error, retry } => format!("is refused (retry: {retry}): {error}"),
        ServerMessage::Assigned { attempt, assignment, .. } => {
            let (version, sources) = (assignment.version, assignment.sources().join(" and "));
            format!("is to read {version} from {sources}, attempt {attempt}")
        }
        ServerMessage::Install { attempt, .. } => {
            format!("is to put in place what it has read, attempt {attempt}")
        }
        ServerMessage::Fenced { error, .. } => format!("is fenced: {error}"),
        ServerMessage::Broken { error } => format!("is told that {error}"),
        ServerMessage::Closed => "may leave".to_owned(),
        ServerMessage::Answered { .. }
        | ServerMessage::Vouched { .. }
        | ServerMessage::HeartbeatAck { .. }
        | ServerMessage::Sealed { .. } => return None,
        #[allow(unreachable_patterns, reason = "messages to come")]
        other => format!("is told {other:?}"),
    })
}

pub(super) fn called(call: &Call) -> String {
    match call {
        Call::Publish { version, .. } => format!("publish({version})"),
        Call::Replicate { selector } => format!("replicate({selector})"),
        Call::Update { selector, staged: true, .. } => format!("update({selector}, staged)"),
        Call::Update { selector, .. } => format!("update({selector})"),
        Call::Register { .. } => "register".to_owned(),
        call => format!("{call:?}").to_lowercase(),
    }
}

pub(super) fn ended(answer: &Answer) -> String {
    match answer {
        Answer::Published { version } => format!("published {version}"),
        Answer::Committed { version, source } => format!("holds {version}, from {source}"),
        Answer::Unchanged { held: Some(version) } => format!("still holds {version}"),
        Answer::Unchanged { held: None } => "still holds nothing".to_owned(),
        Answer::Listed(listing) => format!("listed at revision {}", listing.revision),
        Answer::Registered { .. } => "registered".to_owned(),
        Answer::Retained { version } => format!("keeps {version}"),
        Answer::Described { version, .. } => format!("described {version}"),
        answer => format!("{answer:?}").to_lowercase(),
    }
}
