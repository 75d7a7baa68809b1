//! The session's stream to its server, and probes of the other servers.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tonic::{Code, Status};
use weightcast_plan::Layout;
use weightcast_protocol::message::ClientMessage;
use weightcast_protocol::{CallError, TermProof, Time};

use super::Control;
use crate::client::connection::port::Incoming;
use crate::client::connection::{self, ServerConnection};
use crate::client::event::Event;
use crate::convert::{Assembly, client_frame};
use crate::error::Error;
use crate::manifest;

/// How long a new stream waits for the layout to be stored before the session uses the stream.
const STORE_FIRST: Duration = Duration::from_secs(2);
/// How long the layout's upload may take.
const STORE: Duration = Duration::from_secs(60);

impl Control {
    pub(super) fn connect(&mut self, server: usize) {
        self.streams += 1;
        self.stream = None;
        self.connection.turn_to(server);
        // A server that has taken over does not know this shard's layout.
        let layout =
            self.shared.current().map(|(registration, _)| Arc::clone(&registration.layout));
        let (stream, events) = (self.streams, self.events.clone());
        let connection = self.connection.clone();
        tokio::spawn(async move {
            let result = connection.session(server).await;
            if let Some(layout) = layout.filter(|_| result.is_ok()) {
                // Readers need the layout soon, so it goes first. But the recovery window is short:
                // after `STORE_FIRST` the shard announces itself, and the layout follows.
                let stored = tokio::spawn(store_again(connection, server, layout));
                let _ = tokio::time::timeout(STORE_FIRST, stored).await;
            }
            let _ = events.send(Event::Connected { stream, result });
        });
    }

    pub(super) fn probe(&self, server: usize, proof: TermProof) {
        let (connection, events) = (self.connection.clone(), self.events.clone());
        tokio::spawn(async move {
            if let Some(acts) = connection.probe(server, proof).await {
                let _ = events.send(Event::Probed { server, told: proof.term, acts });
            }
        });
    }

    pub(super) fn send(&mut self, message: ClientMessage) {
        let Some((stream, sender)) = &self.stream else { return };
        if sender.try_send(client_frame(message)).is_err() {
            let reason = "the server does not take messages".to_owned();
            let _ = self.events.send(Event::StreamEnded { stream: *stream, reason });
        }
    }

    pub(super) fn connected(
        &mut self,
        now: Time,
        stream: u64,
        result: Result<connection::ServerStream, Status>,
    ) {
        if stream != self.streams {
            return; // another one was asked for meanwhile, perhaps to another server
        }
        match result {
            Ok(session) => {
                self.stream = Some((stream, session.sender));
                tokio::spawn(forward(stream, session.frames, self.events.clone()));
                self.session.handle_connected(now);
            }
            Err(status) => {
                let unreachable = match self.connection.unreachable(&status) {
                    Error::Call(error) => error,
                    other => CallError::Misuse { detail: other.to_string() },
                };
                self.shared.set_trouble(Some(unreachable.clone()));
                if status.code() == Code::Unauthenticated {
                    // Trying again cannot help.
                    self.session.handle_refused(now, unreachable);
                } else {
                    self.session.handle_disconnected(now);
                }
            }
        }
    }
}

async fn store_again(connection: ServerConnection, server: usize, layout: Arc<Layout>) {
    let stored = connection.put_manifest_at(server, manifest::encode(&layout));
    match tokio::time::timeout(STORE, stored).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the layout was not stored again"),
        Err(_) => tracing::warn!("the layout was not stored again within {STORE:?}"),
    }
}

/// Hands the stream's frames to the control thread.
async fn forward(
    stream: u64,
    mut frames: Incoming<crate::wire::ServerFrame>,
    events: mpsc::UnboundedSender<Event>,
) {
    let mut assembly = Assembly::default();
    let reason = loop {
        match frames.next().await {
            Some(Ok(frame)) => match assembly.take(frame) {
                Ok(None) => {}
                Ok(Some(message)) => {
                    if events.send(Event::Frame { stream, message }).is_err() {
                        return;
                    }
                }
                Err(malformed) => break malformed.to_string(),
            },
            Some(Err(status)) => break status.to_string(),
            None => break "the server ended it".to_owned(),
        }
    };
    let _ = events.send(Event::StreamEnded { stream, reason });
}
