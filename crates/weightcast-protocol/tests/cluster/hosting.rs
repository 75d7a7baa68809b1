//! A client's process as the host of its session.

use weightcast_protocol::TermProof;
use weightcast_protocol::session::ReadProgress;
use weightcast_protocol::{Attempt, Nonce};
use weightcast_testkit::{VirtualRuntime, drive};

use super::*;

/// A client that does what its session asks for.
struct ClientHost<'a> {
    cluster: &'a mut Cluster,
    index: usize,
    /// Whether the session has asked for anything.
    asked: bool,
}

impl Cluster {
    /// Does what a client's session asks for; whether that was anything. Whose process is not alive does
    /// nothing of it.
    pub(super) fn obey(&mut self, index: usize) -> bool {
        let mut host = ClientHost { cluster: self, index, asked: false };
        drive(&mut host);
        host.asked
    }
}

impl ClientHost<'_> {
    fn client(&mut self) -> &mut Client {
        &mut self.cluster.clients[self.index]
    }

    /// Whether a server can be reached.
    fn reaches(&self, server: usize) -> bool {
        self.cluster.reachable && !self.cluster.down.contains(&server)
    }
}

impl VirtualRuntime for ClientHost<'_> {
    type Reading = ReadOrder;
    type Staged = u64;

    fn host(&mut self) -> &mut VirtualHost<ReadOrder, u64> {
        &mut self.client().host
    }

    fn next_output(&mut self) -> Option<Output> {
        loop {
            let index = self.index;
            let output = self.client().session.poll_output()?;
            self.asked = true;
            if self.client().alive {
                self.cluster.course.note(&(index, &output));
                self.client().log.push(output.clone());
                return Some(output);
            }
        }
    }

    fn connect(&mut self, server: usize) {
        let (reaches, now) = (self.reaches(server), self.cluster.now);
        if reaches {
            self.cluster.connections += 1;
            let stream = ConnectionId(self.cluster.connections);
            self.cluster.leads_to.insert(stream, server);
            self.client().host.stream = Some(stream);
            self.client().session.handle_connected(now);
        } else {
            self.client().host.stream = None;
            self.client().session.handle_disconnected(now);
        }
    }

    fn probe(&mut self, server: usize, proof: TermProof) {
        if self.reaches(server) {
            let now = self.cluster.now;
            let acts = self.cluster.machine(server).handle_probe(now, proof);
            self.client().session.handle_probed(now, server, proof.term, acts);
        }
    }

    fn send(&mut self, stream: ConnectionId, message: ClientMessage) {
        self.cluster.to_server.push_back((stream, message));
    }

    fn seal(&mut self, _: Generation) {
        if self.cluster.auto_seal {
            self.cluster.finish_seal(self.index);
        }
    }

    fn prove(&mut self, _: Generation, _: Nonce) {
        if self.cluster.auto_prove {
            self.cluster.finish_proofs(self.index);
        }
    }

    fn read(&mut self, order: ReadOrder) {
        self.client().keep = order.keep;
        self.client().host.reading = Some(order);
        if self.cluster.auto_read {
            self.cluster.finish_read(self.index);
        }
    }

    fn measure(&mut self, seq: OpSeq, attempt: Attempt) {
        let now = self.cluster.now;
        if let Some((arrived, left, shard)) = self.client().progress {
            let progress = ReadProgress { arrived, left, shard };
            self.client().session.handle_progress(now, seq, attempt, progress);
        }
    }

    fn install(&mut self, _: OpSeq, _: Attempt) {
        if self.cluster.auto_install {
            self.cluster.finish_install(self.index);
        }
    }

    fn offload(&mut self, _: Version, _: Generation) {
        if self.cluster.auto_offload {
            self.cluster.finish_offload(self.index);
        }
    }

    fn seed(&mut self, _: Version, _: u64, _: Span) {
        if self.cluster.auto_seed {
            self.cluster.open_seed(self.index);
        }
    }

    fn answer(&mut self, seq: OpSeq, result: Result<Answer, CallError>) {
        self.client().done.push((seq, result));
        self.cluster.go_on_offloading(self.index);
        self.cluster.go_on_seeding(self.index);
    }

    fn end(&mut self, error: Option<CallError>) {
        self.client().closed = Some(error.clone());
        self.cluster.report_seed(self.index);
        let Some((owner, version, generation)) = self.client().offload_of else { return };
        let (now, owner) = (self.cluster.now, &mut self.cluster.clients[owner].session);
        match error.map(|error| error.to_string()) {
            Some(why) => owner.handle_offload_failed(now, version, generation, why),
            None => owner.handle_offload_over(now, version, generation),
        }
    }
}
