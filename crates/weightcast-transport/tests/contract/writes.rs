//! Writes: by leave of a grant, where it allows, and nowhere else.

use crate::ways::{Way, noise, soon};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weightcast_transport::*;

for_every_way!(
    written_bytes_are_those_of_the_source,
    random_writes,
    rows_and_thousands_of_tiny_copies,
    several_targets,
    computed_bytes_are_written,
    no_grant_is_open_by_default,
    a_closed_grant_takes_nothing,
    an_expired_grant_takes_nothing,
    a_forged_grant_takes_nothing,
    another_generation_takes_nothing,
    bounds_are_checked_before_a_byte_moves,
    a_target_checks_bounds_again,
    an_export_ends_the_grant,
    a_write_can_be_given_up,
);

/// Memory that a grant is open over, and the grant.
struct Granted {
    memory: Vec<Region>,
    grant: WriteGrant,
}

fn terms(memory: &[Region]) -> GrantTerms {
    let (regions, valid_for) = (memory.to_vec(), Duration::from_secs(60));
    GrantTerms { generation: 4, regions, writer: None, valid_for }
}

impl Granted {
    fn open<W: Way>(way: &W, lens: &[usize]) -> Self {
        let memory: Vec<_> = lens.iter().map(|len| Region::allocate(*len).unwrap()).collect();
        let grant = way.exports().open_grant(terms(&memory)).unwrap();
        Self { memory, grant }
    }

    fn untouched(&self) -> bool {
        self.memory.iter().all(|region| region.to_vec().iter().all(|byte| *byte == 0))
    }
}

fn put<W: Way>(
    way: &W,
    grant: &WriteGrant,
    copies: Vec<StridedCopy>,
    sources: &[Region],
) -> Result<Vec<Digest>, TransportError> {
    let options = TransferOptions { deadline: Some(soon()), ..TransferOptions::default() };
    let jobs = [TargetJob { peer: way.peer(), grant, copies }];
    write(&jobs, sources, &options).map_err(|error| error.kind)
}

fn whole(len: usize) -> Vec<StridedCopy> {
    vec![StridedCopy::contiguous(0, 0, 0, 0, len as u64)]
}

fn source(bytes: &[u8]) -> [Region; 1] {
    [Region::from_bytes(bytes).unwrap().read_only()]
}

fn not_granted<T>() -> Result<T, TransportError> {
    Err(RequestRefusal::NotGranted.into())
}

fn written_bytes_are_those_of_the_source<W: Way>() {
    let (way, bytes) = (W::new(), noise(3_000_001, 1));
    let granted = Granted::open(&way, &[bytes.len()]);
    let digests = put(&way, &granted.grant, whole(bytes.len()), &source(&bytes)).unwrap();
    assert!(granted.memory[0].to_vec() == bytes);
    assert_eq!(digests, [digest_at(0, &bytes)]);
    assert_eq!(put(&way, &granted.grant, Vec::new(), &[]), Ok(vec![Digest::ZERO]));
}

/// Copies of every shape from two regions into two, against the same copies by hand.
fn random_writes<W: Way>() {
    let way = W::new();
    for seed in 0..20_u64 {
        let mut random = noise(4_000, seed + 1).into_iter();
        let mut draw = |below: u64| {
            let bytes = [random.next().unwrap(), random.next().unwrap(), random.next().unwrap()];
            bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)) % below
        };
        let sources = [400_000, 70_000].map(|len| noise(len, seed + 99));
        let lens = [300_000, 500_000];
        let mut expected = lens.map(|len| vec![0; len]);
        let (mut copies, mut at) = (Vec::new(), [0_u64; 2]);
        for number in 0..30 {
            let (from, to) = (draw(2) as usize, draw(2) as usize);
            let (row_bytes, rows) = (draw(3_000), draw(9));
            let (source_pitch, target_pitch) = (draw(4_000), row_bytes + draw(500));
            let source_offset = draw(20_000);
            let target_offset = at[to] + draw(100);
            let span = rows.saturating_sub(1) * target_pitch + row_bytes;
            if target_offset + span > lens[to] as u64 {
                continue;
            }
            at[to] = target_offset + span;
            copies.push(StridedCopy {
                source_region: from as u32,
                source_offset,
                source_pitch,
                target_region: to as u32,
                target_offset,
                target_pitch,
                row_bytes,
                rows,
                slot: number % 3,
                position: number as u64 * 7,
                position_pitch: row_bytes,
            });
            for row in 0..rows {
                let bytes = &sources[from][(source_offset + row * source_pitch) as usize..]
                    [..row_bytes as usize];
                let at = (target_offset + row * target_pitch) as usize;
                expected[to][at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
        let granted = Granted::open(&way, &lens);
        let regions = sources.each_ref().map(|bytes| Region::from_bytes(bytes).unwrap());
        let options = TransferOptions { slots: 3, ..TransferOptions::default() };
        let jobs = [TargetJob { peer: way.peer(), grant: &granted.grant, copies: copies.clone() }];
        let digests = write(&jobs, &regions, &options).unwrap();
        let found = granted.memory.iter().map(Region::to_vec);
        assert!(found.eq(expected.iter().cloned()), "seed {seed}");
        let mut sums = [Digest::ZERO; 3];
        for copy in &copies {
            for row in 0..copy.rows {
                let at = (copy.target_offset + row * copy.target_pitch) as usize;
                let bytes = &expected[copy.target_region as usize][at..][..copy.row_bytes as usize];
                sums[copy.slot as usize] +=
                    digest_at(copy.position + row * copy.position_pitch, bytes);
            }
        }
        assert_eq!(digests, sums, "seed {seed}");
    }
}

fn rows_and_thousands_of_tiny_copies<W: Way>() {
    let (way, count) = (W::new(), 5_000_u64);
    let bytes = noise(3 * count as usize, 5);
    let granted = Granted::open(&way, &[2 * count as usize]);
    let tiny = (0..count).map(|n| StridedCopy::contiguous(0, 3 * n, 0, 2 * n, 2)).collect();
    put(&way, &granted.grant, tiny, &source(&bytes)).unwrap();
    let expected: Vec<u8> = bytes.chunks(3).flat_map(|part| &part[..2]).copied().collect();
    assert!(granted.memory[0].to_vec() == expected);
    let again = Granted::open(&way, &[2 * count as usize]);
    let rows = StridedCopy {
        source_pitch: 3,
        target_pitch: 2,
        row_bytes: 2,
        rows: count,
        ..StridedCopy::contiguous(0, 0, 0, 0, 0)
    };
    put(&way, &again.grant, vec![rows], &source(&bytes)).unwrap();
    assert!(again.memory[0].to_vec() == expected);
}

/// Each by leave of its own grant; whoever fails is named.
fn several_targets<W: Way>() {
    let (ways, bytes) = ([W::new(), W::new()], noise(700_000, 6));
    let granted = ways.each_ref().map(|way| Granted::open(way, &[bytes.len()]));
    let source = source(&bytes);
    let options = TransferOptions { threads: 3, ..TransferOptions::default() };
    let job =
        |n: usize, grant| TargetJob { peer: ways[n].peer(), grant, copies: whole(bytes.len()) };
    let jobs = [job(0, &granted[0].grant), job(1, &granted[1].grant)];
    write(&jobs, &source, &options).unwrap();
    assert!(granted.iter().all(|granted| granted.memory[0].to_vec() == bytes));
    let others = Granted::open(&ways[1], &[bytes.len()]);
    let crossed = [job(0, &granted[0].grant), job(1, &granted[0].grant)];
    let error = write(&crossed, &source, &options).unwrap_err();
    assert_eq!(error, WriteError { target: 1, kind: RequestRefusal::NotGranted.into() });
    assert!(others.untouched());
}

struct Count;

impl Compute for Count {
    fn fill(&self, offset: usize, bytes: &mut [u8]) {
        bytes.iter_mut().zip(offset..).for_each(|(byte, at)| *byte = (at % 251) as u8);
    }
}

fn computed_bytes_are_written<W: Way>() {
    let (way, len) = (W::new(), 300_000);
    let granted = Granted::open(&way, &[len + 10]);
    let sources = [Region::computed(len, Arc::new(Count)), Region::from_bytes(&[255; 10]).unwrap()];
    let half = len as u64 / 2;
    let copies = vec![
        StridedCopy::contiguous(0, 0, 0, 0, half),
        StridedCopy::contiguous(1, 0, 0, half, 10),
        StridedCopy::contiguous(0, half, 0, half + 10, half),
    ];
    put(&way, &granted.grant, copies, &sources).unwrap();
    let mut expected: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
    expected.splice(len / 2..len / 2, [255; 10]);
    assert!(granted.memory[0].to_vec() == expected);
    // Several runs of one piece.
    let again = Granted::open(&way, &[300]);
    let run = |n: u64| StridedCopy::contiguous(0, 1_000 * (3 - n), 0, 100 * n, 100);
    put(&way, &again.grant, (0..3).map(run).collect(), &sources).unwrap();
    let of = |n: usize| (0..100).map(move |at| ((1_000 * (3 - n) + at) % 251) as u8);
    assert_eq!(again.memory[0].to_vec(), (0..3).flat_map(of).collect::<Vec<_>>());
}

/// Not even for whoever has the token, and knows which memory there is.
fn no_grant_is_open_by_default<W: Way>() {
    let way = W::new();
    let other = ExportTable::new();
    let grant = other.open_grant(terms(&[Region::allocate(7).unwrap()])).unwrap();
    way.expose(&[&[0; 7]]);
    assert_eq!(way.exports().grants(), 0);
    assert_eq!(put(&way, &grant, whole(7), &source(b"weights")), not_granted());
}

fn a_closed_grant_takes_nothing<W: Way>() {
    let way = W::new();
    let granted = Granted::open(&way, &[7]);
    assert!(way.exports().close_grant(granted.grant.id));
    assert_eq!(put(&way, &granted.grant, whole(7), &source(b"weights")), not_granted());
    assert!(granted.untouched());
}

fn an_expired_grant_takes_nothing<W: Way>() {
    let way = W::new();
    let memory = vec![Region::allocate(7).unwrap()];
    let terms = GrantTerms { valid_for: Duration::ZERO, ..terms(&memory) };
    let grant = way.exports().open_grant(terms).unwrap();
    let granted = Granted { memory, grant };
    assert_eq!(put(&way, &granted.grant, whole(7), &source(b"weights")), not_granted());
    assert!(granted.untouched());
}

/// The name alone is no leave, nor is another grant's secret.
fn a_forged_grant_takes_nothing<W: Way>() {
    let way = W::new();
    let [granted, other] = [(); 2].map(|()| Granted::open(&way, &[7]));
    for secret in [Secret::new([0; 32]), Secret::new([]), other.grant.secret.clone()] {
        let forged = WriteGrant { secret, ..granted.grant.clone() };
        assert_eq!(put(&way, &forged, whole(7), &source(b"weights")), not_granted());
    }
    let unknown = WriteGrant { id: GrantId(granted.grant.id.0 ^ 1), ..granted.grant.clone() };
    assert_eq!(put(&way, &unknown, whole(7), &source(b"weights")), not_granted());
    assert!(granted.untouched() && other.untouched());
    put(&way, &granted.grant, whole(7), &source(b"weights")).unwrap();
    assert_eq!(granted.memory[0].to_vec(), b"weights");
}

fn another_generation_takes_nothing<W: Way>() {
    let way = W::new();
    let granted = Granted::open(&way, &[7]);
    for generation in [0, 3, 5] {
        let stale = WriteGrant { generation, ..granted.grant.clone() };
        assert_eq!(put(&way, &stale, whole(7), &source(b"weights")), not_granted());
    }
    assert!(granted.untouched());
}

fn bounds_are_checked_before_a_byte_moves<W: Way>() {
    let way = W::new();
    let granted = Granted::open(&way, &[7, 3]);
    let fits = StridedCopy::contiguous(0, 0, 0, 0, 7);
    let out = |what| Err(TransportError::OutOfBounds { copy: 1, what });
    let overlapping =
        StridedCopy { rows: 2, source_pitch: 2, target_pitch: 1, row_bytes: 2, ..fits };
    for (copy, what) in [
        (StridedCopy { source_offset: 1, ..fits }, Bound::SourceRegion(0)),
        (StridedCopy { source_region: 1, ..fits }, Bound::SourceRegion(1)),
        (StridedCopy { target_offset: 1, ..fits }, Bound::TargetRegion(0)),
        (StridedCopy { target_region: 1, ..fits }, Bound::TargetRegion(1)),
        (StridedCopy { target_region: 2, ..fits }, Bound::TargetRegion(2)),
        (overlapping, Bound::TargetRegion(0)),
        (StridedCopy { slot: 1, ..fits }, Bound::Digest),
    ] {
        let copies = vec![fits, copy];
        assert_eq!(put(&way, &granted.grant, copies, &source(b"weights")), out(what), "{copy:?}");
    }
    assert!(granted.untouched());
}

/// Whatever the writer was told of the regions.
fn a_target_checks_bounds_again<W: Way>() {
    let way = W::new();
    let granted = Granted::open(&way, &[7]);
    let lying = WriteGrant { lens: vec![1 << 40; 2], ..granted.grant.clone() };
    let fits = StridedCopy::contiguous(0, 0, 0, 0, 7);
    for copy in [
        StridedCopy { target_offset: 1, ..fits },
        StridedCopy { target_offset: 1 << 39, ..fits },
        StridedCopy { target_region: 1, ..fits },
    ] {
        let refused = put(&way, &lying, vec![copy], &source(b"weights"));
        assert_eq!(refused, Err(RequestRefusal::OutOfRange.into()), "{copy:?}");
    }
    assert!(granted.untouched());
}

/// What is published does not change under its readers.
fn an_export_ends_the_grant<W: Way>() {
    let way = W::new();
    let granted = Granted::open(&way, &[7]);
    put(&way, &granted.grant, whole(7), &source(b"weights")).unwrap();
    let export = way.exports().expose(1, granted.memory.clone());
    assert_eq!(put(&way, &granted.grant, whole(7), &source(b"WEIGHTS")), not_granted());
    let served = GrantError::Served { region: 0 };
    assert_eq!(way.exports().open_grant(terms(&granted.memory)).map(drop), Err(served));
    let to = [Region::allocate(7).unwrap()];
    let digests = way.read(export, whole(7), &to, 1).unwrap();
    assert_eq!((to[0].to_vec(), digests[0]), (b"weights".to_vec(), digest_at(0, b"weights")));
    way.exports().fence(export);
    assert!(way.exports().open_grant(terms(&granted.memory)).is_ok());
}

fn a_write_can_be_given_up<W: Way>() {
    let way = W::new();
    let granted = Granted::open(&way, &[7]);
    let jobs = [TargetJob { peer: way.peer(), grant: &granted.grant, copies: whole(7) }];
    let options =
        TransferOptions { cancel: Arc::new(AtomicBool::new(true)), ..TransferOptions::default() };
    let given_up = write(&jobs, &source(b"weights"), &options).unwrap_err();
    assert_eq!(given_up, WriteError { target: 0, kind: TransportError::Cancelled });
    options.cancel.store(false, Ordering::Release);
    let options = TransferOptions { deadline: Some(Instant::now()), ..options };
    let late = write(&jobs, &source(b"weights"), &options).unwrap_err();
    assert!(matches!(late.kind, TransportError::Timeout { .. }));
    assert!(granted.untouched());
}
