//! What must not happen does not: no byte out of bounds, no read of fenced memory that ends well.

use crate::ways::{Way, arrived, noise, soon};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};
use weightcast_transport::*;

for_every_way!(
    out_of_bounds_is_refused_with_nothing_written,
    read_only_targets_are_refused,
    unknown_exports_and_stale_generations_are_refused,
    a_fenced_export_is_not_read,
    a_fence_during_reads_never_lets_a_torn_one_end_well,
    a_withdrawal_during_a_read_ends_it,
    a_cancelled_read_ends,
    a_passed_deadline_ends_a_read,
);

fn out_of_bounds_is_refused_with_nothing_written<W: Way>() {
    let way = W::new();
    let export = way.expose(&[&[7; 100]]);
    let to = Region::allocate(100).unwrap();
    let good = StridedCopy::contiguous(0, 0, 0, 0, 50);
    let bad = [
        (StridedCopy { source_offset: 51, ..good }, Bound::SourceRegion(0)),
        (StridedCopy { source_region: 1, ..good }, Bound::SourceRegion(1)),
        (StridedCopy { source_pitch: u64::MAX, rows: 3, ..good }, Bound::SourceRegion(0)),
        (StridedCopy { target_offset: 51, ..good }, Bound::TargetRegion(0)),
        (StridedCopy { target_region: 1, ..good }, Bound::TargetRegion(1)),
        (
            StridedCopy { target_pitch: 51, source_pitch: 0, rows: 2, ..good },
            Bound::TargetRegion(0),
        ),
        (
            StridedCopy { target_pitch: 0, source_pitch: 0, rows: u64::MAX, ..good },
            Bound::TargetRegion(0),
        ),
        (StridedCopy { slot: 1, ..good }, Bound::Digest),
        (StridedCopy { position: u64::MAX - 3, ..good }, Bound::Digest),
        (StridedCopy { source_offset: 101, row_bytes: 0, ..good }, Bound::SourceRegion(0)),
    ];
    for (copy, what) in bad {
        let error = way.read(export, vec![good, copy], std::slice::from_ref(&to), 1).unwrap_err();
        assert_eq!(error.kind, TransportError::OutOfBounds { copy: 1, what });
        assert_eq!((error.source, error.advice()), (0, Advice::Fatal));
        assert_eq!(to.to_vec(), vec![0; 100], "nothing is written before all is checked");
    }
}

fn read_only_targets_are_refused<W: Way>() {
    let way = W::new();
    let export = way.expose(&[b"abc"]);
    let to = [Region::allocate(3).unwrap().read_only()];
    let error = way.read(export, vec![StridedCopy::contiguous(0, 0, 0, 0, 3)], &to, 1).unwrap_err();
    assert_eq!(error.kind, TransportError::ReadOnlyTarget { region: 0 });
    assert_eq!(to[0].to_vec(), [0; 3]);
}

fn unknown_exports_and_stale_generations_are_refused<W: Way>() {
    let way = W::new();
    let export = way.expose(&[b"abc"]);
    let to = [Region::allocate(3).unwrap()];
    let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, 3)];
    let unknown = way.read(ExportId(export.0 ^ 1), copies.clone(), &to, 1).unwrap_err();
    assert_eq!(unknown.kind, TransportError::Refused(RequestRefusal::UnknownExport));
    let mut job = way.job(export, copies.clone());
    job.generation = 2;
    let stale = read(&[job], &to, &TransferOptions::default()).unwrap_err();
    assert_eq!(stale.kind, TransportError::Refused(RequestRefusal::StaleGeneration));
    assert_eq!([unknown.advice(), stale.advice()], [Advice::RetryElsewhere; 2]);
    assert_eq!(to[0].to_vec(), [0; 3]);
    way.read(export, copies, &to, 1).expect("the connection stays usable");
}

fn a_fenced_export_is_not_read<W: Way>() {
    let way = W::new();
    let export = way.expose(&[b"abc"]);
    let to = [Region::allocate(3).unwrap()];
    let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, 3)];
    way.read(export, copies.clone(), &to, 1).unwrap();
    way.exports().fence(export);
    let error = way.read(export, copies.clone(), &to, 1).unwrap_err();
    assert_eq!(error.advice(), Advice::RetryElsewhere);
    way.exports().withdraw(export, Duration::ZERO);
    assert!(way.read(export, copies, &to, 1).is_err());
}

/// A writer fences and then overwrites, at many moments of a read. Whatever the moment, a read
/// that ends well holds the old bytes only.
fn a_fence_during_reads_never_lets_a_torn_one_end_well<W: Way>() {
    let way = W::new();
    let len = 4 << 20;
    let (mut ended_well, mut ended_fenced) = (0, 0);
    for round in 0..40_u64 {
        let source = W::holding(&vec![1; len]);
        let export = way.exports().expose(1, vec![source.clone()]);
        let to = [Region::allocate(len).unwrap()];
        let options = TransferOptions::default();
        let jobs = [way.job(export, vec![StridedCopy::contiguous(0, 0, 0, 0, len as u64)])];
        let outcome = thread::scope(|scope| {
            let (exports, options) = (way.exports(), &options);
            scope.spawn(move || {
                let until = round * len as u64 / 40;
                let patience = Instant::now() + Duration::from_secs(10);
                while arrived(options) < until && Instant::now() < patience {
                    thread::yield_now();
                }
                exports.fence(export);
                source.write_at(0, &vec![2; len]).unwrap();
            });
            read(&jobs, &to, options)
        });
        match outcome {
            Ok(digests) => {
                ended_well += 1;
                assert!(to[0].to_vec().iter().all(|byte| *byte == 1), "torn, round {round}");
                assert_eq!(digests, [digest_at(0, &vec![1; len])]);
            }
            Err(error) => {
                ended_fenced += 1;
                let stale = TransportError::Refused(RequestRefusal::StaleGeneration);
                let fenced = TransportError::Fenced { export };
                assert!([stale, fenced].contains(&error.kind), "{error}");
            }
        }
    }
    assert_eq!(ended_well + ended_fenced, 40);
}

fn a_withdrawal_during_a_read_ends_it<W: Way>() {
    let (way, bytes) = (W::new(), noise(8 << 20, 5));
    let export = way.expose(&[&bytes]);
    let to = [Region::allocate(bytes.len()).unwrap()];
    let options = TransferOptions { deadline: Some(soon()), ..TransferOptions::default() };
    // The same bytes over and over, so that the read cannot outrun the withdrawal.
    let copy = StridedCopy::contiguous(0, 0, 0, 0, bytes.len() as u64);
    let jobs = [way.job(export, vec![copy; 400])];
    let outcome = thread::scope(|scope| {
        scope.spawn(|| {
            let patience = soon();
            while arrived(&options) == 0 && Instant::now() < patience {
                thread::yield_now();
            }
            assert!(way.exports().withdraw(export, Duration::from_secs(10)));
        });
        read(&jobs, &to, &options)
    });
    assert_eq!(outcome.unwrap_err().kind, TransportError::Fenced { export });
    assert!(way.exports().is_empty());
}

fn a_cancelled_read_ends<W: Way>() {
    let (way, bytes) = (W::new(), noise(1 << 20, 6));
    let export = way.expose(&[&bytes]);
    let to = [Region::allocate(bytes.len()).unwrap()];
    let jobs = [way.job(export, vec![StridedCopy::contiguous(0, 0, 0, 0, 1 << 20)])];
    let cancel = Arc::new(AtomicBool::new(true));
    let options = TransferOptions { cancel, ..TransferOptions::default() };
    let error = read(&jobs, &to, &options).unwrap_err();
    assert_eq!((&error.kind, error.advice()), (&TransportError::Cancelled, Advice::Fatal));
}

fn a_passed_deadline_ends_a_read<W: Way>() {
    let way = W::new();
    let export = way.expose(&[b"abc"]);
    let to = [Region::allocate(3).unwrap()];
    let jobs = [way.job(export, vec![StridedCopy::contiguous(0, 0, 0, 0, 3)])];
    let options = TransferOptions { deadline: Some(Instant::now()), ..TransferOptions::default() };
    let error = read(&jobs, &to, &options).unwrap_err();
    assert!(matches!(error.kind, TransportError::Timeout { .. }), "{error}");
}
