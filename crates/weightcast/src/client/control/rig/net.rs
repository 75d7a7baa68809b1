//! The virtual network: the server machines, the streams to them, and ports that answer at once or fail.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard};

use prost::Message;
use prost::bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Status;
use weightcast_protocol::message::{ClientMessage, ServerMessage};
use weightcast_protocol::server::{Server, ServerConfig, ServerOutput};
use weightcast_protocol::{ConnectionId, ContentDigest, Span, Time};

use crate::client::connection::port::{ControlPort, Incoming, Requested};
use crate::convert::{
    AskedFleet, ByteMeter, Encoder, fleet_question, fleet_reply, inspect_reply, inspected, sum,
    term_proof, term_proof_frame,
};
use crate::wire::{
    ClientFrame, FleetReply, FleetRequest, GetManifestRequest, InspectRequest, ManifestPage, Page,
    ProbeReply, ProbeRequest, RecordReply, ServerFrame, WhyRequest,
};

/// The servers, and what leads to them.
pub(super) struct Net {
    pub(super) now: Time,
    /// Those of all lists, in their order; none where it is dead.
    pub(super) servers: Vec<Option<Server>>,
    lives: u64,
    encoder: Encoder,
    /// Streams that are open, as the server has them.
    pub(super) lines: BTreeMap<ConnectionId, VirtualLine>,
    opened: u64,
    /// Workers whose requests fail.
    pub(super) unreachable: Vec<usize>,
    /// How often a server was told of a term by somebody who is at another.
    pub(super) probes: u64,
    /// Workers whose requests to one server fail.
    pub(super) parted: Vec<(usize, usize)>,
}

/// One stream.
pub(super) struct VirtualLine {
    pub(super) worker: usize,
    pub(super) server: usize,
    /// What the client sends.
    pub(super) up: mpsc::Receiver<ClientFrame>,
    down: mpsc::UnboundedSender<Result<ServerFrame, Status>>,
}

pub(super) type SharedNet = Arc<Mutex<Net>>;

pub(super) fn lock(net: &SharedNet) -> MutexGuard<'_, Net> {
    net.lock().expect("no panic while held")
}

impl Net {
    pub(super) fn new(life: u64, servers: usize) -> Self {
        let mut net = Self {
            now: Time(0),
            servers: Vec::new(),
            lives: life,
            encoder: Encoder::new(ByteMeter::default()),
            lines: BTreeMap::new(),
            opened: 0,
            unreachable: Vec::new(),
            parted: Vec::new(),
            probes: 0,
        };
        net.servers = (0..servers).map(|index| Some(net.fresh(index))).collect();
        net
    }

    /// A server that knows nothing, at this place of the list.
    fn fresh(&mut self, index: usize) -> Server {
        let life = self.lives;
        self.lives += 1;
        Server::new(ServerConfig {
            life,
            index: index as u32,
            lease: Span::from_secs(2),
            drain_deadline: Span::from_secs(3),
            paranoid: true,
            ..ServerConfig::default()
        })
    }

    /// A server dies, and all streams to it break.
    pub(super) fn die(&mut self, server: usize) {
        self.servers[server] = None;
        let lines = self.lines.iter().filter(|(_, line)| line.server == server);
        let lines: Vec<_> = lines.map(|(id, _)| *id).collect();
        lines.into_iter().for_each(|line| self.cut(line));
    }

    /// One that knows nothing takes its place.
    pub(super) fn revive(&mut self, server: usize) {
        self.servers[server] = Some(self.fresh(server));
    }

    /// A worker and a server do not reach each other any more.
    pub(super) fn part(&mut self, worker: usize, server: usize) {
        self.parted.push((worker, server));
        let of = |line: &VirtualLine| line.worker == worker && line.server == server;
        let lines = self.lines.iter().filter(|(_, line)| of(line));
        let lines: Vec<_> = lines.map(|(id, _)| *id).collect();
        lines.into_iter().for_each(|line| self.cut(line));
    }

    /// The server of a worker's newest stream.
    pub(super) fn server_of(&self, worker: usize) -> Option<usize> {
        self.line_of(worker).map(|line| self.lines[&line].server)
    }

    fn open(
        &mut self,
        (worker, server): (usize, usize),
        up: mpsc::Receiver<ClientFrame>,
    ) -> Result<Incoming<ServerFrame>, Status> {
        self.opened += 1;
        let (down, frames) = mpsc::unbounded_channel();
        self.lines.insert(ConnectionId(self.opened), VirtualLine { worker, server, up, down });
        Ok(Box::pin(UnboundedReceiverStream::new(frames)))
    }

    /// A server that a worker reaches.
    fn reached(&mut self, worker: usize, server: usize) -> Result<&mut Server, Status> {
        let down = || Status::unavailable("the network is down, says a test");
        if self.unreachable.contains(&worker) || self.parted.contains(&(worker, server)) {
            return Err(down());
        }
        self.servers[server].as_mut().ok_or_else(down)
    }

    /// The next moment at which a server has something to do.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.servers.iter().flatten().filter_map(Server::next_timeout).min()
    }

    /// It is now: servers do what is due.
    pub(super) fn wake(&mut self) {
        let now = self.now;
        let due = |server: &&mut Server| server.next_timeout().is_some_and(|at| at <= now);
        let due = self.servers.iter_mut().flatten().filter(due);
        due.for_each(|server| server.handle_timeout(now));
        self.dispatch();
    }

    /// What a client has sent comes to its server.
    pub(super) fn hear(&mut self, from: ConnectionId, message: ClientMessage) {
        let Some(line) = self.lines.get(&from) else { return };
        if let Some(server) = &mut self.servers[line.server] {
            server.handle(self.now, from, message);
        }
        self.dispatch();
    }

    /// Lets the servers' messages go their way.
    pub(super) fn dispatch(&mut self) {
        for server in 0..self.servers.len() {
            while let Some(output) = self.servers[server].as_mut().and_then(Server::poll_output) {
                match output {
                    ServerOutput::Send { to, message } => self.send(to, message),
                    ServerOutput::Disconnect { connection } => drop(self.lines.remove(&connection)),
                }
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
        if let Some(server) = &mut self.servers[line.server] {
            server.handle_disconnect(self.now, connection);
        }
        self.dispatch();
    }

    /// The newest stream of a worker.
    pub(super) fn line_of(&self, worker: usize) -> Option<ConnectionId> {
        self.lines.iter().rev().find(|(_, line)| line.worker == worker).map(|(id, _)| *id)
    }
}

/// One worker's way to a server.
pub(super) struct VirtualPort {
    pub(super) net: SharedNet,
    pub(super) worker: usize,
    pub(super) server: usize,
}

impl VirtualPort {
    fn answer<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut Server, Time) -> Result<T, Status>,
    ) -> Requested<T> {
        let mut net = lock(&self.net);
        let now = net.now;
        let result = net.reached(self.worker, self.server).and_then(|server| ask(server, now));
        net.dispatch();
        Box::pin(ready(result))
    }
}

fn once<T: Send + 'static>(item: T) -> Incoming<T> {
    Box::pin(tokio_stream::once(Ok(item)))
}

impl ControlPort for VirtualPort {
    fn session(&self, sent: mpsc::Receiver<ClientFrame>) -> Requested<Incoming<ServerFrame>> {
        let mut net = lock(&self.net);
        let reached = net.reached(self.worker, self.server).map(drop);
        let opened = reached.and_then(|()| net.open((self.worker, self.server), sent));
        Box::pin(ready(opened))
    }

    fn probe(&self, request: ProbeRequest) -> Requested<ProbeReply> {
        lock(&self.net).probes += 1;
        let told = term_proof(request.proof.expect("a proof")).expect("a term");
        self.answer(|server, now| {
            Ok(ProbeReply { proof: server.handle_probe(now, told).map(term_proof_frame) })
        })
    }

    fn put_manifest(&self, name: ContentDigest, bytes: Bytes) -> Requested<()> {
        let refused = |error| Status::resource_exhausted(format!("{error}"));
        self.answer(|server, now| server.put_manifest(now, name, bytes.to_vec()).map_err(refused))
    }

    fn get_manifest(&self, request: GetManifestRequest) -> Requested<Incoming<ManifestPage>> {
        self.answer(|server, _| {
            let name = ContentDigest(request.digest.try_into().expect("a digest"));
            let found = server.manifest(&name).ok_or_else(|| Status::not_found("unknown"))?;
            let data = Bytes::copy_from_slice(&found);
            Ok(once(ManifestPage { size: data.len() as u64, data, ..ManifestPage::default() }))
        })
    }

    fn status(&self) -> Requested<Incoming<Page>> {
        self.answer(|_, _| Err(Status::unimplemented("nobody asks here")))
    }

    fn record(&self) -> Requested<RecordReply> {
        Box::pin(ready(Err(Status::unimplemented("no test asks for it"))))
    }

    fn why(&self, _: WhyRequest) -> Requested<Incoming<Page>> {
        self.answer(|_, _| Err(Status::unimplemented("nobody asks here")))
    }

    fn fleet(&self, request: FleetRequest) -> Requested<FleetReply> {
        self.answer(|server, _| {
            let (model, question) = fleet_question(request).expect("a question");
            let AskedFleet::Register(question) = question else {
                return Err(Status::unimplemented("no test asks for engines here"));
            };
            Ok(fleet_reply(server.ask_fleet(&model, question)))
        })
    }

    fn inspect(&self, request: InspectRequest) -> Requested<Incoming<Page>> {
        self.answer(|server, _| {
            let found = request.found.map(sum);
            let found = server.inspect(&request.model, &request.replica, found);
            let data = inspect_reply(inspected(server.term(), found)).encode_to_vec();
            Ok(once(Page { size: data.len() as u64, data: data.into() }))
        })
    }
}
