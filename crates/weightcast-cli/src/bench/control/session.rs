//! A light client session: the wire's frames over a connection of its own; no data port, no memory.
//!
//! It stands for a worker that reads at no cost: whatever it is assigned it has prepared at once.

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

use super::record::{Kind, Record};

/// Asks a silent server for a sign of life, as real clients do.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// Frames waiting to be sent.
const QUEUE: usize = 16;
/// Deadline of every call: no good answer takes as long.
const DEADLINE: Duration = Duration::from_secs(60);
/// Heartbeats sent per lease, as real clients do.
pub(crate) const HEARTBEATS_PER_LEASE: u32 = 3;

/// A shard and its place.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) replica: String,
    pub(crate) shard: u32,
    pub(crate) num_shards: u32,
    pub(crate) role: wire::Role,
}

/// What a call came to, and when.
pub(crate) struct Reply {
    pub(crate) at: Instant,
    pub(crate) result: Result<wire::answer::Answer, String>,
}

/// An open session.
pub(crate) struct Session {
    frames: mpsc::Sender<ClientFrame>,
    seq: AtomicU64,
    shared: Arc<Shared>,
}

/// What the reading task has in common with the callers.
struct Shared {
    record: Arc<Record>,
    waiting: Mutex<Option<oneshot::Sender<Reply>>>,
    over: AtomicBool,
}

impl Session {
    /// Connects, opens, and keeps the session alive until it is dropped.
    pub(crate) async fn open(
        server: &str,
        model: &str,
        member: &Member,
        session: u128,
        record: Arc<Record>,
    ) -> Result<Self> {
        let endpoint = Endpoint::from_shared(server.to_owned())?
            .connect_timeout(KEEPALIVE)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE);
        let channel = endpoint.connect().await.context("connect to the server")?;
        let (frames, receiver) = mpsc::channel(QUEUE);
        frames.send(frame(client_frame::Body::Open(open(model, member, session)))).await?;
        let mut client = ReferenceServerClient::new(channel);
        let mut stream = client.session(ReceiverStream::new(receiver)).await?.into_inner();
        let lease = match stream.next().await.context("the stream ended")??.body {
            Some(server_frame::Body::Opened(opened)) => Duration::from_nanos(opened.lease_ns),
            other => bail!("open was answered with {other:?}"),
        };
        let shared =
            Arc::new(Shared { record, waiting: Mutex::default(), over: AtomicBool::new(false) });
        tokio::spawn(listen(Arc::clone(&shared), stream, frames.clone()));
        tokio::spawn(keep_alive(Arc::clone(&shared), frames.clone(), session, lease));
        Ok(Self { frames, seq: AtomicU64::new(0), shared })
    }

    /// Sends the group's next call; its reply comes, or the session ends.
    pub(crate) fn call(&self, call: wire::call::Call) -> oneshot::Receiver<Reply> {
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

    /// Says that what was published at a generation is digested.
    pub(crate) async fn seal(&self, generation: u64) {
        let sealed = wire::Sealed { generation, sums: sums() };
        let _ended = self.frames.send(frame(client_frame::Body::Sealed(sealed))).await;
    }

    /// One heartbeat now; its answer is recorded.
    pub(crate) fn heartbeat(&self) {
        let heartbeat = wire::Heartbeat { sent_at: self.shared.record.now() };
        let _full = self.frames.try_send(frame(client_frame::Body::Heartbeat(heartbeat)));
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
    }
}

fn open(model: &str, member: &Member, session: u128) -> wire::Open {
    wire::Open {
        protocol: weightcast_protocol::PROTOCOL,
        session: session.to_le_bytes().to_vec(),
        model: model.to_owned(),
        replica: member.replica.clone(),
        shard: member.shard,
        num_shards: member.num_shards,
        role: member.role.into(),
        host: format!("{}-host", member.replica),
        data_address: "192.0.2.1:1".to_owned(),
        activate: true,
        ..wire::Open::default()
    }
}

fn frame(body: client_frame::Body) -> ClientFrame {
    ClientFrame { body: Some(body) }
}

/// All content is the same here: nothing.
fn sums() -> Option<wire::ShardSums> {
    let sum = Some(wire::Sum::default());
    Some(wire::ShardSums { counted: sum, held: sum, expected: sum })
}

/// Heartbeats at the pace of real clients, out of step with each other.
async fn keep_alive(
    shared: Arc<Shared>,
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
        let heartbeat = wire::Heartbeat { sent_at: shared.record.now() };
        if frames.send(frame(client_frame::Body::Heartbeat(heartbeat))).await.is_err() {
            return;
        }
    }
}

/// Takes what the server sends until the stream ends.
async fn listen(
    shared: Arc<Shared>,
    mut stream: Streaming<ServerFrame>,
    frames: mpsc::Sender<ClientFrame>,
) {
    while let Some(Ok(ServerFrame { body: Some(body) })) = stream.next().await {
        match body {
            server_frame::Body::HeartbeatAck(ack) => {
                shared.record.answered(Kind::Heartbeat, ack.sent_at);
            }
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
            server_frame::Body::Broken(broken) => shared.record.failed(format!("{broken:?}")),
            _ => {}
        }
    }
    lock(&shared.waiting).take();
    if !shared.over.load(Ordering::Relaxed) {
        shared.record.failed("a stream ended".to_owned());
    }
}

impl Shared {
    fn answered(&self, answered: wire::Answered) {
        let at = Instant::now();
        let result = match answered.result {
            Some(wire::answered::Result::Answer(wire::Answer { answer: Some(answer) })) => {
                Ok(answer)
            }
            other => Err(format!("{other:?}")),
        };
        if let Some(waiting) = lock(&self.waiting).take() {
            let _gone = waiting.send(Reply { at, result });
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
