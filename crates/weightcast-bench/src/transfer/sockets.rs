//! Which shape of raw sockets is the fastest here: the limit of TCP has no excuse of its own.

use anyhow::{Context, Result};
use weightcast::transport::bench::{self, SocketShape};

use super::report::{SocketTimes, gb_per_s};
use crate::base::measure::median;
use crate::weights::memory::warm;

/// Most bytes that a shape is tried with.
const MOST: u64 = 256_000_000;
/// Tries of each shape. They are taken by turns, so that a drift of the machine strikes all shapes.
const TRIES: usize = 3;
const STREAMS: [usize; 3] = [1, 2, 4];
const PIECES: [usize; 3] = [256 << 10, 1 << 20, 4 << 20];

/// The times of all shapes over as many bytes as the largest of the cases has, if they are not too many; the fastest
/// first.
pub(crate) fn probe(bytes: u64) -> Result<Vec<SocketTimes>> {
    let bytes = bytes.min(MOST);
    let (source, target) = (warm(bytes)?, warm(bytes)?);
    let mut tried: Vec<_> = shapes().map(|shape| (shape, Vec::new())).collect();
    for _ in 0..TRIES {
        for (shape, seconds) in &mut tried {
            let took = bench::tcp(&source, &target, *shape);
            seconds.push(took.with_context(|| format!("raw sockets, {}", name(*shape)))?);
        }
    }
    Ok(fastest_first(tried, bytes))
}

fn shapes() -> impl Iterator<Item = SocketShape> {
    STREAMS.into_iter().flat_map(|streams| PIECES.map(|piece| SocketShape { streams, piece }))
}

fn fastest_first(tried: Vec<(SocketShape, Vec<f64>)>, bytes: u64) -> Vec<SocketTimes> {
    let times = tried.into_iter().map(|(shape, all_s)| {
        let median_s = median(&all_s);
        let gb_per_s = gb_per_s(bytes, median_s);
        SocketTimes { shape, bytes, median_s, gb_per_s, all_s }
    });
    let mut times: Vec<_> = times.collect();
    times.sort_by(|one, other| one.median_s.total_cmp(&other.median_s));
    times
}

/// Streams and bytes of a write, as reports name them.
pub(crate) fn name(SocketShape { streams, piece }: SocketShape) -> String {
    match piece >> 20 {
        0 => format!("{streams} x {} KiB", piece >> 10),
        mib => format!("{streams} x {mib} MiB"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn nine_shapes_are_tried_and_each_has_its_name() {
        let names: Vec<_> = shapes().map(name).collect();
        let each =
            |streams| ["256 KiB", "1 MiB", "4 MiB"].map(|piece| format!("{streams} x {piece}"));
        assert_eq!(names, [1, 2, 4].map(each).concat());
        let found = probe(100_000).unwrap();
        let found: BTreeSet<_> = found.iter().map(|times| name(times.shape)).collect();
        assert_eq!(found, names.into_iter().collect());
    }

    /// By the median: one lucky try is not the best shape.
    #[test]
    fn the_best_shape_is_the_one_with_the_least_median() {
        let shape = |streams| SocketShape { streams, piece: 1 << 20 };
        let tried = vec![
            (shape(1), vec![0.1, 9.0, 9.0]),
            (shape(2), vec![2.0, 1.0, 8.0]),
            (shape(4), vec![3.0, 3.0, 3.0]),
        ];
        let found = fastest_first(tried, 4_000_000_000);
        let found: Vec<_> =
            found.iter().map(|t| (t.shape.streams, t.median_s, t.gb_per_s)).collect();
        assert_eq!(found[..2], [(2, 2.0, 2.0), (4, 3.0, 4.0 / 3.0)]);
        assert_eq!(found[2].0, 1);
    }
}
