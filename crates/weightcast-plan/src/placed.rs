//! Layouts in one address space: do buffers lie in each other's memory?
//!
//! A layout knows its buffers as pieces of memory that have nothing to do with each other. Where
//! they really begin may make two of them one: views of one array, or two layouts over the same
//! memory. What is written to one of them then changes the other, and no digest of what arrived
//! tells.

use crate::layout::Layout;
use crate::memory_check::{Clash, Footprint, apart};
use crate::overlap::{Overlap, OverlapShare};

/// A layout and where its buffers are.
#[derive(Debug, Clone, Copy)]
pub struct Placed<'a> {
    /// What lies there.
    pub layout: &'a Layout,
    /// Where each buffer begins; `None` where it lies nowhere, such as one whose bytes are made
    /// when they are read.
    pub starts: &'a [Option<u64>],
}

/// An overlap of entries in different buffers of these layouts, if there is one. What the entries
/// of one buffer share, its layout has settled; padding belongs to nobody.
///
/// Buffers that meet nobody's are sorted by address and looked at once; entries only where buffers
/// meet.
pub fn overlap(placed: &[Placed<'_>]) -> Option<Overlap> {
    let met = meeting(placed);
    let mut prints = Vec::new();
    let mut owners: Vec<(usize, u32)> = Vec::new();
    for (at, Placed { layout, starts }) in placed.iter().enumerate() {
        for (number, entry) in layout.entries().enumerate() {
            let (number, buffer) = (number as u32, entry.buffer as usize);
            let counts = met[at].get(buffer).is_some_and(|met| *met)
                && !layout.is_alias(number)
                && !entry.slice.is_empty();
            if let Some(start) = starts.get(buffer).copied().flatten().filter(|_| counts) {
                let print = Footprint::new(owners.len() as u32, &entry, layout.tensor_of(number));
                prints.push(print.moved(start));
                owners.push((at, number));
            }
        }
    }
    let clash = apart(&mut prints).err()?;
    let share = |which: u32, address: Option<u64>| {
        let (at, entry) = owners[which as usize];
        let Placed { layout, starts } = placed[at];
        let described = layout.entry(entry);
        let start = starts[described.buffer as usize].unwrap_or_default();
        OverlapShare {
            layout: at,
            entry,
            name: format!("{} {}", layout.tensor_of(entry).name(), described.slice),
            offset: address.map_or(described.offset, |address| address - start),
        }
    };
    Some(match clash {
        Clash::Shared { first, second, from, to } => {
            let (first, second) = (first.min(second), first.max(second));
            Overlap {
                first: share(first, Some(from)),
                second: share(second, Some(from)),
                bytes: Some(to - from),
            }
        }
        Clash::TooFragmented(first, second) => {
            Overlap { first: share(first, None), second: share(second, None), bytes: None }
        }
    })
}

/// For each layout, which of its buffers have bytes in common with any other.
fn meeting(placed: &[Placed<'_>]) -> Vec<Vec<bool>> {
    let mut met: Vec<Vec<bool>> = Vec::with_capacity(placed.len());
    let mut spans: Vec<(u64, u64, usize, usize)> = Vec::new();
    for (at, Placed { layout, starts }) in placed.iter().enumerate() {
        met.push(vec![false; layout.buffers().len()]);
        for (buffer, (start, &bytes)) in starts.iter().zip(layout.buffers()).enumerate() {
            if let Some(start) = start.filter(|_| bytes > 0) {
                spans.push((start, start.saturating_add(bytes), at, buffer));
            }
        }
    }
    spans.sort_unstable();
    let mut furthest: Option<(u64, usize, usize)> = None;
    for (start, end, at, buffer) in spans {
        if let Some((reach, other, theirs)) = furthest
            && start < reach
        {
            met[at][buffer] = true;
            met[other][theirs] = true;
        }
        if furthest.is_none_or(|(reach, ..)| end > reach) {
            furthest = Some((end, at, buffer));
        }
    }
    met
}
