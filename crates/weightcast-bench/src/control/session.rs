//! A light client session: the wire's frames over a connection of its own; no data port, no memory.
//!
//! A light session stands for a worker that reads at no cost: each assignment is prepared at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Endpoint;
use weightcast::wire::reference_server_client::ReferenceServerClient;
use weightcast::wire::{self, ClientFrame, ServerFrame, client_frame, server_frame};

use super::record::{LatencyRecord, Operation};

/// How long to wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// How often a silent server is asked for a sign of life, and how long its answer may take. The
/// long wait is for a machine that is busy with thousands of sessions: slow, but not gone.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(60));
/// Frames waiting to be sent.
const QUEUE: usize = 16;
/// Deadline of every call, longer than any call should take.
const DEADLINE: Duration = Duration::from_secs(60);
/// Heartbeats sent per lease, as real clients do.
pub(crate) const HEARTBEATS_PER_LEASE: u32 = 3;

/// A shard and its replica.
#[derive(Clone, Debug)]
pub(crate) struct ShardIdentity {
    pub(crate) replica: String,
    pub(crate) shard: u32,
    pub(crate) num_shards: u32,
    pub(crate) role: wire::Role,
    /// How many of the newest versions a trainer retains.
    pub(crate) retain: u32,
}

/// What a session opens with, and what its server has given it.
#[derive(Clone, Debug)]
pub(crate) struct SessionIdentity {
    pub(crate) member: ShardIdentity,
    pub(crate) session: u128,
    /// The last server's ticket, for the next server.
    pub(crate) ticket: Option<wire::Ticket>,
    /// The announcement for the next server: what the session held at the last one.
    pub(crate) announce: Option<wire::Announce>,
}

impl SessionIdentity {
    pub(crate) fn new(member: ShardIdentity, session: u128) -> Self {
        Self { member, session, ticket: None, announce: None }
    }
}

/// How a call ended, and when.
pub(crate) struct LoadReply {
    pub(crate) at: Instant,
    pub(crate) result: Result<wire::answer::Answer, String>,
}

/// An open session.
pub(crate) struct LightSession {
    frames: mpsc::Sender<ClientFrame>,
    seq: AtomicU64,
    place: SessionIdentity,
    shared: Arc<SessionShared>,
}

/// State that the reading task shares with the callers.
struct SessionShared {
    record: Arc<LatencyRecord>,
    waiting: Mutex<Option<oneshot::Sender<LoadReply>>>,
    over: AtomicBool,
    /// When the last answered heartbeat was sent, or when the session opened.
    renewed_at: AtomicU64,
    /// The server's ticket, for the next server.
    ticket: Mutex<Option<wire::Ticket>>,
}

/// How a session that was not let in tries again: a busy server drops some connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retries {
    pub(crate) tries: u32,
    /// Pause after the first try. Each pause is twice as long as the one before, up to
    /// `longest_pause`.
    pub(crate) pause: Duration,
    pub(crate) longest_pause: Duration,
}

impl LightSession {
    /// As [`LightSession::open`], with retries.
    pub(crate) async fn open_patiently(
        server: &str,
        model: &str,
        place: &SessionIdentity,
        record: &Arc<LatencyRecord>,
        retries: Retries,
    ) -> Result<Self> {
        let mut pause = retries.pause;
        for _ in 1..retries.tries {
            if let Ok(session) = Self::open(server, model, place, Arc::clone(record)).await {
                return Ok(session);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(retries.longest_pause);
        }
        Self::open(server, model, place, Arc::clone(record)).await
    }

    /// Connects and opens a session, and keeps it alive until it is dropped. A session with an
    /// announcement is open once its group has come over.
    pub(crate) async fn open(
        server: &str,
        model: &str,
        place: &SessionIdentity,
        record: Arc<LatencyRecord>,
    ) -> Result<Self> {
        let endpoint = Endpoint::from_shared(server.to_owned())?
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEPALIVE.0)
            .keep_alive_timeout(KEEPALIVE.1);
        let channel = endpoint.connect().await.context("connect to the server")?;
        let (frames, receiver) = mpsc::channel(QUEUE);
        frames.send(frame(client_frame::Body::Open(open(model, place)))).await?;
        let mut client = ReferenceServerClient::new(channel);
        let mut stream = client.session(ReceiverStream::new(receiver)).await?.into_inner();
        let opened = match stream.next().await.context("the stream ended")??.body {
            Some(server_frame::Body::Opened(opened)) => opened,
            other => bail!("open was answered with {other:?}"),
        };
        let renewed_at = AtomicU64::new(record.now());
        let (waiting, over) = (Mutex::default(), AtomicBool::new(false));
        let ticket = Mutex::new(opened.ticket);
        let shared = Arc::new(SessionShared { record, waiting, over, renewed_at, ticket });
        let lease = Duration::from_nanos(opened.lease_ns);
        tokio::spawn(keep_alive(Arc::clone(&shared), frames.clone(), place.session, lease));
        let session = Self { frames, seq: AtomicU64::new(0), place: place.clone(), shared };
        session.announce(&mut stream).await?;
        tokio::spawn(listen(Arc::clone(&session.shared), stream, session.frames.clone()));
        Ok(session)
    }

    /// Sends the announcement, if there is one, and waits until the group has come over.
    async fn announce(&self, stream: &mut Streaming<ServerFrame>) -> Result<()> {
        let Some(announce) = self.place.announce.clone() else { return Ok(()) };
        self.frames.send(frame(client_frame::Body::Announce(announce))).await?;
        loop {
            match stream.next().await.context("the stream ended")??.body {
                Some(server_frame::Body::Recovered(_)) => return Ok(()),
                Some(server_frame::Body::HeartbeatAck(_)) => {}
                other => bail!("its group did not come over: {other:?}"),
            }
        }
    }

    /// What the session opens with at the next server.
    pub(crate) fn place(&self) -> SessionIdentity {
        SessionIdentity { ticket: lock(&self.shared.ticket).clone(), ..self.place.clone() }
    }

    /// Calls made so far; all are answered between two parts of a measurement.
    pub(crate) fn calls(&self) -> u64 {
        self.seq.load(Ordering::Relaxed)
    }

    /// The time since the lease was last renewed: see `renewed_at`.
    pub(crate) fn since_renewed(&self) -> Duration {
        let renewed_at = self.shared.renewed_at.load(Ordering::Relaxed);
        Duration::from_nanos(self.shared.record.now().saturating_sub(renewed_at))
    }

    /// Sends the next call. The receiver gets the reply; it fails if the session ends or its queue
    /// is full.
    pub(crate) fn call(&self, call: wire::call::Call) -> oneshot::Receiver<LoadReply> {
        let (sender, reply) = oneshot::channel();
        *lock(&self.shared.waiting) = Some(sender);
        let seq = self.seq.fetch_add(1, Ordering::Relaxed) + 1;
        let deadline_ns = DEADLINE.as_nanos() as u64;
        let call = wire::Call { seq, deadline_ns, call: Some(call) };
        if self.frames.try_send(frame(client_frame::Body::Call(call))).is_err() {
            lock(&self.shared.waiting).take();
        }
        reply
    }

    /// Reports the digests of the memory that was published at a generation.
    pub(crate) async fn seal(&self, generation: u64) {
        let sealed = wire::Sealed { generation, sums: sums() };
        let _ended = self.frames.send(frame(client_frame::Body::Sealed(sealed))).await;
    }

    /// Sends a heartbeat now; the latency of its answer is recorded.
    pub(crate) fn heartbeat(&self) {
        let heartbeat = wire::Heartbeat { sent_at: self.shared.record.now(), progress: None };
        let _full = self.frames.try_send(frame(client_frame::Body::Heartbeat(heartbeat)));
    }
}

impl Drop for LightSession {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
    }
}

fn open(model: &str, place: &SessionIdentity) -> wire::Open {
    let member = &place.member;
    wire::Open {
        protocol: weightcast_protocol::PROTOCOL,
        session: place.session.to_le_bytes().to_vec(),
        ticket: place.ticket.clone(),
        rejoins: place.announce.is_some(),
        model: model.to_owned(),
        replica: member.replica.clone(),
        shard: member.shard,
        num_shards: member.num_shards,
        role: member.role.into(),
        host: format!("{}-host", member.replica),
        data_address: "192.0.2.1:1".to_owned(),
        activate: true,
        retain: member.retain,
        ..wire::Open::default()
    }
}

fn frame(body: client_frame::Body) -> ClientFrame {
    ClientFrame { body: Some(body) }
}

/// The sums of every version: no memory, so zero.
pub(crate) fn sums() -> Option<wire::ShardSums> {
    let sum = Some(wire::Sum::default());
    Some(wire::ShardSums { counted: sum, held: sum, expected: sum })
}

/// Sends heartbeats at the pace of real clients. Sessions are out of step with each other.
async fn keep_alive(
    shared: Arc<SessionShared>,
    frames: mpsc::Sender<ClientFrame>,
    session: u128,
    lease: Duration,
) {
    let pause = lease / HEARTBEATS_PER_LEASE;
    let first = pause.mul_f64((session % 1_009) as f64 / 1_009.0);
    let mut beat = tokio::time::interval_at(tokio::time::Instant::now() + first, pause);
    loop {
        beat.tick().await;
        if shared.over.load(Ordering::Relaxed) {
            return;
        }
        let heartbeat = wire::Heartbeat { sent_at: shared.record.now(), progress: None };
        if frames.send(frame(client_frame::Body::Heartbeat(heartbeat))).await.is_err() {
            return;
        }
    }
}

/// Handles what the server sends, until the stream ends.
async fn listen(
    shared: Arc<SessionShared>,
    mut stream: Streaming<ServerFrame>,
    frames: mpsc::Sender<ClientFrame>,
) {
    while let Some(Ok(ServerFrame { body: Some(body) })) = stream.next().await {
        match body {
            server_frame::Body::HeartbeatAck(ack) => {
                shared.record.answered(Operation::Heartbeat, ack.sent_at);
                shared.renewed_at.fetch_max(ack.sent_at, Ordering::Relaxed);
            }
            server_frame::Body::Vouched(vouched) => *lock(&shared.ticket) = vouched.ticket,
            server_frame::Body::Answered(answered) => shared.answered(answered),
            server_frame::Body::Assigned(assigned) => {
                let prepared = wire::Prepared {
                    seq: assigned.seq,
                    attempt: assigned.attempt,
                    generation: assigned.seq,
                    sums: sums(),
                };
                let _ended = frames.send(frame(client_frame::Body::Prepared(prepared))).await;
            }
            server_frame::Body::Challenge(challenge) => {
                let wire::Challenge { generation, nonce } = challenge;
                let proof = wire::Proof { generation, nonce, sum: 0 };
                let _ended = frames.send(frame(client_frame::Body::Proof(proof))).await;
            }
            server_frame::Body::Offload(offload) => {
                let failed = wire::OffloadFailed {
                    version: offload.version,
                    generation: offload.generation,
                    reason: "this load holds nothing that could be copied".to_owned(),
                };
                let _ended = frames.send(frame(client_frame::Body::OffloadFailed(failed))).await;
            }
            server_frame::Body::Broken(broken) => shared.record.failed(format!("{broken:?}")),
            _ => {}
        }
    }
    lock(&shared.waiting).take();
    if !shared.over.load(Ordering::Relaxed) {
        shared.record.failed("a stream ended".to_owned());
    }
}

impl SessionShared {
    fn answered(&self, answered: wire::Answered) {
        let at = Instant::now();
        let result = match answered.result {
            Some(wire::answered::Result::Answer(wire::Answer { answer: Some(answer) })) => {
                Ok(answer)
            }
            other => Err(format!("{other:?}")),
        };
        if let Some(waiting) = lock(&self.waiting).take() {
            let _gone = waiting.send(LoadReply { at, result });
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
