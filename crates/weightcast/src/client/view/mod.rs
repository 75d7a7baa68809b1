//! A version that another process of this host shares, mapped instead of copied.
//!
//! [`here`] says which replicas of this host hold the version. Each is asked how its shards are reached, and the first
//! that lends the memory of all of them is mapped. The server knows nothing of views, so nobody waits for one: the source
//! fences its memory when it gives the version up, and [`VersionView::is_whole`] is false from then on.

mod here;

use std::sync::Arc;
use std::time::{Duration, Instant};

use weightcast_plan::Layout;
use weightcast_protocol::message::{Assignment, SourceShard};
use weightcast_protocol::{ContentDigest, Selector, Version};
use weightcast_transport::{ExportId, ExportView};

use self::here::Here;
use super::handle::ShardHandle;
use super::handle_state::HandleState;
use super::push::server::{ask, layouts};
use crate::error::Error;

/// Replicas of the host that are asked, at most: each may take as long as its connection.
const ASKED: usize = 16;

/// A version where another replica of this host holds it. Nothing is copied, and no memory is taken.
///
/// What was read out of it counts if [`VersionView::is_whole`] says so afterwards. The memory stays mapped as long as
/// this value, or one of its shards' regions, lives.
#[derive(Clone, Debug)]
pub struct VersionView {
    version: Version,
    replica: String,
    shards: Vec<ShardView>,
}

/// The memory of one shard.
#[derive(Clone, Debug)]
pub struct ShardView {
    number: u32,
    layout: Arc<Layout>,
    memory: ExportView,
}

impl VersionView {
    /// The version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The replica whose memory it is.
    pub fn replica(&self) -> &str {
        &self.replica
    }

    /// The shards that are mapped, in order.
    pub fn shards(&self) -> &[ShardView] {
        &self.shards
    }

    /// True if all bytes that this thread has read out of it before the call were the version's. Once false, false for
    /// ever: the replica has given the version up, and may change its memory.
    pub fn is_whole(&self) -> bool {
        self.shards.iter().all(|shard| shard.memory.is_whole())
    }
}

impl ShardView {
    /// Which shard of its replica.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// What lies where in [`ShardView::memory`]: a region for each buffer.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The memory.
    pub fn memory(&self) -> &ExportView {
        &self.memory
    }
}

impl ShardHandle {
    /// Maps a version that is there: one shard of it, or all. Not a call of the group: each shard may make it by itself,
    /// and its own memory has no part in it.
    ///
    /// # Errors
    /// [`VersionUnavailable`](weightcast_protocol::CallError::VersionUnavailable) if nobody has it;
    /// [`Error::NoView`] if nobody on this host shares the memory of it, with the reason of each.
    pub fn view(
        &self,
        selector: Selector,
        shard: Option<u32>,
        deadline: Duration,
    ) -> Result<VersionView, Error> {
        let until = Instant::now() + deadline;
        let state = &self.own()?.shared;
        let status = ask(state, deadline, |connection| async move { connection.status().await })?;
        let Here { version, host, replicas } =
            here::holders(&status, self.model(), self.replica(), selector)?;
        let mut reasons = Vec::new();
        for name in replicas.into_iter().take(ASKED) {
            let wanted = Wanted { version, shard, until };
            match wanted.of(state, self.model(), &name)? {
                Ok(shards) => return Ok(VersionView { version, replica: name, shards }),
                Err(why) => reasons.push(format!("{name}: {why}")),
            }
        }
        Err(Error::NoView { version: version.number, host, reasons })
    }
}

/// What is to be mapped, and by when.
struct Wanted {
    version: Version,
    shard: Option<u32>,
    until: Instant,
}

impl Wanted {
    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Maps the shards of a replica, or says why not.
    fn of(
        &self,
        state: &Arc<HandleState>,
        model: &str,
        replica: &str,
    ) -> Result<Result<Vec<ShardView>, String>, Error> {
        let (model, replica) = (model.to_owned(), replica.to_owned());
        let inspected = ask(state, self.left(), |connection| async move {
            connection.inspect(&model, &replica, None).await
        })?;
        let held = inspected.copy.filter(|copy| copy.version == self.version);
        let Some(copy) = held else { return Ok(Err("gives the version up".to_owned())) };
        let chosen = match self.chosen(&copy) {
            Ok(chosen) => chosen,
            Err(why) => return Ok(Err(why)),
        };
        let names: Vec<ContentDigest> = chosen.iter().map(|(_, shard)| shard.layout).collect();
        let layouts = layouts(state, &names, self.left())?;
        let shards = chosen.into_iter().zip(layouts);
        let mapped = shards.map(|((number, shard), layout)| {
            let memory = self.mapped(state, shard, &layout)?;
            Ok(ShardView { number, layout, memory })
        });
        Ok(mapped.collect())
    }

    /// The shards of the copy that are wanted.
    fn chosen<'a>(&self, copy: &'a Assignment) -> Result<Vec<(u32, &'a SourceShard)>, String> {
        let all = (0..).zip(copy.shards.iter());
        let Some(wanted) = self.shard else { return Ok(all.collect()) };
        let one: Vec<_> = all.filter(|(number, _)| *number == wanted).collect();
        let has = copy.shards.len();
        if one.is_empty() {
            Err(format!("has {has} shards, and no shard {wanted}"))
        } else {
            Ok(one)
        }
    }

    fn mapped(
        &self,
        state: &HandleState,
        shard: &SourceShard,
        layout: &Layout,
    ) -> Result<ExportView, String> {
        let (address, generation) = (&shard.data_address, shard.generation.0);
        let peer = state.routes.peer(address, self.until)?;
        let export = ExportId(shard.export.0).at(generation);
        let view = peer.view(export, generation, self.until).map_err(|error| {
            // A new connection has to show whether the peer is still there.
            state.routes.forget_peer(address);
            error.to_string()
        })?;
        let lens = view.regions().iter().map(|region| region.len() as u64);
        match lens.eq(layout.buffers().iter().copied()) {
            true => Ok(view),
            false => Err("its memory is not what its layout says".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests;
