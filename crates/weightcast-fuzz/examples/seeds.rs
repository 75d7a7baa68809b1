//! Writes the first corpora: real encodings, and a conversation of real machines.
//!
//! `cargo run -p weightcast-fuzz --example seeds -- fuzz/corpus`

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use weightcast::fuzzing::{
    client_frame, fleet_seeds, inspection, manifest_of, push_word_seeds, routing_seeds,
    server_frame,
};
use weightcast_fuzz::{InputStep, encode, stored_plan_seed};
use weightcast_plan::{DType, Entry, Layout, Slice, Tensor};
use weightcast_protocol::engine_update::{
    FleetAnswer, FleetQuestion, FleetTransaction, FleetVerdict, RoutingAnswer, RoutingError,
    RoutingLease, RoutingQuestion, RoutingState, ServingNotice,
};
use weightcast_protocol::limits::{SERVER_REEL, SESSION_REEL};
use weightcast_protocol::message::{Call, EpochPolicy, Open, Role};
use weightcast_protocol::recording::{RecordedMachine, RecordingCause};
use weightcast_protocol::server::{FleetError, Server, ServerConfig, ServerOutput};
use weightcast_protocol::session::{Output, Session, SessionConfig};
use weightcast_protocol::{
    ConnectionId, ContentDigest, Epoch, ExportId, Generation, PROTOCOL, Selector, SessionId,
    ShardSums, Span, Time, Version,
};

fn main() -> std::io::Result<()> {
    let corpora = PathBuf::from(std::env::args().nth(1).expect("a directory"));
    let mut counts = BTreeMap::new();
    let mut write = |target: &str, bytes: &[u8]| {
        let count = counts.entry(target.to_owned()).and_modify(|n| *n += 1).or_insert(0);
        save(&corpora, target, *count, bytes)
    };
    for (target, bytes) in weightcast_transport::fuzzing::seeds() {
        write(target, &bytes)?;
    }
    write("manifest", &manifest_of(&layout()))?;
    write("plan", &(0..240_u8).map(|n| n.wrapping_mul(37) % 9).collect::<Vec<_>>())?;
    write("stored_plan", &stored_plan_seed())?;
    let talk = Conversation::held();
    for recording in talk.recordings() {
        write("recording", &recording)?;
    }
    write("server", &encode(&talk.to_server))?;
    write("session", &encode(&talk.to_rollout))?;
    for (target, steps) in
        [("client_message", &talk.to_server), ("server_message", &talk.to_rollout)]
    {
        for step in steps {
            if let InputStep::Frame(_, bytes) = step {
                write(target, bytes)?;
            }
        }
    }
    push_word_seeds().iter().try_for_each(|bytes| write("push_word", bytes))?;
    fleet().iter().chain(&routing()).flatten().try_for_each(|bytes| write("fleet", bytes))?;
    talk.inspected.iter().try_for_each(|bytes| write("inspect_reply", bytes))
}

/// Questions of each kind to the register of a fleet, and answers of each kind.
fn fleet() -> [[Vec<u8>; 2]; 3] {
    let transaction = FleetTransaction { driver: 7, number: 1 };
    let (wanted, version) = (FleetVerdict::Commit, Version { epoch: Epoch(0), number: 4 });
    let told = FleetAnswer {
        driver: 7,
        superseded: false,
        version: Some(version),
        verdict: Some(FleetVerdict::Abort),
    };
    let no_model = FleetError::NoModel { model: "policy".to_owned() };
    [
        fleet_seeds(FleetQuestion::State, Err(FleetError::Passive)),
        fleet_seeds(FleetQuestion::Number { key: 5, heard: Some(7) }, Err(no_model)),
        fleet_seeds(FleetQuestion::Verdict { transaction, wanted, version }, Ok(told)),
    ]
}

/// Notices and questions to the table of routing leases, and answers of each kind.
fn routing() -> [[Vec<u8>; 2]; 2] {
    let (engine, version) = ("engine".to_owned(), Version { epoch: Epoch(0), number: 4 });
    let (life, count, serves) = (7, 9, Some(version));
    let notice =
        ServingNotice { engine: engine.clone(), life, worker: 1, workers: 2, count, serves };
    let (state, left) = (RoutingState::Admitted, Span(5));
    let lease = RoutingLease { engine, life, state, version: serves, left };
    let told = RoutingAnswer { lease: Span(9), engines: vec![lease] };
    let full = RoutingError::Full { limit: 4_096 };
    [
        routing_seeds(RoutingQuestion::Engines, Ok(told)),
        routing_seeds(RoutingQuestion::Serves(notice), Err(full.into())),
    ]
}

fn save(corpora: &Path, target: &str, number: u32, bytes: &[u8]) -> std::io::Result<()> {
    let directory = corpora.join(target);
    fs::create_dir_all(&directory)?;
    fs::write(directory.join(format!("seed-{number:02}")), bytes)
}

fn layout() -> Layout {
    let tensor = Tensor::new("layers.0.weight", DType::BF16, [4, 4]).expect("a small tensor");
    let slice = Slice::new([0, 0], [4, 4]);
    let entry = Entry { tensor: 0, slice, buffer: 0, offset: 0, strides: vec![8, 2] };
    Layout::new(vec![32], vec![tensor], vec![entry]).expect("a small layout")
}

/// A trainer publishes, a rollout replicates; the trainer takes it back and publishes the next, which
/// the rollout reads beside the first and puts in place.
struct Conversation {
    server: RecordedMachine<Server>,
    sessions: Vec<RecordedMachine<Session>>,
    to_server: Vec<InputStep>,
    to_rollout: Vec<InputStep>,
    /// What was told of replicas while they were there, and of one that never was.
    inspected: Vec<Vec<u8>>,
}

const NOW: Time = Time(0);

impl Conversation {
    fn held() -> Self {
        let roles = [Role::Trainer, Role::Rollout];
        let session = |(index, role)| {
            let config = SessionConfig::new(open(index as u8, role), "server");
            RecordedMachine::new(Session::new(config, NOW), SESSION_REEL)
        };
        let mut talk = Self {
            server: RecordedMachine::new(Server::new(ServerConfig::default()), SERVER_REEL),
            sessions: roles.into_iter().enumerate().map(session).collect(),
            to_server: Vec::new(),
            to_rollout: vec![InputStep::Other(0, 0)],
            inspected: Vec::new(),
        };
        talk.settle();
        for index in 0..2 {
            talk.sessions[index].handle_connected(NOW);
            talk.settle();
            let layout = ContentDigest([2; 16]);
            talk.call(index, 0, Call::Register { layout, export: ExportId(7), bytes: 8 });
        }
        let (catalog, generation) = (ContentDigest([1; 16]), Generation(0));
        talk.call(0, 3, Call::Publish { version: 1, catalog, generation });
        talk.call(1, 1, Call::Replicate { selector: Selector::Latest });
        for replica in ["replica-0", "replica-1", "nobody"] {
            let seen = talk.server.inspect("policy", replica, None);
            talk.inspected.push(inspection(talk.server.term(), seen));
        }
        talk.call(0, 4, Call::Unpublish);
        talk.call(0, 3, Call::Publish { version: 2, catalog, generation });
        let selector = Selector::Latest;
        talk.call(1, 128, Call::Update { selector, allow_rollback: false, staged: true });
        talk.call(1, 6, Call::List);
        talk
    }

    /// Of the server and of the rollout, without what the target adds.
    fn recordings(&self) -> [Vec<u8>; 2] {
        let server = self.server.recording(RecordingCause::Asked, 0);
        let rollout = self.sessions[1].recording(RecordingCause::Asked, 0);
        [server, rollout].map(|recording| {
            let bytes = recording.expect("something has happened").encode();
            bytes["weightcast recording 1\n".len()..bytes.len() - 16].to_vec()
        })
    }

    /// `which` is the call's number in the fuzzed session.
    fn call(&mut self, index: usize, which: u8, call: Call) {
        if index == 1 {
            self.to_rollout.push(InputStep::Other(1, which));
        }
        self.sessions[index].call(NOW, call, Span::from_secs(3)).expect("nothing else runs");
        self.settle();
    }

    fn settle(&mut self) {
        let mut moved = true;
        while std::mem::take(&mut moved) {
            for index in 0..self.sessions.len() {
                while let Some(output) = self.sessions[index].poll_output() {
                    moved = true;
                    self.obey(index, output);
                }
            }
            while let Some(ServerOutput::Send { to, message }) = self.server.poll_output() {
                moved = true;
                if to.0 == 1 {
                    self.to_rollout.push(InputStep::Frame(0, server_frame(message.clone())));
                }
                self.sessions[to.0 as usize].handle_message(NOW, message);
            }
        }
    }

    fn obey(&mut self, index: usize, output: Output) {
        let sums = ShardSums::default();
        match output {
            Output::Send(message) => {
                self.to_server.push(InputStep::Frame(index as u8, client_frame(message.clone())));
                self.server.handle(NOW, ConnectionId(index as u64), Box::new(message));
            }
            Output::Seal(generation) => self.sessions[index].handle_sealed(NOW, generation, sums),
            Output::Read { seq, attempt, .. } => {
                self.to_rollout.push(InputStep::Other(3, 0));
                self.sessions[index].handle_read(NOW, seq, attempt, Ok(sums));
            }
            Output::Prove { generation, nonce } => {
                self.sessions[index].handle_proved(NOW, generation, nonce, 0);
            }
            Output::Install { seq, attempt } => {
                self.to_rollout.push(InputStep::Other(3, 0));
                self.sessions[index].handle_installed(NOW, seq, attempt);
            }
            _ => {}
        }
    }
}

fn open(index: u8, role: Role) -> Open {
    Open {
        protocol: PROTOCOL,
        session: SessionId(index.into()),
        ticket: None,
        rejoins: false,
        model: "policy".into(),
        replica: format!("replica-{index}"),
        shard: 0,
        num_shards: 1,
        role,
        epoch: EpochPolicy::Current,
        retain: u32::from(role == Role::Trainer),
        offload_seeding: false,
        location: Default::default(),
        data_address: "host:1".into(),
        activate: false,
    }
}
