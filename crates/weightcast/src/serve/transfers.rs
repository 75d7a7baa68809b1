//! Manifests on their way in, and manifests and replies on their way out: what they take is counted
//! before it is taken, and nobody takes it for longer than its size needs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use prost::bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;
use weightcast_protocol::ContentDigest;

use crate::limits::{
    MANIFEST_BYTES, PAGE_BYTES, REPLIES_BYTES, STATUS_BYTES, TRANSFER_PATIENCE, TRANSFER_RATE,
    TRANSFERS, UPLOADS_BYTES,
};
use crate::wire::ManifestPage;

/// What the budgets count in.
const UNIT: usize = 1 << 10;

/// The budgets of a server; clones share them.
#[derive(Clone)]
pub(super) struct Transfers {
    incoming: Arc<Semaphore>,
    outgoing: Arc<Semaphore>,
    lent: Arc<Mutex<BTreeMap<ContentDigest, Weak<Lent>>>>,
}

/// The turns of one connection; clones share them.
#[derive(Clone)]
pub(super) struct Turns {
    incoming: Arc<Semaphore>,
    outgoing: Arc<Semaphore>,
}

/// Bytes on their way out, counted once however many take them.
pub(super) struct Lent {
    bytes: Arc<[u8]>,
    _budget: OwnedSemaphorePermit,
}

impl Turns {
    pub(super) fn new() -> Self {
        let turns = || Arc::new(Semaphore::new(TRANSFERS));
        Self { incoming: turns(), outgoing: turns() }
    }

    /// The connection's turn to be sent something, before anything is held for it.
    pub(super) async fn to_be_sent(&self) -> Result<OwnedSemaphorePermit, Status> {
        turn(&self.outgoing, 1).await
    }
}

impl Transfers {
    pub(super) fn new() -> Self {
        let budget = |bytes| Arc::new(Semaphore::new(bytes / UNIT));
        Self {
            incoming: budget(UPLOADS_BYTES),
            outgoing: budget(REPLIES_BYTES),
            lent: Arc::default(),
        }
    }

    /// The rest of a manifest whose first page has come, once it is its turn.
    pub(super) async fn receive<S>(
        &self,
        turns: &Turns,
        first: ManifestPage,
        pages: &mut S,
    ) -> Result<(Vec<u8>, Turn), Status>
    where
        S: Stream<Item = Result<ManifestPage, Status>> + Unpin,
    {
        let size = usize::try_from(first.size).unwrap_or(usize::MAX);
        if size > MANIFEST_BYTES {
            return Err(Status::resource_exhausted(format!(
                "a manifest has at most {MANIFEST_BYTES} bytes, this one {size}"
            )));
        }
        let turn = Turn {
            _turn: turn(&turns.incoming, 1).await?,
            _budget: turn(&self.incoming, size.div_ceil(UNIT)).await?,
        };
        let (start, mut bytes) = (Instant::now(), Vec::new());
        let mut page = Some(first);
        while let Some(next) = page {
            if next.data.len() > PAGE_BYTES || bytes.len() + next.data.len() > size {
                return Err(Status::invalid_argument(format!(
                    "a manifest comes in pages of at most {PAGE_BYTES} bytes, and has the size that \
                     its first page names"
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
        Ok((bytes, turn))
    }

    /// A stored manifest, to be sent: counted once, however many it is sent to.
    pub(super) async fn lend(
        &self,
        digest: ContentDigest,
        bytes: Arc<[u8]>,
    ) -> Result<Arc<Lent>, Status> {
        let lent = || self.lent.lock().expect("no panic while held");
        if let Some(lent) = lent().get(&digest).and_then(Weak::upgrade) {
            return Ok(lent);
        }
        let budget = turn(&self.outgoing, bytes.len().div_ceil(UNIT)).await?;
        let new = Arc::new(Lent { bytes, _budget: budget });
        let mut lent = lent();
        lent.retain(|_, lent| lent.strong_count() > 0);
        lent.insert(digest, Arc::downgrade(&new));
        Ok(new)
    }

    /// A turn for a reply whose size is not known yet.
    pub(super) async fn reserve(&self) -> Result<OwnedSemaphorePermit, Status> {
        turn(&self.outgoing, STATUS_BYTES.div_ceil(UNIT)).await
    }
}

/// What a transfer takes of the budgets, until it is dropped.
pub(super) struct Turn {
    _turn: OwnedSemaphorePermit,
    _budget: OwnedSemaphorePermit,
}

impl Lent {
    /// Bytes that were made for one reply, for which room was reserved.
    pub(super) fn reply(bytes: Vec<u8>, mut reserved: OwnedSemaphorePermit) -> Arc<Self> {
        let unused = reserved.num_permits().saturating_sub(bytes.len().div_ceil(UNIT));
        drop(reserved.split(unused));
        Arc::new(Self { bytes: bytes.into(), _budget: reserved })
    }
}

/// Sends bytes in pages. Who takes them too slowly is let go.
pub(super) fn send<P: Send + 'static>(
    turn: OwnedSemaphorePermit,
    lent: Arc<Lent>,
    page: impl Fn(u64, Bytes) -> P + Send + 'static,
) -> ReceiverStream<Result<P, Status>> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let _turn = turn;
        let (start, mut taken) = (Instant::now(), 0);
        let mut size = lent.bytes.len() as u64;
        let empty: &[u8] = &[];
        let pages = lent.bytes.chunks(PAGE_BYTES).chain(lent.bytes.is_empty().then_some(empty));
        for data in pages {
            let sent = sender.send(Ok(page(size, Bytes::copy_from_slice(data))));
            // It has the size from the first page, so it knows that this was not all.
            match tokio::time::timeout_at(start + patience(taken), sent).await {
                Ok(Ok(())) => size = 0,
                _ => return,
            }
            taken += data.len();
        }
    });
    ReceiverStream::new(receiver)
}

async fn turn(budget: &Arc<Semaphore>, units: usize) -> Result<OwnedSemaphorePermit, Status> {
    let units = u32::try_from(units).map_err(|_| Status::resource_exhausted("too large"))?;
    let turn = Arc::clone(budget).acquire_many_owned(units).await;
    turn.map_err(|_| Status::unavailable("the server is stopping"))
}

fn slow() -> Status {
    Status::deadline_exceeded(format!("a manifest comes at {TRANSFER_RATE} bytes a second or more"))
}

/// How long so many bytes may take.
fn patience(bytes: usize) -> Duration {
    TRANSFER_PATIENCE + Duration::from_secs(bytes as u64 / TRANSFER_RATE)
}
