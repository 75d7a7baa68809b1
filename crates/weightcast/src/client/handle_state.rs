//! What a handle, its control thread and its reads share.

use std::sync::{Arc, Mutex};

use tracing::{Span, info_span};
use weightcast_protocol::{CallError, Generation};
use weightcast_transport::{DataServer, ExportId};

use super::memory::layouts::KnownLayouts;
use super::memory::registration::RegisteredShard;
use super::push::desk::PushDesk;
use super::reading::pace::LatestRead;
use super::reading::route::Routes;
use crate::config::Replica;
use crate::metrics::process::HandleFigures;

/// What the handle and the control thread share.
pub(crate) struct HandleState {
    pub(crate) exports: DataServer,
    pub(crate) routes: Routes,
    /// Set by `register`, with the export id from which the id of each generation follows.
    pub(crate) registration: Mutex<Option<(Arc<RegisteredShard>, ExportId)>>,
    /// Layouts of other shards, by the digest of their manifest.
    pub(crate) layouts: Mutex<KnownLayouts>,
    /// Held by a read or an install as long as it may write memory; stopping either waits for the
    /// lock.
    pub(crate) memory: Mutex<()>,
    /// Threads that digest a publication: few, so that the worker's program keeps the other CPUs; more
    /// in an offload replica.
    pub(crate) sealing_threads: usize,
    /// A copy of the session's state, for getters that must not wait for the control thread.
    pub(crate) view: Mutex<SessionView>,
    /// The last reason why the session is not open; explains a call that found no server.
    pub(crate) trouble: Mutex<Option<CallError>>,
    /// The most bytes that a staged update may take.
    pub(crate) staging_bytes: Option<u64>,
    /// Progress of the running or the last read.
    pub(crate) latest_read: Mutex<LatestRead>,
    /// Counts for the figures of this process.
    pub(crate) figures: HandleFigures,
    /// What the handle has of pushes.
    pub(crate) push: PushDesk,
    /// Whose handle this is, for traces.
    pub(crate) label: ShardLabel,
}

/// The shard that a handle is.
#[derive(Clone, Debug)]
pub(crate) struct ShardLabel {
    pub(crate) model: String,
    pub(crate) replica: Replica,
}

impl ShardLabel {
    /// The span in which published memory is digested.
    pub(crate) fn seal_span(&self, generation: Generation) -> Span {
        let Replica { name, shard, .. } = &self.replica;
        info_span!("seal", model = self.model, replica = name, shard, generation = generation.0)
    }
}

/// A copy of the session's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionView {
    pub(crate) held: Option<weightcast_protocol::Version>,
    pub(crate) generation: Generation,
}

impl HandleState {
    pub(crate) fn set_trouble(&self, trouble: Option<CallError>) {
        *self.trouble.lock().expect("no panic while held") = trouble;
    }

    pub(crate) fn trouble(&self) -> Option<CallError> {
        self.trouble.lock().expect("no panic while held").clone()
    }

    /// Makes memory on which the group has agreed the registered memory. Forgets the plans: they
    /// were made for the memory registered before.
    pub(crate) fn register(&self, registration: RegisteredShard, export: ExportId) {
        self.routes.forget_plans();
        *self.registration.lock().expect("no panic while held") =
            Some((Arc::new(registration), export));
    }

    /// Forgets the registration. The memory lives on as long as an export or a read uses it.
    pub(crate) fn release(&self) {
        self.registration.lock().expect("no panic while held").take();
    }

    pub(crate) fn current(&self) -> Option<(Arc<RegisteredShard>, ExportId)> {
        self.registration.lock().expect("no panic while held").clone()
    }
}

#[cfg(test)]
impl HandleState {
    /// The state of a client without servers; a staged update may take `staging_bytes`.
    pub(super) fn alone(
        registration: Option<(Arc<RegisteredShard>, ExportId)>,
        staging_bytes: Option<u64>,
    ) -> Arc<Self> {
        let auth = weightcast_transport::Auth { token: None, insecure: false };
        let options = crate::config::Options::new(crate::config::Role::Rollout);
        let networks =
            super::reading::networks::Networks::new(&options, "localhost:1", None).unwrap();
        Arc::new(Self {
            exports: DataServer::bind("127.0.0.1:0".parse().unwrap(), auth.clone()).unwrap(),
            routes: Routes::new(auth, weightcast_transport::Way::Auto, networks, None),
            registration: Mutex::new(registration),
            layouts: Mutex::default(),
            memory: Mutex::new(()),
            sealing_threads: 1,
            view: Mutex::new(SessionView::default()),
            trouble: Mutex::new(None),
            staging_bytes,
            latest_read: Mutex::default(),
            figures: HandleFigures::apart(),
            push: PushDesk::new("127.0.0.1:1".to_owned()),
            label: ShardLabel { model: String::new(), replica: Replica::new("alone", 0, 1) },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::reading::plans::PlanFrom;
    use crate::client::reading::route::tests::RouteScene;
    use crate::client::reading::unchanged::content::KnownContent;

    /// Plans and digests are of the layout and the bytes that were registered before.
    #[test]
    fn whatever_is_registered_anew_is_nothing_that_was_known() {
        let scene = RouteScene::reading("a");
        let state = HandleState::alone(None, None);
        let plan = || {
            let names = [1, 2].map(|name| weightcast_protocol::ContentDigest([name; 16]));
            let made = state.routes.plans.get(&scene.registration, &names, scene.layouts(), None);
            made.unwrap().1
        };
        assert_eq!((plan(), plan()), (PlanFrom::Planner, PlanFrom::Memory));
        state.routes.remember(KnownContent::default());
        state.register((*scene.registration).clone(), ExportId(3));
        assert!(!state.routes.knows_content());
        assert_eq!((plan(), state.current().unwrap().1), (PlanFrom::Planner, ExportId(3)));
        state.release();
        assert!(state.current().is_none());
    }
}
