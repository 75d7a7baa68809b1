//! How long `publish` takes for few bytes and for many: the size should not matter.

use anyhow::Result;
use weightcast::Server;

use super::child::Sources;
use super::report::PublishTime;
use crate::base::measure::median;
use crate::weights::cases::TransferCase;

/// The same number of tensors for all sizes, so that only bytes differ.
const TENSORS: u64 = 32;
const SIZES: [u64; 2] = [1 << 20, 4 << 30];
const QUICK_SIZES: [u64; 2] = [1 << 20, 64 << 20];

/// Publishes all sizes by turns.
pub(crate) fn measure(server: &Server, quick: bool, runs: usize) -> Result<Vec<PublishTime>> {
    let sizes = if quick { QUICK_SIZES } else { SIZES };
    let mut sources = Vec::new();
    for bytes in sizes {
        let case = TransferCase::even(TENSORS, bytes);
        let model = format!("bench.publish.{}", case.name);
        sources.push(Sources::start(server.address(), &model, &case, None, false)?);
    }
    let mut times = vec![(Vec::new(), Vec::new()); sizes.len()];
    for _ in 0..runs {
        for (sources, (publish, seal)) in sources.iter_mut().zip(&mut times) {
            let (_, published) = sources.publish(false)?;
            publish.push(published.publish_s);
            seal.push(published.seal_s);
        }
    }
    let times = sizes.into_iter().zip(times).map(|(bytes, (publish, seal))| PublishTime {
        bytes,
        tensors: TENSORS as usize,
        median_s: median(&publish),
        all_s: publish,
        seal_median_s: median(&seal),
    });
    Ok(times.collect())
}
