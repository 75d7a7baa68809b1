//! Asks the sources of a read for the digests of their entries.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weightcast_plan::{EntryDigests, PlanComparison};
use weightcast_transport::Digest;

use super::super::bound_source::BoundSource;
use super::super::read::Read;
use crate::client::threads;
use crate::manifest;

/// Asks each source of which nothing is known, and waits so long altogether for digests that are not there yet;
/// for sources that do not answer, until `deadline`. What a source does not say stays unknown: if it is gone, the
/// read itself finds out.
pub(super) fn ask(
    known: &mut [EntryDigests<Digest>],
    comparison: &PlanComparison,
    sources: &[BoundSource],
    read: &Read<'_>,
    wait: Duration,
    deadline: Instant,
) {
    let until = Instant::now() + wait;
    let silent: Vec<_> = sources.iter().filter(|source| known[source.shard].is_empty()).collect();
    let (next, told) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(source) = silent.get(next.fetch_add(1, Ordering::Relaxed)) {
            let digests = ask_one(source, comparison, read, until, deadline);
            told.lock().expect("no panic while held").push((source.shard, digests));
        }
    };
    thread::scope(|scope| {
        (1..threads::copying().min(silent.len())).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    for (shard, digests) in told.into_inner().expect("no panic while held") {
        known[shard] = digests;
    }
}

/// The digests of one source's entries, as far as the comparison has use for them.
fn ask_one(
    source: &BoundSource,
    comparison: &PlanComparison,
    read: &Read<'_>,
    until: Instant,
    deadline: Instant,
) -> EntryDigests<Digest> {
    let (export, generation) = (source.export, source.generation);
    let wait = until.saturating_duration_since(Instant::now());
    let noted = source.peer.early_note(export, generation, wait, deadline, &read.cancel);
    let note = match noted {
        Ok(note) => note.unwrap_or_default(),
        Err(error) => {
            tracing::debug!(%error, shard = source.shard, "a source tells no digests");
            return EntryDigests::new();
        }
    };
    let entries = read.sources[source.shard].entries().len();
    let digests = manifest::decode_early(&note, entries).unwrap_or_default();
    comparison.of_use(source.shard, |entry| digests.get(entry as usize).copied().flatten())
}
