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
        let (catalog, generation) = (registration.catalog, self.view().generation);
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
