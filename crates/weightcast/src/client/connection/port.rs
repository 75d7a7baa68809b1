//! One reference server's control port, as a client sees it: all that goes over the network to it.

use std::future::ready;
use std::pin::Pin;

use prost::bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::Status;
use weightcast_protocol::ContentDigest;

use crate::wire::{
    ClientFrame, DialBackReply, DialBackRequest, FleetReply, FleetRequest, GetManifestRequest,
    InspectRequest, ManifestPage, Page, PreviewReply, PreviewRequest, ProbeReply, ProbeRequest,
    RecordReply, ServerFrame, WhyRequest,
};

/// Replies that come one by one.
pub(crate) type Incoming<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;
/// One reply, or a failure.
pub(crate) type Requested<T> = Pin<Box<dyn Future<Output = Result<T, Status>> + Send>>;

/// The requests to one server. Each request is independent, and may fail on its own.
pub(crate) trait ControlPort: Send + Sync {
    /// Opens a session's stream; what is sent on it comes from the queue.
    fn session(&self, sent: mpsc::Receiver<ClientFrame>) -> Requested<Incoming<ServerFrame>>;
    /// Proves a term, and asks for the term in which the server acts.
    fn probe(&self, request: ProbeRequest) -> Requested<ProbeReply>;
    /// Stores a manifest.
    fn put_manifest(&self, name: ContentDigest, bytes: Bytes) -> Requested<()>;
    /// Fetches a stored manifest.
    fn get_manifest(&self, request: GetManifestRequest) -> Requested<Incoming<ManifestPage>>;
    /// What the server knows.
    fn status(&self) -> Requested<Incoming<Page>>;
    /// Has the server write down its last minutes.
    fn record(&self) -> Requested<RecordReply>;
    /// Why a replica waits.
    fn why(&self, request: WhyRequest) -> Requested<Incoming<Page>>;
    /// What the server knows of one replica.
    fn inspect(&self, request: InspectRequest) -> Requested<Incoming<Page>>;
    /// What the choice of a source would come to. By default of a server that is older than this.
    fn preview(&self, _: PreviewRequest) -> Requested<PreviewReply> {
        Box::pin(ready(Err(Status::unimplemented("no previews"))))
    }
    /// Asks the register of a model's fleet. By default of a server that is older than this.
    fn fleet(&self, _: FleetRequest) -> Requested<FleetReply> {
        Box::pin(ready(Err(Status::unimplemented("no fleets"))))
    }
    /// Has the server connect to a port of this host. By default of a server that is older than this.
    fn dial_back(&self, _: DialBackRequest) -> Requested<DialBackReply> {
        Box::pin(ready(Err(Status::unimplemented("no dials"))))
    }
}
