//! Manifests: opaque, named by their content, bounded, dropped when no group refers to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::invariants::{Violation, ensure};
use super::timers::{Timer, Timers};
use super::{Limits, Server};
use crate::{CallError, ContentDigest, Span, Time};

/// How long a manifest that nobody refers to is kept: for readers that were told of it before it was
/// let go, and for groups that come back with the layouts that they had.
const GRACE: Span = Span::from_secs(600);

/// The stored manifests.
#[derive(Clone, Debug, Default)]
pub(super) struct Blobs {
    blobs: BTreeMap<ContentDigest, Blob>,
    /// How many registered shards, and pending calls of `register`, name each, stored or not.
    references: BTreeMap<ContentDigest, usize>,
    /// Became unreferenced in this event.
    orphans: BTreeSet<ContentDigest>,
    /// Stored, and nobody refers to them: in the order in which they became so.
    idle: BTreeMap<u64, ContentDigest>,
    last_idle: u64,
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Blob {
    content: Arc<[u8]>,
    /// When it may go, if still nobody refers to it.
    keep_until: Time,
    /// Its place in `idle`.
    idle: Option<u64>,
}

impl Blobs {
    /// Stores a manifest. Those that nobody refers to make room, the longest idle first: whoever
    /// fills the store with them keeps nobody out. Between being stored and being referred to, a
    /// manifest has to wait for one message of its client only.
    fn put(
        &mut self,
        limits: &Limits,
        digest: ContentDigest,
        content: Vec<u8>,
        timers: &mut Timers,
    ) -> Result<(), CallError> {
        if self.touch(digest) {
            return Ok(());
        }
        let bytes = content.len();
        Limits::check("size of the manifest", bytes as u64, limits.manifest_bytes as u64)?;
        self.make_room(limits, bytes, timers)?;
        self.orphans.insert(digest);
        self.bytes += bytes;
        let blob = Blob { content: content.into(), keep_until: Time(0), idle: None };
        self.blobs.insert(digest, blob);
        self.settle_idle(digest);
        Ok(())
    }

    /// Whether it is stored; if so, it is as good as stored now.
    fn touch(&mut self, digest: ContentDigest) -> bool {
        let stored = self.blobs.contains_key(&digest);
        if stored {
            self.orphans.insert(digest);
            self.forget_idle(digest);
            self.settle_idle(digest);
        }
        stored
    }

    fn make_room(
        &mut self,
        limits: &Limits,
        bytes: usize,
        timers: &mut Timers,
    ) -> Result<(), CallError> {
        loop {
            let count = self.blobs.len() as u64 + 1;
            let total = self.bytes.saturating_add(bytes) as u64;
            let fits = Limits::check("number of manifests in use", count, limits.manifests as u64)
                .and_then(|()| {
                    let limit = limits.manifests_bytes as u64;
                    Limits::check("size of all manifests in use", total, limit)
                });
            match (fits, self.idle.first_key_value()) {
                (Ok(()), _) => return Ok(()),
                (Err(error), None) => return Err(error),
                (Err(_), Some((_, &longest))) => {
                    self.remove(longest);
                    timers.cancel(Timer::Blob(longest));
                }
            }
        }
    }

    fn remove(&mut self, digest: ContentDigest) {
        self.forget_idle(digest);
        if let Some(blob) = self.blobs.remove(&digest) {
            self.bytes -= blob.content.len();
        }
    }

    /// Gives a stored manifest that nobody refers to its place among the idle ones.
    fn settle_idle(&mut self, digest: ContentDigest) {
        if self.references.contains_key(&digest) {
            return;
        }
        let Some(blob) = self.blobs.get_mut(&digest) else { return };
        if blob.idle.is_none() {
            self.last_idle += 1;
            blob.idle = Some(self.last_idle);
            self.idle.insert(self.last_idle, digest);
        }
    }

    fn forget_idle(&mut self, digest: ContentDigest) {
        if let Some(place) = self.blobs.get_mut(&digest).and_then(|blob| blob.idle.take()) {
            self.idle.remove(&place);
        }
    }

    /// A shard that is registered, or about to be, names it from now on.
    pub(super) fn retain(&mut self, digest: ContentDigest) {
        *self.references.entry(digest).or_default() += 1;
        self.forget_idle(digest);
    }

    /// One that did does not name it any more.
    pub(super) fn release(&mut self, digest: ContentDigest) {
        let Some(count) = self.references.get_mut(&digest) else { return };
        *count -= 1;
        if *count == 0 {
            self.references.remove(&digest);
            self.orphans.insert(digest);
            self.settle_idle(digest);
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
        if expired && !self.references.contains_key(&digest) {
            self.remove(digest);
        }
    }

    /// T5: every reference is that of a registered shard or of a pending call, and what has none is
    /// idle.
    pub(super) fn validate(
        &self,
        named: impl Iterator<Item = ContentDigest>,
    ) -> Result<(), Violation> {
        let mut references: BTreeMap<ContentDigest, usize> = BTreeMap::new();
        named.for_each(|digest| *references.entry(digest).or_default() += 1);
        ensure(references == self.references, "T5", || {
            format!("manifests are referred to {references:?}, counted {:?}", self.references)
        })?;
        let idle = |(digest, blob): (&ContentDigest, &Blob)| {
            let place = blob.idle.and_then(|place| self.idle.get(&place));
            place == (!references.contains_key(digest)).then_some(digest)
        };
        let count = self.blobs.values().filter(|blob| blob.idle.is_some()).count();
        ensure(self.blobs.iter().all(idle) && count == self.idle.len(), "T5", || {
            "the list of idle manifests is wrong".to_owned()
        })?;
        let bytes: usize = self.blobs.values().map(|blob| blob.content.len()).sum();
        ensure(bytes == self.bytes, "T5", || format!("{bytes} bytes, counted {}", self.bytes))
    }

    /// Whether it is stored.
    pub(super) fn contains(&self, digest: &ContentDigest) -> bool {
        self.blobs.contains_key(digest)
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
        let result = self.blobs.put(&self.config.limits, digest, content, &mut self.timers);
        self.blobs.schedule_grace(now, &mut self.timers);
        result
    }

    /// Whether a manifest is stored. One that is need not be sent: it is as good as stored now.
    pub fn has_manifest(&mut self, now: Time, digest: ContentDigest) -> bool {
        let stored = self.blobs.touch(digest);
        self.blobs.schedule_grace(now, &mut self.timers);
        stored
    }

    /// A stored manifest.
    pub fn manifest(&self, digest: &ContentDigest) -> Option<Arc<[u8]>> {
        self.blobs.blobs.get(digest).map(|blob| blob.content.clone())
    }
}
