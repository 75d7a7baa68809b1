//! One read, off the control thread: fetches the source's layouts, then moves the bytes.
//!
//! `plans` makes a plan once for two layouts, and `plan_files` keeps plans from one process to the
//! next. `route` binds a plan to the shards of a source, each a `bound_source`, and reads; `unchanged`
//! finds what need not be read, because the memory holds it already. `networks` says where a reader may connect to,
//! and `reach` explains addresses that only one host can reach. `pace` measures
//! how fast the bytes come, and `source_spans` tells traces when those of a source are there. `staging` is memory that a staged update fills before its bytes are
//! copied into place. `taking` is what shards of one host
//! take from each other. A read leaves `evidence` in case its sums are refused; `difference` says how
//! two layouts differ.

pub(in crate::client) mod bound_source;
mod difference;
pub(super) mod entering;
pub(super) mod evidence;
pub(crate) mod networks;
pub(in crate::client) mod pace;
pub(super) mod plan_files;
pub(super) mod plans;
pub(crate) mod reach;
pub(crate) mod read;
pub(crate) mod route;
mod source_spans;
pub(super) mod staging;
mod taking;
pub(in crate::client) mod unchanged;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use tracing::Span;
use weightcast_plan::Layout;
use weightcast_protocol::ContentDigest;
use weightcast_protocol::message::{Assignment, ReadFailure};
use weightcast_transport::{ExportId, Filling};

use self::entering::EnteringBytes;
use self::pace::ReadPace;
use self::read::{Comparing, Read};
use self::route::ArrivedRead;
use super::connection::ServerConnection;
use crate::client::handle_state::HandleState;
use crate::client::memory::registration::RegisteredShard;
use crate::error::Error;
use crate::manifest;

/// How much later than the call the read times out: the end of the call must stop the read first.
const GRACE: Duration = Duration::from_millis(100);

/// What a read fills: the registered memory, or what lies beside it.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) registration: Arc<RegisteredShard>,
    /// Progress of the fill, if the read may go on after it or serve it.
    pub(super) filling: Option<Arc<Filling>>,
    /// The registered memory, if what is filled lies beside it.
    pub(super) live: Option<Arc<RegisteredShard>>,
    /// The export that serves the memory while it is filled.
    pub(super) serving: Option<ExportId>,
    /// Everything is to be moved, whatever the memory is known to hold.
    pub(super) moves_all: bool,
    /// What siblings on this host take while it is filled.
    pub(super) entering: Option<EnteringBytes>,
}

/// Control over a running read.
#[derive(Clone, Default)]
pub(super) struct RunningRead {
    /// Raised to end it.
    pub(super) cancel: Arc<AtomicBool>,
    pub(super) pace: ReadPace,
}

/// Reads an assigned source into the target, unless the read is cancelled. The bytes move on a thread of their own.
pub(super) async fn read_assigned(
    connection: ServerConnection,
    shared: Arc<HandleState>,
    assignment: Assignment,
    target: Target,
    deadline: Instant,
    running: RunningRead,
) -> Result<ArrivedRead, ReadFailure> {
    let names: Vec<_> = assignment.shards.iter().map(|shard| shard.layout).collect();
    let fetched = fetch_layouts(&connection, &shared, &names);
    let sources = match tokio::time::timeout_at(deadline.into(), fetched).await {
        Ok(sources) => sources.map_err(unfetched)?,
        Err(_) => {
            let reason = "its layout did not come before the deadline".to_owned();
            return Err(ReadFailure::Source { shard: 0, reason });
        }
    };
    let span = Span::current();
    let read = tokio::task::spawn_blocking(move || {
        let _entered = span.entered();
        let keeps = target.filling.as_ref().is_some_and(|filling| filling.progress().0 > 0);
        let latest = || shared.latest_read.lock().expect("no panic while held");
        latest().begin(&running.pace.gauge, keeps);
        shared.routes.read(&Read {
            registration: &target.registration,
            assignment: &assignment,
            sources: &sources,
            deadline: deadline + GRACE,
            cancel: running.cancel,
            pace: running.pace,
            filling: target.filling,
            entering: target.entering.as_ref(),
            memory: &shared.memory,
            comparing: Comparing {
                live: target.live.as_deref(),
                serving: target.serving.map(|id| (&**shared.exports.exports(), id)),
                moves_all: target.moves_all,
            },
        })
    });
    match read.await {
        Ok(result) => result,
        Err(bug) => Err(ReadFailure::Layout { detail: format!("weightcast has a bug: {bug}") }),
    }
}

/// Layouts by the digests of their manifests: kept ones, or fetched from the server.
pub(crate) async fn fetch_layouts(
    connection: &ServerConnection,
    shared: &HandleState,
    names: &[ContentDigest],
) -> Result<Vec<Arc<Layout>>, Error> {
    let mut layouts = Vec::with_capacity(names.len());
    for name in names {
        let known = shared.layouts.lock().expect("no panic while held").get(*name);
        let layout = match known {
            Some(layout) => layout,
            None => Arc::new(manifest::decode(&connection.manifest(*name).await?)?),
        };
        shared.layouts.lock().expect("no panic while held").keep(*name, &layout);
        layouts.push(layout);
    }
    Ok(layouts)
}

/// A manifest that does not come may come the next time, so another source is tried; a manifest
/// that makes no layout never will.
fn unfetched(error: Error) -> ReadFailure {
    match error {
        Error::Call(error) => ReadFailure::Source { shard: 0, reason: error.to_string() },
        error => ReadFailure::Layout { detail: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use weightcast_protocol::message::SourceShard;
    use weightcast_protocol::{CallError, Epoch, Generation, Version};
    use weightcast_transport::{Auth, Peer, Region};

    use super::*;
    use crate::client::connection::tests::{FakePort, Said, to};
    use crate::client::reading::route::tests::{BYTES, GENERATION, RouteScene};

    /// Of a source whose layout the server is asked for.
    async fn read(said: Said, deadline: Instant) -> ReadFailure {
        let registration = Arc::clone(&RouteScene::reading("a").registration);
        let shared = HandleState::alone(Some((Arc::clone(&registration), ExportId(7))), None);
        let shard = SourceShard {
            data_address: "127.0.0.1:1".to_owned(),
            export: weightcast_protocol::ExportId(1),
            generation: Generation(1),
            layout: ContentDigest([1; 16]),
        };
        let assignment = Assignment {
            version: Version { epoch: Epoch(0), number: 1 },
            catalog: registration.catalog,
            replica: "trainer".to_owned(),
            in_flight: false,
            staged: false,
            helpers: Vec::new(),
            shards: [shard].into(),
        };
        let target = Target {
            registration,
            filling: None,
            live: None,
            serving: None,
            moves_all: false,
            entering: None,
        };
        let connection = to([FakePort::saying([said])]);
        let running = RunningRead::default();
        let read = read_assigned(connection, shared, assignment, target, deadline, running).await;
        read.err().expect("it has no layout")
    }

    #[tokio::test]
    async fn a_layout_that_does_not_come_may_come_from_another_source() {
        let soon = Instant::now() + Duration::from_secs(20);
        let down = || Said::Refused(tonic::Status::unavailable("down"));
        for (said, deadline, why) in
            [(Said::Silent, Instant::now(), "before the deadline"), (down(), soon, "down")]
        {
            match read(said, deadline).await {
                ReadFailure::Source { shard: 0, reason } => {
                    assert!(reason.contains(why), "{reason}")
                }
                other => panic!("{other:?}"),
            }
        }
        let wrong = crate::client::connection::tests::whole(b"no manifest");
        assert!(matches!(read(wrong, soon).await, ReadFailure::Layout { .. }), "it never will");
    }

    /// Reads `a` of a scene whose layouts are known.
    async fn read_from(scene: &RouteScene, shared: &Arc<HandleState>, target: Target) -> ReadEnd {
        let assignment = scene.assignment_at(GENERATION);
        for (shard, layout) in assignment.shards.iter().zip(scene.layouts()) {
            shared.layouts.lock().unwrap().keep(shard.layout, layout);
        }
        let soon = Instant::now() + Duration::from_secs(20);
        let (connection, running) = (to([FakePort::default()]), RunningRead::default());
        read_assigned(connection, Arc::clone(shared), assignment, target, soon, running).await
    }

    type ReadEnd = Result<ArrivedRead, ReadFailure>;

    fn target(scene: &RouteScene) -> Target {
        let registration = Arc::clone(&scene.registration);
        Target {
            registration,
            filling: None,
            live: None,
            serving: None,
            moves_all: false,
            entering: None,
        }
    }

    /// What is known of the memory counts unless everything is to be moved.
    #[tokio::test]
    async fn a_read_that_is_to_move_all_moves_all() {
        let scene = RouteScene::reading("a");
        scene.serve(0, 7);
        scene.note(0, &scene.served(0).note(&scene.served(0).digest_all()));
        let shared = HandleState::alone(None, None);
        for (moves_all, unchanged) in [(false, 0), (false, BYTES), (true, 0)] {
            let target = Target { moves_all, ..target(&scene) };
            let read = read_from(&scene, &shared, target).await;
            let arrival = read.map_err(|e| format!("{e:?}")).unwrap();
            assert_eq!(arrival.transfer.unchanged, unchanged);
            shared.routes.remember(arrival.content);
        }
        // Beside the memory, too, what has not changed is not moved.
        let beside = vec![Region::allocate(BYTES as usize).unwrap()];
        let (registration, live) =
            (Arc::new(scene.registration.within(beside)), &scene.registration);
        let target = Target { registration, live: Some(Arc::clone(live)), ..target(&scene) };
        let read = read_from(&scene, &shared, target).await.map_err(|e| format!("{e:?}"));
        assert_eq!(read.unwrap().transfer.unchanged, BYTES);
    }

    /// Its readers are told early what is known of the version.
    #[tokio::test]
    async fn a_relay_tells_what_it_knows_where_it_serves() {
        let scene = RouteScene::reading("a");
        scene.serve(0, 7);
        let shared = HandleState::alone(None, None);
        let (id, regions) = (ExportId(9), scene.registration.regions.clone());
        let filling = Arc::new(Filling::new(&regions));
        shared.exports.exports().expose_filling(id, 1, regions, Arc::clone(&filling));
        let target = Target { filling: Some(filling), serving: Some(id), ..target(&scene) };
        assert!(read_from(&scene, &shared, target).await.is_ok());
        let soon = Instant::now() + Duration::from_secs(20);
        let auth = Auth { token: None, insecure: false };
        let peer = Peer::connect(shared.exports.addr(), &auth, soon).unwrap();
        let note = peer.early_note(id, 1, Duration::ZERO, soon, &AtomicBool::new(false));
        assert!(note.unwrap().is_some());
    }

    /// A relay's read begins with nothing.
    #[tokio::test]
    async fn progress_goes_on_only_where_the_read_does() {
        let scene = RouteScene::reading("a");
        let shared = HandleState::alone(None, None);
        *shared.latest_read.lock().unwrap() = pace::LatestRead::at(9, 1);
        let filling = Some(Arc::new(Filling::new(&scene.registration.regions)));
        let read = read_from(&scene, &shared, Target { filling, ..target(&scene) }).await;
        assert!(read.is_err(), "nothing is served");
        assert_eq!(shared.latest_read.lock().unwrap().look(), None);
    }

    #[test]
    fn what_the_server_says_of_a_layout_is_not_the_layouts_fault() {
        let gone =
            CallError::ServerUnreachable { server: "one".to_owned(), reason: "x".to_owned() };
        assert!(matches!(unfetched(gone.into()), ReadFailure::Source { shard: 0, .. }));
        assert!(matches!(unfetched(Error::Bug("x".to_owned())), ReadFailure::Layout { .. }));
    }
}
