//! A second replica beside a handle's own: of the registered layout, in memory of its own, with a
//! session of its own. It lives on a thread until the server does not need it any more.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tracing::{Span, info_span};
use weightcast_protocol::Version;
use weightcast_transport::Region;

use super::room::{Room, Share};
use crate::client::handle::ShardHandle;
use crate::client::handle_state::HandleState;
use crate::client::memory::layout_source::LayoutSource;
use crate::client::memory::registration::RegisteredShard;
use crate::config::{Options, Replica, Role};
use crate::error::Error;

/// Opens the handle of a second replica; a value, so that tests can open handles in another way.
pub(in crate::client) type OpenHandle =
    Arc<dyn Fn(&str, Replica, &Options) -> Result<ShardHandle, Error> + Send + Sync>;

/// The handle for which second replicas are made.
#[derive(Clone)]
pub(in crate::client) struct Owner {
    pub(in crate::client) model: String,
    pub(in crate::client) replica: Replica,
    pub(in crate::client) options: Options,
    pub(in crate::client) shared: Arc<HandleState>,
    pub(in crate::client) room: Arc<Room>,
    pub(in crate::client) open: OpenHandle,
}

impl Owner {
    /// Has `keep` run a second replica, on a thread of this name; `failed` is told the error if it
    /// fails.
    pub(in crate::client) fn begin(
        &self,
        thread: &str,
        (name, role): (String, Role),
        keep: impl FnOnce(Second) -> Result<(), Error> + Send + 'static,
        failed: impl Fn(String) + Clone + Send + 'static,
    ) {
        let Some((registration, _)) = self.shared.current() else {
            return failed("nothing is registered".to_owned());
        };
        let second = Second {
            model: self.model.clone(),
            replica: Replica { name, ..self.replica.clone() },
            options: Options { role, offload_seeding: false, ..self.options.clone() },
            registration,
            room: Arc::clone(&self.room),
            open: Arc::clone(&self.open),
        };
        let told = failed.clone();
        let spawned = thread::Builder::new().name(thread.to_owned()).spawn(move || {
            if let Err(error) = keep(second) {
                told(error.to_string());
            }
        });
        if let Err(error) = spawned {
            failed(error.to_string());
        }
    }
}

/// One second replica that is not open yet.
pub(in crate::client) struct Second {
    model: String,
    replica: Replica,
    pub(in crate::client) options: Options,
    pub(in crate::client) registration: Arc<RegisteredShard>,
    room: Arc<Room>,
    open: OpenHandle,
}

impl Second {
    /// The span in which the replica comes to hold a version.
    pub(super) fn offload_span(&self, version: Version) -> Span {
        let Replica { name, shard, .. } = &self.replica;
        info_span!("offload", model = self.model, replica = name, shard, %version)
    }

    /// The span in which the replica comes to hold a version of another datacentre.
    pub(super) fn seed_span(&self, version: Version) -> Span {
        let Replica { name, shard, .. } = &self.replica;
        info_span!("seed", model = self.model, replica = name, shard, %version)
    }

    /// Takes room for the registered bytes; waits up to `patience` for it.
    ///
    /// # Errors
    /// There is no room.
    pub(super) fn take_room(&self, patience: Duration) -> Result<Share, Error> {
        self.room.take(&self.registration, patience)
    }

    /// Opens the replica and registers this memory, for which the room was taken. From then on the
    /// replica does not depend on its owner.
    pub(super) fn open(self, regions: Vec<Region>, room: Share) -> Result<OpenSecond, Error> {
        let layout = LayoutSource::Known((*self.registration.layout).clone());
        // The replica must not keep its owner's memory alive.
        drop(self.registration);
        let handle = (self.open)(&self.model, self.replica, &self.options)?;
        handle.register(layout, regions, self.options.deadline)?;
        Ok(OpenSecond { handle, _room: room })
    }
}

/// An open second replica. Its fields are dropped in order: first the memory, then the room for it.
pub(super) struct OpenSecond {
    pub(in crate::client) handle: ShardHandle,
    _room: Share,
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use weightcast_plan::{DType, LayoutBuilder, Part};
    use weightcast_transport::ExportId;

    use super::*;

    fn registration() -> RegisteredShard {
        let mut layout = LayoutBuilder::new();
        layout.add("w", DType::U8, &[8], vec![Part::new("w").shape([8])], 0);
        let region = Region::allocate(8).unwrap();
        RegisteredShard::new(&[Arc::new(layout.build().unwrap())], 0, vec![region]).unwrap()
    }

    /// It brings no versions near itself.
    #[test]
    fn a_second_replica_has_its_owners_place_and_options_under_another_name() {
        let options = Options {
            offload_seeding: true,
            deadline: Duration::from_secs(11),
            ..Options::new(Role::Rollout)
        };
        let place = Replica { datacentre: "here".to_owned(), ..Replica::new("rollout", 2, 3) };
        let owner = Owner {
            model: "policy".to_owned(),
            replica: place.clone(),
            options,
            shared: HandleState::alone(Some((Arc::new(registration()), ExportId(7))), None),
            room: Room::new(None),
            open: Arc::new(ShardHandle::open),
        };
        let (said, told) = mpsc::channel();
        let role = Role::Seed(Version { epoch: weightcast_protocol::Epoch(1), number: 5 });
        let keep = move |second| {
            said.send(second).unwrap();
            Ok(())
        };
        owner.begin("weightcast-test", ("seed".to_owned(), role), keep, |why| panic!("{why}"));
        let second: Second = told.recv().unwrap();
        assert_eq!(second.replica, Replica { name: "seed".to_owned(), ..place });
        let options = &second.options;
        assert_eq!((options.role, options.offload_seeding), (role, false));
        assert_eq!((options.deadline, second.model.as_str()), (Duration::from_secs(11), "policy"));
        assert!(Arc::ptr_eq(&second.room, &owner.room));
    }

    /// A seed of the next version needs the room of the last version's seed, which is just being
    /// dropped. Without the wait, the first attempt would come too early.
    #[test]
    fn a_copy_waits_for_the_room_of_the_one_before() {
        let second = Second {
            model: "model".to_owned(),
            replica: Replica::new("rollout", 0, 1),
            options: Options::new(Role::Rollout),
            registration: Arc::new(registration()),
            room: Room::new(Some(8)),
            open: Arc::new(ShardHandle::open),
        };
        let second = &second;
        for _ in 0..20 {
            let before = second.take_room(Duration::ZERO).unwrap();
            let (asks, asked) = mpsc::channel();
            thread::scope(|scope| {
                let next = scope.spawn(move || {
                    asks.send(()).unwrap();
                    second.take_room(Duration::from_secs(20)).map(drop)
                });
                asked.recv().unwrap();
                (0..100).for_each(|_| thread::yield_now());
                drop(before);
                next.join().unwrap().expect("there is room");
            });
        }
        let _taken = second.take_room(Duration::ZERO).unwrap();
        assert!(second.take_room(Duration::ZERO).is_err());
    }
}
