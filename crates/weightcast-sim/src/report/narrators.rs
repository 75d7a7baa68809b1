//! Who tells of a machine what it hears and says, when it is played back.

use std::collections::BTreeMap;

use weightcast_protocol::engine_update::RoutingQuestion;
use weightcast_protocol::message::{Answer, ClientMessage, ServerMessage};
use weightcast_protocol::recording::Recordable;
use weightcast_protocol::server::{Server, ServerInput, ServerOutput};
use weightcast_protocol::session::{Output, Session, SessionInput};
use weightcast_protocol::{CallError, ConnectionId, OpSeq};

use super::story::{called, ended, heard, said};

/// Something to tell: who, and what.
pub(super) struct Narration {
    pub(super) who: String,
    pub(super) what: String,
}

fn told(who: impl Into<String>, what: impl Into<String>) -> Option<Narration> {
    Some(Narration { who: who.into(), what: what.into() })
}

/// A machine that can be told of. What is of no interest is not told.
pub(super) trait Narrated: Recordable {
    /// What the story has told so far.
    type Narrator: Default;

    /// What is about to happen to the machine.
    fn hears(&self, narrator: &mut Self::Narrator, input: &Self::Input) -> Option<Narration>;

    /// What the machine puts out.
    fn says(&self, narrator: &mut Self::Narrator, output: &Self::Output) -> Option<Narration>;
}

/// Replica and shard of those who have spoken on each stream: the server forgets who has left.
#[derive(Default)]
pub(super) struct StreamNames(BTreeMap<ConnectionId, String>);

impl StreamNames {
    fn of(&mut self, server: &Server, stream: ConnectionId) -> String {
        let name = || match server.speaker(stream) {
            Some((replica, shard)) => format!("{replica}/{shard}"),
            None => format!("stream {stream}"),
        };
        self.0.entry(stream).or_insert_with(name).clone()
    }
}

impl Narrated for Server {
    type Narrator = StreamNames;

    fn hears(&self, names: &mut StreamNames, input: &ServerInput) -> Option<Narration> {
        match input {
            ServerInput::Message { from, message } => {
                if let ClientMessage::Open(open) = &**message {
                    names.0.insert(*from, format!("{}/{}", open.replica, open.shard));
                }
                told(names.of(self, *from), heard(message)?)
            }
            ServerInput::Disconnected { connection } => {
                told(names.of(self, *connection), "its stream breaks")
            }
            ServerInput::PutManifest { digest, bytes } => {
                told("server", format!("stores manifest {digest}, {bytes} bytes"))
            }
            ServerInput::Probe { told: proof } => {
                told("server", format!("is shown term {}", proof.term))
            }
            ServerInput::AskFleet { model, question } => {
                told("server", format!("is asked for the fleet of {model}: {question:?}"))
            }
            ServerInput::AskRouting { model, question: RoutingQuestion::Engines } => {
                told("server", format!("is asked for the engines of {model}"))
            }
            ServerInput::AskRouting { question: RoutingQuestion::Serves(notice), .. } => {
                let of = notice.serves.map_or("nothing".to_owned(), |serves| serves.to_string());
                let worker = format!("{}, worker {}", notice.engine, notice.worker);
                told("server", format!("is told that {worker}, serves {of}"))
            }
            ServerInput::Timeout | ServerInput::HasManifest { .. } => None,
        }
    }

    fn says(&self, names: &mut StreamNames, output: &ServerOutput) -> Option<Narration> {
        match output {
            ServerOutput::Send { to, message } => {
                let what = match message {
                    ServerMessage::Answered { seq, result } => end_of_call(*seq, result),
                    message => said(message)?,
                };
                told(names.of(self, *to), what)
            }
            ServerOutput::Disconnect { connection } => {
                told(names.of(self, *connection), "its stream is closed")
            }
        }
    }
}

impl Narrated for Session {
    type Narrator = ();

    fn hears(&self, (): &mut (), input: &SessionInput) -> Option<Narration> {
        let what = match input {
            SessionInput::Call { call, .. } => format!("wants to {}", called(call)),
            SessionInput::Close { .. } => "is to leave".to_owned(),
            SessionInput::Connected => "has a stream".to_owned(),
            SessionInput::Disconnected => "has no stream".to_owned(),
            SessionInput::Message(message) => said(message)?,
            SessionInput::Refused { error } => format!("will never be let in: {error}"),
            SessionInput::Read { result: Ok(_), .. } => "has read everything".to_owned(),
            SessionInput::Read { result: Err(failure), .. } => {
                format!("stops reading: {failure:?}")
            }
            SessionInput::SealFailed { reason, .. } => format!("has no digests: {reason}"),
            SessionInput::OffloadFailed { version, reason, .. } => {
                format!("cannot copy {version} aside: {reason}")
            }
            SessionInput::Probed { server, acts: Some(proof), .. } => {
                format!("hears that server {server} acts in term {}", proof.term)
            }
            SessionInput::Probed { acts: None, .. }
            | SessionInput::Progress { .. }
            | SessionInput::Installed { .. }
            | SessionInput::Sealed { .. }
            | SessionInput::Proved { .. }
            | SessionInput::OffloadOver { .. }
            | SessionInput::SeedFailed { .. }
            | SessionInput::Timeout => return None,
        };
        told(name(self), what)
    }

    fn says(&self, (): &mut (), output: &Output) -> Option<Narration> {
        let what = match output {
            Output::Connect { server } => format!("looks for server {server}"),
            Output::Send(message) => heard(message)?,
            Output::Expose(generation) => format!("serves generation {generation}"),
            Output::ExposeFilling(generation) => {
                format!("serves generation {generation} as it comes")
            }
            Output::Fence(generation) => format!("no longer serves generation {generation}"),
            Output::Offload { version, .. } => format!("copies {version} aside"),
            Output::Seed { version, .. } => format!("is to bring {version} near"),
            Output::Done { seq, result } => end_of_call(*seq, result),
            Output::Closed { error: None } => "its session is over: as it was told to".to_owned(),
            Output::Closed { error: Some(error) } => format!("its session is over: {error}"),
            Output::Probe { .. }
            | Output::Seal(_)
            | Output::Prove { .. }
            | Output::Refused { .. }
            | Output::Read { .. }
            | Output::Measure { .. }
            | Output::StopRead
            | Output::Install { .. }
            | Output::Unstage
            | Output::StopOffload => return None,
        };
        told(name(self), what)
    }
}

fn name(session: &Session) -> String {
    let (replica, shard) = session.speaker();
    format!("{replica}/{shard}")
}

fn end_of_call(seq: OpSeq, result: &Result<Answer, CallError>) -> String {
    match result {
        Ok(answer) => format!("call {seq} ended: {}", ended(answer)),
        Err(error) => format!("call {seq} failed: {error}"),
    }
}
