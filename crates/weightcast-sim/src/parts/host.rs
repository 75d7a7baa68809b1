//! One machine with a reference server.

use weightcast_protocol::recording::{Recordable, RecordedMachine};
use weightcast_protocol::server::{Server, ServerConfig};
use weightcast_protocol::{Span, Term, Time};
use weightcast_testkit::mix;

use crate::parts::process::INSTALL_DEADLINE;
use crate::settings::options::WorldOptions;

/// A machine with a reference server.
#[derive(Debug)]
pub(crate) struct ServerHost {
    /// `None` while the server is down.
    pub(crate) server: Option<RecordedMachine<Server>>,
    /// How often the server has been started.
    pub(crate) life: u32,
    /// The process is suspended until then. If another server acts meanwhile, this one wakes with an old term.
    pub(crate) paused_until: Time,
    /// The server dies between two outputs of its next event, and stays down for so long.
    pub(crate) dies_halfway: Option<Span>,
    /// When the server's timer was last planned for.
    pub(crate) timer: Option<Time>,
}

impl ServerHost {
    pub(crate) fn new(options: &WorldOptions, index: usize) -> Self {
        let server = Some(start(options, index, 0));
        Self { server, life: 0, paused_until: Time(0), dies_halfway: None, timer: None }
    }

    /// The term in which the server acts; zero if it does not act.
    pub(crate) fn term(&self) -> Term {
        self.server.as_ref().map_or(Term(0), |server| server.term())
    }
}

/// A server that remembers nothing. A random number tells its lives apart, as with a real server.
pub(crate) fn start(options: &WorldOptions, index: usize, life: u32) -> RecordedMachine<Server> {
    let server = Server::new(ServerConfig {
        life: mix(&[index as u64, life.into()]),
        index: index as u32,
        depth_limit: options.depth_limit,
        lease: options.lease,
        fanout: options.fanout,
        host_fanout: options.host_fanout,
        stripes: options.stripes,
        drain_deadline: options.drain_deadline,
        offload_deadline: options.offload_deadline,
        seed_deadline: options.seed_deadline,
        install_deadline: INSTALL_DEADLINE,
        limits: options.limits.clone(),
        safeguards: options.safeguards,
        secret: [index as u64, life.into()],
        paranoid: options.paranoid,
        ..ServerConfig::default()
    });
    recorded(server, options)
}

/// A machine with a recorder, if machines have one.
pub(crate) fn recorded<M: Recordable>(machine: M, options: &WorldOptions) -> RecordedMachine<M> {
    match options.recorders {
        Some(limits) => RecordedMachine::new(machine, limits),
        None => RecordedMachine::unrecorded(machine),
    }
}
