//! Manifests: opaque, named by their content, bounded, and dropped some time after the last
//! reference.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::limits::Limits;
use crate::server::stores::timers::{Timer, Timers};
use crate::server::stores::violation::{Violation, ensure};
use crate::{CallError, ContentDigest, Span, Time};

/// How long a manifest without references is kept. A reader may have been told of it before, and a
/// group may come back with the layouts that it had.
const GRACE: Span = Span::from_secs(600);

/// The stored manifests.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::server) struct Blobs {
    blobs: BTreeMap<ContentDigest, Blob>,
    /// References by digest, from registered shards and pending `register` calls; also to manifests
    /// that are not stored.
    references: BTreeMap<ContentDigest, usize>,
    /// Digests whose grace time begins with this event: stored now, or unreferenced since now.
    orphans: BTreeSet<ContentDigest>,
    /// Stored manifests without references, the longest idle first.
    idle: BTreeMap<u64, ContentDigest>,
    last_idle: u64,
    bytes: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Blob {
    /// Not in a recording, where the size stands for it.
    #[serde(skip)]
    content: Arc<[u8]>,
    bytes: usize,
    /// When the manifest is dropped, if it has no reference by then.
    keep_until: Time,
    /// Its place in `idle`.
    idle: Option<u64>,
}

impl Blobs {
    /// Stores a manifest of this many bytes. Idle manifests make room, the longest idle first, so a client that fills
    /// the store with unreferenced manifests keeps nobody out. A new manifest is idle only until
    /// its client's next message refers to it.
    pub(in crate::server) fn put(
        &mut self,
        limits: &Limits,
        digest: ContentDigest,
        (content, bytes): (Arc<[u8]>, usize),
        timers: &mut Timers,
    ) -> Result<(), CallError> {
        if self.touch(digest) {
            return Ok(());
        }
        Limits::check("size of the manifest", bytes as u64, limits.manifest_bytes as u64)?;
        self.make_room(limits, bytes, timers)?;
        self.bytes += bytes;
        let blob = Blob { content, bytes, keep_until: Time(0), idle: None };
        self.blobs.insert(digest, blob);
        self.settle_idle(digest);
        Ok(())
    }

    /// Restarts a manifest's grace time, as if it were stored now. Returns whether it is stored.
    pub(in crate::server) fn touch(&mut self, digest: ContentDigest) -> bool {
        self.orphans.insert(digest);
        self.forget_idle(digest);
        self.settle_idle(digest);
        self.blobs.contains_key(&digest)
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
            self.bytes -= blob.bytes;
        }
    }

    /// Puts a stored manifest at the end of the idle list, unless it has references. It must not be
    /// on the list.
    fn settle_idle(&mut self, digest: ContentDigest) {
        if self.references.contains_key(&digest) {
            return;
        }
        let Some(blob) = self.blobs.get_mut(&digest) else { return };
        self.last_idle += 1;
        blob.idle = Some(self.last_idle);
        self.idle.insert(self.last_idle, digest);
    }

    fn forget_idle(&mut self, digest: ContentDigest) {
        if let Some(place) = self.blobs.get_mut(&digest).and_then(|blob| blob.idle.take()) {
            self.idle.remove(&place);
        }
    }

    /// Adds a reference, of a shard that is registered or about to be.
    pub(in crate::server) fn retain(&mut self, digest: ContentDigest) {
        *self.references.entry(digest).or_default() += 1;
        self.forget_idle(digest);
    }

    /// Drops a reference. With the last one the manifest becomes idle.
    pub(in crate::server) fn release(&mut self, digest: ContentDigest) {
        let Some(count) = self.references.get_mut(&digest) else { return };
        *count -= 1;
        if *count == 0 {
            self.references.remove(&digest);
            self.orphans.insert(digest);
            self.settle_idle(digest);
        }
    }

    /// Starts the grace time of the manifests that this event stored, or left without references.
    pub(in crate::server) fn schedule_grace(&mut self, now: Time, timers: &mut Timers) {
        while let Some(digest) = self.orphans.pop_first() {
            if let Some(blob) = self.blobs.get_mut(&digest) {
                blob.keep_until = now + GRACE;
                timers.set(blob.keep_until, Timer::Blob(digest));
            }
        }
    }

    /// The grace time is over: drops the manifest, unless it has references again.
    pub(in crate::server) fn grace_over(&mut self, now: Time, digest: ContentDigest) {
        let expired = self.blobs.get(&digest).is_some_and(|blob| blob.keep_until <= now);
        if expired && !self.references.contains_key(&digest) {
            self.remove(digest);
        }
    }

    /// T5: the references are those of registered shards and pending calls, and the idle list has
    /// exactly the manifests without references.
    pub(in crate::server) fn validate(
        &self,
        named: impl Iterator<Item = ContentDigest>,
    ) -> Result<(), Violation> {
        let mut references: BTreeMap<ContentDigest, usize> = BTreeMap::new();
        named.for_each(|digest| *references.entry(digest).or_default() += 1);
        ensure(references == self.references, "T5", || {
            format!("manifests are referred to {references:?}, counted {:?}", self.references)
        })?;
        let placed = self.blobs.iter().all(|(digest, blob)| {
            let place = blob.idle.and_then(|place| self.idle.get(&place));
            place == (!references.contains_key(digest)).then_some(digest)
        });
        let count = self.blobs.values().filter(|blob| blob.idle.is_some()).count();
        ensure(placed && count == self.idle.len(), "T5", || {
            "the list of idle manifests is wrong".to_owned()
        })?;
        let bytes: usize = self.blobs.values().map(|blob| blob.bytes).sum();
        ensure(bytes == self.bytes, "T5", || format!("{bytes} bytes, counted {}", self.bytes))
    }

    /// A stored manifest.
    pub(in crate::server) fn content(&self, digest: &ContentDigest) -> Option<Arc<[u8]>> {
        self.blobs.get(digest).map(|blob| blob.content.clone())
    }

    /// Whether it is stored.
    pub(in crate::server) fn contains(&self, digest: &ContentDigest) -> bool {
        self.blobs.contains_key(digest)
    }

    /// Number of manifests, and their bytes.
    pub(in crate::server) fn usage(&self) -> (usize, usize) {
        (self.blobs.len(), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Server, ServerConfig};

    fn name(number: u64) -> ContentDigest {
        ContentDigest([number as u8; 16])
    }

    /// A shelf of manifests, as the rules say it: in the order in which they were last stored or let go.
    #[derive(Default)]
    struct ShelfByRule {
        kept: Vec<KeptByRule>,
        references: BTreeMap<u64, usize>,
    }

    #[derive(Clone, Copy)]
    struct KeptByRule {
        name: u64,
        bytes: usize,
        until: Time,
        /// Whether somebody will look at it then.
        is_due: bool,
    }

    impl ShelfByRule {
        fn is_idle(&self, name: u64) -> bool {
            !self.references.contains_key(&name)
        }

        /// Its time begins anew.
        fn refresh(&mut self, now: Time, name: u64) -> bool {
            let Some(at) = self.kept.iter().position(|kept| kept.name == name) else {
                return false;
            };
            let kept = self.kept.remove(at);
            self.kept.push(KeptByRule { until: now + GRACE, is_due: true, ..kept });
            true
        }

        fn put(&mut self, limits: &Limits, now: Time, name: u64, bytes: usize) -> bool {
            if self.refresh(now, name) {
                return true;
            }
            if bytes > limits.manifest_bytes {
                return false;
            }
            let fits = |kept: &[KeptByRule]| {
                let total: usize = kept.iter().map(|kept| kept.bytes).sum();
                kept.len() < limits.manifests && total + bytes <= limits.manifests_bytes
            };
            while !fits(&self.kept) {
                let Some(longest) = self.kept.iter().position(|k| self.is_idle(k.name)) else {
                    return false;
                };
                self.kept.remove(longest);
            }
            self.kept.push(KeptByRule { name, bytes, until: now + GRACE, is_due: true });
            true
        }

        fn release(&mut self, now: Time, name: u64) {
            let Some(count) = self.references.get_mut(&name) else { return };
            *count -= 1;
            if *count == 0 {
                self.references.remove(&name);
                self.refresh(now, name);
            }
        }

        fn pass(&mut self, now: Time) {
            let references = &self.references;
            self.kept.retain(|kept| kept.until > now || references.contains_key(&kept.name));
            for kept in &mut self.kept {
                kept.is_due &= kept.until > now;
            }
        }
    }

    fn assert_same(server: &Server, shelf: &ShelfByRule) {
        let total = shelf.kept.iter().map(|kept| kept.bytes).sum();
        assert_eq!(server.blobs.usage(), (shelf.kept.len(), total));
        for number in 0..9 {
            let bytes = shelf.kept.iter().find(|kept| kept.name == number).map(|kept| kept.bytes);
            let stored = server.manifest(&name(number)).map(|content| content.len());
            assert_eq!(stored, bytes, "manifest {number}");
            assert_eq!(server.blobs.contains(&name(number)), bytes.is_some());
        }
        let due = shelf.kept.iter().filter(|kept| kept.is_due).map(|kept| kept.until).min();
        assert_eq!(server.next_timeout(), due);
        let named = shelf.references.iter();
        let named = named.flat_map(|(n, count)| std::iter::repeat_n(name(*n), *count));
        server.blobs.validate(named).unwrap();
    }

    #[test]
    fn manifests_are_kept_as_on_a_shelf_with_so_much_room() {
        let mut config = ServerConfig::default();
        config.limits.manifests = 4;
        config.limits.manifest_bytes = 6;
        config.limits.manifests_bytes = 13;
        let limits = config.limits.clone();
        let (mut server, mut shelf) = (Server::new(config), ShelfByRule::default());
        let mut state = 3u64;
        let mut draw = |bound: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        let mut now = Time(1);
        let (mut refused, mut expired) = (0, 0);
        for _ in 0..4_000 {
            let number = draw(9);
            match draw(10) {
                0..3 => {
                    let bytes = draw(8) as usize;
                    let result = server.put_manifest(now, name(number), vec![0; bytes]);
                    assert_eq!(result.is_ok(), shelf.put(&limits, now, number, bytes));
                    refused += u32::from(result.is_err());
                }
                3 => {
                    let stored = shelf.refresh(now, number);
                    assert_eq!(server.has_manifest(now, name(number)), stored);
                }
                4 => {
                    server.blobs.retain(name(number));
                    *shelf.references.entry(number).or_default() += 1;
                }
                5..8 => {
                    server.blobs.release(name(number));
                    server.blobs.schedule_grace(now, &mut server.timers);
                    shelf.release(now, number);
                }
                _ => {
                    // Up to the last moment of its time, that moment, or long after it.
                    let next = server.next_timeout().unwrap_or(now).0.max(now.0);
                    now = Time(
                        [now.0 + 1, next.saturating_sub(1), next, next + GRACE.0][draw(4) as usize]
                            .max(now.0),
                    );
                    let before = shelf.kept.len();
                    server.handle_timeout(now);
                    shelf.pass(now);
                    expired += before - shelf.kept.len();
                }
            }
            assert_same(&server, &shelf);
        }
        assert!(refused > 20 && expired > 20, "{refused} refused, {expired} expired");
    }

    #[test]
    fn a_refused_manifest_says_which_bound_it_broke() {
        let mut config = ServerConfig::default();
        (config.limits.manifests, config.limits.manifests_bytes) = (2, 10);
        config.limits.manifest_bytes = 8;
        let mut server = Server::new(config);
        for number in [0, 1] {
            server.blobs.retain(name(number));
        }
        let now = Time(0);
        let limit =
            |what: &str, limit, got| Err(CallError::Limit { what: what.to_owned(), limit, got });
        let mut put = |number, bytes| server.put_manifest(now, name(number), vec![0; bytes]);
        assert_eq!(put(0, 9), limit("size of the manifest", 8, 9));
        assert_eq!(put(0, 8), Ok(()));
        assert_eq!(put(1, 3), limit("size of all manifests in use", 10, 11));
        assert_eq!(put(1, 2), Ok(()), "to the last byte");
        assert_eq!(put(2, 0), limit("number of manifests in use", 2, 3));
    }

    #[test]
    fn who_is_not_known_is_not_let_go_of() {
        let mut blobs = Blobs::default();
        blobs.release(name(1));
        blobs.retain(name(1));
        blobs.release(name(1));
        blobs.release(name(1));
        assert!(blobs.references.is_empty());
        assert_eq!(GRACE, Span(600_000_000_000), "ten minutes");
    }

    #[test]
    fn wrong_books_are_noticed() {
        let mut server = Server::new(ServerConfig::default());
        server.put_manifest(Time(0), name(1), vec![0; 3]).unwrap();
        let blobs = &server.blobs;
        assert_eq!(blobs.validate([].into_iter()), Ok(()));
        let wrong = |change: fn(&mut Blobs)| {
            let mut blobs = blobs.clone();
            change(&mut blobs);
            blobs.validate([].into_iter()).unwrap_err().detail
        };
        assert!(blobs.validate([name(1)].into_iter()).is_err(), "a reference too few");
        assert!(wrong(|blobs| blobs.retain(name(1))).contains("referred to"), "one too many");
        for change in [
            (|blobs| blobs.forget_idle(name(1))) as fn(&mut Blobs),
            |blobs| blobs.idle.clear(),
            |blobs| blobs.idle.extend([(9, name(2))]),
        ] {
            assert_eq!(wrong(change), "the list of idle manifests is wrong");
        }
        assert_eq!(wrong(|blobs| blobs.bytes += 1), "3 bytes, counted 4");
    }
}
