//! The virtual network: the server machine, the streams to it, and ports that answer at once or fail.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard};

use prost::Message;
use prost::bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Status;
use weightcast_protocol::message::ServerMessage;
use weightcast_protocol::server::{Server, ServerConfig, ServerOutput};
use weightcast_protocol::{ConnectionId, ContentDigest, Span, Time};

use super::super::super::control_port::{ControlPort, Incoming, Requested};
use crate::convert::{ByteMeter, Encoder, inspect_reply, inspected, sum};
use crate::wire::{
    ClientFrame, GetManifestRequest, InspectRequest, ManifestPage, Page, ProbeReply, ProbeRequest,
    ServerFrame,
};

/// The server, and what leads to it.
pub(super) struct Net {
    pub(super) now: Time,
    pub(super) server: Server,
    encoder: Encoder,
    /// Streams that are open, as the server has them.
    pub(super) lines: BTreeMap<ConnectionId, VirtualLine>,
    opened: u64,
    /// Workers whose requests fail.
    pub(super) unreachable: Vec<usize>,
}

/// One stream.
pub(super) struct VirtualLine {
    pub(super) worker: usize,
    /// What the client sends.
    pub(super) up: mpsc::Receiver<ClientFrame>,
    down: mpsc::UnboundedSender<Result<ServerFrame, Status>>,
}

pub(super) type SharedNet = Arc<Mutex<Net>>;

pub(super) fn lock(net: &SharedNet) -> MutexGuard<'_, Net> {
    net.lock().expect("no panic while held")
}

impl Net {
    pub(super) fn new(life: u64) -> Self {
        let config = ServerConfig {
            life,
            lease: Span::from_secs(2),
            drain_deadline: Span::from_secs(3),
            paranoid: true,
            ..ServerConfig::default()
        };
        Self {
            now: Time(0),
            server: Server::new(config),
            encoder: Encoder::new(ByteMeter::default()),
            lines: BTreeMap::new(),
            opened: 0,
            unreachable: Vec::new(),
        }
    }

    fn open(
        &mut self,
        worker: usize,
        up: mpsc::Receiver<ClientFrame>,
    ) -> Result<Incoming<ServerFrame>, Status> {
        self.check(worker)?;
        self.opened += 1;
        let (down, frames) = mpsc::unbounded_channel();
        self.lines.insert(ConnectionId(self.opened), VirtualLine { worker, up, down });
        Ok(Box::pin(UnboundedReceiverStream::new(frames)))
    }

    fn check(&self, worker: usize) -> Result<(), Status> {
        match self.unreachable.contains(&worker) {
            true => Err(Status::unavailable("the network is down, says a test")),
            false => Ok(()),
        }
    }

    /// Lets the server's messages go their way.
    pub(super) fn dispatch(&mut self) {
        while let Some(output) = self.server.poll_output() {
            match output {
                ServerOutput::Send { to, message } => self.send(to, message),
                ServerOutput::Disconnect { connection } => drop(self.lines.remove(&connection)),
            }
        }
    }

    fn send(&mut self, to: ConnectionId, message: ServerMessage) {
        let Some(line) = self.lines.get(&to) else { return };
        for frame in self.encoder.frames(message) {
            let _ = line.down.send(Ok(frame));
        }
    }

    /// A stream breaks, for both ends.
    pub(super) fn cut(&mut self, connection: ConnectionId) {
        let Some(line) = self.lines.remove(&connection) else { return };
        let _ = line.down.send(Err(Status::unavailable("cut, says a test")));
        self.server.handle_disconnect(self.now, connection);
        self.dispatch();
    }

    /// The newest stream of a worker.
    pub(super) fn line_of(&self, worker: usize) -> Option<ConnectionId> {
        self.lines.iter().rev().find(|(_, line)| line.worker == worker).map(|(id, _)| *id)
    }
}

/// One worker's way to the server.
pub(super) struct VirtualPort {
    pub(super) net: SharedNet,
    pub(super) worker: usize,
}

impl VirtualPort {
    fn answer<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut Net) -> Result<T, Status>,
    ) -> Requested<T> {
        let mut net = lock(&self.net);
        let result = net.check(self.worker).and_then(|()| ask(&mut net));
        net.dispatch();
        Box::pin(ready(result))
    }
}

fn once<T: Send + 'static>(item: T) -> Incoming<T> {
    Box::pin(tokio_stream::once(Ok(item)))
}

impl ControlPort for VirtualPort {
    fn session(&self, sent: mpsc::Receiver<ClientFrame>) -> Requested<Incoming<ServerFrame>> {
        let worker = self.worker;
        self.answer(|net| net.open(worker, sent))
    }

    fn probe(&self, _: ProbeRequest) -> Requested<ProbeReply> {
        self.answer(|_| Ok(ProbeReply::default()))
    }

    fn put_manifest(&self, name: ContentDigest, bytes: Bytes) -> Requested<()> {
        let refused = |error| Status::resource_exhausted(format!("{error}"));
        self.answer(|net| net.server.put_manifest(net.now, name, bytes.to_vec()).map_err(refused))
    }

    fn get_manifest(&self, request: GetManifestRequest) -> Requested<Incoming<ManifestPage>> {
        self.answer(|net| {
            let name = ContentDigest(request.digest.try_into().expect("a digest"));
            let found = net.server.manifest(&name).ok_or_else(|| Status::not_found("unknown"))?;
            let data = Bytes::copy_from_slice(&found);
            Ok(once(ManifestPage { size: data.len() as u64, data, ..ManifestPage::default() }))
        })
    }

    fn status(&self) -> Requested<Incoming<Page>> {
        self.answer(|_| Err(Status::unimplemented("nobody asks here")))
    }

    fn inspect(&self, request: InspectRequest) -> Requested<Incoming<Page>> {
        self.answer(|net| {
            let found = request.found.map(sum);
            let found = net.server.inspect(&request.model, &request.replica, found);
            let data = inspect_reply(inspected(net.server.term(), found)).encode_to_vec();
            Ok(once(Page { size: data.len() as u64, data: data.into() }))
        })
    }
}
