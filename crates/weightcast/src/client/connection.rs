//! The gRPC side of a handle: one channel for the session's stream and for manifests.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prost::Message;
use prost::bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use weightcast_protocol::{CallError, ContentDigest, Sum, TermProof};
use weightcast_transport::Secret;

use crate::convert::{Inspected, inspection, sum_frame, term_proof, term_proof_frame};
use crate::limits::{FRAME_BYTES, MANIFEST_BYTES, PAGE_BYTES, SOCKET_PATH_BYTES, STATUS_BYTES};
use crate::serve::BUSY;
use crate::wire::reference_server_client::ReferenceServerClient;
use crate::wire::{
    ClientFrame, GetManifestRequest, InspectRequest, ManifestPage, Page, ProbeRequest, ServerFrame,
    StatusRequest,
};
use crate::{Error, auth, manifest};

/// How long one attempt to connect may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How often a silent server is asked for a sign of life.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// The pause before a busy server is asked again: doubles with each time, up to the longest.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Messages waiting to be sent.
const QUEUE: usize = 256;

/// Adds the token to every request.
#[derive(Clone)]
pub(crate) struct ShowToken(Option<MetadataValue<Ascii>>);

impl tonic::service::Interceptor for ShowToken {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}

type Client = ReferenceServerClient<InterceptedService<Channel, ShowToken>>;

/// A way to the reference servers, of which one is used; clones share it. Must be used inside a
/// runtime.
#[derive(Clone)]
pub(crate) struct Connection {
    servers: Arc<[(String, Client)]>,
    /// The server that the session tried last.
    current: Arc<AtomicUsize>,
}

/// An open session stream.
pub(crate) struct Session {
    pub(crate) sender: mpsc::Sender<ClientFrame>,
    pub(crate) frames: Streaming<ServerFrame>,
}

impl Connection {
    /// Of one address, or several with commas between them. Connects at the first request, and
    /// again after a failure.
    pub(crate) fn new(addresses: &str, token: Option<&Secret>) -> Result<Self, Error> {
        let server = |address: &str| {
            let address = address.trim();
            Ok((address.to_owned(), Self::client(address, token)?))
        };
        let servers: Result<Vec<_>, Error> = addresses.split(',').map(server).collect();
        Ok(Self { servers: servers?.into(), current: Arc::default() })
    }

    /// Uses this server of the list from now on.
    pub(crate) fn turn_to(&self, server: usize) {
        self.current.store(server, Ordering::Relaxed);
    }

    fn current(&self) -> &(String, Client) {
        self.at(self.current.load(Ordering::Relaxed))
    }

    /// Proves a term to a server; the one that it acts in, if it is not passive. None if it does not
    /// answer.
    pub(crate) async fn probe(&self, server: usize, told: TermProof) -> Option<Option<TermProof>> {
        let mut client = self.servers.get(server)?.1.clone();
        let reply = client.probe(ProbeRequest { proof: Some(term_proof_frame(told)) });
        let reply = tokio::time::timeout(CONNECT, reply).await.ok()?.ok()?;
        reply.into_inner().proof.map(term_proof).transpose().ok()
    }

    fn client(address: &str, token: Option<&Secret>) -> Result<Client, Error> {
        let malformed = |problem: String| Error::Config { what: "server".to_owned(), problem };
        if let Some(path) = address.strip_prefix("unix:")
            && path.trim_start_matches("//").len() > SOCKET_PATH_BYTES
        {
            return Err(malformed(format!(
                "{address:?}: a socket's path has at most {SOCKET_PATH_BYTES} bytes, no server can \
                 listen there; choose a shorter one"
            )));
        }
        let full = match address.contains("://") || address.starts_with("unix:") {
            true => address.to_owned(),
            false => format!("http://{address}"),
        };
        let endpoint = Endpoint::from_shared(full)
            .map_err(|e| malformed(format!("{address:?} is not an address: {e}")))?
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE);
        let bearer = token.map(|token| {
            let mut value: MetadataValue<Ascii> = auth::bearer(token)
                .parse()
                .map_err(|_| malformed("the token has characters that no header may".into()))?;
            value.set_sensitive(true);
            Ok::<_, Error>(value)
        });
        let show = ShowToken(bearer.transpose()?);
        Ok(ReferenceServerClient::with_interceptor(endpoint.connect_lazy(), show)
            .max_decoding_message_size(FRAME_BYTES)
            .max_encoding_message_size(FRAME_BYTES))
    }

    /// The server of this place in the list.
    fn at(&self, server: usize) -> &(String, Client) {
        &self.servers[server % self.servers.len()]
    }

    /// A stream to this server, whichever the session has turned to meanwhile.
    pub(crate) async fn session(&self, server: usize) -> Result<Session, Status> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let mut client = self.at(server).1.clone();
        let opening = client.session(ReceiverStream::new(receiver));
        let opened = tokio::time::timeout(CONNECT, opening).await;
        let late = |_| Status::deadline_exceeded(format!("no answer within {CONNECT:?}"));
        let frames = opened.map_err(late)??.into_inner();
        Ok(Session { sender, frames })
    }

    /// Stores a manifest; returns its name.
    pub(crate) async fn put_manifest(&self, bytes: Vec<u8>) -> Result<ContentDigest, Error> {
        self.put_manifest_at(self.current.load(Ordering::Relaxed), bytes).await
    }

    /// The same at this server, whichever the session has turned to meanwhile.
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
        let stored = patiently(|| {
            let mut client = self.at(server).1.clone();
            let pages = pages(digest, bytes.clone());
            async move { client.put_manifest(tokio_stream::iter(pages)).await }
        });
        let stored = stored.await;
        stored.map(|_| digest).map_err(|status| self.unreachable(&status))
    }

    /// Fetches a manifest and checks that it is the one that was asked for.
    pub(crate) async fn manifest(&self, digest: ContentDigest) -> Result<Vec<u8>, Error> {
        let pages = patiently(|| {
            let mut client = self.current().1.clone();
            let request = GetManifestRequest { digest: digest.0.to_vec() };
            async move { client.get_manifest(request).await }
        });
        let pages = pages.await;
        let pages = pages.map_err(|status| self.unreachable(&status))?.into_inner();
        let pages = pages.map(|page| page.map(|page| (page.size, page.data)));
        let bytes = self.whole(pages, MANIFEST_BYTES).await?;
        if manifest::blob_digest(&bytes) != digest {
            return Err(Error::Bug(format!("the server sent another manifest than {digest}")));
        }
        Ok(bytes)
    }

    pub(crate) async fn status(&self) -> Result<crate::wire::StatusReply, Error> {
        let reply = patiently(|| {
            let mut client = self.current().1.clone();
            async move { client.status(StatusRequest {}).await }
        });
        let reply = reply.await;
        self.reply(reply.map(tonic::Response::into_inner)).await
    }

    /// A reply that came in pages.
    async fn reply<M: Message + Default>(
        &self,
        pages: Result<Streaming<Page>, Status>,
    ) -> Result<M, Error> {
        let pages = pages.map_err(|status| self.unreachable(&status))?;
        let pages = pages.map(|page| page.map(|page| (page.size, page.data)));
        let bytes = self.whole(pages, STATUS_BYTES).await?;
        M::decode(&*bytes).map_err(|problem| Error::Bug(problem.to_string()))
    }

    /// All pages, of which the first says how many bytes they have.
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
            // All at once: what grows as it comes takes up to three times as much.
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

    /// A replica as the server tells of it, to one who has `found` something there.
    pub(crate) async fn inspect(
        &self,
        model: &str,
        replica: &str,
        found: Option<Sum>,
    ) -> Result<Inspected, Error> {
        let (model, replica) = (model.to_owned(), replica.to_owned());
        let request = InspectRequest { model, replica, found: found.map(sum_frame) };
        let reply = patiently(|| {
            let (mut client, request) = (self.current().1.clone(), request.clone());
            async move { client.inspect(request).await }
        });
        let reply = reply.await;
        let reply = self.reply(reply.map(tonic::Response::into_inner)).await?;
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

/// Asks again as long as the server has no place for one more that waits. It is the caller who knows
/// for how long.
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

/// A manifest in pages: one for it if it has no bytes as well.
fn pages(digest: ContentDigest, bytes: Bytes) -> impl Iterator<Item = ManifestPage> {
    let mut first = Some((digest.0.to_vec(), bytes.len() as u64));
    (0..bytes.len().max(1)).step_by(PAGE_BYTES).map(move |at| {
        let (digest, size) = first.take().unwrap_or_default();
        let data = bytes.slice(at..bytes.len().min(at + PAGE_BYTES));
        ManifestPage { digest, size, data }
    })
}
