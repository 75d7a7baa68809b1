//! Shards of the group on this shard's host, which bring each other what several of them hold.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weightcast_plan::limits::SHARED_BLOCK;
use weightcast_plan::{Cell, HostShares, Layout};
use weightcast_protocol::OpSeq;
use weightcast_protocol::message::Sibling;
use weightcast_transport::ExportId;

/// Sets what siblings take from apart from what readers of the whole memory take.
const TAKEN: u64 = 0x5349_424c_494e_4753;

/// The siblings of a shard, and who of them brings what.
#[derive(Debug)]
pub(crate) struct Siblings {
    pub(crate) shares: HostShares,
    /// Where each of them is.
    ports: BTreeMap<u32, SiblingPort>,
    /// One of them could not be reached: this shard takes from none any more. They may take from this one.
    alone: AtomicBool,
}

/// Where a sibling is.
#[derive(Clone, Debug)]
pub(crate) struct SiblingPort {
    pub(crate) data_address: String,
    /// Name of its memory.
    pub(crate) memory: ExportId,
}

impl Siblings {
    /// The siblings of shard number `shard`, as the server has told them. `None`: nothing is shared on its host.
    pub(crate) fn new(
        layouts: &[Arc<Layout>],
        shard: u32,
        cells: &[Cell],
        told: &[Sibling],
    ) -> Option<Self> {
        let own = told.iter().find(|sibling| sibling.shard == shard)?;
        let there = |sibling: &&Sibling| {
            sibling.host == own.host && (sibling.shard as usize) < layouts.len()
        };
        let on_host: Vec<&Sibling> = told.iter().filter(there).collect();
        let host: Vec<u32> = on_host.iter().map(|sibling| sibling.shard).collect();
        let layouts: Vec<&Layout> = layouts.iter().map(Arc::as_ref).collect();
        let shares = HostShares::new(&layouts, shard, &host, cells, SHARED_BLOCK);
        // Memory that is cut too differently is read from the source.
        let shares = shares.ok().flatten()?;
        let port = |sibling: &Sibling| {
            let (data_address, memory) = (sibling.data_address.clone(), ExportId(sibling.export.0));
            (sibling.shard, SiblingPort { data_address, memory })
        };
        let ports = on_host.into_iter().map(port).collect();
        Some(Self { shares, ports, alone: AtomicBool::new(false) })
    }

    pub(crate) fn port(&self, shard: u32) -> Option<&SiblingPort> {
        self.ports.get(&shard)
    }

    pub(crate) fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Acquire)
    }

    pub(crate) fn leave_alone(&self) {
        self.alone.store(true, Ordering::Release);
    }
}

/// The name under which siblings take from memory of this name, in one call: all of a group compute the same.
pub(crate) fn taken_from(memory: ExportId, seq: OpSeq) -> ExportId {
    ExportId(memory.0 ^ TAKEN).at(seq.0)
}
