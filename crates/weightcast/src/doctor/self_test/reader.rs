//! The second process: reads what it is told to, by each way.

use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

use weightcast_transport::{
    Auth, Digest, ExportId, Peer, Region, SourceJob, StridedCopy, TransferOptions, Way, read,
};

use super::order::{GENERATION, SelfTestOrder, WAYS, WayReport};
use crate::client::COPY_THREADS;
use crate::error::Error;

/// How long one way is tried, beyond the first read.
const TRIAL: Duration = Duration::from_millis(300);
/// How long one step may take.
const STEP: Duration = Duration::from_secs(5);
/// An order is shorter.
const ORDER_BYTES: u64 = 4 << 10;

/// What `weightcast doctor` starts a second process for: reads memory of the first one by each way, as the one line of
/// `orders` says, and reports on it.
///
/// # Errors
/// The order is none, or there is nobody to report to.
pub fn self_test_reader(orders: impl BufRead, mut reports: impl Write) -> Result<(), Error> {
    let mut line = String::new();
    let read = orders.take(ORDER_BYTES).read_line(&mut line);
    read.map_err(|error| Error::io("read the order of the self-test", error))?;
    let order = SelfTestOrder::parse(&line)
        .ok_or_else(|| Error::misuse("only `weightcast doctor` starts this, with an order"))?;
    for way in WAYS {
        let export = if way == Way::Shared { order.shared } else { Some(order.export) };
        // Why there is no shared memory, the first process knows.
        let Some(export) = export.map(ExportId) else { continue };
        let report = match trial(&order, export, way) {
            Ok((seconds, digest)) => WayReport::Read { seconds, digest },
            Err(why) => WayReport::Failed(why),
        };
        let said = writeln!(reports, "{}", report.line(way)).and_then(|()| reports.flush());
        said.map_err(|error| Error::io("report on the self-test", error))?;
    }
    Ok(())
}

/// The seconds of one read, the median of a few, and the digest of what arrived.
fn trial(order: &SelfTestOrder, export: ExportId, way: Way) -> Result<(f64, Digest), String> {
    let auth = Auth::with_token(order.token.clone());
    let peer = Peer::connect_by(way, order.address, &auth, Instant::now() + STEP);
    let peer = peer.map_err(|error| error.to_string())?;
    let bytes = usize::try_from(order.bytes).map_err(|error| error.to_string())?;
    let target = Region::allocate(bytes).map_err(|error| error.to_string())?;
    target.prefault();
    let (begun, mut took, mut digest) = (Instant::now(), Vec::new(), Digest::ZERO);
    while took.is_empty() || begun.elapsed() < TRIAL {
        let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, order.bytes)];
        let peer = &peer;
        let job = SourceJob { peer, export, generation: GENERATION, copies };
        let options = TransferOptions {
            threads: COPY_THREADS,
            deadline: Some(Instant::now() + STEP),
            ..TransferOptions::default()
        };
        let start = Instant::now();
        let digests = read(&[job], std::slice::from_ref(&target), &options);
        digest = digests.map_err(|error| error.kind.to_string())?.into_iter().sum();
        took.push(start.elapsed().as_secs_f64());
    }
    took.sort_by(f64::total_cmp);
    Ok((took[took.len() / 2], digest))
}
