//! One client: its control thread's state, its memory, and the calls of its program.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::{Arc, Mutex, mpsc as reply};
use std::time::Duration;

use tokio::sync::mpsc;
use weightcast_plan::{DType, Layout, LayoutBuilder, Part};
use weightcast_protocol::limits::SESSION_REEL;
use weightcast_protocol::message::{Answer, Call, Open};
use weightcast_protocol::session::{Session, SessionConfig};
use weightcast_protocol::{PROTOCOL, Selector, SessionId, Span, Time};
use weightcast_transport::{Auth, DataServer, ExportId, Region, Way};

use super::super::Control;
use super::gate::Gate;
use super::net::{SharedNet, VirtualPort, lock};
use super::seconds::Seconds;
use crate::client::aside::offload::Offloader;
use crate::client::aside::room::Room;
use crate::client::aside::second::Owner;
use crate::client::aside::seed::Seeder;
use crate::client::connection::ServerConnection;
use crate::client::connection::port::ControlPort;
use crate::client::event::{CallReply, Event};
use crate::client::handle_state::{HandleState, SessionView, ShardLabel};
use crate::client::memory::registration::RegisteredShard;
use crate::client::push::desk::PushDesk;
use crate::client::reading::networks::Networks;
use crate::client::reading::plan_files::PlanFiles;
use crate::client::reading::route::Routes;
use crate::clock::Clock;
use crate::config::{Options, Replica, Role};
use crate::manifest;
use crate::metrics::process::HandleFigures;
use crate::recordings::{FlightRecorder, RecordingFiles};

/// No test takes that long.
const FAR: Duration = Duration::from_secs(3_600);

/// How a worker's tensors lie in its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    /// The second tensor comes first.
    pub(super) turned: bool,
    /// Bytes of the larger tensor.
    pub(super) bytes: u64,
    /// Which part of both this is, and of how many.
    pub(super) shard: u32,
    pub(super) shards: u32,
}

/// What a shard holds of a tensor of so many bytes.
fn held(form: Form, size: u64) -> Range<u64> {
    let cut = |shard: u32| size * u64::from(shard) / u64::from(form.shards);
    cut(form.shard)..cut(form.shard + 1)
}

/// The first tensor, and the second, which is a third as long.
fn sizes(form: Form) -> [u64; 2] {
    let sizes = [form.bytes, form.bytes / 3];
    if form.turned { [sizes[1], sizes[0]] } else { sizes }
}

fn names(form: Form) -> [&'static str; 2] {
    if form.turned { ["b", "a"] } else { ["a", "b"] }
}

/// Both tensors, in a buffer each.
pub(super) fn layout(form: Form) -> Layout {
    let mut builder = LayoutBuilder::new();
    for (name, size) in names(form).into_iter().zip(sizes(form)) {
        let held = held(form, size);
        let len = held.end - held.start;
        let part = Part::new(name).shape([size]).range(0, held.start, len);
        builder.add(name, DType::U8, &[len], vec![part], 0);
    }
    builder.build().expect("a layout")
}

/// What buffer `index` holds of a version.
pub(super) fn content(form: Form, index: usize, version: u64) -> Vec<u8> {
    let tensor = names(form)[index].as_bytes()[0];
    let start = version.wrapping_mul(0x9e37_79b9).wrapping_add(u64::from(tensor) << 8);
    let byte = |i: u64| ((start ^ i).wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8;
    held(form, sizes(form)[index]).map(byte).collect()
}

/// A client, as the world drives it.
pub(super) struct RigClient {
    pub(super) name: String,
    pub(super) control: Control,
    pub(super) queue: mpsc::UnboundedReceiver<Event>,
    pub(super) form: Form,
    pub(super) regions: Vec<Region>,
    /// Memory that it has let go of, with what was written to it then.
    pub(super) released: Vec<(Region, Vec<u8>)>,
    pub(super) pending: Option<(Call, reply::Receiver<CallReply>)>,
    /// What its copies and seeds may take.
    pub(super) room: Arc<Room>,
    /// What it writes in place of a version is another one, by so much.
    pub(super) lies: u64,
    /// A copy or a seed, whose program is not the test.
    pub(super) second: bool,
    /// Its thread has left.
    pub(super) gone: bool,
    net: SharedNet,
    index: usize,
    drawn: u64,
    /// What its last registration named.
    pub(super) export: weightcast_protocol::ExportId,
}

/// What makes one client different from another.
pub(super) struct ClientKind {
    /// Its replica's name, if that is not its place.
    pub(super) name: Option<String>,
    pub(super) datacentre: String,
    pub(super) retain: u32,
    pub(super) seeding: bool,
    /// Bytes that its copies and seeds may take.
    pub(super) room: Option<u64>,
    pub(super) role: Role,
    pub(super) form: Form,
    pub(super) way: Way,
    pub(super) relays: bool,
    pub(super) plans: Option<std::path::PathBuf>,
    /// Its data port; any where there is none.
    pub(super) port: Option<SocketAddr>,
}

/// What a world's clients share.
pub(super) struct RigWays<'a> {
    pub(super) net: &'a SharedNet,
    pub(super) gate: &'a Gate,
    pub(super) seconds: &'a Seconds,
}

impl RigClient {
    /// `life` tells it from whoever had its place before.
    pub(super) fn new(index: usize, life: u64, kind: ClientKind, ways: RigWays<'_>) -> Self {
        let ClientKind { role, form, way, relays, plans, port: data_port, .. } = kind;
        let RigWays { net, gate, seconds } = ways;
        let name = format!("worker{index}");
        let servers = 0..lock(net).servers.len();
        let port = |server| VirtualPort { net: Arc::clone(net), worker: index, server };
        let address = |server| format!("virtual{server}");
        let ports =
            servers.clone().map(|s| (address(s), Box::new(port(s)) as Box<dyn ControlPort>));
        let connection = ServerConnection::to(ports.collect());
        let addresses = servers.map(address).collect::<Vec<_>>().join(",");
        let auth = Auth { token: None, insecure: true };
        let port = data_port.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let exports = DataServer::bind(port, auth.clone());
        let exports = exports.expect("a data port");
        let options = Options {
            server: Some("127.0.0.1:1".to_owned()),
            retain: kind.retain,
            offload_seeding: kind.seeding,
            ..Options::new(role)
        };
        let networks = Networks::new(&options, "127.0.0.1:1", Some(exports.addr()));
        let files = plans.map(|path| PlanFiles::within(&path).expect("a directory"));
        let mut routes = Routes::new(auth, way, networks.expect("networks"), files);
        (routes.holds, routes.threads) = (gate.holds(), 1);
        let data_address = exports.addr().to_string();
        // A group's first shard names it.
        let group = kind.name.unwrap_or_else(|| format!("worker{}", index - form.shard as usize));
        let place = Replica::new(&group, form.shard, form.shards);
        let replica = Replica { datacentre: kind.datacentre, ..place };
        let shared = Arc::new(HandleState {
            push: PushDesk::new(String::new()),
            exports,
            routes,
            registration: Mutex::new(None),
            layouts: Mutex::default(),
            memory: Mutex::new(()),
            sealing_threads: 1,
            view: Mutex::new(SessionView::default()),
            staging_bytes: None,
            trouble: Mutex::new(None),
            latest_read: Mutex::default(),
            figures: HandleFigures::apart(),
            label: ShardLabel { model: "model".to_owned(), replica: replica.clone() },
        });
        let open = Open {
            protocol: PROTOCOL,
            session: SessionId(life.into()),
            ticket: None,
            rejoins: false,
            model: "model".to_owned(),
            replica: group,
            shard: form.shard,
            num_shards: form.shards,
            role,
            epoch: options.epoch,
            retain: kind.retain,
            offload_seeding: kind.seeding,
            location: replica.location(),
            data_address,
            activate: false,
        };
        let mut config = SessionConfig::new(open, addresses);
        config.relays = relays;
        let (events, queue) = mpsc::unbounded_channel();
        let shared_too = Arc::clone(&shared);
        let room = Room::new(kind.room);
        let owner = Owner {
            model: "model".to_owned(),
            replica,
            options,
            shared: shared_too,
            room: Arc::clone(&room),
            open: seconds.way_for(index),
        };
        let session = Session::new(config, lock(net).now);
        let session = FlightRecorder::new(session, SESSION_REEL, RecordingFiles::default());
        let seeder = Seeder::new(owner.clone(), events.clone());
        let offloader = Offloader::new(owner, events.clone());
        // Deadlines of reads are real: none passes while a test runs.
        let clock = Clock { origin: tokio::time::Instant::now() + FAR };
        let control = Control::new(session, clock, connection, shared, events, offloader, seeder);
        let (regions, released, net) = (Vec::new(), Vec::new(), Arc::clone(net));
        Self {
            name,
            control,
            queue,
            form,
            regions,
            released,
            pending: None,
            room,
            lies: 0,
            second: false,
            gone: false,
            net,
            index,
            drawn: life << 16,
            export: weightcast_protocol::ExportId(0),
        }
    }

    /// Begins a call.
    pub(super) fn call(&mut self, now: Time, call: Call, deadline: Span) {
        let (reply, answer) = reply::channel();
        self.pending = Some((call.clone(), answer));
        self.control.take(
            now,
            Event::Call { call, deadline, filling: None, span: tracing::Span::none(), reply },
        );
    }

    /// What has come of the pending call.
    pub(super) fn answered(&mut self) -> Option<CallReply> {
        let result = self.pending.as_ref()?.1.try_recv().ok()?;
        self.pending = None;
        Some(result)
    }

    /// Begins to register fresh memory.
    pub(super) fn register(&mut self, now: Time) {
        let layout = layout(self.form);
        let (encoded, bytes) = (manifest::encode(&layout), layout.bytes());
        let name = manifest::blob_digest(&encoded);
        let mut net = lock(&self.net);
        let server = net.server_of(self.index).unwrap_or_default();
        let server = net.servers[server].as_mut();
        let _ = server.map(|server| server.put_manifest(now, name, encoded));
        drop(net);
        self.drawn += 1;
        let export = weightcast_protocol::ExportId(
            self.control.session.generation().0 << 32 | {
                self.name.bytes().fold(self.drawn, |sum, byte| sum * 31 + u64::from(byte))
            },
        );
        self.export = export;
        self.call(now, Call::Register { layout: name, export, bytes }, Span::from_secs(20));
    }

    /// The group has agreed: `export` is what its call named.
    pub(super) fn registered(&mut self, export: weightcast_protocol::ExportId) {
        let fresh = |bytes: &u64| Region::allocate(*bytes as usize).expect("memory");
        let of = |shard| Arc::new(layout(Form { shard, ..self.form }));
        let group: Vec<_> = (0..self.form.shards).map(of).collect();
        let shard = self.form.shard as usize;
        self.regions = group[shard].buffers().iter().map(fresh).collect();
        let made = RegisteredShard::new(&group, shard, self.regions.clone());
        let made = made.expect("a registration");
        self.control.shared.register(made, ExportId(export.0));
    }

    /// The program has its memory back, and writes to it: nobody else may from now on.
    pub(super) fn let_go(&mut self, mark: u8) {
        for region in self.regions.drain(..) {
            let bytes = vec![mark; region.len()];
            region.write_at(0, &bytes).expect("memory");
            self.released.push((region, bytes));
        }
    }

    /// Takes it again, for a call that fills it.
    pub(super) fn take_back(&mut self) {
        if self.regions.is_empty() {
            let registered = self.control.shared.current().map(|(r, _)| r.regions.to_vec());
            self.regions = registered.unwrap_or_default();
            let ours = self.regions.iter().map(Region::address).collect::<Vec<_>>();
            self.released.retain(|(region, _)| !ours.contains(&region.address()));
        }
    }

    /// Writes a version to its memory.
    pub(super) fn write(&mut self, version: u64) {
        self.take_back();
        for (index, region) in self.regions.iter().enumerate() {
            let bytes = content(self.form, index, version + self.lies);
            region.write_at(0, &bytes).expect("memory");
        }
    }

    pub(super) fn publish(&mut self, now: Time, version: u64) {
        let (registration, _) = self.control.shared.current().expect("registered");
        let (catalog, generation) = (registration.catalog, self.control.session.generation());
        let call = Call::Publish { version, catalog, generation };
        self.call(now, call, Span::from_secs(10));
    }

    pub(super) fn update(&mut self, now: Time, staged: bool, deadline: Span) {
        self.take_back();
        let selector = Selector::Latest;
        self.call(now, Call::Update { selector, allow_rollback: false, staged }, deadline);
    }
}

/// What the call was answered with.
pub(super) fn good(reply: CallReply) -> Answer {
    match reply {
        Ok((answer, _)) => answer,
        Err(failed) => panic!("{}", failed.error),
    }
}
