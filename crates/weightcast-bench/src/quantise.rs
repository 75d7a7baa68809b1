//! `weightcast bench quantise`: FP8 quantisation beside memcpy of the same bytes in the same run.

use std::hint::black_box;
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use weightcast::Transformed;
use weightcast::fp8::{MatrixPart, amaxes, codes};
use weightcast::plan::quantise::{Blocks, Formula};
use weightcast::plan::transform::{Fp8, Rule, Rules, Transform};
use weightcast::plan::{self, DType, LayoutBuilder};
use weightcast::transport::Region;
use weightcast::transport::quantise::Elements;

/// Quantise a BF16 matrix to FP8, beside memcpy of it in the same run
#[derive(Args)]
pub(crate) struct QuantiseOf {
    /// Bytes of the matrix
    #[arg(long, default_value_t = 256 << 20)]
    bytes: u64,
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Runs of each; the median counts
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct QuantiseRow {
    what: String,
    seconds: f64,
    /// BF16 bytes per second.
    gb_per_s: f64,
    /// Seconds of memcpy divided by `seconds`.
    of_memcpy: f64,
}

/// Columns of the matrix, and elements along each side of a block.
const COLUMNS: u64 = 7168;
const BLOCK: u64 = 128;
/// Bytes that a data port makes at a time.
const PIECE: usize = 1 << 20;

pub(crate) fn run(asked: &QuantiseOf) -> anyhow::Result<()> {
    let rows = (asked.bytes / 2 / COLUMNS).max(1);
    let data = random(rows * COLUMNS);
    let blocks = Blocks { shape: (rows, COLUMNS), block: (BLOCK, BLOCK) };
    let part =
        MatrixPart { elements: Elements::BF16, data: &data, first: (0, 0), size: (rows, COLUMNS) };
    let mut copy = vec![0u8; data.len()];
    let mut out = vec![0u8; data.len() / 2];
    let memcpy = median(asked.runs, || in_bands(&data, &mut copy, asked.threads));
    let mut report = vec![row("memcpy", memcpy, memcpy, data.len())];
    for formula in Formula::all() {
        let seen = amaxes(blocks, formula, &part, asked.threads)?;
        let first = median(asked.runs, || {
            black_box(amaxes(blocks, formula, &part, asked.threads)).expect("a matrix");
        });
        let second = median(asked.runs, || {
            codes(blocks, formula, &seen, &part, &mut out, asked.threads).expect("a matrix");
        });
        report.push(row(&format!("{formula}: amax"), first, memcpy, data.len()));
        report.push(row(&format!("{formula}: codes"), second, memcpy, data.len()));
        report.push(row(&format!("{formula}: both"), first + second, memcpy, data.len()));
    }
    let (scales, made) = on_the_way(asked, rows, &data)?;
    report.push(row("published: scales", scales, memcpy, data.len()));
    report.push(row("published: codes as they are read", made, memcpy, data.len()));
    if asked.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
        return Ok(());
    }
    println!("{} MB of BF16, {} threads", data.len() / 1_000_000, asked.threads);
    for QuantiseRow { what, seconds, gb_per_s, of_memcpy } in report {
        println!("  {what:<32}{:>9.1} ms{gb_per_s:>8.2} GB/s{of_memcpy:>7.2}", seconds * 1e3);
    }
    Ok(())
}

/// Seconds that `publish` takes to look at the weights, and seconds to read all codes, piece by
/// piece, from the region that serves readers.
fn on_the_way(asked: &QuantiseOf, rows: u64, data: &[u8]) -> anyhow::Result<(f64, f64)> {
    let shape = [rows, COLUMNS];
    let mut builder = LayoutBuilder::new();
    builder.add("w", DType::BF16, &shape, vec![plan::Part::new("w").shape(shape)], 0);
    let fp8 = Transform::Fp8(Fp8::new(Formula::DeepGemm));
    let rules = Rules(vec![Rule { names: "w".to_owned(), transform: Some(fp8) }]);
    let made = Transformed::new(&builder.build()?, &[Region::from_bytes(data)?], rules)?;
    let scales = median(asked.runs, || made.refresh(asked.threads, None).expect("one shard"));
    let codes = made.regions().iter().find(|region| region.is_computed()).expect("codes");
    let size = codes.len().div_ceil(asked.threads.max(1)).next_multiple_of(PIECE);
    let read = median(asked.runs, || {
        std::thread::scope(|scope| {
            for start in (0..codes.len()).step_by(size) {
                scope.spawn(move || {
                    let mut piece = vec![0; PIECE];
                    let end = (start + size).min(codes.len());
                    for at in (start..end).step_by(PIECE) {
                        let piece = &mut piece[..PIECE.min(end - at)];
                        codes.read_at(at, piece).expect("in range");
                        black_box(&piece);
                    }
                });
            }
        });
    });
    Ok((scales, read))
}

fn row(what: &str, seconds: f64, memcpy: f64, bytes: usize) -> QuantiseRow {
    let gb_per_s = bytes as f64 / seconds / 1e9;
    QuantiseRow { what: what.to_owned(), seconds, gb_per_s, of_memcpy: memcpy / seconds }
}

/// Weights as models have them: small, of both signs.
fn random(elements: u64) -> Vec<u8> {
    let mut state = 7u64;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let unit = ((state >> 40) as f32 / (1u64 << 24) as f32 - 0.5) * 0.1;
        ((unit.to_bits() >> 16) as u16).to_le_bytes()
    };
    (0..elements).flat_map(|_| next()).collect()
}

fn in_bands(from: &[u8], to: &mut [u8], threads: usize) {
    let size = from.len().div_ceil(threads.max(1)).max(1);
    std::thread::scope(|scope| {
        for (from, to) in from.chunks(size).zip(to.chunks_mut(size)) {
            scope.spawn(|| to.copy_from_slice(from));
        }
    });
}

fn median(runs: usize, mut work: impl FnMut()) -> f64 {
    work();
    let mut seconds: Vec<f64> = (0..runs.max(1))
        .map(|_| {
            let started = Instant::now();
            work();
            started.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_set_beside_memcpy() {
        let row = row("x", 2.0, 0.5, 4_000_000_000);
        assert_eq!((row.seconds, row.gb_per_s, row.of_memcpy), (2.0, 2.0, 0.25));
    }

    /// Each measurement is made once more than it counts: the first time warms up.
    #[test]
    fn work_is_done_once_more_than_it_is_measured() {
        for (runs, calls) in [(0, 2), (1, 2), (3, 4)] {
            let mut made = 0;
            median(runs, || made += 1);
            assert_eq!(made, calls, "{runs}");
        }
    }
}
