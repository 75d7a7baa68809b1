//! Manifests: opaque, named by their content, bounded, dropped when no group refers to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::timers::{Timer, Timers};
use super::{Limits, Server};
use crate::{CallError, ContentDigest, Span, Time};

/// How long a manifest that nobody refers to is kept: from storing it, `register` waits for the
/// other shards, whose models may take long to load.
const GRACE: Span = Span::from_secs(3_600);

/// The stored manifests.
#[derive(Clone, Debug, Default)]
pub(super) struct Blobs {
    blobs: BTreeMap<ContentDigest, Blob>,
    /// How many registered shards name each, stored or not.
    references: BTreeMap<ContentDigest, usize>,
    /// Became unreferenced in this event.
    orphans: BTreeSet<ContentDigest>,
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Blob {
    content: Arc<[u8]>,
    /// When it may go, if still nobody refers to it.
    keep_until: Time,
}

impl Blobs {
    fn put(
        &mut self,
        limits: &Limits,
        digest: ContentDigest,
        content: Vec<u8>,
    ) -> Result<(), CallError> {
        self.orphans.insert(digest);
        if self.blobs.contains_key(&digest) {
            return Ok(());
        }
        let bytes = content.len();
        Limits::check("size of the manifest", bytes as u64, limits.manifest_bytes as u64)?;
        Limits::check(
            "number of manifests stored",
            self.blobs.len() as u64 + 1,
            limits.manifests as u64,
        )?;
        let total = self.bytes.saturating_add(bytes);
        Limits::check("size of all manifests", total as u64, limits.manifests_bytes as u64)?;
        self.bytes = total;
        self.blobs.insert(digest, Blob { content: content.into(), keep_until: Time(0) });
        Ok(())
    }

    /// A registered shard names it from now on.
    pub(super) fn retain(&mut self, digest: ContentDigest) {
        *self.references.entry(digest).or_default() += 1;
    }

    /// A registered shard does not name it any more.
    pub(super) fn release(&mut self, digest: ContentDigest) {
        let Some(count) = self.references.get_mut(&digest) else { return };
        *count -= 1;
        if *count == 0 {
            self.references.remove(&digest);
            self.orphans.insert(digest);
        }
    }

    /// Starts the time of grace of what became unreferenced in this event.
    pub(super) fn schedule_grace(&mut self, now: Time, timers: &mut Timers) {
        while let Some(digest) = self.orphans.pop_first() {
            if let Some(blob) = self.blobs.get_mut(&digest) {
                blob.keep_until = now + GRACE;
                timers.set(blob.keep_until, Timer::Blob(digest));
            }
        }
    }

    /// The time of grace is over; drops the manifest unless somebody refers to it again.
    pub(super) fn grace_over(&mut self, now: Time, digest: ContentDigest) {
        let expired = self.blobs.get(&digest).is_some_and(|blob| blob.keep_until <= now);
        if expired
            && !self.references.contains_key(&digest)
            && let Some(blob) = self.blobs.remove(&digest)
        {
            self.bytes -= blob.content.len();
        }
    }

    /// Number of manifests, and their bytes.
    pub(super) fn usage(&self) -> (usize, usize) {
        (self.blobs.len(), self.bytes)
    }
}

impl Server {
    /// Stores a manifest; the runtime has checked that the digest is that of the content.
    ///
    /// Errors: `Limit` for one that is too large, or too many.
    pub fn put_manifest(
        &mut self,
        now: Time,
        digest: ContentDigest,
        content: Vec<u8>,
    ) -> Result<(), CallError> {
        let result = self.blobs.put(&self.config.limits, digest, content);
        self.blobs.schedule_grace(now, &mut self.timers);
        result
    }

    /// A stored manifest.
    pub fn manifest(&self, digest: &ContentDigest) -> Option<Arc<[u8]>> {
        self.blobs.blobs.get(digest).map(|blob| blob.content.clone())
    }
}
