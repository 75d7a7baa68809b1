//! The duties of a session's host: an [`Output`] for each duty, and a [`SessionHost`] with a method
//! for each.
//!
//! A runtime implements [`SessionHost`] and calls [`drive`] after each input of its session. Duties
//! are values, so that a test rig can record, hash or forbid what a session asks for.

use std::collections::VecDeque;

use crate::message::{Answer, Assignment, ClientMessage, Witnesses};
use crate::{Attempt, CallError, Generation, Nonce, OpSeq, Span, TermProof, Time, Version};

/// One duty of a session's host. [`drive`] hands it to the method of [`SessionHost`] that documents it.
// Only one output at a time is on its way to the host, so its size does not matter.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// [`SessionHost::connect`].
    Connect {
        /// The server's place in the list.
        server: usize,
    },
    /// [`SessionHost::probe`].
    Probe {
        /// The server's place in the list.
        server: usize,
        /// Proof of the session's term, or of a later term that the session has heard of.
        proof: TermProof,
    },
    /// [`SessionHost::send`].
    Send(ClientMessage),
    /// [`SessionHost::expose`].
    Expose(Generation),
    /// [`SessionHost::expose_filling`].
    ExposeFilling(Generation),
    /// [`SessionHost::fence`].
    Fence(Generation),
    /// [`SessionHost::seal`].
    Seal(Generation),
    /// [`SessionHost::prove`].
    Prove {
        /// Generation at which the memory is held.
        generation: Generation,
        /// What sample and keys are drawn from.
        nonce: Nonce,
    },
    /// [`SessionHost::compare`].
    Refused {
        /// Replicas to compare with.
        witnesses: Box<Witnesses>,
    },
    /// [`SessionHost::read`], whose [`ReadOrder`] has the same fields.
    Read {
        /// The call.
        seq: OpSeq,
        /// Number of the assignment.
        attempt: Attempt,
        /// The assignment at which the group began from nothing.
        since: Attempt,
        /// The source.
        assignment: Assignment,
        /// Whether the read continues after the bytes that were read before.
        keep: bool,
        /// When to give up.
        deadline: Time,
    },
    /// [`SessionHost::measure`].
    Measure {
        /// The call.
        seq: OpSeq,
        /// Number of the assignment.
        attempt: Attempt,
    },
    /// [`SessionHost::stop_read`].
    StopRead,
    /// [`SessionHost::install`].
    Install {
        /// The call.
        seq: OpSeq,
        /// Number of the assignment.
        attempt: Attempt,
    },
    /// [`SessionHost::unstage`].
    Unstage,
    /// [`SessionHost::offload`].
    Offload {
        /// The version.
        version: Version,
        /// The generation at which it is held.
        generation: Generation,
    },
    /// [`SessionHost::stop_offload`].
    StopOffload,
    /// [`SessionHost::seed`].
    Seed {
        /// The version.
        version: Version,
        /// Number of the request, for `handle_seed_failed`.
        ask: u64,
        /// How long it may take.
        deadline: Span,
    },
    /// [`SessionHost::answer`].
    Done {
        /// The call.
        seq: OpSeq,
        /// How it ended.
        result: Result<Answer, CallError>,
    },
    /// [`SessionHost::end`].
    Closed {
        /// Set if the session was not closed by the user.
        error: Option<CallError>,
    },
}

/// Duties that wait for the host, in order.
pub(super) type Outputs = VecDeque<Output>;

/// A read that a session asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOrder {
    /// The call.
    pub seq: OpSeq,
    /// Number of the assignment.
    pub attempt: Attempt,
    /// The assignment at which the group began from nothing: what it has read since counts.
    pub since: Attempt,
    /// The source.
    pub assignment: Assignment,
    /// Continue after the chunks that the progress word counts; otherwise read everything. The
    /// memory is served meanwhile, so the chunks that the word counts must not be written again. If
    /// the memory is not served, the read goes on after what an earlier call had read when the
    /// memory was fenced.
    pub keep: bool,
    /// When to give up.
    pub deadline: Time,
}

/// What a runtime does for the session of one shard: a method for each duty.
///
/// No method has a default: a host that has nothing to do for a duty says so. A method may call inputs
/// of the session ([`Session::handle_connected`](super::Session::handle_connected) and the like); their
/// outputs follow those that wait already.
pub trait SessionHost {
    /// The next output of the host's session ([`Session::poll_output`](super::Session::poll_output)).
    /// `None` also if the session is gone, or its process died of an earlier output: the outputs
    /// that are left are not done.
    fn next_output(&mut self) -> Option<Output>;

    /// Open a stream to this server of the list, and forget an older stream, also one that is still
    /// being opened; report `handle_connected` or `handle_disconnected`, of this stream only.
    fn connect(&mut self, server: usize);

    /// Ask this server which term it acts in, and prove this term to it; report `handle_probed` if the
    /// server answers.
    fn probe(&mut self, server: usize, proof: TermProof);

    /// Send on the open stream, in order. The message is dropped if the stream is gone.
    fn send(&mut self, message: ClientMessage);

    /// Serve the registered regions at this generation, from now on.
    fn expose(&mut self, generation: Generation);

    /// Serve the registered regions at this generation as far as they have been read: set the
    /// progress word to no chunk of this generation, then let readers in. Until `expose` of the
    /// same generation, writing chunks beyond the progress is allowed and nothing else is.
    /// Only with [`SessionConfig::relays`](super::SessionConfig::relays).
    fn expose_filling(&mut self, generation: Generation);

    /// Stop serving: before this returns, no reader may be able to accept bytes served at this or an
    /// older generation (S3).
    fn fence(&mut self, generation: Generation);

    /// Digest the published memory in the background, then call `handle_sealed`.
    fn seal(&mut self, generation: Generation);

    /// Sum the sample of the registered memory that is drawn from this number, in the background, and
    /// call `handle_proved`. The sample is the same for all layouts; a few megabytes of a group.
    fn prove(&mut self, generation: Generation, nonce: Nonce);

    /// What was published is refused, and fenced. Until the memory is given up, keep the digests of
    /// its cells where the witnesses' other shards can ask for them. In the background, ask the
    /// witnesses in which tensor the difference is, and tell the user.
    fn compare(&mut self, witnesses: Box<Witnesses>);

    /// Read into the registered memory, then call `handle_read`. Replaces a read of a lower
    /// attempt, which must have let go of the memory before this one starts. A staged assignment is
    /// read into memory of the same layout beside the registered memory, which is served to no
    /// reader.
    fn read(&mut self, order: ReadOrder);

    /// If this read runs and bytes have begun to move, call `handle_progress` now.
    fn measure(&mut self, seq: OpSeq, attempt: Attempt);

    /// Stop the read or the copying into place, if one runs. `handle_read` and `handle_installed`
    /// are not called for what was stopped, which must have let go of the memory before this returns.
    fn stop_read(&mut self);

    /// Copy what was read beside the registered memory into the registered memory, free the memory
    /// beside, then call `handle_installed`.
    fn install(&mut self, seq: OpSeq, attempt: Attempt);

    /// Free the memory beside the registered memory: what was read there is not wanted any more.
    fn unstage(&mut self);

    /// Copy the memory aside in the background, then open an offload replica with the copy: a
    /// session with [`Role::Offload`](crate::message::Role::Offload) that registers and publishes the
    /// version. Call `handle_offload_failed` if that can't be done.
    fn offload(&mut self, version: Version, generation: Generation);

    /// Stop copying aside, unless the copy is complete. Before this returns the copying must have let
    /// go of the memory. An offload replica that was opened already goes on.
    fn stop_offload(&mut self);

    /// Open a seed replica in the background: a session with [`Role::Seed`](crate::message::Role::Seed)
    /// that registers new memory of this shard's layout and replicates the version. Call
    /// `handle_seed_failed` of this `ask` if that can't be done within the deadline. The replica goes
    /// on whatever becomes of this session, until the server lets go of it.
    fn seed(&mut self, version: Version, ask: u64, deadline: Span);

    /// Tell the caller how this call has ended.
    fn answer(&mut self, seq: OpSeq, result: Result<Answer, CallError>);

    /// The session is over; everything is fenced and no output follows. `error` is set if the session
    /// was not closed by the user.
    fn end(&mut self, error: Option<CallError>);
}

/// Has a host do what its session asks for, in order, until the session asks for nothing more.
pub fn drive(host: &mut impl SessionHost) {
    while let Some(output) = host.next_output() {
        match output {
            Output::Connect { server } => host.connect(server),
            Output::Probe { server, proof } => host.probe(server, proof),
            Output::Send(message) => host.send(message),
            Output::Expose(generation) => host.expose(generation),
            Output::ExposeFilling(generation) => host.expose_filling(generation),
            Output::Fence(generation) => host.fence(generation),
            Output::Seal(generation) => host.seal(generation),
            Output::Prove { generation, nonce } => host.prove(generation, nonce),
            Output::Refused { witnesses } => host.compare(witnesses),
            Output::Read { seq, attempt, since, assignment, keep, deadline } => {
                host.read(ReadOrder { seq, attempt, since, assignment, keep, deadline });
            }
            Output::Measure { seq, attempt } => host.measure(seq, attempt),
            Output::StopRead => host.stop_read(),
            Output::Install { seq, attempt } => host.install(seq, attempt),
            Output::Unstage => host.unstage(),
            Output::Offload { version, generation } => host.offload(version, generation),
            Output::StopOffload => host.stop_offload(),
            Output::Seed { version, ask, deadline } => host.seed(version, ask, deadline),
            Output::Done { seq, result } => host.answer(seq, result),
            Output::Closed { error } => host.end(error),
        }
    }
}
