//! A server and groups of shards in one process, each shard on a thread of its own per call.

use std::time::Duration;

use weightcast::plan::{DType, Layout, LayoutBuilder, Part};
use weightcast::transport::Region;
use weightcast::{LayoutSource, Options, Replica, Role, ServeConfig, Server, ShardHandle, serve};

const SOON: Duration = Duration::from_secs(20);

/// The model: one matrix of two-byte elements with odd sides.
pub(crate) const ROWS: u64 = 37;
pub(crate) const COLUMNS: u64 = 22;

/// A reference server for one test.
pub(crate) struct Cluster {
    pub(crate) server: Server,
}

/// One shard: its handle and its memory.
pub(crate) struct Shard {
    pub(crate) index: u64,
    pub(crate) handle: ShardHandle,
    region: Region,
}

impl Shard {
    /// The memory as it is now.
    pub(crate) fn memory(&self) -> Vec<u8> {
        self.region.to_vec()
    }

    /// Overwrites the memory.
    pub(crate) fn fill(&self, bytes: &[u8]) {
        self.region.write_at(0, bytes).unwrap();
    }

    /// Flips one bit of the memory, as a cosmic ray or a careless optimizer would.
    pub(crate) fn flip_bit(&self, byte: usize, bit: u32) {
        let mut bytes = self.memory();
        bytes[byte] ^= 1 << bit;
        self.fill(&bytes);
    }
}

impl Cluster {
    pub(crate) fn start() -> Self {
        Self::with_stripes(1)
    }

    /// One whose readers draw from so many sources at once.
    pub(crate) fn with_stripes(stripes: u32) -> Self {
        let config = ServeConfig {
            stripes,
            lease: Duration::from_secs(2),
            drain_deadline: Duration::from_secs(5),
            paranoid: true,
            ..ServeConfig::default()
        };
        Self { server: serve(config).unwrap() }
    }

    /// Opens and registers all shards of a replica; `memory` gives layout and content.
    pub(crate) fn group(
        &self,
        name: &str,
        role: Role,
        shards: u32,
        memory: impl Fn(u64) -> (Layout, Vec<u8>) + Sync,
    ) -> Vec<Shard> {
        group(self.server.address(), name, role, shards, memory)
    }
}

/// The same, for the servers of a list.
pub(crate) fn group(
    servers: &str,
    name: &str,
    role: Role,
    shards: u32,
    memory: impl Fn(u64) -> (Layout, Vec<u8>) + Sync,
) -> Vec<Shard> {
    {
        let open = |index: u32| {
            let options = Options { server: Some(servers.to_owned()), ..Options::new(role) };
            let handle =
                ShardHandle::open("model", Replica::new(name, index, shards), &options).unwrap();
            let (layout, bytes) = memory(u64::from(index));
            let region = Region::from_bytes(&bytes).unwrap();
            let layout = LayoutSource::Known(layout);
            handle.register(layout, vec![region.clone()], SOON).unwrap();
            Shard { index: u64::from(index), handle, region }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..shards).map(|i| scope.spawn(move || open(i))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }
}

/// Makes the same call on all shards at once.
pub(crate) fn run_group<T: Send>(group: &[Shard], call: impl Fn(&Shard) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = group.iter().map(|shard| scope.spawn(|| call(shard))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn element(row: u64, column: u64, version: u64) -> [u8; 2] {
    let value = (row * COLUMNS + column).wrapping_mul(2_654_435_761) ^ version.wrapping_mul(40_503);
    (value as u16).to_le_bytes()
}

fn chunk(size: u64, index: u64, of: u64) -> std::ops::Range<u64> {
    let each = size.div_ceil(of);
    (index * each).min(size)..((index + 1) * each).min(size)
}

fn layout(dim: usize, index: u64, of: u64) -> Layout {
    let size = [ROWS, COLUMNS][dim];
    let range = chunk(size, index, of);
    let mut shape = [ROWS, COLUMNS];
    shape[dim] = range.end - range.start;
    let part = Part::new("matrix").shape([ROWS, COLUMNS]).dim(dim, index, of);
    let mut builder = LayoutBuilder::new();
    builder.add("matrix", DType::BF16, &shape, vec![part], 0);
    builder.build().unwrap()
}

/// Shard `index` of `of` by rows, filled with a version.
pub(crate) fn rows(index: u64, of: u64, version: u64) -> (Layout, Vec<u8>) {
    (layout(0, index, of), expected_rows(index, of, version))
}

/// Shard `index` of `of` by columns, zeroed.
pub(crate) fn columns(index: u64, of: u64) -> (Layout, Vec<u8>) {
    let bytes = expected_columns(index, of, 0).len();
    (layout(1, index, of), vec![0; bytes])
}

pub(crate) fn expected_rows(index: u64, of: u64, version: u64) -> Vec<u8> {
    let rows = chunk(ROWS, index, of);
    rows.flat_map(|r| (0..COLUMNS).flat_map(move |c| element(r, c, version))).collect()
}

pub(crate) fn expected_columns(index: u64, of: u64, version: u64) -> Vec<u8> {
    let columns = chunk(COLUMNS, index, of);
    (0..ROWS).flat_map(|r| columns.clone().flat_map(move |c| element(r, c, version))).collect()
}
