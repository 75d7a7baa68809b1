//! A control port over gRPC: one channel for the session's stream and for everything else.

use std::time::Duration;

use prost::bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status, Streaming};
use weightcast_protocol::ContentDigest;
use weightcast_transport::Secret;

use super::port::{ControlPort, Incoming, Requested};
use crate::auth;
use crate::error::Error;
use crate::limits::{FRAME_BYTES, PAGE_BYTES, SOCKET_PATH_BYTES};
use crate::wire::reference_server_client::ReferenceServerClient;
use crate::wire::{
    ClientFrame, DialBackReply, DialBackRequest, FleetReply, FleetRequest, GetManifestRequest,
    InspectRequest, ManifestPage, Page, PreviewReply, PreviewRequest, ProbeReply, ProbeRequest,
    RecordReply, RecordRequest, ServerFrame, StatusRequest, WhyRequest,
};

/// How long one attempt to connect may take.
pub(in crate::client) const CONNECT: Duration = Duration::from_secs(5);
/// How often a silent server is asked for a sign of life.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// Adds the token to every request.
#[derive(Clone)]
struct ShowToken(Option<MetadataValue<Ascii>>);

impl tonic::service::Interceptor for ShowToken {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}

/// Connects at the first request, and again after a failure.
pub(super) struct GrpcPort(ReferenceServerClient<InterceptedService<Channel, ShowToken>>);

impl GrpcPort {
    pub(in crate::client) fn new(address: &str, token: Option<&Secret>) -> Result<Self, Error> {
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
        let client = ReferenceServerClient::with_interceptor(endpoint.connect_lazy(), show);
        Ok(Self(
            client.max_decoding_message_size(FRAME_BYTES).max_encoding_message_size(FRAME_BYTES),
        ))
    }
}

fn malformed(problem: String) -> Error {
    Error::Config { what: "server".to_owned(), problem }
}

impl ControlPort for GrpcPort {
    fn session(&self, sent: mpsc::Receiver<ClientFrame>) -> Requested<Incoming<ServerFrame>> {
        let mut client = self.0.clone();
        Box::pin(async move { client.session(ReceiverStream::new(sent)).await.map(incoming) })
    }

    fn probe(&self, request: ProbeRequest) -> Requested<ProbeReply> {
        let mut client = self.0.clone();
        Box::pin(async move { client.probe(request).await.map(Response::into_inner) })
    }

    fn put_manifest(&self, name: ContentDigest, bytes: Bytes) -> Requested<()> {
        let mut client = self.0.clone();
        let pages = tokio_stream::iter(pages(name, bytes));
        Box::pin(async move { client.put_manifest(pages).await.map(drop) })
    }

    fn get_manifest(&self, request: GetManifestRequest) -> Requested<Incoming<ManifestPage>> {
        let mut client = self.0.clone();
        Box::pin(async move { client.get_manifest(request).await.map(incoming) })
    }

    fn status(&self) -> Requested<Incoming<Page>> {
        let mut client = self.0.clone();
        Box::pin(async move { client.status(StatusRequest {}).await.map(incoming) })
    }

    fn record(&self) -> Requested<RecordReply> {
        let mut client = self.0.clone();
        Box::pin(async move { client.record(RecordRequest {}).await.map(Response::into_inner) })
    }

    fn why(&self, request: WhyRequest) -> Requested<Incoming<Page>> {
        let mut client = self.0.clone();
        Box::pin(async move { client.why(request).await.map(incoming) })
    }

    fn inspect(&self, request: InspectRequest) -> Requested<Incoming<Page>> {
        let mut client = self.0.clone();
        Box::pin(async move { client.inspect(request).await.map(incoming) })
    }

    fn preview(&self, request: PreviewRequest) -> Requested<PreviewReply> {
        let mut client = self.0.clone();
        Box::pin(async move { client.preview(request).await.map(Response::into_inner) })
    }

    fn fleet(&self, request: FleetRequest) -> Requested<FleetReply> {
        let mut client = self.0.clone();
        Box::pin(async move { client.fleet(request).await.map(Response::into_inner) })
    }

    fn dial_back(&self, request: DialBackRequest) -> Requested<DialBackReply> {
        let mut client = self.0.clone();
        Box::pin(async move { client.dial_back(request).await.map(Response::into_inner) })
    }
}

fn incoming<T: Send + 'static>(response: Response<Streaming<T>>) -> Incoming<T> {
    Box::pin(response.into_inner())
}

/// A manifest in pages; an empty manifest has one page too.
fn pages(name: ContentDigest, bytes: Bytes) -> impl Iterator<Item = ManifestPage> {
    let mut first = Some((name.0.to_vec(), bytes.len() as u64));
    (0..bytes.len().max(1)).step_by(PAGE_BYTES).map(move |at| {
        let (digest, size) = first.take().unwrap_or_default();
        let data = bytes.slice(at..bytes.len().min(at + PAGE_BYTES));
        ManifestPage { digest, size, data }
    })
}
