//! The gRPC service: checks the token, turns frames into the actor's inputs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prost::Message;
use prost::bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};
use weightcast_protocol::ConnectionId;
use weightcast_transport::Secret;

use super::actor::{ActorInput, StreamEnd};
use super::admission::Pass;
use super::dial_back::DialBack;
use super::outbox::{Frames, outbox};
use super::queue::QueueShare;
use super::status;
use super::transfers::{self, Sent, Transfers, Turns};
use super::visitor::VisitorCard;
use crate::convert::{
    AskedFleet, client_message, content_digest, fleet_question, fleet_reply, inspect_reply,
    inspected, preview_frame, routing_reply, sum, term_proof, term_proof_frame,
};
use crate::limits::{CLIENT_FRAME_BYTES, FRAME_BYTES, TRANSFER_PATIENCE};
use crate::manifest;
use crate::recordings::{RecordingFiles, WrittenRecording};
use crate::wire;
use crate::wire::reference_server_server::{ReferenceServer, ReferenceServerServer};

/// The routes of one server.
pub(super) fn service(
    inputs: mpsc::Sender<ActorInput>,
    token: Option<&Secret>,
    recordings: RecordingFiles,
) -> Routes {
    let connections = Arc::new(AtomicU64::new(0));
    let (transfers, dials) = (Transfers::new(), DialBack::new());
    let service = Service { inputs, connections, transfers, dials, recordings };
    let service = ReferenceServerServer::new(service)
        .max_decoding_message_size(FRAME_BYTES)
        .max_encoding_message_size(FRAME_BYTES);
    let expected = token.map(crate::auth::bearer_digest);
    let check = move |request: Request<()>| -> Result<Request<()>, Status> {
        let given = request.metadata().get("authorization").map(|value| value.as_bytes());
        if expected.is_some_and(|token| !crate::auth::is_shown(&token, given)) {
            let problem = "missing or wrong token: set WEIGHTCAST_TOKEN_FILE";
            return Err(Status::unauthenticated(problem));
        }
        pass(&request).show()?;
        Ok(request)
    };
    Routes::new(tonic::service::interceptor::InterceptedService::new(service, check))
}

struct Service {
    inputs: mpsc::Sender<ActorInput>,
    connections: Arc<AtomicU64>,
    transfers: Transfers,
    dials: DialBack,
    recordings: RecordingFiles,
}

/// What there is to know of the connection that a request came on.
fn card<T>(request: &Request<T>) -> &VisitorCard {
    request.extensions().get::<VisitorCard>().expect("every connection has one")
}

/// The pass of the connection that a request came on.
fn pass<T>(request: &Request<T>) -> &Pass {
    &card(request).pass
}

/// The pages of a reply.
type Pages = ReceiverStream<Result<wire::Page, Status>>;

fn page(size: u64, data: Bytes) -> wire::Page {
    wire::Page { size, data }
}

impl Service {
    /// Asks the actor and waits for its answer.
    async fn ask<T>(
        &self,
        input: impl FnOnce(oneshot::Sender<T>) -> ActorInput,
    ) -> Result<T, Status> {
        let stopping = |_| Status::unavailable("the server is stopping");
        let (reply, answer) = oneshot::channel();
        self.inputs.send(input(reply)).await.map_err(|_| stopping(()))?;
        answer.await.map_err(|_| stopping(()))
    }

    /// Stores a manifest, unless it is stored already.
    async fn store(
        &self,
        turns: &Turns,
        mut pages: impl Stream<Item = Result<wire::ManifestPage, Status>> + Unpin,
    ) -> Result<(), Status> {
        let _turn = turns.to_send()?;
        let first = tokio::time::timeout(TRANSFER_PATIENCE, pages.next()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("no page"))?;
        let first = first.ok_or_else(|| Status::invalid_argument("no page"))??;
        let digest = content_digest(&first.digest).map_err(invalid)?;
        if self.ask(|reply| ActorInput::HasManifest(digest, reply)).await? {
            return Ok(());
        }
        let _room = self.transfers.to_receive(turns, &first).await?;
        // Shards with one layout upload it at the same time: another may have stored it by now.
        if self.ask(|reply| ActorInput::HasManifest(digest, reply)).await? {
            return Ok(());
        }
        let bytes = transfers::receive(first, &mut pages).await?;
        if manifest::blob_digest(&bytes) != digest {
            return Err(Status::invalid_argument("the manifest's digest is not that of its bytes"));
        }
        let stored = self.ask(|reply| ActorInput::PutManifest(digest, bytes, reply)).await?;
        stored.map_err(|e| Status::resource_exhausted(e.to_string()))
    }

    /// Sends a reply that may be large. Waits for room before the reply is made.
    async fn reply<M: Message>(
        &self,
        pass: &Pass,
        room: impl Future<Output = Result<QueueShare, Status>>,
        ask: impl Future<Output = Result<M, Status>>,
    ) -> Result<Response<Pages>, Status> {
        let turn = pass.turns().to_be_sent().await?;
        let mut room = room.await?;
        let reply = Sent::reply(ask.await?.encode_to_vec(), &mut room);
        Ok(Response::new(transfers::send((turn, room), reply, page)))
    }
}

#[tonic::async_trait]
impl ReferenceServer for Service {
    type SessionStream = Frames;

    async fn session(
        &self,
        request: Request<Streaming<wire::ClientFrame>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let connection = ConnectionId(self.connections.fetch_add(1, Ordering::Relaxed));
        let (outbox, frames) = outbox();
        let (alive, cut_off) = oneshot::channel();
        let line = StreamEnd { outbox, pass: pass(&request).clone(), _alive: alive };
        self.inputs
            .send(ActorInput::Connected(connection, line))
            .await
            .map_err(|_| Status::unavailable("the server is stopping"))?;
        tokio::spawn(forward(connection, request.into_inner(), self.inputs.clone(), cut_off));
        Ok(Response::new(frames))
    }

    async fn put_manifest(
        &self,
        request: Request<Streaming<wire::ManifestPage>>,
    ) -> Result<Response<wire::PutManifestReply>, Status> {
        let pass = pass(&request).clone();
        self.store(pass.turns(), request.into_inner()).await?;
        Ok(Response::new(wire::PutManifestReply {}))
    }

    type GetManifestStream = ReceiverStream<Result<wire::ManifestPage, Status>>;

    async fn get_manifest(
        &self,
        request: Request<wire::GetManifestRequest>,
    ) -> Result<Response<Self::GetManifestStream>, Status> {
        let pass = pass(&request).clone();
        let digest = content_digest(&request.into_inner().digest).map_err(invalid)?;
        let turn = pass.turns().to_be_sent().await?;
        let room = self.transfers.to_lend(pass.turns()).await?;
        let bytes = self
            .ask(|reply| ActorInput::GetManifest(digest, reply))
            .await?
            .ok_or_else(|| Status::not_found(format!("no manifest {digest}")))?;
        let stored = Sent::Stored(Arc::downgrade(&bytes));
        let page = |size, data| wire::ManifestPage { digest: Vec::new(), size, data };
        Ok(Response::new(transfers::send((turn, room), stored, page)))
    }

    async fn probe(
        &self,
        request: Request<wire::ProbeRequest>,
    ) -> Result<Response<wire::ProbeReply>, Status> {
        let told = request.into_inner().proof.map(term_proof).transpose().map_err(invalid)?;
        // A missing proof counts as one that proves nothing.
        let told = told.unwrap_or_default();
        let acts = self.ask(|reply| ActorInput::Probe(told, reply)).await?;
        Ok(Response::new(wire::ProbeReply { proof: acts.map(term_proof_frame) }))
    }

    type StatusStream = Pages;

    async fn status(
        &self,
        request: Request<wire::StatusRequest>,
    ) -> Result<Response<Pages>, Status> {
        let pass = pass(&request);
        let ask = async { self.ask(ActorInput::Snapshot).await.map(status::status_frame) };
        self.reply(pass, self.transfers.to_tell(pass.turns()), ask).await
    }

    async fn record(
        &self,
        request: Request<wire::RecordRequest>,
    ) -> Result<Response<wire::RecordReply>, Status> {
        let _room = self.transfers.to_record(pass(&request).turns()).await?;
        let recording = self.ask(ActorInput::Record).await?;
        let recording = recording.map_err(|e| Status::failed_precondition(e.to_string()))?;
        let files = self.recordings.clone();
        // Others are answered meanwhile.
        let written = tokio::task::spawn_blocking(move || files.write(&recording)).await;
        let written = written.map_err(|e| Status::internal(e.to_string()))?;
        let WrittenRecording { path, events } =
            written.map_err(|e| Status::internal(e.to_string()))?;
        Ok(Response::new(wire::RecordReply { path: path.display().to_string(), events }))
    }

    type WhyStream = Pages;

    async fn why(&self, request: Request<wire::WhyRequest>) -> Result<Response<Pages>, Status> {
        let pass = pass(&request).clone();
        let wire::WhyRequest { model, replica } = request.into_inner();
        let ask = async {
            let why = self.ask(|reply| ActorInput::Why(model, replica, reply)).await?;
            Ok(status::why_frame(why))
        };
        self.reply(&pass, self.transfers.to_inspect(pass.turns()), ask).await
    }

    type InspectStream = Pages;

    async fn inspect(
        &self,
        request: Request<wire::InspectRequest>,
    ) -> Result<Response<Pages>, Status> {
        let pass = pass(&request).clone();
        let wire::InspectRequest { model, replica, found } = request.into_inner();
        let found = found.map(sum);
        let ask = async {
            let (term, of) =
                self.ask(|reply| ActorInput::Inspect(model, replica, found, reply)).await?;
            Ok(inspect_reply(inspected(term, of)))
        };
        self.reply(&pass, self.transfers.to_inspect(pass.turns()), ask).await
    }

    async fn preview(
        &self,
        request: Request<wire::PreviewRequest>,
    ) -> Result<Response<wire::PreviewReply>, Status> {
        let wire::PreviewRequest { model, reader, source } = request.into_inner();
        let asked = [model, reader, source];
        let preview = self.ask(|reply| ActorInput::Preview(asked, reply)).await?;
        Ok(Response::new(wire::PreviewReply { preview: preview.map(preview_frame) }))
    }

    async fn fleet(
        &self,
        request: Request<wire::FleetRequest>,
    ) -> Result<Response<wire::FleetReply>, Status> {
        let (model, question) = fleet_question(request.into_inner()).map_err(invalid)?;
        Ok(Response::new(match question {
            AskedFleet::Register(question) => {
                fleet_reply(self.ask(|reply| ActorInput::AskFleet(model, question, reply)).await?)
            }
            AskedFleet::Routing(question) => routing_reply(
                self.ask(|reply| ActorInput::AskRouting(model, question, reply)).await?,
            ),
        }))
    }

    async fn dial_back(
        &self,
        request: Request<wire::DialBackRequest>,
    ) -> Result<Response<wire::DialBackReply>, Status> {
        let caller = card(&request).address.clone();
        self.dials.dial(&caller, request.into_inner()).await.map(Response::new)
    }
}

fn invalid(malformed: crate::convert::MalformedMessage) -> Status {
    Status::invalid_argument(malformed.to_string())
}

/// Hands a stream's messages to the actor, and then the stream's end.
async fn forward(
    connection: ConnectionId,
    mut frames: Streaming<wire::ClientFrame>,
    inputs: mpsc::Sender<ActorInput>,
    mut cut_off: oneshot::Receiver<()>,
) {
    loop {
        let frame = tokio::select! {
            frame = frames.next() => frame,
            _ = &mut cut_off => None,
        };
        let Some(Ok(frame)) = frame else { break };
        if frame.encoded_len() > CLIENT_FRAME_BYTES {
            tracing::warn!(connection = connection.0, "stream closed: no frame is that large");
            break;
        }
        match client_message(frame) {
            Ok(message) => {
                if inputs.send(ActorInput::Message(connection, Box::new(message))).await.is_err() {
                    break;
                }
            }
            Err(malformed) => {
                tracing::warn!(connection = connection.0, %malformed, "stream closed");
                break;
            }
        }
    }
    let _ = inputs.send(ActorInput::Disconnected(connection)).await;
}

#[cfg(test)]
mod tests;
