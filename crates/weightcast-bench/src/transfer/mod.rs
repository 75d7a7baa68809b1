//! `weightcast bench transfer`: the full stack beside the limits of this machine.
//!
//! Reading order: this file (the command), [`turns`] (limits and stack by turns), [`stack`] (the
//! target, in this process), [`child`] and [`source`] (the publisher's shards, each in a process of
//! its own, ordered about by [`orders`]), [`limits`], [`sockets`] (which of them is TCP's), [`report`] and [`table`].

mod child;
mod limits;
mod orders;
mod publish;
mod report;
mod sockets;
pub(crate) mod source;
mod stack;
mod table;
mod turns;

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use weightcast::plan::Layout;
use weightcast::transport::Way;
use weightcast::transport::bench::SocketShape;
use weightcast::{ServeConfig, Server, serve};

use crate::base::machine::machine;
use crate::weights::cases::{CaseName, TransferCase};
use crate::weights::memory::KnownMemory;
use child::Sources;
use limits::LimitProbe;
use report::{CaseReport, TransferReport, WayTimes};
use turns::CaseTurns;

/// Arguments of `bench transfer`.
#[derive(Args)]
pub(crate) struct TransferOf {
    /// Only these cases; all by default
    #[arg(long, value_name = "NAME")]
    case: Vec<CaseName>,
    /// Turns of every case
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,
    /// Print everything as JSON
    ///
    /// The short of it is `rows` of each of the `transfers`: a row for each way beside each of its limits. `way` is
    /// `direct`, `tcp` or `shared`; `median_s` the median seconds of an update by it; `limit` the name of what moves
    /// the same bytes without weightcast, for instance `best socket pair (2 x 1 MiB)`; `of_limit` the update's speed
    /// as a share of the limit's. `ways` has all times, floors, and why a way is not possible. `socket_pairs` has the
    /// raw sockets that were tried, the fastest first: TCP is set beside these, plain and with a digest at both ends
    #[arg(long)]
    json: bool,
    /// Smaller sizes: to see that it works, not how fast
    #[arg(long)]
    quick: bool,
    /// Sizes of the sweep in MiB
    #[arg(long, value_delimiter = ',', value_name = "MIB",
          value_parser = clap::value_parser!(u64).range(1..=65_536))]
    sizes: Vec<u64>,
}

/// Sizes of the sweep in MiB, if none are given.
const SIZES: [u64; 6] = [1, 4, 16, 64, 256, 1024];
const QUICK_SIZES: [u64; 2] = [1, 16];

pub(crate) fn run(arguments: &TransferOf) -> Result<()> {
    let start = Instant::now();
    let server = serve(ServeConfig::default())?;
    let runs = usize::from(arguments.runs);
    let mut report = TransferReport {
        machine: machine(),
        quick: arguments.quick,
        runs,
        socket_pairs: Vec::new(),
        transfers: Vec::new(),
        publish: Vec::new(),
        verified: true,
        seconds: 0.0,
    };
    let names = arguments.names();
    if names.contains(&CaseName::Publish) {
        eprintln!("publish");
        report.publish = publish::measure(&server, arguments.quick, runs)?;
    }
    let cases: Vec<_> = names.iter().flat_map(|name| arguments.cases(*name)).collect();
    let most = cases.iter().map(received).collect::<Result<Vec<_>>>()?.into_iter().max();
    if let Some(bytes) = most {
        eprintln!("socket pairs");
        report.socket_pairs = sockets::probe(bytes)?;
    }
    for case in &cases {
        let best = report.socket_pairs.first().context("raw sockets were tried")?.shape;
        let transfer = transfer(&server, case, best, runs);
        report.transfers.push(transfer.with_context(|| format!("case {}", case.name))?);
    }
    report.verified = verified(&report.transfers);
    report.seconds = start.elapsed().as_secs_f64();
    match arguments.json {
        true => println!("{}", serde_json::to_string_pretty(&report)?),
        false => print!("{}", table::table(&report)),
    }
    ensure!(report.verified, "bytes arrived that are not those published: this is a bug");
    Ok(())
}

/// Whether all content was right, by every way.
fn verified(transfers: &[CaseReport]) -> bool {
    let stacks = transfers.iter().flat_map(|t| &t.ways).filter_map(|way| way.stack.as_ref());
    stacks.fold(true, |all, stack| all & stack.content_ok)
}

impl TransferOf {
    fn names(&self) -> Vec<CaseName> {
        use clap::ValueEnum;
        match self.case.as_slice() {
            [] => CaseName::value_variants().to_vec(),
            some => some.to_vec(),
        }
    }

    fn cases(&self, name: CaseName) -> Vec<TransferCase> {
        let sizes = match (self.sizes.as_slice(), self.quick) {
            ([], false) => &SIZES[..],
            ([], true) => &QUICK_SIZES,
            (some, _) => some,
        };
        TransferCase::of(name, self.quick, sizes)
    }
}

/// Bytes that the reader's shards receive.
fn received(case: &TransferCase) -> Result<u64> {
    Ok(case.targets()?.iter().map(Layout::bytes).sum())
}

/// Measures one case by all ways.
fn transfer(
    server: &Server,
    case: &TransferCase,
    sockets: SocketShape,
    runs: usize,
) -> Result<CaseReport> {
    eprint!("{}:", case.name);
    let allocate = |layout| Ok(KnownMemory::allocate(layout)?.freezing(case.freezes));
    let targets = case.targets()?.into_iter().map(allocate).collect::<Result<Vec<_>>>()?;
    let bytes = targets.iter().map(KnownMemory::bytes).sum();
    let model = format!("bench.{}", case.name);
    let mut sources = Sources::start(server.address(), &model, case, Some(bytes), false)?;
    let bare = sources.bare.clone().context("the first source serves bare bytes")?;
    let mut limits = LimitProbe::prepare(&bare, &targets)?;
    let mut ways = Vec::new();
    let turns = CaseTurns {
        server: server.address(),
        model: &model,
        case,
        limits: &limits,
        sockets,
        targets: &targets,
        runs,
    };
    for way in [Way::Direct, Way::Tcp] {
        eprint!(" {way:?}");
        ways.push(turns.measure(way, &mut sources)?);
    }
    // Sources of the same bytes in shared memory, and limits over such memory.
    drop(sources);
    limits.share()?;
    let model = format!("{model}.shared");
    let mut sources = Sources::start(server.address(), &model, case, None, true)?;
    let turns = CaseTurns {
        server: server.address(),
        model: &model,
        case,
        limits: &limits,
        sockets,
        targets: &targets,
        runs,
    };
    eprint!(" {:?}", Way::Shared);
    ways.push(turns.measure(Way::Shared, &mut sources)?);
    eprintln!();
    Ok(CaseReport {
        case: case.name.clone(),
        tensors: case.tensor_count(),
        bytes,
        source_shards: case.sources()?.len(),
        target_shards: targets.len(),
        rows: ways.iter().flat_map(WayTimes::rows).collect(),
        ways,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    use super::report::StackTimes;

    fn way(content_ok: bool) -> WayTimes {
        let stack = StackTimes {
            median_s: 1.0,
            gb_per_s: 1.0,
            all_s: vec![1.0],
            read_median_s: 1.0,
            first_s: 1.0,
            seal_median_s: 1.0,
            cpu_s: 1.0,
            extra_bytes: None,
            verified_bytes: 1,
            content_ok,
        };
        let (limits, floors) = (Vec::new(), Vec::new());
        WayTimes { way: "tcp", unavailable: None, stack: Some(stack), limits, floors }
    }

    #[test]
    fn one_wrong_content_anywhere_is_found() {
        for wrong in 0..5 {
            let transfer = |first: usize| CaseReport {
                case: "tiny".to_owned(),
                tensors: 1,
                bytes: 1,
                source_shards: 1,
                target_shards: 1,
                rows: Vec::new(),
                ways: [first, first + 1].map(|place| way(place != wrong)).into(),
            };
            assert_eq!(verified(&[transfer(0), transfer(2)]), wrong == 4, "{wrong}");
        }
    }
}
