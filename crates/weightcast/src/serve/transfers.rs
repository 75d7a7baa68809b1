//! Manifests on their way in, and manifests and replies on their way out. Memory is counted before
//! it is taken, no transfer holds it for longer than its size needs, and small transfers do not
//! wait for large ones.

use std::sync::{Arc, Weak};
use std::time::Duration;

use prost::bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;
use weightcast_protocol::limits::RECORDING_BYTES;

use super::queue::{ClientOrigin, FairQueue, QueueShare, busy};
use crate::limits::{
    INSPECTIONS_BYTES, LARGE_UPLOADS_BYTES, MANIFEST_BYTES, MESSAGE_BYTES, PAGE_BYTES,
    READERS_BYTES, SENDING_BYTES, SMALL_MANIFEST_BYTES, SMALL_UPLOADS_BYTES, STATUS_BYTES,
    STATUSES_BYTES, STREAM_WINDOW, TRANSFER_PATIENCE, TRANSFER_RATE, TRANSFERS, WAITING_RECORDINGS,
    WAITING_REPLIES, WAITING_UPLOADS,
};
use crate::wire::ManifestPage;

/// The budgets of a server, each with a line of its own; clones share them.
#[derive(Clone)]
pub(super) struct Transfers {
    small_uploads: FairQueue,
    large_uploads: FairQueue,
    readers: FairQueue,
    inspections: FairQueue,
    statuses: FairQueue,
    recordings: FairQueue,
}

/// The turns of one connection; clones share them.
#[derive(Clone)]
pub(super) struct Turns {
    origin: ClientOrigin,
    incoming: Arc<Semaphore>,
    outgoing: Arc<Semaphore>,
}

impl Turns {
    pub(super) fn new(origin: ClientOrigin) -> Self {
        let turns = || Arc::new(Semaphore::new(TRANSFERS));
        Self { origin, incoming: turns(), outgoing: turns() }
    }

    /// Lets the connection send a manifest, unless [`TRANSFERS`] are on their way: bytes that wait
    /// to be read are in memory, and nobody has counted them.
    pub(super) fn to_send(&self) -> Result<OwnedSemaphorePermit, Status> {
        Arc::clone(&self.incoming).try_acquire_owned().map_err(|_| busy())
    }

    /// Waits for the connection's turn to be sent something. Nothing is held for it meanwhile.
    pub(super) async fn to_be_sent(&self) -> Result<OwnedSemaphorePermit, Status> {
        let turn = Arc::clone(&self.outgoing).acquire_owned().await;
        turn.map_err(|_| Status::unavailable("the server is stopping"))
    }
}

impl Transfers {
    pub(super) fn new() -> Self {
        Self {
            small_uploads: FairQueue::new(SMALL_UPLOADS_BYTES, WAITING_UPLOADS),
            large_uploads: FairQueue::new(LARGE_UPLOADS_BYTES, WAITING_UPLOADS),
            readers: FairQueue::new(READERS_BYTES, WAITING_REPLIES),
            inspections: FairQueue::new(INSPECTIONS_BYTES, WAITING_REPLIES),
            statuses: FairQueue::new(STATUSES_BYTES, WAITING_REPLIES),
            recordings: FairQueue::new(RECORDING_BYTES, WAITING_RECORDINGS),
        }
    }

    /// Waits for room for a manifest, of which the first page has come.
    pub(super) async fn to_receive(
        &self,
        turns: &Turns,
        first: &ManifestPage,
    ) -> Result<QueueShare, Status> {
        let size = usize::try_from(first.size).unwrap_or(usize::MAX);
        if size > MANIFEST_BYTES {
            return Err(Status::resource_exhausted(format!(
                "a manifest has at most {MANIFEST_BYTES} bytes, this one {size}"
            )));
        }
        let queue = match size <= SMALL_MANIFEST_BYTES {
            true => &self.small_uploads,
            false => &self.large_uploads,
        };
        queue.take(turns.origin, size + STREAM_WINDOW as usize).await
    }

    /// Waits for room to send a manifest: only the pages on their way count, because the manifest
    /// is stored.
    pub(super) async fn to_lend(&self, turns: &Turns) -> Result<QueueShare, Status> {
        self.readers.take(turns.origin, SENDING_BYTES).await
    }

    /// Waits for room for the largest reply about one replica: the size is not known yet.
    pub(super) async fn to_inspect(&self, turns: &Turns) -> Result<QueueShare, Status> {
        self.inspections.take(turns.origin, MESSAGE_BYTES + SENDING_BYTES).await
    }

    /// Waits for room for the largest status: the size is not known yet.
    pub(super) async fn to_tell(&self, turns: &Turns) -> Result<QueueShare, Status> {
        self.statuses.take(turns.origin, STATUS_BYTES + SENDING_BYTES).await
    }

    /// The turn to have a recording written: one at a time.
    pub(super) async fn to_record(&self, turns: &Turns) -> Result<QueueShare, Status> {
        self.recordings.take(turns.origin, RECORDING_BYTES).await
    }
}

/// Receives the rest of a manifest for which there is room.
pub(super) async fn receive<S>(first: ManifestPage, pages: &mut S) -> Result<Vec<u8>, Status>
where
    S: Stream<Item = Result<ManifestPage, Status>> + Unpin,
{
    let size = first.size as usize;
    let (start, mut bytes) = (Instant::now(), Vec::new());
    let mut page = Some(first);
    while let Some(next) = page {
        if next.data.len() > PAGE_BYTES || bytes.len() + next.data.len() > size {
            return Err(Status::invalid_argument(format!(
                "a manifest comes in pages of at most {PAGE_BYTES} bytes, and has the size that its \
                 first page names"
            )));
        }
        if bytes.is_empty() {
            bytes.reserve_exact(size);
        }
        bytes.extend_from_slice(&next.data);
        let until = start + patience(bytes.len());
        let next = tokio::time::timeout_at(until, pages.next()).await;
        page = next.map_err(|_| slow())?.transpose()?;
    }
    Ok(bytes)
}

/// Bytes on their way out.
pub(super) enum Sent {
    /// Made for one reply.
    Reply(Vec<u8>),
    /// A stored manifest, which a slow reader must not keep after the server has let go of it.
    Stored(Weak<[u8]>),
}

impl Sent {
    pub(super) fn reply(bytes: Vec<u8>, room: &mut QueueShare) -> Self {
        room.keep(bytes.len() + SENDING_BYTES);
        Self::Reply(bytes)
    }

    /// How many bytes there are, and one page of them.
    fn page(&self, at: usize) -> Option<(usize, Bytes)> {
        let page = |bytes: &[u8]| {
            let until = bytes.len().min(at + PAGE_BYTES);
            (bytes.len(), Bytes::copy_from_slice(&bytes[at.min(until)..until]))
        };
        match self {
            Self::Reply(bytes) => Some(page(bytes)),
            Self::Stored(stored) => stored.upgrade().map(|bytes| page(&bytes)),
        }
    }
}

/// Sends bytes in pages. Gives up on a reader that takes them too slowly.
pub(super) fn send<P: Send + 'static>(
    turn: (OwnedSemaphorePermit, QueueShare),
    sent: Sent,
    page: impl Fn(u64, Bytes) -> P + Send + 'static,
) -> ReceiverStream<Result<P, Status>> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let _turn = turn;
        let (start, mut taken) = (Instant::now(), 0);
        loop {
            let until = start + patience(taken);
            let Some((size, data)) = sent.page(taken) else {
                let gone = Status::not_found("the manifest was let go while it was read");
                let _ = tokio::time::timeout_at(until, sender.send(Err(gone))).await;
                return;
            };
            // No bytes make one page too. Only the first page names the size, from which the reader
            // knows whether it has all.
            let told = if taken == 0 { size as u64 } else { 0 };
            taken += data.len();
            match tokio::time::timeout_at(until, sender.send(Ok(page(told, data)))).await {
                Ok(Ok(())) if taken < size => {}
                _ => return,
            }
        }
    });
    ReceiverStream::new(receiver)
}

fn slow() -> Status {
    Status::deadline_exceeded(format!("a manifest comes at {TRANSFER_RATE} bytes a second or more"))
}

/// How long a transfer of `bytes` may take.
fn patience(bytes: usize) -> Duration {
    TRANSFER_PATIENCE + Duration::from_secs(bytes as u64 / TRANSFER_RATE)
}

#[cfg(test)]
mod tests;
