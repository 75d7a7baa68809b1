//! Connections: which session is on which stream, and what the runtime has to do with the streams.
//!
//! A session has one stream at most, and a stream one session. A session outlives its stream.
//! Messages to a session without a stream are dropped. The session is told again when it opens on a
//! new stream and makes its call again.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::message::ServerMessage;
use crate::server::output::ServerOutput;
use crate::server::stores::violation::{Violation, ensure};
use crate::{ConnectionId, SessionId};

/// Streams by session and back, and the outputs that the runtime has not taken.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::server) struct Connections {
    by_session: BTreeMap<SessionId, ConnectionId>,
    sessions: BTreeMap<ConnectionId, SessionId>,
    #[serde(skip)]
    outputs: VecDeque<ServerOutput>,
}

impl Connections {
    /// The session that was opened on a stream.
    pub(in crate::server) fn session(&self, connection: ConnectionId) -> Option<SessionId> {
        self.sessions.get(&connection).copied()
    }

    /// The stream of a session.
    pub(in crate::server) fn stream(&self, session: SessionId) -> Option<ConnectionId> {
        self.by_session.get(&session).copied()
    }

    /// A session opens on a stream, and leaves the one that it had before.
    pub(in crate::server) fn bind(&mut self, session: SessionId, connection: ConnectionId) {
        let old = self.by_session.insert(session, connection);
        if let Some(connection) = old.filter(|old| *old != connection) {
            self.sessions.remove(&connection);
            self.disconnect(connection);
        }
        self.sessions.insert(connection, session);
    }

    /// A stream broke. Returns its session.
    pub(in crate::server) fn unbind(&mut self, connection: ConnectionId) -> Option<SessionId> {
        let session = self.sessions.remove(&connection)?;
        self.by_session.remove(&session);
        Some(session)
    }

    /// A session has ended, and with it its stream.
    pub(in crate::server) fn end(&mut self, session: SessionId) {
        if let Some(connection) = self.by_session.remove(&session) {
            self.sessions.remove(&connection);
            self.disconnect(connection);
        }
    }

    /// Tells all sessions that another server acts, and forgets them.
    pub(in crate::server) fn supersede(&mut self) {
        self.by_session.clear();
        for connection in std::mem::take(&mut self.sessions).into_keys() {
            self.send_on(connection, ServerMessage::Superseded);
        }
    }

    /// Sends to a session, if it has a stream.
    pub(in crate::server) fn send(&mut self, session: SessionId, message: ServerMessage) {
        if let Some(to) = self.stream(session) {
            self.send_on(to, message);
        }
    }

    /// Sends on a stream, whether a session was opened on it or not.
    pub(in crate::server) fn send_on(&mut self, to: ConnectionId, message: ServerMessage) {
        self.outputs.push_back(ServerOutput::Send { to, message });
    }

    /// Asks the runtime to close a stream.
    pub(in crate::server) fn disconnect(&mut self, connection: ConnectionId) {
        self.outputs.push_back(ServerOutput::Disconnect { connection });
    }

    /// What the runtime is to do next.
    pub(in crate::server) fn pop(&mut self) -> Option<ServerOutput> {
        self.outputs.pop_front()
    }

    /// T5: streams belong to sessions that are open, one to one.
    pub(in crate::server) fn validate(
        &self,
        is_open: impl Fn(&SessionId) -> bool,
    ) -> Result<(), Violation> {
        let whole = self.sessions.len() == self.by_session.len();
        ensure(whole, "T5", || "a session is on two streams, or a stream has two".to_owned())?;
        for (connection, session) in &self.sessions {
            let same = is_open(session) && self.by_session.get(session) == Some(connection);
            ensure(same, "T5", || format!("stream {connection} belongs to no session"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
impl Connections {
    /// The outputs since the last call.
    pub(in crate::server) fn take(&mut self) -> VecDeque<ServerOutput> {
        std::mem::take(&mut self.outputs)
    }

    /// Whether no session has a stream.
    pub(in crate::server) fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.by_session.is_empty()
    }
}
