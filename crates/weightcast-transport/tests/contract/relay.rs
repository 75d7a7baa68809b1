//! Memory that is filled and served at once: relays, their chains, and what survives a lost source.

use crate::ways::{Way, arrived, noise, soon};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use weightcast_transport::limits::MIN_UNIT_BYTES;
use weightcast_transport::*;

for_every_way!(
    a_chain_of_relays_ends_with_the_bytes_of_its_source,
    strided_copies_of_two_sources_are_relayed,
    nothing_is_served_that_has_not_arrived,
    a_fence_wakes_who_waits,
    a_waiting_reader_can_be_cancelled,
    final_units_are_kept_when_a_source_is_lost,
);

const UNIT: u64 = MIN_UNIT_BYTES;

/// Memory of a relay, exposed at generation 1 before any byte of it has come.
struct Relay {
    memory: Region,
    filling: Arc<Filling>,
    export: ExportId,
}

fn relay<W: Way>(way: &W, bytes: u64) -> Relay {
    let memory = W::memory(bytes as usize);
    let filling = Arc::new(Filling::new(std::slice::from_ref(&memory)));
    let export = ExportId::random();
    way.exports().expose_filling(export, 1, vec![memory.clone()], Arc::clone(&filling));
    Relay { memory, filling, export }
}

impl Relay {
    fn options(&self) -> TransferOptions {
        let filling = Some(Arc::clone(&self.filling));
        TransferOptions { filling, deadline: Some(soon()), ..TransferOptions::default() }
    }

    fn fill<W: Way>(&self, way: &W, from: ExportId) -> Result<Vec<Digest>, ReadError> {
        let bytes = self.memory.len() as u64;
        let jobs = [way.job(from, vec![StridedCopy::contiguous(0, 0, 0, 0, bytes)])];
        read(&jobs, std::slice::from_ref(&self.memory), &self.options())
    }
}

fn a_chain_of_relays_ends_with_the_bytes_of_its_source<W: Way>() {
    let way = W::new();
    let bytes = noise(9 * UNIT as usize + 4321, 1);
    let source = relay(&way, bytes.len() as u64);
    let relays: Vec<Relay> = (0..4).map(|_| relay(&way, bytes.len() as u64)).collect();
    thread::scope(|scope| {
        // The last of the chain asks first.
        let mut reads = Vec::new();
        for (index, relay) in relays.iter().enumerate().rev() {
            let from = if index == 0 { source.export } else { relays[index - 1].export };
            let way = &way;
            reads.push(scope.spawn(move || relay.fill(way, from)));
        }
        let origin = way.expose(&[&bytes]);
        source.fill(&way, origin).unwrap();
        for read in reads {
            assert_eq!(read.join().unwrap().unwrap(), [digest_at(0, &bytes)]);
        }
    });
    relays[..3].iter().for_each(|relay| way.came(relay.export));
    for relay in &relays {
        assert!(relay.memory.to_vec() == bytes);
        assert_eq!(relay.filling.progress(), (10, 10));
    }
}

fn strided_copies_of_two_sources_are_relayed<W: Way>() {
    let way = W::new();
    // A matrix of 1,000 rows of 3,000 bytes, its columns at two sources.
    let whole = noise(1_000 * 3_000, 2);
    let columns = |from: usize, to: usize| -> Vec<u8> {
        whole.chunks(3_000).flat_map(|row| row[from..to].iter().copied()).collect()
    };
    let sources = [way.expose(&[&columns(0, 1_100)]), way.expose(&[&columns(1_100, 3_000)])];
    let copies = [(0, 1_100), (1_100, 1_900)].map(|(first, width)| StridedCopy {
        source_pitch: width,
        target_offset: first,
        target_pitch: 3_000,
        position: first,
        position_pitch: 3_000,
        rows: 1_000,
        ..StridedCopy::contiguous(0, 0, 0, first, width)
    });
    let (first, second) = (relay(&way, 3_000_000), relay(&way, 3_000_000));
    thread::scope(|scope| {
        let follower = scope.spawn(|| second.fill(&way, first.export));
        let jobs = [0, 1].map(|s| way.job(sources[s], vec![copies[s]]));
        let targets = std::slice::from_ref(&first.memory);
        let digests = read(&jobs, targets, &first.options()).unwrap();
        assert_eq!(digests, [digest_at(0, &whole)]);
        assert_eq!(follower.join().unwrap().unwrap(), digests);
    });
    assert!(first.memory.to_vec() == whole && second.memory.to_vec() == whole);
}

fn nothing_is_served_that_has_not_arrived<W: Way>() {
    let way = W::new();
    let bytes = noise(4 * UNIT as usize, 3);
    let origin = way.expose(&[&bytes]);
    let first = relay(&way, 4 * UNIT);
    // Its transfer brings the third unit only and then ends, as one that lost its source.
    let part = [way.job(origin, vec![StridedCopy::contiguous(0, 2 * UNIT, 0, 2 * UNIT, UNIT)])];
    // The other units are planned, by a transfer that fails before it has read them.
    let all = way.job(ExportId(1), vec![StridedCopy::contiguous(0, 0, 0, 0, 4 * UNIT)]);
    let targets = std::slice::from_ref(&first.memory);
    read(&[all], targets, &first.options()).unwrap_err();
    assert_eq!(first.filling.progress(), (0, 4));
    let cancel = Arc::new(AtomicBool::new(false));
    let second = relay(&way, 4 * UNIT);
    thread::scope(|scope| {
        let options = TransferOptions { cancel: Arc::clone(&cancel), ..second.options() };
        let jobs = [way.job(first.export, vec![StridedCopy::contiguous(0, 0, 0, 0, UNIT)])];
        let targets = std::slice::from_ref(&second.memory);
        let follower = scope.spawn(move || read(&jobs, targets, &options).unwrap_err());
        // A transfer of one unit makes that one final, and those it does not touch.
        let planned = TransferOptions { filling: None, ..first.options() };
        read(&part, std::slice::from_ref(&first.memory), &planned).unwrap();
        assert_eq!(first.filling.progress(), (0, 4), "a read that does not fill is no progress");
        cancel.store(true, Ordering::Release);
        assert_eq!(follower.join().unwrap().kind, TransportError::Cancelled);
    });
    assert!(second.memory.to_vec().iter().all(|byte| *byte == 0));
}

fn a_fence_wakes_who_waits<W: Way>() {
    let way = W::new();
    let (first, second) = (relay(&way, 4 * UNIT), relay(&way, 4 * UNIT));
    thread::scope(|scope| {
        let follower = scope.spawn(|| second.fill(&way, first.export).unwrap_err());
        way.exports().withdraw(first.export, Duration::from_secs(5));
        let error = follower.join().unwrap();
        assert_eq!(error.advice(), Advice::RetryElsewhere, "{error}");
    });
}

fn a_waiting_reader_can_be_cancelled<W: Way>() {
    let way = W::new();
    let (first, second) = (relay(&way, 4 * UNIT), relay(&way, 4 * UNIT));
    let options = second.options();
    let cancel = Arc::clone(&options.cancel);
    thread::scope(|scope| {
        let jobs = [way.job(first.export, vec![StridedCopy::contiguous(0, 0, 0, 0, 4 * UNIT)])];
        let targets = std::slice::from_ref(&second.memory);
        let follower = scope.spawn(move || read(&jobs, targets, &options).unwrap_err());
        cancel.store(true, Ordering::Release);
        assert_eq!(follower.join().unwrap().kind, TransportError::Cancelled);
    });
    // The data port does not wait for ever for a reader that is gone.
    assert!(way.exports().withdraw(first.export, Duration::from_secs(5)));
}

fn final_units_are_kept_when_a_source_is_lost<W: Way>() {
    let way = W::new();
    let bytes = noise(8 * UNIT as usize, 4);
    // Other bytes show what is read from there.
    let others: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
    let (lost, other) = (way.expose(&[&bytes]), way.expose(&[&others]));
    let relay = relay(&way, 8 * UNIT);
    let targets = std::slice::from_ref(&relay.memory);
    let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, 8 * UNIT)];
    // Cancelled part-way: the more units are final by then, the fewer are read again.
    let options = relay.options();
    let (cancel, begun) = (Arc::clone(&options.cancel), options.clone());
    thread::scope(|scope| {
        let jobs = [way.job(lost, copies.clone())];
        let read = scope.spawn(move || read(&jobs, targets, &options));
        while arrived(&begun) < UNIT && !read.is_finished() {
            thread::yield_now();
        }
        cancel.store(true, Ordering::Release);
        let _cancelled_or_done = read.join().unwrap();
    });
    let kept = relay.filling.progress().0;
    way.exports().fence(lost);
    let options = relay.options();
    read(&[way.job(other, copies)], targets, &options).unwrap();
    // It begins with what is kept.
    assert_eq!(arrived(&options), 8 * UNIT);
    let (unit, memory) = (UNIT as usize, relay.memory.to_vec());
    let from = |source: &[u8]| {
        memory.chunks(unit).zip(source.chunks(unit)).filter(|(a, b)| a == b).count()
    };
    assert_eq!((from(&bytes), from(&others)), (kept, 8 - kept));
}
