//! The control port, as a client with the token speaks it: any message, in any order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as inbox;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::attacker::forge::random;
use crate::attacker::runtime::{PATIENCE, handle, run};
use crate::attacker::wire::client_frame::Body as Ask;
use crate::attacker::wire::reference_server_client::ReferenceServerClient;
use crate::attacker::wire::server_frame::Body as Told;
use crate::attacker::wire::{self, ClientFrame};

/// How often a session of the attacker says that it is there.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// Frames on their way to the server.
const QUEUE: usize = 256;
/// The attacker takes larger answers than an honest client would.
const MOST_BYTES: usize = 256 << 20;

/// Adds the token to each request.
#[derive(Clone)]
pub(crate) struct Bearer(Option<MetadataValue<Ascii>>);

impl tonic::service::Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}

pub(crate) type Rpc = ReferenceServerClient<InterceptedService<Channel, Bearer>>;

/// One connection to a server.
#[derive(Clone)]
pub(crate) struct ControlClient {
    pub(crate) rpc: Rpc,
}

impl ControlClient {
    /// Connects at the first request.
    pub(crate) fn new(address: &str, token: Option<&str>) -> Result<Self> {
        let _within = handle().enter();
        let endpoint = Endpoint::from_shared(address.to_owned())?
            .connect_timeout(Duration::from_secs(5))
            .tcp_nodelay(true);
        let bearer = token.map(|token| format!("Bearer {token}").parse()).transpose()?;
        let rpc = ReferenceServerClient::with_interceptor(endpoint.connect_lazy(), Bearer(bearer))
            .max_decoding_message_size(MOST_BYTES)
            .max_encoding_message_size(MOST_BYTES);
        Ok(Self { rpc })
    }

    /// Shows the proof of a term; returns the term in which the server acts.
    pub(crate) fn probe(&self, proof: wire::TermProof) -> Result<u64> {
        let mut rpc = self.rpc.clone();
        let reply = run(rpc.probe(wire::ProbeRequest { proof: Some(proof) }))??;
        Ok(reply.into_inner().proof.unwrap_or_default().term)
    }

    pub(crate) fn status(&self) -> Result<wire::StatusReply> {
        let mut rpc = self.rpc.clone();
        run(async move {
            let pages = rpc.status(wire::StatusRequest::default()).await?.into_inner();
            whole(pages).await
        })?
    }

    /// What a replica holds, and whether its sum is the one that the asker says to have `found` there.
    pub(crate) fn inspect(
        &self,
        model: &str,
        replica: &str,
        found: Option<wire::Sum>,
    ) -> Result<wire::InspectReply> {
        let mut rpc = self.rpc.clone();
        let (model, replica) = (model.to_owned(), replica.to_owned());
        let request = wire::InspectRequest { model, replica, found };
        run(async move { whole(rpc.inspect(request).await?.into_inner()).await })?
    }

    /// How readers are told to read a replica.
    pub(crate) fn copy_of(&self, model: &str, replica: &str) -> Result<SourceCopy> {
        let copy = self.inspect(model, replica, None)?.copy;
        let copy = copy.with_context(|| format!("{model}/{replica} shows no copy"))?;
        SourceCopy::of(&copy)
    }

    /// Stores a manifest in pages.
    pub(crate) fn put_manifest(&self, bytes: &[u8]) -> Result<()> {
        let digest = crate::attacker::forge::blob_digest(bytes);
        let size = bytes.len() as u64;
        let page = |data: &[u8]| {
            let digest = digest.clone();
            wire::ManifestPage { digest, data: data.to_vec(), size }
        };
        let mut pages: Vec<_> = bytes.chunks(64 << 10).map(page).collect();
        if pages.is_empty() {
            pages.push(page(&[]));
        }
        let mut rpc = self.rpc.clone();
        run(rpc.put_manifest(tokio_stream::iter(pages)))??;
        Ok(())
    }

    pub(crate) fn manifest(&self, digest: &[u8]) -> Result<Vec<u8>> {
        let mut rpc = self.rpc.clone();
        let request = wire::GetManifestRequest { digest: digest.to_vec() };
        run(async move {
            let mut pages = rpc.get_manifest(request).await?.into_inner();
            let mut bytes = Vec::new();
            while let Some(page) = pages.message().await? {
                bytes.extend(page.data);
            }
            Ok(bytes)
        })?
    }

    /// A stream on which nothing was said yet.
    pub(crate) fn stream(&self) -> Result<RogueStream> {
        let (frames, outgoing) = mpsc::channel(QUEUE);
        let (told, inbox) = inbox::channel();
        let mut rpc = self.rpc.clone();
        let over = Arc::<AtomicBool>::default();
        let ended = EndOfStream(Arc::clone(&over));
        handle().spawn(async move {
            let _ended = ended;
            let Ok(reply) = rpc.session(ReceiverStream::new(outgoing)).await else { return };
            let mut incoming = reply.into_inner();
            while let Ok(Some(frame)) = incoming.message().await {
                if let Some(body) = frame.body
                    && told.send(body).is_err()
                {
                    return;
                }
            }
        });
        Ok(RogueStream { frames, inbox, over })
    }

    /// Opens a session, whose heartbeats go on until the session is dropped.
    ///
    /// # Errors
    /// The server refuses the session, or says nothing.
    pub(crate) fn open(&self, open: wire::Open) -> Result<RogueSession> {
        let stream = self.stream()?;
        stream.say(Ask::Open(open))?;
        let opened = stream.wait(PATIENCE, |told| match told {
            Told::Opened(opened) => Some(Ok(opened)),
            Told::Refused(refused) => Some(Err(anyhow::anyhow!("refused: {:?}", refused.error))),
            Told::Superseded(_) => Some(Err(anyhow::anyhow!("the server does not act"))),
            _ => None,
        })??;
        let frames = stream.frames.downgrade();
        handle().spawn(async move {
            let mut sent_at = 0;
            while let Some(frames) = frames.upgrade() {
                sent_at += 1;
                let beat = Ask::Heartbeat(wire::Heartbeat { sent_at, progress: None });
                if frames.send(ClientFrame { body: Some(beat) }).await.is_err() {
                    return;
                }
                drop(frames);
                tokio::time::sleep(HEARTBEAT).await;
            }
        });
        Ok(RogueSession { stream, opened, seq: 0 })
    }
}

/// One stream: the attacker's messages go out, and the server's come in.
pub(crate) struct RogueStream {
    frames: mpsc::Sender<ClientFrame>,
    inbox: inbox::Receiver<Told>,
    over: Arc<AtomicBool>,
}

/// Notes, when dropped, that the stream has ended, for whatever reason.
struct EndOfStream(Arc<AtomicBool>);

impl Drop for EndOfStream {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl RogueStream {
    pub(crate) fn say(&self, body: Ask) -> Result<()> {
        run(self.frames.send(ClientFrame { body: Some(body) }))?.context("the stream has ended")
    }

    /// Waits for the first message that is wanted; others are passed over.
    pub(crate) fn wait<T>(
        &self,
        patience: Duration,
        wanted: impl Fn(Told) -> Option<T>,
    ) -> Result<T> {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let told = self.inbox.recv_timeout(left).context("nothing more was told")?;
            if let Some(found) = wanted(told) {
                return Ok(found);
            }
        }
    }

    /// Whether the server has ended the stream.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// The server's messages that were not looked at yet.
    pub(crate) fn heard(&self) -> Vec<Told> {
        self.inbox.try_iter().collect()
    }
}

/// How a call ended, or went on.
#[derive(Debug)]
pub(crate) enum CallOutcome {
    Answer(wire::answer::Answer),
    Assigned(wire::Assigned),
    Error(String),
}

impl wire::Opened {
    pub(crate) fn given(&self) -> wire::Ticket {
        self.ticket.clone().unwrap_or_default()
    }
}

/// An open session.
pub(crate) struct RogueSession {
    pub(crate) stream: RogueStream,
    pub(crate) opened: wire::Opened,
    seq: u64,
}

impl RogueSession {
    /// Makes a call and returns its number.
    pub(crate) fn begin(&mut self, call: wire::call::Call) -> Result<u64> {
        self.seq += 1;
        let deadline_ns = PATIENCE.as_nanos() as u64;
        self.stream.say(Ask::Call(wire::Call { seq: self.seq, deadline_ns, call: Some(call) }))?;
        Ok(self.seq)
    }

    /// The next thing that happens to a call.
    pub(crate) fn outcome(&self, seq: u64, patience: Duration) -> Result<CallOutcome> {
        use wire::answered::Result as Answered;
        self.stream.wait(patience, |told| match told {
            Told::Answered(answered) if answered.seq == seq => match answered.result? {
                Answered::Answer(answer) => Some(Ok(CallOutcome::Answer(answer.answer?))),
                Answered::Error(error) => Some(Ok(CallOutcome::Error(format!("{error:?}")))),
            },
            Told::Assigned(assigned) if assigned.seq == seq => {
                Some(Ok(CallOutcome::Assigned(assigned)))
            }
            Told::Broken(broken) => Some(Err(anyhow::anyhow!("broken: {:?}", broken.error))),
            _ => None,
        })?
    }

    /// Makes a call and waits for its outcome.
    pub(crate) fn call(&mut self, call: wire::call::Call) -> Result<CallOutcome> {
        let seq = self.begin(call)?;
        self.outcome(seq, PATIENCE)
    }

    /// Makes a call that has to be answered well.
    pub(crate) fn demand(&mut self, call: wire::call::Call) -> Result<wire::answer::Answer> {
        match self.call(call)? {
            CallOutcome::Answer(answer) => Ok(answer),
            CallOutcome::Error(error) => bail!("{error}"),
            other => bail!("{other:?}"),
        }
    }

    /// Registers memory of one tensor, without having any.
    pub(crate) fn register(&mut self, layout: &[u8], export: u64, bytes: u64) -> Result<()> {
        let call = wire::Register { layout: layout.to_vec(), export, bytes };
        self.demand(wire::call::Call::Register(call)).map(drop)
    }

    pub(crate) fn publish(&mut self, version: u64, catalog: &[u8], generation: u64) -> Result<()> {
        let call = wire::Publish { version, catalog: catalog.to_vec(), generation };
        self.demand(wire::call::Call::Publish(call)).map(drop)
    }

    /// Asks for a version, and takes the source that is named.
    pub(crate) fn replicate(&mut self, version: u64) -> Result<CallOutcome> {
        let kind = Some(wire::selector::Kind::Exact(version));
        let selector = Some(wire::Selector { kind });
        self.call(wire::call::Call::Replicate(wire::Replicate { selector }))
    }
}

/// An `Open` as an honest client would send it.
pub(crate) fn open(model: &str, replica: &str, role: wire::Role) -> wire::Open {
    wire::Open {
        protocol: wire::protocol(),
        session: random::<16>().to_vec(),
        model: model.to_owned(),
        replica: replica.to_owned(),
        num_shards: 1,
        role: role as i32,
        host: "rogue".to_owned(),
        data_address: "127.0.0.1:9".to_owned(),
        activate: true,
        ..wire::Open::default()
    }
}

/// A reply that comes in pages.
async fn whole<M: prost::Message + Default>(mut pages: tonic::Streaming<wire::Page>) -> Result<M> {
    let mut bytes = Vec::new();
    while let Some(page) = pages.message().await? {
        bytes.extend(page.data);
    }
    Ok(M::decode(&*bytes)?)
}

/// Where a version can be read.
pub(crate) struct SourceCopy {
    pub(crate) catalog: Vec<u8>,
    pub(crate) shards: Vec<wire::SourceShard>,
}

impl SourceCopy {
    /// The source that an assignment names.
    pub(crate) fn of(assignment: &wire::Assignment) -> Result<Self> {
        let shards = <wire::SourceShards as prost::Message>::decode(&*assignment.shards)?.shards;
        Ok(Self { catalog: assignment.catalog.clone(), shards })
    }
}
