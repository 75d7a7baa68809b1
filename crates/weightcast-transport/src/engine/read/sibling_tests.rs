//! Shards of one host that take from each other what each brings from the source.

use super::*;
use crate::base::limits::MIN_UNIT_BYTES;
use crate::engine::gauge::Gauge;
use crate::piece::filling::Filling;
use crate::{Auth, DataServer, ExportId, Peer, Way};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const UNITS: u64 = 8;
/// Not a divisor of a unit: each unit has bytes of several shards.
const BLOCK: u64 = MIN_UNIT_BYTES / 3;
const BYTES: u64 = UNITS * MIN_UNIT_BYTES;

fn connect(server: &DataServer, way: Way) -> Peer {
    let soon = Instant::now() + Duration::from_secs(60);
    match way {
        Way::Reference => Peer::connect_within(server, &Auth::default(), soon),
        way => Peer::connect_by(way, server.addr(), &Auth::default(), soon),
    }
    .unwrap()
}

fn server() -> DataServer {
    DataServer::bind(([127, 0, 0, 1], 0).into(), Auth::default()).unwrap()
}

/// The blocks that one of so many shards brings.
fn blocks(shard: usize, shards: usize) -> Vec<StridedCopy> {
    let starts = (0..BYTES).step_by(BLOCK as usize).enumerate();
    let own = starts.filter(|(number, _)| number % shards == shard).map(|(_, at)| at);
    let copy = |at: u64| StridedCopy {
        position: at,
        ..StridedCopy::contiguous(0, at, 0, at, BLOCK.min(BYTES - at))
    };
    own.map(copy).collect()
}

/// One shard: its memory, and what it lets its siblings take.
struct SharingShard {
    server: DataServer,
    memory: Region,
    export: ExportId,
    entering: Arc<Filling>,
}

impl SharingShard {
    fn new() -> Self {
        let (server, memory) = (server(), Region::allocate_shared(BYTES as usize).unwrap());
        let entering = Arc::new(Filling::new(std::slice::from_ref(&memory)));
        let export = ExportId::random();
        let regions = vec![memory.clone()];
        server.exports().expose_filling(export, 1, regions, Arc::clone(&entering));
        Self { server, memory, export, entering }
    }

    fn options(&self, siblings: usize) -> TransferOptions {
        TransferOptions {
            deadline: Some(Instant::now() + Duration::from_secs(60)),
            filling: Some(Arc::new(Filling::new(std::slice::from_ref(&self.memory)))),
            entering: Some(Arc::clone(&self.entering)),
            siblings,
            ..TransferOptions::default()
        }
    }
}

fn content() -> Region {
    let region = Region::allocate_shared(BYTES as usize).unwrap();
    region.write_at(0, &(0..BYTES).map(|at| (at % 251) as u8).collect::<Vec<_>>()).unwrap();
    region
}

/// Each unit has bytes of all shards, so whoever waited for whole units would wait for ever.
#[test]
fn shards_bring_each_byte_once_and_all_have_it() {
    for way in [Way::Tcp, Way::Direct, Way::Shared, Way::Reference] {
        for (count, stripes) in [(2, 1), (3, 1), (3, 2)] {
            let (source, memory) = (server(), content());
            let exports: Vec<_> =
                (0..stripes).map(|_| source.exports().expose(1, vec![memory.clone()])).collect();
            let shards: Vec<SharingShard> = (0..count).map(|_| SharingShard::new()).collect();
            let entered: Vec<u64> = thread::scope(|scope| {
                let readers: Vec<_> = (0..count)
                    .map(|me| {
                        let (shards, exports, source) = (&shards, &exports, &source);
                        scope.spawn(move || {
                            let from = connect(source, way);
                            let others: Vec<usize> = (0..count).filter(|at| *at != me).collect();
                            let peers: Vec<Peer> =
                                others.iter().map(|at| connect(&shards[*at].server, way)).collect();
                            let mut jobs: Vec<SourceJob<'_>> = exports
                                .iter()
                                .enumerate()
                                .map(|(helper, export)| {
                                    let copies =
                                        if helper == 0 { blocks(me, count) } else { Vec::new() };
                                    SourceJob {
                                        peer: &from,
                                        export: *export,
                                        generation: 1,
                                        copies,
                                    }
                                })
                                .collect();
                            jobs.extend(others.iter().zip(&peers).map(|(at, peer)| SourceJob {
                                peer,
                                export: shards[*at].export,
                                generation: 1,
                                copies: blocks(*at, count),
                            }));
                            let gauge = Arc::new(Gauge::default());
                            let options = TransferOptions {
                                stripes,
                                gauge: Arc::clone(&gauge),
                                ..shards[me].options(count - 1)
                            };
                            let target = &shards[me].memory;
                            let digests =
                                read(&jobs, std::slice::from_ref(target), &options).unwrap();
                            let whole = target.digest(0, BYTES as usize, 0).unwrap();
                            assert_eq!(digests, [whole], "{way:?}, {count} shards");
                            let (done, all) = options.filling.unwrap().progress();
                            assert_eq!(done, all);
                            gauge.given()[..stripes].iter().sum()
                        })
                    })
                    .collect();
                readers.into_iter().map(|reader| reader.join().unwrap()).collect()
            });
            assert_eq!(entered.iter().sum::<u64>(), BYTES, "{way:?}, {count} shards");
            assert!(shards.iter().all(|shard| shard.memory.to_vec() == memory.to_vec()));
        }
    }
}

/// What has entered stays, and is not brought again.
#[test]
fn a_read_that_goes_on_without_its_sibling_reads_what_is_missing() {
    let (source, memory) = (server(), content());
    let export = source.exports().expose(1, vec![memory.clone()]);
    let (one, other) = (SharingShard::new(), SharingShard::new());
    let (from, peer) = (connect(&source, Way::Direct), connect(&other.server, Way::Direct));
    let job = |peer, export, copies| SourceJob { peer, export, generation: 1, copies };
    let jobs = [job(&from, export, blocks(0, 2)), job(&peer, other.export, blocks(1, 2))];
    let options = one.options(1);
    let target = std::slice::from_ref(&one.memory);
    let failed = thread::scope(|scope| {
        let reader = scope.spawn(|| read(&jobs, target, &options));
        // It has all that it brings itself, and waits.
        while one.entering.progress().0 < UNITS as usize {
            thread::yield_now();
        }
        other.server.exports().fence(other.export);
        reader.join().unwrap().unwrap_err()
    });
    assert_eq!((failed.source, failed.kind), (1, TransportError::Fenced { export: other.export }));
    // What the sibling does not give comes from the source, and is none of what this shard brings to others.
    let alone = [job(&from, export, blocks(0, 2)), job(&from, export, blocks(1, 2))];
    let gauge = Arc::new(Gauge::default());
    let again = TransferOptions {
        filling: options.filling.clone(),
        gauge: Arc::clone(&gauge),
        ..one.options(1)
    };
    read(&alone, target, &again).unwrap();
    assert_eq!(gauge.given()[0], 0, "it was there");
    assert!(one.memory.to_vec() == memory.to_vec());
    assert_eq!(one.entering.progress(), (UNITS as usize, UNITS as usize));
}
