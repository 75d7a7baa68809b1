//! The full stack under measurement: a target replica in this process.

use std::thread;

use anyhow::{Result, ensure};
use weightcast::transport::Way;
use weightcast::{LayoutSource, Options, Replica, Role, Selector, ShardHandle, Updated};

use super::source::SOON;
use crate::base::measure::timed;
use crate::weights::memory::KnownMemory;

/// All shards of the target replica.
pub(crate) struct TargetReplica<'a> {
    way: Way,
    shards: Vec<(ShardHandle, &'a KnownMemory)>,
}

/// One update of the whole replica.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Update {
    /// From the call until every shard has its answer.
    pub(crate) seconds: f64,
    /// The slowest shard's time from the assignment of a source until all bytes have arrived.
    pub(crate) read_s: f64,
    pub(crate) bytes: u64,
    /// Bytes covered by digests that were compared with the publisher's.
    pub(crate) verified: u64,
}

impl<'a> TargetReplica<'a> {
    /// Opens and registers all shards. They read by this way only.
    pub(crate) fn open(
        server: &str,
        model: &str,
        memory: &'a [KnownMemory],
        way: Way,
    ) -> Result<TargetReplica<'a>> {
        let options = Options {
            server: Some(server.to_owned()),
            data_bind: Some("127.0.0.1:0".to_owned()),
            way,
            ..Options::new(Role::Rollout)
        };
        let count = u32::try_from(memory.len())?;
        let open = |shard: u32, memory: &'a KnownMemory| -> Result<_> {
            let me = Replica::new("rollout", shard, count);
            let handle = ShardHandle::open(model, me, &options)?;
            let layout = LayoutSource::Known(memory.layout.clone());
            handle.register(layout, memory.regions.clone(), SOON)?;
            Ok((handle, memory))
        };
        let shards = together((0..count).zip(memory), |(shard, memory)| open(shard, memory));
        Ok(TargetReplica { way, shards: shards.into_iter().collect::<Result<_>>()? })
    }

    /// Updates to the newest version, which must be `version`, from the trainer.
    pub(crate) fn update(&self, version: u64) -> Result<Update> {
        let (updates, seconds) = timed(|| {
            together(&self.shards, |(handle, _)| handle.update(Selector::Latest, false, SOON))
        });
        let updates = updates.into_iter().collect::<Result<Vec<Updated>, _>>()?;
        for update in &updates {
            let got = (update.version.map(|v| v.number), update.source.as_deref());
            ensure!(got == (Some(version), Some("trainer")), "expected {version}, got {got:?}");
            let (came, why) = (&update.transfer.way, &update.transfer.way_reason);
            let asked = format!("{:?}", self.way).to_lowercase();
            ensure!(*came == asked, "{asked} was demanded, and bytes came by {came}: {why}");
        }
        let transfers = updates.iter().map(|update| &update.transfer);
        Ok(Update {
            seconds,
            read_s: transfers.clone().map(|t| t.seconds).fold(0.0, f64::max),
            bytes: transfers.clone().map(|t| t.bytes).sum(),
            verified: transfers.map(|t| t.verified).sum(),
        })
    }

    /// Whether every byte of the memory is the version's.
    pub(crate) fn holds(&self, version: u64) -> bool {
        self.shards.iter().all(|(_, memory)| memory.holds(version))
    }

    /// Leaves the group.
    pub(crate) fn close(self) {
        together(&self.shards, |(handle, _)| handle.close(SOON));
    }
}

/// Makes one call for each item at the same time, since the shards of a group call together. The
/// last call runs on this thread.
fn together<I: Send, T: Send>(
    items: impl IntoIterator<Item = I>,
    call: impl Fn(I) -> T + Sync,
) -> Vec<T> {
    let mut items: Vec<I> = items.into_iter().collect();
    let Some(last) = items.pop() else { return Vec::new() };
    thread::scope(|scope| {
        let call = &call;
        let others: Vec<_> = items.into_iter().map(|i| scope.spawn(move || call(i))).collect();
        let last = call(last);
        let others = others.into_iter().map(|thread| thread.join().expect("no panics"));
        others.chain([last]).collect()
    })
}
