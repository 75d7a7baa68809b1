//! Time limits of the lease: heartbeats renew it, and a session without a lease stops acting (T1).

use crate::session::Session;
use crate::session::host::Output;
use crate::session::lease::Lease;
use crate::{CallError, Span, Time};

impl Session {
    /// When the session must stop acting on its lease.
    pub(in crate::session) fn lease_ends_at(&self) -> Option<Time> {
        let lease = self.lease.as_ref().filter(|lease| lease.lives())?;
        Some(lease.until(self.config.margin_percent))
    }

    pub(in crate::session) fn check_lease(&mut self, now: Time) {
        if self.ended.is_some() || self.lease_ends_at().is_none_or(|at| at > now) {
            return;
        }
        let Some(lease) = &mut self.lease else { return };
        lease.lose();
        if self.config.reconnect == Span(0) || self.closing.is_some() {
            let millis = lease.ttl.0 / 1_000_000;
            return self
                .lose_server(format!("no heartbeat was answered within its lease of {millis} ms"));
        }
        self.suspend(now);
        self.link.give_up_server(now, &self.config);
    }

    pub(in crate::session) fn heartbeat_acked(&mut self, now: Time, sent_at: Time) {
        if let Some(lease) = self.lease.as_mut().filter(|lease| lease.lives()) {
            lease.acknowledged(now, sent_at, &self.config);
        }
    }

    pub(in crate::session) fn next_heartbeat(&self) -> Option<Time> {
        self.lease.as_ref().filter(|_| self.link.is_open()).map(Lease::heartbeat_at)
    }

    pub(in crate::session) fn heartbeat_if_due(&mut self, now: Time) {
        if self.ended.is_some() || self.next_heartbeat().is_none_or(|at| at > now) {
            return;
        }
        if let Some(lease) = &mut self.lease {
            self.outputs.push_back(Output::Send(lease.heartbeat(now, &self.config)));
        }
    }

    /// The server can't be reached: the session is over.
    pub(super) fn lose_server(&mut self, reason: String) {
        self.fail(self.unreachable(reason));
    }

    pub(super) fn unreachable(&self, reason: String) -> CallError {
        CallError::ServerUnreachable { server: self.config.server.clone(), reason }
    }
}
