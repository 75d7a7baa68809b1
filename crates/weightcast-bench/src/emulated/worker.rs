//! A worker process: one shard on one host, which takes orders on its standard input.
//!
//! Namespaces of one machine share a kernel, and a direct read would not cross the emulated link.
//! So workers on emulated hosts read over TCP only.

use std::io::{self, BufRead};
use std::time::Duration;

use anyhow::{Context, Result};
use weightcast::transport::Way;
use weightcast::{LayoutSource, Options, Replica, Role, Selector, ShardHandle};

use super::orders::{Order, WorkerReply, WorkerStart, WorkerUpdate, now_ns};
use crate::weights::layouts;
use crate::weights::memory::KnownMemory;

/// Deadline of every call; a benchmark with a slower call has failed.
const SOON: Duration = Duration::from_secs(120);
/// Tensors of the model.
pub(crate) const TENSORS: u64 = 16;
pub(crate) const MODEL: &str = "bench.emulated";

/// Runs until standard input ends.
pub(crate) fn run() -> Result<()> {
    let mut lines = io::stdin().lock().lines();
    let Some(line) = lines.next() else { return Ok(()) };
    let begin: WorkerStart = serde_json::from_str(&line?).context("understand who to be")?;
    let worker = match EmulatedWorker::open(&begin) {
        Ok(worker) => worker,
        Err(error) => return say(&WorkerReply::Failed { error: format!("{error:#}") }),
    };
    say(&WorkerReply::Ready)?;
    for line in lines {
        let order = serde_json::from_str(&line?).context("understand an order")?;
        let reply = worker.obey(&order);
        say(&reply.unwrap_or_else(|error| WorkerReply::Failed { error: format!("{error:#}") }))?;
    }
    Ok(())
}

struct EmulatedWorker {
    handle: ShardHandle,
    memory: KnownMemory,
}

impl EmulatedWorker {
    fn open(begin: &WorkerStart) -> Result<Self> {
        let role = if begin.trainer { Role::Trainer } else { Role::Rollout };
        let options = Options {
            server: Some(begin.server.clone()),
            data_bind: Some(format!("{}:0", begin.bind.as_deref().unwrap_or("127.0.0.1"))),
            // An emulated network can't be reached from outside, so its ports need no token.
            insecure: begin.bind.is_some(),
            offload_seeding: begin.offload_seeding,
            way: if begin.bind.is_some() { Way::Tcp } else { Way::Auto },
            ..Options::new(role)
        };
        let me = Replica {
            datacentre: begin.datacentre.clone(),
            host: begin.host.clone(),
            spot: begin.spot,
            ..Replica::new(begin.replica.clone(), begin.shard, begin.num_shards)
        };
        let tensors = layouts::even(TENSORS, begin.bytes / TENSORS);
        let (shard, of) = (begin.shard.into(), begin.num_shards.into());
        let layout = layouts::rows(&tensors, shard, of, begin.replicated as usize)?;
        let memory = KnownMemory::allocate(layout.clone())?;
        let handle = ShardHandle::open(MODEL, me, &options)?;
        handle.register(LayoutSource::Known(layout), memory.regions.clone(), SOON)?;
        Ok(Self { handle, memory })
    }

    fn obey(&self, order: &Order) -> Result<WorkerReply> {
        Ok(match *order {
            Order::Prepare { version } => {
                self.revoke()?;
                self.memory.fill(version);
                WorkerReply::Prepared
            }
            Order::Publish { version } => {
                if self.handle.version().is_some() {
                    self.revoke()?;
                    self.memory.fill(version);
                }
                let at_ns = now_ns();
                self.handle.publish(version, SOON)?;
                WorkerReply::Published { at_ns }
            }
            Order::Seal => {
                self.handle.wait_sealed(SOON)?;
                WorkerReply::Sealed
            }
            Order::Clear => {
                self.revoke()?;
                WorkerReply::Cleared
            }
            Order::Update { version } => self.update(Selector::Exact(version))?,
            Order::Latest => self.update(Selector::Latest)?,
            Order::Check { version } => WorkerReply::Checked { holds: self.memory.holds(version) },
        })
    }

    fn revoke(&self) -> Result<()> {
        if self.handle.version().is_some() {
            self.handle.unpublish(SOON)?;
        }
        Ok(())
    }

    fn update(&self, selector: Selector) -> Result<WorkerReply> {
        let called_ns = now_ns();
        let updated = match self.handle.version() {
            None => self.handle.replicate(selector, SOON)?,
            Some(_) => self.handle.update(selector, false, SOON)?,
        };
        Ok(WorkerReply::Updated(WorkerUpdate {
            version: updated.version.map(|version| version.number),
            source: updated.source,
            helpers: updated.transfer.helpers,
            given: updated.transfer.given,
            way: updated.transfer.way,
            bytes: updated.transfer.bytes,
            verified: updated.transfer.verified,
            called_ns,
            done_ns: now_ns(),
        }))
    }
}

fn say(reply: &WorkerReply) -> Result<()> {
    println!("{}", serde_json::to_string(reply)?);
    Ok(())
}
