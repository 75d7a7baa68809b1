//! A copy of regions into fresh memory, on a few threads: what an offload waits for.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use weightcast_transport::Region;

use super::room::allocate;
use crate::error::Error;

/// Bytes copied between two looks at `cancel`: less than a millisecond's worth. One huge page: the
/// kernel clears a page on its first write, so no two threads wait for the same page.
const STEP: usize = 2 << 20;

/// Copies each region into fresh memory; `None` if cancelled.
///
/// # Errors
/// There is no memory for the copies.
pub(in crate::client) fn copy_aside(
    regions: &[Region],
    threads: usize,
    cancel: &AtomicBool,
) -> Result<Option<Vec<Region>>, Error> {
    let copies = regions.iter().map(allocate).collect::<Result<Vec<Region>, _>>()?;
    let steps: Vec<_> = regions
        .iter()
        .zip(&copies)
        .flat_map(|(region, copy)| {
            (0..region.len()).step_by(STEP).map(move |offset| (region, copy, offset))
        })
        .collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((region, copy, offset)) = steps.get(next.fetch_add(1, Ordering::Relaxed)) {
            if cancel.load(Ordering::Acquire) {
                return;
            }
            let len = STEP.min(region.len() - offset);
            copy.copy_from(*offset, region, *offset, len).expect("as long as the region");
        }
    };
    thread::scope(|scope| {
        (1..threads.min(steps.len())).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    Ok((!cancel.load(Ordering::Acquire)).then_some(copies))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_every_region_is_copied() {
        // None is what fresh memory holds at the start and at the end of a step.
        let byte = |i: usize| (i * 7 + i / 4099) as u8 | 1;
        let lens = [0, 1, STEP - 1, STEP, 2 * STEP + 13];
        let bytes = lens.map(|len| (0..len).map(byte).collect::<Vec<_>>());
        let regions = bytes.each_ref().map(|bytes| Region::from_bytes(bytes).unwrap());
        let copies = copy_aside(&regions, 3, &AtomicBool::new(false)).unwrap().unwrap();
        for (copy, bytes) in copies.iter().zip(&bytes) {
            assert!(copy.to_vec() == *bytes);
        }
    }

    #[test]
    fn a_cancelled_copy_is_none() {
        let regions = [Region::allocate(10).unwrap()];
        assert!(copy_aside(&regions, 2, &AtomicBool::new(true)).unwrap().is_none());
    }
}
