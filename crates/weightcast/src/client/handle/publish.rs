//! `publish`: of memory as it is, or in another representation.

use std::time::{Duration, Instant};

use weightcast_protocol::Version;
use weightcast_protocol::message::{Answer, Call};
use weightcast_transport::Region;

use super::{ShardHandle, left, unexpected};
use crate::client::memory::layout_source::LayoutSource;
use crate::client::memory::registration::RegisteredShard;
use crate::client::threads;
use crate::error::Error;
use crate::transform::{Exchange, Transformed};
use weightcast_plan::Layout;
use weightcast_plan::transform::Rules;

impl ShardHandle {
    /// Declares this shard's memory, to be published in another representation: cast, or quantised
    /// to FP8. `regions[i]` is buffer `i` of `layout`, the layout before the transform.
    ///
    /// Nothing is copied: the bytes are made as readers read them. The memory cannot be filled with
    /// a version.
    ///
    /// # Errors
    /// A rule does not apply to a tensor; what [`ShardHandle::register`] may return.
    pub fn register_transformed(
        &self,
        layout: &Layout,
        regions: &[Region],
        rules: Rules,
        deadline: Duration,
    ) -> Result<(), Error> {
        let until = Instant::now() + deadline;
        let made = self.transformed(layout, regions, rules);
        let transformed = made.map_err(|error| self.decline(error, until))?;
        let layout = LayoutSource::Known(transformed.layout().clone());
        let regions = transformed.regions().to_vec();
        self.register_memory(layout, regions, Some(transformed), until)
    }

    fn transformed(
        &self,
        layout: &Layout,
        regions: &[Region],
        rules: Rules,
    ) -> Result<Transformed, Error> {
        super::register::check_regions(layout, regions)?;
        Transformed::new(layout, regions, rules)
    }

    /// Makes the registered memory visible under a version; promises not to change it until
    /// [`unpublish`](Self::unpublish) returns. Takes the same time for any number of bytes: they
    /// are digested in the background.
    ///
    /// FP8 weights are read once before that, for their scales, which does not heed the deadline.
    /// If blocks of them lie with several shards, use [`ShardHandle::publish_exchanging`].
    pub fn publish(&self, version: u64, deadline: Duration) -> Result<Version, Error> {
        self.publish_with(version, None, deadline)
    }

    /// [`ShardHandle::publish`] for FP8 memory whose blocks may lie with several shards. The
    /// exchange is called on all shards, or on none. The exchange does not heed the deadline
    /// either: only a limit of its own, such as a process group's timeout, ends it.
    pub fn publish_exchanging(
        &self,
        version: u64,
        exchange: &mut Exchange<'_>,
        deadline: Duration,
    ) -> Result<Version, Error> {
        self.publish_with(version, Some(exchange), deadline)
    }

    fn publish_with(
        &self,
        version: u64,
        exchange: Option<&mut Exchange<'_>>,
        deadline: Duration,
    ) -> Result<Version, Error> {
        let until = Instant::now() + deadline;
        let (registration, _) = (self.own()?.shared.current())
            .ok_or_else(|| Error::misuse("nothing is registered: call register first"))?;
        let refreshed = self.refresh(&registration, exchange);
        refreshed.map_err(|error| self.decline(error, until))?;
        let (catalog, generation) = (registration.catalog, self.session_view().generation);
        match self.call(Call::Publish { version, catalog, generation }, left(until))?.0 {
            Answer::Published { version } => Ok(version),
            other => Err(unexpected(&other)),
        }
    }

    /// Makes the scales of what is about to be published.
    fn refresh(
        &self,
        registration: &RegisteredShard,
        exchange: Option<&mut Exchange<'_>>,
    ) -> Result<(), Error> {
        let Some(transformed) = &registration.transformed else { return Ok(()) };
        if let Some(held) = self.version() {
            return Err(Error::misuse(format!(
                "version {} is published, and its scales are in use: unpublish it first",
                held.number
            )));
        }
        transformed.refresh(threads::copying(), exchange)
    }
}

#[cfg(test)]
mod tests {
    use weightcast_plan::transform::{Rule, Transform};
    use weightcast_plan::{DType, LayoutBuilder, Part};
    use weightcast_protocol::{CallError, Epoch, Generation};

    use super::*;
    use crate::client::connection::tests::whole;
    use crate::client::handle::tests::{HandleScene, HeardCall, LONG, somebody};
    use crate::client::handle_state::SessionView;
    use crate::client::memory::reservations::ReservedMemory;
    use crate::manifest;

    /// Four numbers.
    fn weights() -> (Layout, [Region; 1]) {
        let mut builder = LayoutBuilder::new();
        builder.add("w", DType::F32, &[4], vec![Part::new("w").shape([4])], 0);
        let bytes: Vec<u8> =
            [1.0_f32, 2.0, 3.0, 4.0].iter().flat_map(|of| of.to_le_bytes()).collect();
        (builder.build().unwrap(), [Region::from_bytes(&bytes).unwrap()])
    }

    fn rules(names: &str) -> Rules {
        let transform = Some(Transform::Cast(DType::BF16));
        Rules(vec![Rule { names: names.to_owned(), transform }])
    }

    /// The group has what is read, and this process keeps what it is made of from others.
    #[test]
    fn a_representation_is_registered_in_place_of_the_weights() {
        let (layout, regions) = weights();
        let made = Transformed::new(&layout, &regions, rules("w")).unwrap();
        let encoded = manifest::encode(made.layout());
        let name = manifest::blob_digest(&encoded);
        let version = Version { epoch: Epoch(1), number: 5 };
        let answers = [
            Answer::Registered { layouts: [name].into(), siblings: [].into() },
            Answer::Published { version },
        ];
        let mut answers = answers.into_iter();
        let said = vec![whole(b""), whole(&encoded)];
        let scene = HandleScene::new(1, said, move |_| Ok(answers.next().expect("two calls")));
        scene.handle.register_transformed(&layout, &regions, rules("w"), LONG).unwrap();
        let (registered, _) = scene.own().shared.current().unwrap();
        assert_eq!(*registered.layout, *made.layout());
        assert!(registered.transformed.is_some() && registered.read_only() == Some("w"));
        let taken = somebody().reserve(ReservedMemory::new(&layout, &regions), true);
        assert!(taken.is_err(), "it is read while it is published");
        // What is published is not made anew under its readers.
        let view = |held| SessionView { held, generation: Generation(1) };
        *scene.own().shared.view.lock().unwrap() = view(Some(version));
        let refused = scene.handle.publish(6, LONG).unwrap_err().to_string();
        assert!(refused.contains("version 5 is published"), "{refused}");
        *scene.own().shared.view.lock().unwrap() = view(None);
        assert_eq!(scene.handle.publish(5, LONG).unwrap(), version);
        let calls = scene.calls();
        assert!(
            matches!(calls[..], [Call::Register { bytes: 8, .. }, Call::Publish { .. }]),
            "{calls:?}"
        );
    }

    /// What a shard finds wrong by itself its group hears of.
    #[test]
    fn what_has_no_such_representation_is_declined() {
        let (layout, regions) = weights();
        let eight = [Region::allocate(8).unwrap()];
        let wrong = Rules(vec![Rule {
            names: "w".to_owned(),
            transform: Some(Transform::Cast(DType::U8)),
        }]);
        for (regions, rules) in [(&eight, rules("w")), (&regions, wrong)] {
            let scene = HandleScene::new(2, vec![], |_| {
                Err(CallError::Misuse { detail: "declined".to_owned() })
            });
            let error = scene.handle.register_transformed(&layout, regions, rules, LONG);
            let detail = error.unwrap_err().to_string();
            let heard = scene.heard();
            let [HeardCall::Call(call, deadline)] = &heard[..] else { panic!("{heard:?}") };
            assert_eq!(*call, Call::Decline { detail });
            assert!(*deadline < crate::clock::span(LONG), "what is left");
        }
    }
}
