//! One reference server's control port, as a client sees it: all that goes over the network to it.

use std::pin::Pin;

use prost::bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::Status;
use weightcast_protocol::ContentDigest;

use crate::wire::{
    ClientFrame, GetManifestRequest, InspectRequest, ManifestPage, Page, ProbeReply, ProbeRequest,
    ServerFrame,
};

/// What comes one by one.
pub(crate) type Incoming<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;
/// What comes once, or not.
pub(crate) type Requested<T> = Pin<Box<dyn Future<Output = Result<T, Status>> + Send>>;

/// Each request is made anew, and may fail for itself.
pub(crate) trait ControlPort: Send + Sync {
    /// Opens a session's stream; what is sent on it comes from the queue.
    fn session(&self, sent: mpsc::Receiver<ClientFrame>) -> Requested<Incoming<ServerFrame>>;
    /// Proves a term, and asks for the one that the server acts in.
    fn probe(&self, request: ProbeRequest) -> Requested<ProbeReply>;
    /// Stores a manifest.
    fn put_manifest(&self, name: ContentDigest, bytes: Bytes) -> Requested<()>;
    /// A manifest that somebody has stored.
    fn get_manifest(&self, request: GetManifestRequest) -> Requested<Incoming<ManifestPage>>;
    /// What the server knows.
    fn status(&self) -> Requested<Incoming<Page>>;
    /// What it knows of one replica.
    fn inspect(&self, request: InspectRequest) -> Requested<Incoming<Page>>;
}
