//! The gRPC service: checks the token, turns frames into the actor's inputs.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};
use weightcast_protocol::ConnectionId;
use weightcast_transport::Secret;

use super::actor::{Input, Outbox, STREAM_QUEUE};
use super::admission::Pass;
use super::status;
use crate::convert::{
    client_message, content_digest, inspect_reply, inspected, term_proof, term_proof_frame,
};
use crate::limits::{FRAME_BYTES, MANIFEST_BYTES, PAGE_BYTES};
use crate::manifest;
use crate::wire;
use crate::wire::reference_server_server::{ReferenceServer, ReferenceServerServer};

/// The routes of one server.
pub(super) fn service(inputs: mpsc::Sender<Input>, token: Option<&Secret>) -> Routes {
    let service = Service { inputs, connections: Arc::new(AtomicU64::new(0)) };
    let service = ReferenceServerServer::new(service)
        .max_decoding_message_size(FRAME_BYTES)
        .max_encoding_message_size(FRAME_BYTES);
    let expected = token.map(crate::auth::bearer_digest);
    let check = move |request: Request<()>| -> Result<Request<()>, Status> {
        let given = request.metadata().get("authorization").map(|value| value.as_bytes());
        // Comparing digests takes the same time wherever the tokens differ.
        if expected.is_some_and(|token| given.is_none_or(|given| blake3::hash(given) != token)) {
            let problem = "missing or wrong token: set WEIGHTCAST_TOKEN_FILE";
            return Err(Status::unauthenticated(problem));
        }
        let pass = request.extensions().get::<Pass>().expect("every connection has one");
        pass.show()?;
        Ok(request)
    };
    Routes::new(tonic::service::interceptor::InterceptedService::new(service, check))
}

struct Service {
    inputs: mpsc::Sender<Input>,
    connections: Arc<AtomicU64>,
}

impl Service {
    /// Asks the actor and waits for its answer.
    async fn ask<T>(&self, input: impl FnOnce(oneshot::Sender<T>) -> Input) -> Result<T, Status> {
        let stopping = |_| Status::unavailable("the server is stopping");
        let (reply, answer) = oneshot::channel();
        self.inputs.send(input(reply)).await.map_err(|_| stopping(()))?;
        answer.await.map_err(|_| stopping(()))
    }
}

type Frames<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl ReferenceServer for Service {
    type SessionStream = ReceiverStream<Result<wire::ServerFrame, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<wire::ClientFrame>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let connection = ConnectionId(self.connections.fetch_add(1, Ordering::Relaxed));
        let (frames, receiver) = mpsc::channel(STREAM_QUEUE);
        let (alive, cut_off) = oneshot::channel();
        self.inputs
            .send(Input::Connected(connection, Outbox { frames, _alive: alive }))
            .await
            .map_err(|_| Status::unavailable("the server is stopping"))?;
        tokio::spawn(forward(connection, request.into_inner(), self.inputs.clone(), cut_off));
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn put_manifest(
        &self,
        request: Request<Streaming<wire::ManifestPage>>,
    ) -> Result<Response<wire::PutManifestReply>, Status> {
        let mut pages = request.into_inner();
        let mut digest = None;
        let mut bytes = Vec::new();
        while let Some(page) = pages.next().await {
            let page = page?;
            if digest.is_none() {
                digest = Some(content_digest(&page.digest).map_err(invalid)?);
            }
            if page.data.len() > PAGE_BYTES || bytes.len() + page.data.len() > MANIFEST_BYTES {
                return Err(Status::resource_exhausted(format!(
                    "a manifest has at most {MANIFEST_BYTES} bytes in pages of {PAGE_BYTES}"
                )));
            }
            bytes.extend_from_slice(&page.data);
        }
        let digest = digest.ok_or_else(|| Status::invalid_argument("no page"))?;
        if manifest::blob_digest(&bytes) != digest {
            return Err(Status::invalid_argument("the manifest's digest is not that of its bytes"));
        }
        self.ask(|reply| Input::PutManifest(digest, bytes, reply))
            .await?
            .map_err(|e| Status::resource_exhausted(e.to_string()))?;
        Ok(Response::new(wire::PutManifestReply {}))
    }

    type GetManifestStream = Frames<wire::ManifestPage>;

    async fn get_manifest(
        &self,
        request: Request<wire::GetManifestRequest>,
    ) -> Result<Response<Self::GetManifestStream>, Status> {
        let digest = content_digest(&request.into_inner().digest).map_err(invalid)?;
        let bytes = self
            .ask(|reply| Input::GetManifest(digest, reply))
            .await?
            .ok_or_else(|| Status::not_found(format!("no manifest {digest}")))?;
        let pages: Vec<_> = bytes
            .chunks(PAGE_BYTES)
            .map(|data| Ok(wire::ManifestPage { digest: Vec::new(), data: data.to_vec() }))
            .collect();
        Ok(Response::new(Box::pin(tokio_stream::iter(pages))))
    }

    async fn probe(
        &self,
        request: Request<wire::ProbeRequest>,
    ) -> Result<Response<wire::ProbeReply>, Status> {
        let told = request.into_inner().proof.map(term_proof).transpose().map_err(invalid)?;
        // Nothing is proved by nothing.
        let told = told.unwrap_or_default();
        let acts = self.ask(|reply| Input::Probe(told, reply)).await?;
        Ok(Response::new(wire::ProbeReply { proof: acts.map(term_proof_frame) }))
    }

    async fn status(
        &self,
        _request: Request<wire::StatusRequest>,
    ) -> Result<Response<wire::StatusReply>, Status> {
        let snapshot = self.ask(Input::Snapshot).await?;
        Ok(Response::new(status::status_frame(snapshot)))
    }

    async fn inspect(
        &self,
        request: Request<wire::InspectRequest>,
    ) -> Result<Response<wire::InspectReply>, Status> {
        let wire::InspectRequest { model, replica } = request.into_inner();
        let (term, of) = self.ask(|reply| Input::Inspect(model, replica, reply)).await?;
        Ok(Response::new(inspect_reply(inspected(term, of))))
    }
}

fn invalid(malformed: crate::convert::Malformed) -> Status {
    Status::invalid_argument(malformed.to_string())
}

/// Hands a stream's messages to the actor, and its end.
async fn forward(
    connection: ConnectionId,
    mut frames: Streaming<wire::ClientFrame>,
    inputs: mpsc::Sender<Input>,
    mut cut_off: oneshot::Receiver<()>,
) {
    loop {
        let frame = tokio::select! {
            frame = frames.next() => frame,
            _ = &mut cut_off => None,
        };
        let Some(Ok(frame)) = frame else { break };
        match client_message(frame) {
            Ok(message) => {
                if inputs.send(Input::Message(connection, message)).await.is_err() {
                    break;
                }
            }
            Err(malformed) => {
                tracing::warn!(connection = connection.0, %malformed, "stream closed");
                break;
            }
        }
    }
    let _ = inputs.send(Input::Disconnected(connection)).await;
}
