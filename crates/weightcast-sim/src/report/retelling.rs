//! The story of a recording: the machine of a real server or session is played back and checked after every event, and
//! what happens is told as that of a simulated world.

use std::fmt;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;
use weightcast_protocol::Time;
use weightcast_protocol::recording::{
    MACHINES, MachineKind, Playback, PlayedEvent, RecordedEvent, Recording, RecordingCause,
    RecordingError,
};
use weightcast_protocol::server::{Server, Violation};
use weightcast_protocol::session::Session;

use super::narrators::{Narrated, Narration};
use super::story::{StoryEvent, StoryLine};

/// How the playing of a recording ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "end", rename_all = "lowercase")]
pub enum RetoldEnd {
    /// With the last event: whatever the recorded machine put out was put out here.
    Faithful,
    /// With an event after which an invariant did not hold, or in which the machine's code gave up.
    Violated {
        /// Number of the event; 0: so it was before the first one.
        event: u64,
        /// The invariant's name, as in `docs/invariants.md`; `panic` if the code gave up for another reason.
        invariant: String,
        /// What was seen.
        detail: String,
        /// Whether the recorded machine failed in this event too.
        recorded: bool,
    },
    /// With an event of which something else came than was recorded.
    Differs {
        /// Number of the event.
        event: u64,
        /// In what.
        what: &'static str,
    },
}

impl fmt::Display for RetoldEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Faithful => f.write_str("all outputs as recorded"),
            Self::Violated { event, invariant, detail, recorded } => {
                let as_recorded = if *recorded { ", as recorded" } else { "" };
                write!(f, "{invariant} broken in event {event}{as_recorded}: {detail}")
            }
            Self::Differs { event, what } => write!(f, "differs at event {event}: {what}"),
        }
    }
}

/// Plays a recording back, up to its end or to the first event that goes wrong. Returns what happened, and the end.
///
/// # Errors
/// The recording cannot be read by this build.
pub fn retell(recording: &Recording) -> Result<(Vec<StoryEvent>, RetoldEnd), RecordingError> {
    match recording.head.kind {
        MachineKind::Server => Telling::<Server>::of(recording, &mut |_, _| {}),
        MachineKind::Session => Telling::<Session>::of(recording, &mut |_, _| {}),
    }
}

/// The same for a recording of a server, which is shown after each event of which there is something to tell.
///
/// # Errors
/// The recording cannot be read by this build, or is of a session.
pub fn watch(
    recording: &Recording,
    mut shown: impl FnMut(Time, &Server),
) -> Result<RetoldEnd, RecordingError> {
    Ok(Telling::<Server>::of(recording, &mut shown)?.1)
}

/// A recording that is being told.
struct Telling<'a, M: Narrated> {
    playback: Playback<'a, M>,
    narrator: M::Narrator,
    watch: &'a mut dyn FnMut(Time, &M),
    /// The lines that there were when the machine was shown.
    shown: usize,
    /// The recorded machine's process gave up.
    fails: bool,
    lines: Vec<StoryEvent>,
    event: u64,
    at: Time,
}

impl<'a, M: Narrated> Telling<'a, M> {
    fn of(
        recording: &'a Recording,
        watch: &'a mut dyn FnMut(Time, &M),
    ) -> Result<(Vec<StoryEvent>, RetoldEnd), RecordingError> {
        let mut telling = Self {
            playback: recording.play::<M>()?,
            narrator: M::Narrator::default(),
            watch,
            shown: 0,
            fails: recording.head.cause == RecordingCause::Panic,
            lines: Vec::new(),
            event: 0,
            at: Time(0),
        };
        let end = telling.run()?;
        Ok((telling.lines, end))
    }

    fn run(&mut self) -> Result<RetoldEnd, RecordingError> {
        // What is wrong before the first event is no event's fault, and nothing after it would mean anything.
        if let Some(wrong) = failure(|| self.playback.machine().check()) {
            return Ok(self.violated(wrong, false));
        }
        while let Some(next) = self.playback.next()? {
            if let Some(end) = self.step(next) {
                return Ok(end);
            }
        }
        Ok(RetoldEnd::Faithful)
    }

    /// Plays one event; how that ends the story, if it does.
    fn step(&mut self, next: RecordedEvent<M::Input>) -> Option<RetoldEnd> {
        let recorded = self.fails && self.playback.ends_here();
        (self.event, self.at) = (next.number, next.at);
        let told = M::hears(self.playback.machine(), &mut self.narrator, &next.input);
        self.tell(told);
        let mut differs = None;
        match failure(|| self.play(next, &mut differs)) {
            Some(wrong) => Some(self.violated(wrong, recorded)),
            None => differs.map(|what| RetoldEnd::Differs { event: self.event, what }),
        }
    }

    fn play(
        &mut self,
        next: RecordedEvent<M::Input>,
        differs: &mut Option<&'static str>,
    ) -> Result<(), Violation> {
        let outputs = match self.playback.play(next) {
            PlayedEvent::Pending => return Ok(()),
            PlayedEvent::Settled { outputs, as_recorded } => {
                *differs = (!as_recorded).then_some("what comes of it is not what was recorded");
                outputs
            }
            PlayedEvent::Unfinished { outputs } => {
                *differs =
                    self.fails.then_some("the recorded machine failed in it, this one goes on");
                outputs
            }
        };
        for output in &outputs {
            let told = M::says(self.playback.machine(), &mut self.narrator, output);
            self.tell(told);
        }
        if self.lines.len() > self.shown {
            self.shown = self.lines.len();
            (self.watch)(self.at, self.playback.machine());
        }
        self.playback.machine().check()
    }

    fn tell(&mut self, told: Option<Narration>) {
        let Some(Narration { who, what }) = told else { return };
        let (step, at, invariant) = (self.event, self.at, None);
        self.lines.push(StoryEvent { step, at, who, what, invariant });
    }

    fn violated(&mut self, (invariant, detail): (String, String), recorded: bool) -> RetoldEnd {
        self.lines.push(StoryEvent {
            step: self.event,
            at: self.at,
            who: M::KIND.to_string(),
            what: detail.clone(),
            invariant: Some(invariant.clone()),
        });
        RetoldEnd::Violated { event: self.event, invariant, detail, recorded }
    }
}

/// What goes wrong in a step, if something does: the invariant and what was seen.
fn failure(step: impl FnOnce() -> Result<(), Violation>) -> Option<(String, String)> {
    let panic = match catch_unwind(AssertUnwindSafe(step)) {
        Ok(checked) => {
            return checked.err().map(|wrong| (wrong.invariant.to_owned(), wrong.detail));
        }
        Err(panic) => panic,
    };
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
    // A server that checks itself says which invariant it is.
    let broken = text.strip_prefix("invariant broken: ").and_then(|text| text.split_once(": "));
    let (invariant, detail) = broken.unwrap_or(("panic", text));
    Some((invariant.to_owned(), detail.to_owned()))
}

/// The story of a recording, for people (`Display`) and for programs (`Serialize`).
#[derive(Debug, Serialize)]
pub struct Retelling<'a> {
    machine: String,
    cause: String,
    machines: &'a str,
    written_at_s: u64,
    events: u64,
    lines: Vec<StoryLine<'a>>,
    #[serde(flatten)]
    end: &'a RetoldEnd,
    #[serde(skip)]
    told: Vec<&'a StoryEvent>,
}

impl<'a> Retelling<'a> {
    /// What happened in these events, and the end.
    pub fn of(
        recording: &'a Recording,
        (events, end): &'a (Vec<StoryEvent>, RetoldEnd),
        within: RangeInclusive<u64>,
    ) -> Self {
        let head = &recording.head;
        let told: Vec<&StoryEvent> = events.iter().filter(|e| within.contains(&e.step)).collect();
        Self {
            machine: head.kind.to_string(),
            cause: head.cause.to_string(),
            machines: &head.machines,
            written_at_s: head.written_at_s,
            events: head.events,
            lines: told.iter().map(|event| StoryLine::of(event)).collect(),
            end,
            told,
        }
    }
}

impl fmt::Display for Retelling<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, cause, machines, events, end, .. } = self;
        writeln!(f, "recording of a {machine}, {cause}")?;
        if *machines != MACHINES {
            writeln!(f, "written by {machines}, played by {MACHINES}: they may differ")?;
        }
        self.told.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        write!(f, "\n{events} events, {end}")
    }
}
