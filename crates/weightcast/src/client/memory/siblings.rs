//! Shards of the group on this shard's host, which bring each other what several of them hold.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use weightcast_plan::limits::SHARED_BLOCK;
use weightcast_plan::{Cell, HostShares, Layout};
use weightcast_protocol::message::Sibling;
use weightcast_protocol::session::{Opening, SiblingSharing};
use weightcast_transport::ExportId;

/// Sets what siblings take from apart from what readers of the whole memory take.
const TAKEN: u64 = 0x5349_424c_494e_4753;

/// The siblings of a shard, and who of them brings what.
#[derive(Debug)]
pub(crate) struct Siblings {
    pub(crate) shares: HostShares,
    /// Where each of them is.
    ports: BTreeMap<u32, SiblingPort>,
    sharing: Mutex<SiblingSharing>,
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
        Some(Self { shares, ports, sharing: Mutex::default() })
    }

    pub(crate) fn port(&self, shard: u32) -> Option<&SiblingPort> {
        self.ports.get(&shard)
    }

    /// What is decided, call by call. The control thread opens and closes, a read divides.
    pub(crate) fn sharing(&self) -> MutexGuard<'_, SiblingSharing> {
        self.sharing.lock().expect("no panic while held")
    }
}

/// The name under which siblings take from memory of this name what was opened so: all of a group compute the same.
pub(crate) fn taken_from(memory: ExportId, opening: Opening) -> ExportId {
    let Opening { seq, since, version } = opening;
    let numbers = [seq.0, since.0, version.epoch.0, version.number];
    numbers.into_iter().fold(ExportId(memory.0 ^ TAKEN), ExportId::at)
}

#[cfg(test)]
mod tests {
    use weightcast_plan::{DType, LayoutBuilder, Part, cells};

    use super::*;

    #[test]
    fn siblings_are_shards_of_the_same_host_that_the_group_has() {
        let mut layout = LayoutBuilder::new();
        layout.add("w", DType::U8, &[8], vec![Part::new("w").shape([8])], 0);
        let layout = Arc::new(layout.build().unwrap());
        let layouts = vec![layout; 4];
        let told = [(0, 0), (1, 1), (2, 0), (3, 1), (9, 0)].map(|(shard, host)| Sibling {
            shard,
            host,
            data_address: format!("host{host}:{shard}"),
            export: weightcast_protocol::ExportId(shard.into()),
        });
        let group: Vec<&Layout> = layouts.iter().map(Arc::as_ref).collect();
        let of = |shard: u32, told: &[Sibling]| {
            Siblings::new(&layouts, shard, &cells(&group, shard as usize), told)
        };
        for (shard, other) in [(0, 2), (2, 0), (1, 3), (3, 1)] {
            let siblings = of(shard, &told).expect("another shard is there");
            assert!(siblings.shares.taken().iter().all(|taken| taken.shard == other));
            let ports: Vec<u32> = (0..10).filter(|n| siblings.port(*n).is_some()).collect();
            assert_eq!(ports, [shard.min(other), shard.max(other)], "shard {shard}");
        }
        assert!(of(0, &told[1..]).is_none(), "this shard has no siblings");
        assert!(of(0, &told[..2]).is_none(), "nobody else is on its host");
    }
}
