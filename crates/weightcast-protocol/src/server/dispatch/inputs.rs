//! Inputs beside messages, streams and timers: manifests, other servers' terms, and late timers.

use std::sync::Arc;

use crate::server::Server;
use crate::{CallError, ContentDigest, Term, TermProof, Time};

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
        self.blobs.content(digest)
    }

    /// This server's term, zero while it is passive.
    pub fn term(&self) -> Term {
        self.terms.acting().map_or(Term(0), |own| own.term)
    }

    /// A client of another server was opened in this term there. Ends this server's term if that is
    /// earlier; the answer is this server's term then, for the client to go by.
    pub fn handle_probe(&mut self, now: Time, told: TermProof) -> Option<TermProof> {
        if self.membership().hear_of_other(now, told) {
            self.settle(now);
        }
        self.terms.acting()
    }

    /// To be called before [`Server::handle_timeout`] where that may come late. A process that stood
    /// still, or has not kept up, has not heard its clients either: then nobody's silence counts
    /// before they had a lease's time to be heard.
    pub fn excuse_delay(&mut self, now: Time) {
        self.membership().excuse_delay(now);
    }
}
