//! Fences, progress and retries at every point of a read: each test stops the read there, so none
//! depends on who is faster.

use crate::ways::{Way, arrived, noise, soon};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;
use weightcast_transport::HoldPoint::{Asking, Judging, Taking, Telling, Waiting};
use weightcast_transport::limits::{MIN_UNIT_BYTES, PIECE_BYTES};
use weightcast_transport::*;

for_every_way!(
    a_fence_before_any_verdict_is_seen,
    a_fence_after_the_last_verdict_changes_nothing,
    an_exposure_of_the_next_generation_is_not_taken_for_the_last,
    nothing_is_told_before_its_verdict,
    who_reads_from_a_relay_waits_for_every_row,
    a_fence_ends_the_wait_for_a_relay,
    a_retry_after_a_part_reads_the_rest_elsewhere,
    rows_with_gaps_between_them_arrive,
);

const PIECES: usize = 3;
const UNIT: u64 = MIN_UNIT_BYTES;

/// Does `act` when a read comes by `point` after it has been there `before` times.
fn at(point: HoldPoint, before: usize, act: impl FnOnce() + Send + 'static) -> Holds {
    let (act, passed) = (Mutex::new(Some(act)), AtomicUsize::new(0));
    Holds::new(move |here| {
        if here == point && passed.fetch_add(1, Ordering::SeqCst) == before {
            let act = act.lock().unwrap().take().expect("once");
            act();
        }
    })
}

/// Holds for both ends of a read: TCP takes and judges at the source.
fn hold_both<W: Way>(way: &W, export: ExportId, holds: Holds) -> TransferOptions {
    way.exports().hold(export, holds.clone());
    TransferOptions { threads: 1, deadline: Some(soon()), holds, ..TransferOptions::default() }
}

fn whole(len: usize) -> Vec<StridedCopy> {
    vec![StridedCopy::contiguous(0, 0, 0, 0, len as u64)]
}

/// Memory of ones that is served, and what its owner does to it next: fence, and write twos.
fn written<W: Way>(way: &W) -> (ExportId, usize, impl FnOnce() + Send + 'static) {
    let len = PIECES * PIECE_BYTES;
    let source = W::holding(&vec![1; len]);
    let export = way.exports().expose(1, vec![source.clone()]);
    let exports = Arc::clone(way.exports());
    let write = move || {
        exports.fence(export);
        source.write_at(0, &vec![2; len]).unwrap();
    };
    (export, len, write)
}

/// Torn bytes do not end well, wherever in a piece, and in which piece, the owner begins to write.
fn a_fence_before_any_verdict_is_seen<W: Way>() {
    let way = W::new();
    for point in [Asking, Taking, Judging] {
        for piece in 0..PIECES {
            let (export, len, write) = written(&way);
            let options = hold_both(&way, export, at(point, piece, write));
            let to = [Region::allocate(len).unwrap()];
            let outcome = read(&[way.job(export, whole(len))], &to, &options);
            let error = outcome.expect_err(&format!("{point:?} of piece {piece}"));
            assert_eq!(error.kind, TransportError::Fenced { export }, "{point:?}, {piece}");
        }
    }
}

/// Whoever has the last verdict has the old bytes, all of them.
fn a_fence_after_the_last_verdict_changes_nothing<W: Way>() {
    let way = W::new();
    let (export, len, write) = written(&way);
    let options = hold_both(&way, export, at(Telling, PIECES - 1, write));
    let to = [Region::allocate(len).unwrap()];
    let digests = read(&[way.job(export, whole(len))], &to, &options).unwrap();
    assert!(to[0].to_vec().iter().all(|byte| *byte == 1));
    assert_eq!(digests, [digest_at(0, &vec![1; len])]);
}

/// The same memory, served again under its next id: a read that began before ends as fenced.
fn an_exposure_of_the_next_generation_is_not_taken_for_the_last<W: Way>() {
    let (way, len) = (W::new(), PIECES * PIECE_BYTES);
    let name = ExportId::random();
    let ids: BTreeMap<ExportId, u64> = (0..1_000).map(|g| (name.at(g), g)).collect();
    assert_eq!(ids.len(), 1_000, "an id for each generation");
    for point in [Asking, Taking, Judging] {
        let (old, new) = (ExportId::random().at(1), ExportId::random().at(2));
        let memory = W::holding(&vec![1; len]);
        way.exports().expose_as(old, 1, vec![memory.clone()]);
        let exports = Arc::clone(way.exports());
        let next = move || {
            exports.fence(old);
            memory.write_at(0, &vec![2; len]).unwrap();
            exports.expose_as(new, 2, vec![memory]);
        };
        let options = hold_both(&way, old, at(point, 1, next));
        let to = [Region::allocate(len).unwrap()];
        let error = read(&[way.job(old, whole(len))], &to, &options).unwrap_err();
        assert_eq!(error.kind, TransportError::Fenced { export: old }, "{point:?}");
        let job = SourceJob { generation: 2, ..way.job(new, whole(len)) };
        let digests = read(&[job], &to, &TransferOptions::default()).unwrap();
        assert_eq!(digests, [digest_at(0, &vec![2; len])]);
    }
}

/// What a relay and its gauge say at each point, against the verdicts until then.
fn nothing_is_told_before_its_verdict<W: Way>() {
    let way = W::new();
    let bytes = noise(4 * UNIT as usize, 1);
    let memory = Region::allocate(bytes.len()).unwrap();
    let filling = Arc::new(Filling::new(std::slice::from_ref(&memory)));
    let gauge = Arc::new(Gauge::default());
    let wrong = Arc::new(Mutex::new(Vec::new()));
    let told = {
        let (filling, gauge) = (Arc::clone(&filling), Arc::clone(&gauge));
        move || {
            let arrived = gauge.look().map_or(0, |reading| reading.arrived);
            [filling.progress().0 as u64 * UNIT, arrived]
        }
    };
    let export = way.expose(&[&bytes]);
    let passed = Arc::new(Mutex::new([0_u64; 2]));
    let holds = {
        let (wrong, told) = (Arc::clone(&wrong), told.clone());
        Holds::new(move |point| {
            let mut passed = passed.lock().unwrap();
            let [judged, arrived] = *passed;
            let right = match point {
                // Every piece before this one was told of, and no other.
                Telling => told() == [arrived * UNIT; 2],
                Judging => told().into_iter().all(|told| told <= judged * UNIT),
                _ => return,
            };
            if !right {
                wrong.lock().unwrap().push((point, *passed, told()));
            }
            passed[usize::from(point == Telling)] += 1;
        })
    };
    let options =
        TransferOptions { filling: Some(filling), gauge, ..hold_both(&way, export, holds) };
    read(&[way.job(export, whole(bytes.len()))], &[memory], &options).unwrap();
    way.came(export);
    assert_eq!(*wrong.lock().unwrap(), []);
    assert_eq!(told(), [4 * UNIT; 2]);
}

/// A gate that stays shut until somebody opens it.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let long = Duration::from_secs(20);
        let open = self.0.0.lock().unwrap();
        let (_open, waited) = self.0.1.wait_timeout_while(open, long, |open| !*open).unwrap();
        assert!(!waited.timed_out(), "nobody opened the gate");
    }
}

/// A relay of which one unit is missing, and rows to read of it: one there and one in a unit that is
/// final, whichever comes first. A piece of final units is read before, so that the reader knows of
/// them when it comes to the rows.
struct Missing {
    /// Which of two sources, each of half the memory, stands still at its first piece.
    held: usize,
    final_units: u64,
    rows: [u64; 2],
}

const UNITS: u64 = 24;
const FIRST_MISSING: Missing = Missing { held: 0, final_units: 2, rows: [0, 20] };
const LAST_MISSING: Missing = Missing { held: 1, final_units: 0, rows: [9, 12] };
const ROW: usize = 1_000;

impl Missing {
    fn copies(&self) -> Vec<StridedCopy> {
        let [first, last] = self.rows.map(|unit| unit * UNIT);
        let piece = PIECE_BYTES as u64;
        let rows = StridedCopy {
            source_pitch: last - first,
            target_pitch: ROW as u64,
            position_pitch: ROW as u64,
            rows: 2,
            ..StridedCopy::contiguous(0, first, 0, piece, ROW as u64)
        };
        vec![StridedCopy::contiguous(0, self.final_units * UNIT, 0, 0, piece), rows]
    }

    fn rows_of<'a>(&self, memory: &'a [u8]) -> [&'a [u8]; 2] {
        self.rows.map(|unit| &memory[(unit * UNIT) as usize..][..ROW])
    }
}

/// Whoever reads rows of a relay in one piece takes nothing before all of them are there.
fn who_reads_from_a_relay_waits_for_every_row<W: Way>() {
    for missing in [FIRST_MISSING, LAST_MISSING] {
        let way = W::new();
        let bytes = noise((UNITS * UNIT) as usize, 2);
        let half = bytes.len() / 2;
        let sources = [way.expose(&[&bytes[..half]]), way.expose(&[&bytes[half..]])];
        let relay = W::memory(bytes.len());
        let filling = Arc::new(Filling::new(std::slice::from_ref(&relay)));
        let export = ExportId::random();
        way.exports().expose_filling(export, 1, vec![relay.clone()], Arc::clone(&filling));

        // One piece of the relay's does not come before the gate is open.
        let gate = Gate::default();
        let shut = |before| {
            let gate = gate.clone();
            at(Taking, before, move || gate.pass())
        };
        let over_tcp = way.peer().way() == weightcast_transport::Way::Tcp;
        way.exports().hold(sources[missing.held], shut(0));
        let fill = TransferOptions {
            threads: 2 - missing.held,
            filling: Some(Arc::clone(&filling)),
            deadline: Some(soon()),
            holds: if over_tcp {
                Holds::default()
            } else {
                shut(missing.held * UNITS as usize / 2)
            },
            ..TransferOptions::default()
        };
        let jobs = [0_u64, 1].map(|s| {
            let copies = vec![StridedCopy::contiguous(0, 0, 0, s * half as u64, half as u64)];
            way.job(sources[s as usize], copies)
        });

        let early = Arc::new(AtomicBool::new(false));
        let holds = {
            let (relay, gate, early) = (relay.clone(), gate.clone(), Arc::clone(&early));
            let (bytes, pieces) = (bytes.clone(), AtomicUsize::new(0));
            let rows = Missing { ..missing };
            Holds::new(move |point| match point {
                Waiting => gate.open(),
                Taking if pieces.fetch_add(1, Ordering::SeqCst) == 1 => {
                    let there = rows.rows_of(&relay.to_vec()) == rows.rows_of(&bytes);
                    early.fetch_or(!there, Ordering::SeqCst);
                    gate.open();
                }
                _ => {}
            })
        };
        thread::scope(|scope| {
            let filled = scope.spawn(|| read(&jobs, std::slice::from_ref(&relay), &fill));
            let before = match (over_tcp, missing.held) {
                // The stream that stands still had asked for two pieces.
                (true, _) => UNITS - 2,
                // One of two threads stands still, or the only one.
                (false, 0) => UNITS - 1,
                (false, _) => UNITS / 2,
            };
            while filling.progress().0 < before as usize && !filled.is_finished() {
                thread::yield_now();
            }
            let options = hold_both(&way, export, holds);
            let to = [Region::allocate(PIECE_BYTES + 2 * ROW).unwrap()];
            let digests = read(&[way.job(export, missing.copies())], &to, &options).unwrap();
            let first = &bytes[(missing.final_units * UNIT) as usize..][..PIECE_BYTES];
            let expected = [&[first], &missing.rows_of(&bytes)[..]].concat().concat();
            assert_eq!(digests, [digest_at(0, &expected)]);
            filled.join().unwrap().unwrap();
        });
        assert!(!early.load(Ordering::SeqCst), "it took a row that was not there");
        assert!(relay.to_vec() == bytes);
    }
}

/// A relay is fenced while a reader waits for what it will never have.
fn a_fence_ends_the_wait_for_a_relay<W: Way>() {
    let way = W::new();
    let memory = vec![W::memory(4 * UNIT as usize)];
    let (filling, export) = (Arc::new(Filling::new(&memory)), ExportId::random());
    way.exports().expose_filling(export, 1, memory, filling);
    let exports = Arc::clone(way.exports());
    let options = hold_both(&way, export, at(Waiting, 0, move || exports.fence(export)));
    let to = [Region::allocate(4 * UNIT as usize).unwrap()];
    let error = read(&[way.job(export, whole(4 * UNIT as usize))], &to, &options).unwrap_err();
    assert_eq!(error.kind, TransportError::Fenced { export });
}

/// Two pieces have their verdict when the source goes; the others come from another one, which
/// holds other bytes to show which.
fn a_retry_after_a_part_reads_the_rest_elsewhere<W: Way>() {
    let way = W::new();
    let bytes = noise(8 * UNIT as usize, 3);
    let others: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
    let (lost, other) = (way.expose(&[&bytes]), way.expose(&[&others]));
    let memory = Region::allocate(bytes.len()).unwrap();
    let filling = Arc::new(Filling::new(std::slice::from_ref(&memory)));
    let exports = Arc::clone(way.exports());
    let holds = at(Judging, 2, move || exports.fence(lost));
    let options = hold_both(&way, lost, holds);
    let options = TransferOptions { filling: Some(Arc::clone(&filling)), ..options };
    let targets = std::slice::from_ref(&memory);
    let error = read(&[way.job(lost, whole(bytes.len()))], targets, &options).unwrap_err();
    assert_eq!(error.kind, TransportError::Fenced { export: lost });
    assert_eq!(filling.progress(), (2, 8));
    assert_eq!(arrived(&options), 2 * UNIT);
    let options = TransferOptions { holds: Holds::default(), gauge: Arc::default(), ..options };
    let digests = read(&[way.job(other, whole(bytes.len()))], targets, &options).unwrap();
    let kept = 2 * UNIT as usize;
    assert!(memory.to_vec() == [&bytes[..kept], &others[kept..]].concat());
    assert_eq!(digests, [digest_at(2 * UNIT, &others[kept..])], "of what was read now");
    let reading = Reading { arrived: 8 * UNIT, left: 0, job: 0 };
    assert_eq!(options.gauge.look(), Some(reading), "what is kept counts, and is not waited for");
}

/// As many ranges as a call takes: rows that lie close together, and the gaps between them.
fn rows_with_gaps_between_them_arrive<W: Way>() {
    let (way, rows) = (W::new(), 4_000);
    let bytes = noise(rows * 40, 4);
    let export = way.expose(&[&bytes]);
    for row_bytes in [1, 16, 39] {
        // Room for a gap behind the last row, where nothing belongs.
        let to = [Region::allocate(rows * row_bytes + 40).unwrap()];
        let copy = StridedCopy {
            source_pitch: 40,
            target_pitch: row_bytes as u64,
            position_pitch: row_bytes as u64,
            rows: rows as u64,
            ..StridedCopy::contiguous(0, 0, 0, 0, row_bytes as u64)
        };
        let digests = way.read(export, vec![copy], &to, 1).unwrap();
        let expected: Vec<u8> =
            bytes.chunks(40).flat_map(|row| row[..row_bytes].iter().copied()).collect();
        let (read, behind) = (to[0].to_vec(), &[0; 40]);
        assert!(read.strip_suffix(behind) == Some(&*expected), "rows of {row_bytes}");
        assert_eq!(digests, [digest_at(0, &expected)]);
    }
}
