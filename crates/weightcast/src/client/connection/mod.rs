//! A handle's connection to its reference servers: for the session's stream, manifests and
//! questions.
//!
//! Each server is reached through a `port`; `grpc` is the port of real servers. `status` asks a
//! server what it knows, `why` what a replica waits for, `fleet` the register of a fleet, `engines` the engines of a fleet; `questions` are those of the
//! doctor.

pub(crate) mod engines;
mod fleet;
mod grpc;
pub(super) mod port;
mod questions;
pub(super) mod record;
pub(crate) mod status;
pub(crate) mod why;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prost::Message;
use prost::bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::{Stream, StreamExt};
use tonic::{Code, Status};
use weightcast_protocol::{CallError, ContentDigest, Sum, TermProof};
use weightcast_transport::Secret;

use self::grpc::{CONNECT, GrpcPort};
use self::port::{ControlPort, Incoming};
use crate::convert::{Inspected, inspection, sum_frame, term_proof, term_proof_frame};
use crate::error::Error;
use crate::limits::{MANIFEST_BYTES, STATUS_BYTES};
use crate::manifest;
use crate::serve::BUSY;
use crate::wire::{
    ClientFrame, GetManifestRequest, InspectRequest, Page, ProbeRequest, RecordReply, ServerFrame,
    WhyReply, WhyRequest,
};

/// The pause before a busy server is asked again: doubles with each time, up to the longest.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Most messages that wait to be sent on one stream.
const QUEUE: usize = 256;

/// The reference servers, one of which is in use; clones share the choice. Must be used inside a
/// runtime.
#[derive(Clone)]
pub(crate) struct ServerConnection {
    servers: Arc<[(String, Box<dyn ControlPort>)]>,
    /// The server that the session tried last.
    current: Arc<AtomicUsize>,
}

/// An open session stream.
pub(crate) struct ServerStream {
    pub(crate) sender: mpsc::Sender<ClientFrame>,
    pub(crate) frames: Incoming<ServerFrame>,
}

impl ServerConnection {
    /// A connection to one address, or to several with commas between them. Connects at the first
    /// request, and again after a failure.
    pub(crate) fn new(addresses: &str, token: Option<&Secret>) -> Result<Self, Error> {
        let servers = addresses.split(',').map(|address| {
            let address = address.trim();
            let port: Box<dyn ControlPort> = Box::new(GrpcPort::new(address, token)?);
            Ok((address.to_owned(), port))
        });
        Ok(Self::to(servers.collect::<Result<_, Error>>()?))
    }

    /// A connection to these servers, each with its address.
    pub(crate) fn to(servers: Vec<(String, Box<dyn ControlPort>)>) -> Self {
        Self { servers: servers.into(), current: Arc::default() }
    }

    /// Uses this server of the list from now on.
    pub(crate) fn turn_to(&self, server: usize) {
        self.current.store(server, Ordering::Relaxed);
    }

    fn current(&self) -> &(String, Box<dyn ControlPort>) {
        self.at(self.current.load(Ordering::Relaxed))
    }

    /// Proves a term to a server, and asks for the term in which the server acts. `Some(None)`: the
    /// server is passive. `None`: no answer.
    pub(crate) async fn probe(&self, server: usize, told: TermProof) -> Option<Option<TermProof>> {
        let port = &self.servers.get(server)?.1;
        let reply = port.probe(ProbeRequest { proof: Some(term_proof_frame(told)) });
        let reply = tokio::time::timeout(CONNECT, reply).await.ok()?.ok()?;
        reply.proof.map(term_proof).transpose().ok()
    }

    /// The server at this place of the list; places beyond the end wrap.
    fn at(&self, server: usize) -> &(String, Box<dyn ControlPort>) {
        &self.servers[server % self.servers.len()]
    }

    /// Opens a stream to this server, even if the session has turned to another meanwhile.
    pub(crate) async fn session(&self, server: usize) -> Result<ServerStream, Status> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let opened = tokio::time::timeout(CONNECT, self.at(server).1.session(receiver)).await;
        let frames = opened
            .map_err(|_| Status::deadline_exceeded(format!("no answer within {CONNECT:?}")))??;
        Ok(ServerStream { sender, frames })
    }

    /// Stores a manifest; returns its name.
    pub(crate) async fn put_manifest(&self, bytes: Vec<u8>) -> Result<ContentDigest, Error> {
        self.put_manifest_at(self.current.load(Ordering::Relaxed), bytes).await
    }

    /// Stores a manifest at this server, even if the session has turned to another meanwhile.
    pub(crate) async fn put_manifest_at(
        &self,
        server: usize,
        bytes: Vec<u8>,
    ) -> Result<ContentDigest, Error> {
        let digest = manifest::blob_digest(&bytes);
        if bytes.len() > MANIFEST_BYTES {
            return Err(Error::Call(CallError::Limit {
                what: "the manifest's size in bytes (register fewer tensors per shard)".to_owned(),
                limit: MANIFEST_BYTES as u64,
                got: bytes.len() as u64,
            }));
        }
        let bytes = Bytes::from(bytes);
        let stored = patiently(|| self.at(server).1.put_manifest(digest, bytes.clone())).await;
        stored.map(|_| digest).map_err(|status| self.unreachable(&status))
    }

    /// Fetches a manifest and checks that it is the one that was asked for.
    pub(crate) async fn manifest(&self, digest: ContentDigest) -> Result<Vec<u8>, Error> {
        let pages = patiently(|| {
            self.current().1.get_manifest(GetManifestRequest { digest: digest.0.to_vec() })
        });
        let pages = pages.await;
        let pages = pages.map_err(|status| self.unreachable(&status))?;
        let pages = pages.map(|page| page.map(|page| (page.size, page.data)));
        let bytes = self.whole(pages, MANIFEST_BYTES).await?;
        if manifest::blob_digest(&bytes) != digest {
            return Err(Error::Bug(format!("the server sent another manifest than {digest}")));
        }
        Ok(bytes)
    }

    pub(crate) async fn status(&self) -> Result<crate::wire::StatusReply, Error> {
        let reply = patiently(|| self.current().1.status()).await;
        self.reply(reply).await
    }

    /// Has the server write down its last minutes; where, and how many events.
    pub(crate) async fn record(&self) -> Result<RecordReply, Error> {
        let reply = patiently(|| self.current().1.record()).await;
        reply.map_err(|status| self.unreachable(&status))
    }

    /// Why a replica waits.
    pub(crate) async fn why(&self, request: WhyRequest) -> Result<WhyReply, Error> {
        let reply = patiently(|| self.current().1.why(request.clone())).await;
        self.reply(reply).await
    }

    /// A reply that came in pages.
    async fn reply<M: Message + Default>(
        &self,
        pages: Result<Incoming<Page>, Status>,
    ) -> Result<M, Error> {
        let pages = pages.map_err(|status| self.unreachable(&status))?;
        let pages = pages.map(|page| page.map(|page| (page.size, page.data)));
        let bytes = self.whole(pages, STATUS_BYTES).await?;
        M::decode(&*bytes).map_err(|problem| Error::Bug(problem.to_string()))
    }

    /// Joins all pages; the first page says how many bytes they have.
    async fn whole(
        &self,
        pages: impl Stream<Item = Result<(u64, Bytes), Status>>,
        most: usize,
    ) -> Result<Vec<u8>, Error> {
        let mut pages = pin!(pages);
        let (mut size, mut bytes) = (0, Vec::new());
        while let Some(page) = pages.next().await {
            let (whole, data) = page.map_err(|status| self.unreachable(&status))?;
            size = whole.max(size);
            if size > most as u64 || bytes.len() + data.len() > most {
                return Err(Error::Bug(format!("the server sent more than {most} bytes")));
            }
            // Reserve all at once: a buffer that grows page by page takes up to three times as
            // much.
            bytes.reserve_exact((size as usize).saturating_sub(bytes.len()));
            bytes.extend_from_slice(&data);
        }
        match bytes.len() as u64 == size {
            true => Ok(bytes),
            false => {
                let slow = "it took too long to be read, and was cut off";
                Err(self.unreachable(&Status::deadline_exceeded(slow)))
            }
        }
    }

    /// What the server knows of a replica. With `found`, a sum of the replica's content, the reply
    /// says whether that is what was sealed.
    pub(crate) async fn inspect(
        &self,
        model: &str,
        replica: &str,
        found: Option<Sum>,
    ) -> Result<Inspected, Error> {
        let (model, replica) = (model.to_owned(), replica.to_owned());
        let request = InspectRequest { model, replica, found: found.map(sum_frame) };
        let reply = patiently(|| self.current().1.inspect(request.clone())).await;
        let reply = self.reply(reply).await?;
        inspection(reply).map_err(|malformed| Error::Bug(malformed.to_string()))
    }

    /// What a failed request means to the user.
    pub(crate) fn unreachable(&self, status: &Status) -> Error {
        Error::Call(CallError::ServerUnreachable {
            server: self.current().0.clone(),
            reason: match status.code() {
                Code::Unauthenticated => status.message().to_owned(),
                code => format!("{code:?}: {}", status.message()),
            },
        })
    }
}

/// Asks again as long as the server answers [`BUSY`]. Sets no deadline: the caller does.
async fn patiently<T, F>(ask: impl Fn() -> F) -> Result<T, Status>
where
    F: Future<Output = Result<T, Status>>,
{
    let mut pause = PAUSE;
    loop {
        match ask().await {
            Err(status) if status.code() == BUSY => tokio::time::sleep(pause).await,
            result => return result,
        }
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

#[cfg(test)]
pub(super) mod tests;
