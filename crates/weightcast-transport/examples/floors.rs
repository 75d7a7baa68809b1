//! Transfers beside the limits of this machine, in one run: `cargo run --release --example
//! floors [MiB]`. Starts itself a second time as the source.

use std::env;
use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weightcast_transport::*;

const SOURCE: &str = "WEIGHTCAST_FLOORS_SOURCE";
const RUNS: usize = 5;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let len = env::args().nth(1).map_or(Ok(1024), |mib| mib.parse::<usize>())? << 20;
    if env::var_os(SOURCE).is_some() {
        return serve(len);
    }
    let (mut child, peers, export) = start_source(len)?;
    let measured = measure(len, &peers, export);
    child.kill()?;
    child.wait()?;
    measured
}

/// The source process: one region, until its standard input ends.
fn serve(len: usize) -> Outcome<()> {
    let server = DataServer::bind("127.0.0.1:0".parse()?, Auth::default())?;
    let region = Region::allocate(len)?;
    fill(&region);
    let export = server.exports().expose(1, vec![region]);
    println!("{} {}", server.addr(), export.0);
    std::io::stdin().read_exact(&mut [0]).map_err(Into::into)
}

fn fill(region: &Region) {
    let block: Vec<u8> = (0..1_usize << 20).map(|i| (i * 31 + i / 251) as u8).collect();
    for at in (0..region.len()).step_by(block.len()) {
        region.write_at(at, &block[..block.len().min(region.len() - at)]).expect("in range");
    }
}

fn start_source(len: usize) -> Outcome<(Child, [Peer; 2], ExportId)> {
    let mut child = Command::new(env::current_exe()?)
        .arg((len >> 20).to_string())
        .env(SOURCE, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let (addr, export) = line.trim().split_once(' ').ok_or("the source did not start")?;
    let deadline = Instant::now() + Duration::from_secs(5);
    let connect = |way| Peer::connect_by(way, addr.parse().unwrap(), &Auth::default(), deadline);
    Ok((child, [connect(Way::Direct)?, connect(Way::Tcp)?], ExportId(export.parse()?)))
}

fn measure(len: usize, [direct, tcp]: &[Peer; 2], export: ExportId) -> Outcome<()> {
    let [source, target] = [Region::allocate(len)?, Region::allocate(len)?];
    fill(&source);
    target.prefault();
    let targets = std::slice::from_ref(&target);
    let whole = vec![StridedCopy::contiguous(0, 0, 0, 0, len as u64)];
    for threads in [1, 2] {
        let copy = median(|| Ok(bench::memcpy(&source, &target, threads)))?;
        print(&format!("memcpy, {threads} threads"), len, copy);
    }
    print("digest from memory", len, median(|| Ok(bench::digest(&source).0))?);
    for threads in [1, 2] {
        let bare = || {
            Ok(bench::process_vm_readv(direct, export, 1, &target, threads, Default::default())?)
        };
        let name = format!("process_vm_readv, {threads} threads");
        let ours = |copies: &[StridedCopy]| run(direct, export, copies, targets, threads);
        beside(&name, len, "direct, contiguous", &whole, bare, ours)?;
        for row_bytes in [8192, 4096, 2048, 512] {
            let ours = |copies: &[StridedCopy]| run(direct, export, copies, targets, threads);
            let what = format!("direct, columns of {row_bytes}");
            beside(&name, len, &what, &columns(len, row_bytes), bare, ours)?;
        }
        if len >= 1 << 30 {
            let ours = |copies: &[StridedCopy]| run(direct, export, copies, targets, threads);
            beside(
                &name,
                len,
                "direct, Qwen2.5-0.5B to TP 2",
                &tensor_parallel_half(),
                bare,
                ours,
            )?;
        }
    }
    for streams in [1, 2] {
        let raw = || Ok(bench::tcp(&source, &target, pair(streams))?);
        let ours = |copies: &[StridedCopy]| run(tcp, export, copies, targets, streams);
        beside(&format!("socket pair, {streams} streams"), len, "tcp", &whole, raw, ours)?;
    }
    let (server, peer, grant) = granting(&target)?;
    for streams in [1, 2] {
        let raw = || Ok(bench::tcp(&source, &target, pair(streams))?);
        let ours = |copies: &[StridedCopy]| push(&peer, &grant, copies, &source, streams);
        beside(&format!("socket pair, {streams} streams"), len, "write", &whole, raw, ours)?;
    }
    drop(server);
    for peer in [direct, tcp] {
        let tiny = tiny(len);
        let took = median(|| run(peer, export, &tiny, targets, 2))?;
        println!("5,000 of 4 KiB, {:?}: {:.1} ms", peer.way(), took * 1e3);
    }
    Ok(())
}

/// Raw sockets that write a mebibyte at once.
fn pair(streams: usize) -> bench::SocketShape {
    bench::SocketShape { streams, piece: 1 << 20 }
}

fn print(name: &str, bytes: usize, seconds: f64) {
    println!("{name:34} {:6.2} GB/s", bytes as f64 / seconds / 1e9);
}

/// Measures a limit and a transfer in turns, so that both see the same weather, and prints both.
fn beside(
    limit: &str,
    len: usize,
    what: &str,
    copies: &[StridedCopy],
    mut bare: impl FnMut() -> Outcome<f64>,
    ours: impl Fn(&[StridedCopy]) -> Outcome<f64>,
) -> Outcome<()> {
    let (mut limits, mut times) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        limits.push(bare()?);
        times.push(ours(copies)?);
    }
    let (limit_s, took) = (middle(limits), middle(times));
    let moved: u64 = copies.iter().map(StridedCopy::bytes).sum();
    let ratio = limit_s * moved as f64 / len as f64 / took;
    print(limit, len, limit_s);
    println!("  {what:32} {:6.2} GB/s  {ratio:.2} of it", moved as f64 / took / 1e9);
    Ok(())
}

/// The middle half of the columns of a matrix, into a dense target.
fn columns(len: usize, row_bytes: u64) -> Vec<StridedCopy> {
    let pitch = 2 * row_bytes;
    let copy = StridedCopy {
        source_offset: row_bytes / 2,
        source_pitch: pitch,
        rows: len as u64 / pitch,
        position: row_bytes / 2,
        position_pitch: pitch,
        ..StridedCopy::contiguous(0, 0, 0, 0, row_bytes)
    };
    vec![copy]
}

/// Rank 0 of 2 of a tensor-parallel Qwen2.5-0.5B, bf16, out of whole tensors: column-parallel
/// tensors lose rows, row-parallel ones columns, norms nothing.
fn tensor_parallel_half() -> Vec<StridedCopy> {
    const LAYERS: u64 = 24;
    let (hidden, inner, kv) = (896, 4_864, 128);
    let rows_of = |rows: u64, columns: u64| (rows * columns * 2, rows * columns, 1);
    let columns_of = |rows: u64, columns: u64| (rows * columns * 2, columns, rows);
    let mut tensors = vec![rows_of(151_936, hidden)];
    for _ in 0..LAYERS {
        tensors.extend([rows_of(hidden, hidden), rows_of(kv, hidden), rows_of(kv, hidden)]);
        tensors.extend([columns_of(hidden, hidden), columns_of(hidden, inner)]);
        tensors.extend([rows_of(inner, hidden), rows_of(inner, hidden)]);
    }
    let (mut copies, mut source, mut target) = (Vec::new(), 0, 0);
    for (bytes, row_bytes, rows) in tensors {
        let pitch = 2 * row_bytes;
        let copy = StridedCopy::contiguous(0, source, 0, target, row_bytes);
        copies.push(StridedCopy {
            source_pitch: pitch,
            rows,
            position: 0,
            position_pitch: pitch,
            ..copy
        });
        (source, target) = (source + bytes, target + bytes / 2);
    }
    copies
}

/// Scattered at both ends, so that no two copies merge.
fn tiny(len: usize) -> Vec<StridedCopy> {
    let slots = (len as u64 - 4096) / 8192;
    let copy = |i: u64| StridedCopy::contiguous(0, i * 7 % slots * 8192, 0, i % slots * 8192, 4096);
    (0..5_000).map(copy).collect()
}

fn run(
    peer: &Peer,
    export: ExportId,
    copies: &[StridedCopy],
    targets: &[Region],
    threads: usize,
) -> Outcome<f64> {
    let jobs = [SourceJob { peer, export, generation: 1, copies: copies.to_vec() }];
    let options = TransferOptions { threads, ..TransferOptions::default() };
    let start = Instant::now();
    read(&jobs, targets, &options)?;
    Ok(start.elapsed().as_secs_f64())
}

/// A data port of this process that takes writes into the target.
fn granting(target: &Region) -> Outcome<(DataServer, Peer, WriteGrant)> {
    let server = DataServer::bind("127.0.0.1:0".parse()?, Auth::default())?;
    let (regions, valid_for) = (vec![target.clone()], Duration::from_secs(3_600));
    let terms = GrantTerms { generation: 1, regions, writer: None, valid_for };
    let grant = server.exports().open_grant(terms)?;
    let deadline = Instant::now() + Duration::from_secs(5);
    let peer = Peer::connect_by(Way::Tcp, server.addr(), &Auth::default(), deadline)?;
    Ok((server, peer, grant))
}

/// Writes from this process into its own memory: both ends are threads of it, as those of the socket pair.
fn push(
    peer: &Peer,
    grant: &WriteGrant,
    copies: &[StridedCopy],
    source: &Region,
    threads: usize,
) -> Outcome<f64> {
    let jobs = [TargetJob { peer, grant, copies: copies.to_vec() }];
    let options = TransferOptions { threads, ..TransferOptions::default() };
    let start = Instant::now();
    write(&jobs, std::slice::from_ref(source), &options)?;
    Ok(start.elapsed().as_secs_f64())
}

fn median(measure: impl FnMut() -> Outcome<f64>) -> Outcome<f64> {
    let times = std::iter::repeat_with(measure).take(RUNS);
    Ok(middle(times.collect::<Outcome<_>>()?))
}

fn middle(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
