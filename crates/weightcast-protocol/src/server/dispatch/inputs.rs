//! Inputs other than messages, streams and timers: manifests, other servers' terms, and late
//! timers.

use std::sync::Arc;

use crate::server::Server;
use crate::{CallError, ContentDigest, Term, TermProof, Time};

impl Server {
    /// Stores a manifest; the runtime has checked that the digest is the content's.
    ///
    /// Errors: `Limit` if the manifest is too large, or the store is full.
    pub fn put_manifest(
        &mut self,
        now: Time,
        digest: ContentDigest,
        content: Vec<u8>,
    ) -> Result<(), CallError> {
        let bytes = content.len();
        self.put_blob(now, digest, (content.into(), bytes))
    }

    /// The same of a manifest of so many bytes, which may not be at hand.
    pub(in crate::server) fn put_blob(
        &mut self,
        now: Time,
        digest: ContentDigest,
        blob: (Arc<[u8]>, usize),
    ) -> Result<(), CallError> {
        let result = self.blobs.put(&self.config.limits, digest, blob, &mut self.timers);
        self.blobs.schedule_grace(now, &mut self.timers);
        result
    }

    /// Whether a manifest is stored. If so, it need not be sent: its grace time begins anew.
    pub fn has_manifest(&mut self, now: Time, digest: ContentDigest) -> bool {
        let stored = self.blobs.touch(digest);
        self.blobs.schedule_grace(now, &mut self.timers);
        stored
    }

    /// A stored manifest.
    pub fn manifest(&self, digest: &ContentDigest) -> Option<Arc<[u8]>> {
        self.blobs.content(digest)
    }

    /// This server's term, zero while it is passive.
    pub fn term(&self) -> Term {
        self.terms.acting().map_or(Term(0), |own| own.term)
    }

    /// A client says that another server acts in this term. Ends this server's own term if that is
    /// earlier. Returns the term in which this server still acts, for the client to go by.
    pub fn handle_probe(&mut self, now: Time, told: TermProof) -> Option<TermProof> {
        if self.membership().hear_of_other(now, told) {
            self.settle(now);
        }
        self.terms.acting()
    }

    /// Call before [`Server::handle_timeout`] where the timeout may come late. A process that stood
    /// still has not heard its clients either, so each session gets a whole lease to be heard in.
    pub fn excuse_delay(&mut self, now: Time) {
        self.membership().excuse_delay(now);
    }
}
