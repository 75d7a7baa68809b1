//! A source process: one shard of the publisher, which takes orders on its standard input.

use std::io::{self, BufRead, StdinLock};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use weightcast::transport::{Auth, DataServer, Region};
use weightcast::{LayoutSource, Options, Replica, Role, ShardHandle};

use super::orders::{BareExport, Publish, Published, SourceReply, SourceStart};
use crate::base::measure::timed;
use crate::weights::memory::{KnownMemory, warm};

/// Deadline of every call; a benchmark with a slower call has failed.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Generation of the export that a limit reads.
pub(crate) const BARE_GENERATION: u64 = 1;

/// Runs until standard input ends.
pub(crate) fn run() -> Result<()> {
    let mut input = io::stdin().lock();
    let result = obey(&mut input);
    if let Err(error) = &result {
        say(&SourceReply::Failed { error: format!("{error:#}") })?;
    }
    result
}

fn obey(input: &mut StdinLock<'_>) -> Result<()> {
    let Some(begin) = hear::<SourceStart>(input)? else { return Ok(()) };
    let layout = begin.case.sources()?.swap_remove(begin.shard as usize);
    let memory = match begin.shared {
        true => KnownMemory::allocate_shared(layout)?,
        false => KnownMemory::allocate(layout)?,
    };
    let memory = memory.freezing(begin.case.freezes);
    memory.fill(0);
    let handle = open(&begin, &memory)?;
    let bare = begin.bare_bytes.map(|bytes| expose(&memory, bytes)).transpose()?;
    say(&SourceReply::Ready { bare: bare.as_ref().map(|(_, bare)| bare.clone()) })?;
    while let Some(order) = hear::<Publish>(input)? {
        say(&SourceReply::Published(publish(&handle, &memory, &order)?))?;
    }
    handle.close(SOON);
    Ok(())
}

fn open(begin: &SourceStart, memory: &KnownMemory) -> Result<ShardHandle> {
    let shards = u32::try_from(begin.case.sources()?.len())?;
    let options = Options {
        server: Some(begin.server.clone()),
        data_bind: Some("127.0.0.1:0".to_owned()),
        ..Options::new(Role::Trainer)
    };
    let me = Replica::new("trainer", begin.shard, shards);
    let handle = ShardHandle::open(&begin.model, me, &options)?;
    handle.register(LayoutSource::Known(memory.layout.clone()), memory.regions.clone(), SOON)?;
    Ok(handle)
}

fn publish(handle: &ShardHandle, memory: &KnownMemory, order: &Publish) -> Result<Published> {
    if handle.version().is_some() {
        handle.unpublish(SOON)?;
    }
    if order.fill {
        memory.fill(order.version);
    }
    let (published, publish_s) = timed(|| handle.publish(order.version, SOON));
    published?;
    let (sealed, seal_s) = timed(|| handle.wait_sealed(SOON));
    sealed?;
    Ok(Published { publish_s, seal_s })
}

/// Serves contiguous bytes outside of the protocol: the shard's own memory where it is contiguous.
fn expose(memory: &KnownMemory, bytes: u64) -> Result<(DataServer, BareExport)> {
    let server = DataServer::bind("127.0.0.1:0".parse()?, Auth::default())?;
    let region = contiguous(&memory.regions, bytes)?;
    let export = server.exports().expose(BARE_GENERATION, vec![region]).0;
    let address = server.addr();
    Ok((server, BareExport { address, export }))
}

/// One region of this many bytes: the existing one if it fits, otherwise a new one.
pub(crate) fn contiguous(regions: &[Region], bytes: u64) -> Result<Region> {
    match regions {
        [one] if one.len() as u64 == bytes => Ok(one.clone()),
        _ => warm(bytes),
    }
}

fn hear<T: DeserializeOwned>(input: &mut StdinLock<'_>) -> Result<Option<T>> {
    let mut line = String::new();
    match input.read_line(&mut line).context("read an order")? {
        0 => Ok(None),
        _ => Ok(Some(serde_json::from_str(&line).context("understand an order")?)),
    }
}

fn say(reply: &SourceReply) -> Result<()> {
    println!("{}", serde_json::to_string(reply)?);
    Ok(())
}
