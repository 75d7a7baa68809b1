//! Opening a handle: finds the server, binds the data port, starts the control thread.

use std::sync::{Arc, Mutex, mpsc as reply};
use std::time::Duration;

use tokio::sync::mpsc;
use weightcast_protocol::limits::SESSION_REEL;
use weightcast_protocol::message::Open;
use weightcast_protocol::session::{Session, SessionConfig};
use weightcast_protocol::{CallError, PROTOCOL, SessionId};
use weightcast_transport::{Auth, DataServer};

use super::handle::process::Owned;
use super::handle::{Interrupted, Own, ShardHandle};
use crate::client::aside::offload::Offloader;
use crate::client::aside::room::Room;
use crate::client::aside::second::Owner;
use crate::client::aside::seed::Seeder;
use crate::client::connection::ServerConnection;
use crate::client::control::Control;
use crate::client::data_address::{bind_address, told_address};
use crate::client::event::Event;
use crate::client::handle_state::{HandleState, SessionView, ShardLabel};
use crate::client::memory::reservations::Registrant;
use crate::client::push::desk::PushDesk;
use crate::client::push::hearing;
use crate::client::reading::networks::Networks;
use crate::client::reading::plan_files::PlanFiles;
use crate::client::reading::reach;
use crate::client::reading::route::Routes;
use crate::client::threads;
use crate::clock::{Clock, span};
use crate::config::{Options, Replica, Role};
use crate::error::Error;
use crate::lazy;
use crate::metrics::process::HandleFigures;
use crate::recordings::{FlightRecorder, RecordingFiles};
use crate::telemetry;

impl ShardHandle {
    /// Opens a session for one shard of a replica of a model.
    ///
    /// # Errors
    /// The server cannot be reached or refuses the token, the replica's shard is taken, or the data
    /// port cannot be bound.
    pub fn open(model: &str, replica: Replica, options: &Options) -> Result<Self, Error> {
        Self::open_interruptible(model, replica, options, None)
    }

    /// [`ShardHandle::open`] that `interrupted` can end: for languages whose Ctrl-C only sets a
    /// flag.
    pub fn open_interruptible(
        model: &str,
        replica: Replica,
        options: &Options,
        interrupted: Option<Interrupted>,
    ) -> Result<Self, Error> {
        telemetry::trace_if_asked(options.trace.as_deref())?;
        telemetry::otlp_if_asked(options.otlp.as_deref())?;
        let (server, token, job) = match options.configured_server() {
            Some(server) => {
                let token = options.token(&server)?;
                (server, token, None)
            }
            None => {
                let job = options.job()?;
                let (server, token) =
                    lazy::find_or_start(&job, &options.lazy_server, options.deadline)?;
                (server, Some(token), Some(job))
            }
        };
        if token.is_none() && !options.insecure {
            return Err(Error::Config {
                what: "token".to_owned(),
                problem: format!(
                    "none given, and {server} is not of this host: set WEIGHTCAST_TOKEN_FILE to the \
                     token file that the server has, or allow it with insecure=True"
                ),
            });
        }
        let auth = Auth { token: token.clone(), insecure: options.insecure };
        let exports = DataServer::bind(bind_address(options)?, auth.clone())
            .map_err(|e| Error::Transport(e.to_string()))?;
        let data_address = told_address(options, exports.addr())?;
        let networks = Networks::new(options, &server, Some(exports.addr()))?;
        let warning = reach::warning(&server, &data_address);
        if let Some(warning) = &warning {
            tracing::warn!("{warning}");
        }
        let plan_files = options.plan_cache.as_deref().map(PlanFiles::within).transpose()?;
        let shared = Arc::new(HandleState {
            exports,
            routes: Routes::new(auth, options.way, networks, plan_files),
            registration: Mutex::new(None),
            layouts: Mutex::default(),
            memory: Mutex::new(()),
            sealing_threads: sealing_threads(options.role),
            view: Mutex::new(SessionView::default()),
            staging_bytes: options.staging_bytes,
            trouble: Mutex::new(None),
            latest_read: Mutex::default(),
            figures: figures(options.role, model),
            push: PushDesk::new(data_address.clone()),
            label: ShardLabel { model: model.to_owned(), replica: replica.clone() },
        });
        hearing::listen(&shared);
        let config = session_config(model, &replica, options, data_address, &server)?;
        let mut handle = Self::start(model, replica, options, config, token.as_ref(), shared)?;
        handle.interrupted = interrupted;
        (handle.warning, handle.job) = (warning, job);
        handle.await_open(&server, options.deadline)?;
        Ok(handle)
    }

    fn start(
        model: &str,
        replica: Replica,
        options: &Options,
        config: SessionConfig,
        token: Option<&weightcast_transport::Secret>,
        shared: Arc<HandleState>,
    ) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| Error::io("start the control runtime", e))?;
        let handle = runtime.handle().clone();
        let connection = {
            let _inside = handle.enter();
            ServerConnection::new(&config.server, token)?
        };
        shared.push.connect(connection.clone(), handle.clone());
        let server = config.server.clone();
        let clock = {
            let _inside = handle.enter();
            Clock::start()
        };
        let (events, queue) = mpsc::unbounded_channel();
        let record_dir = options.record_dir();
        let files = RecordingFiles::within(record_dir.as_deref())?;
        let session = Session::new(config, clock.now());
        let session =
            FlightRecorder::new(session, SESSION_REEL, files).of_failures(record_dir.is_some());
        let owner = Owner {
            model: model.to_owned(),
            replica: replica.clone(),
            options: options.clone(),
            shared: Arc::clone(&shared),
            room: Room::new(options.offload_bytes),
            open: Arc::new(Self::open),
        };
        let seeder = Seeder::new(owner.clone(), events.clone());
        let offloader = Offloader::new(owner, events.clone());
        let control = Control::new(
            session,
            clock,
            connection.clone(),
            Arc::clone(&shared),
            events.clone(),
            offloader,
            seeder,
        );
        let thread = std::thread::Builder::new()
            .name("weightcast-control".to_owned())
            .spawn(move || {
                runtime.block_on(control.run(queue));
                runtime.shutdown_background();
            })
            .map_err(|e| Error::io("start the control thread", e))?;
        let thread = Mutex::new(Some(thread));
        let holder = Registrant::new(model, &replica);
        Ok(Self {
            model: model.to_owned(),
            replica,
            server,
            own: Owned::new(Own {
                events,
                runtime: handle,
                connection,
                shared,
                thread,
                holder,
                fills: fills(options.role),
                reservation: Mutex::default(),
                mismatch: Mutex::new(None),
            }),
            interrupted: None,
            warning: None,
            job: None,
        })
    }

    pub(in crate::client) fn await_open(&self, server: &str, limit: Duration) -> Result<(), Error> {
        let (reply, answer) = reply::channel();
        self.send(Event::AwaitOpen { reply })?;
        match self.receive(&answer, Some(limit))? {
            Some(result) => Ok(result?),
            None => Err(Error::Call(self.own()?.shared.trouble().unwrap_or_else(|| {
                CallError::ServerUnreachable {
                    server: server.to_owned(),
                    reason: format!("no answer within {limit:?}"),
                }
            }))),
        }
    }
}

/// Whether versions may be written to a handle's memory at any time.
fn fills(role: Role) -> bool {
    !matches!(role, Role::Trainer)
}

/// The group that was copied from waits for its offload.
fn sealing_threads(role: Role) -> usize {
    match role {
        Role::Offload(_) => threads::copying(),
        _ => threads::sealing(),
    }
}

/// Copies aside count for nobody.
fn figures(role: Role, model: &str) -> HandleFigures {
    match role {
        Role::Trainer | Role::Rollout => HandleFigures::listed(model),
        Role::Offload(_) | Role::Seed(_) => HandleFigures::apart(),
    }
}

/// The session's settings, with the `Open` message that describes this shard.
fn session_config(
    model: &str,
    replica: &Replica,
    options: &Options,
    data_address: String,
    server: &str,
) -> Result<SessionConfig, Error> {
    let open = Open {
        protocol: PROTOCOL,
        session: SessionId(random()?),
        ticket: None,
        rejoins: false,
        model: model.to_owned(),
        replica: replica.name.clone(),
        shard: replica.shard,
        num_shards: replica.num_shards,
        role: options.role,
        epoch: options.epoch,
        retain: options.retain,
        offload_seeding: options.offload_seeding,
        location: replica.location(),
        data_address,
        activate: false,
    };
    let mut config = SessionConfig::new(open, server.to_owned());
    config.relays = true;
    config.progress_every = Some(weightcast_protocol::limits::PROGRESS_EVERY);
    config.reconnect = span(options.reconnect);
    Ok(config)
}

fn random() -> Result<u128, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|e| Error::io("draw a session's name", std::io::Error::other(e.to_string())))?;
    Ok(u128::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests;
