//! One read, while it runs: what it fills, from where, and what it is compared with.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use weightcast_plan::Layout;
use weightcast_protocol::message::Assignment;
use weightcast_transport::{ExportId, ExportTable, Filling};

use super::entering::EnteringBytes;
use super::pace::ReadPace;
use crate::client::memory::registration::RegisteredShard;

/// One read, while it runs.
pub(crate) struct Read<'a> {
    pub(crate) registration: &'a Arc<RegisteredShard>,
    pub(crate) assignment: &'a Assignment,
    /// Layouts of the sources' shards, in order.
    pub(crate) sources: &'a [Arc<Layout>],
    pub(crate) deadline: Instant,
    pub(crate) cancel: Arc<AtomicBool>,
    pub(crate) pace: ReadPace,
    /// Which units are final already; they may be served while the rest comes.
    pub(crate) filling: Option<Arc<Filling>>,
    /// What siblings take meanwhile, and which this shard takes from in turn.
    pub(crate) entering: Option<&'a EnteringBytes>,
    /// Held while memory is written. Stopping a read waits for this lock, so nothing slow happens
    /// under it but the transfer and its digests.
    pub(crate) memory: &'a Mutex<()>,
    /// What the read is compared with.
    pub(crate) comparing: Comparing<'a>,
}

/// What a read is compared with.
#[derive(Clone, Copy, Default)]
pub(crate) struct Comparing<'a> {
    /// The registered memory of a staged read, which fills other memory: unchanged slices are copied
    /// from here.
    pub(crate) live: Option<&'a RegisteredShard>,
    /// Where the memory is served while it is filled, to readers who compare in turn.
    pub(crate) serving: Option<(&'a ExportTable, ExportId)>,
    /// Everything is to be moved, whatever is known.
    pub(crate) moves_all: bool,
}
