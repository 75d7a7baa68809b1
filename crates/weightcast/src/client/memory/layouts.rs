//! A cache of other shards' layouts: saves fetching their manifests from the server for each read.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use weightcast_plan::Layout;
use weightcast_protocol::ContentDigest;

use crate::limits::{CACHED_LAYOUT_BYTES, CACHED_LAYOUTS};

/// Layouts by the digests of their manifests. The oldest go when there are too many or they take
/// too much.
#[derive(Default)]
pub(crate) struct KnownLayouts {
    known: BTreeMap<ContentDigest, Arc<Layout>>,
    /// The digests, in the order in which their layouts came.
    order: VecDeque<ContentDigest>,
    bytes: usize,
}

impl KnownLayouts {
    pub(crate) fn get(&self, name: ContentDigest) -> Option<Arc<Layout>> {
        self.known.get(&name).cloned()
    }

    pub(crate) fn keep(&mut self, name: ContentDigest, layout: &Arc<Layout>) {
        // Also the case of every hit: `fetch_layouts` keeps what it got from here.
        if self.known.insert(name, Arc::clone(layout)).is_some() {
            return; // two reads have fetched it
        }
        self.order.push_back(name);
        self.bytes += layout.footprint();
        while self.order.len() > CACHED_LAYOUTS || self.bytes > CACHED_LAYOUT_BYTES {
            let Some(oldest) = self.order.pop_front() else { return };
            self.bytes -= self.known.remove(&oldest).map_or(0, |layout| layout.footprint());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(buffers: usize) -> Arc<Layout> {
        Arc::new(Layout::new(vec![0; buffers], Vec::new(), Vec::new()).unwrap())
    }

    fn name(number: usize) -> ContentDigest {
        let mut digest = [0; 16];
        digest[..8].copy_from_slice(&number.to_le_bytes());
        ContentDigest(digest)
    }

    #[test]
    fn what_is_kept_is_bounded_in_number() {
        let (mut known, small) = (KnownLayouts::default(), layout(0));
        for number in 0..CACHED_LAYOUTS + 2 {
            known.keep(name(number), &small);
            known.keep(name(number), &small); // once more is nothing new
        }
        assert_eq!((known.known.len(), known.order.len()), (CACHED_LAYOUTS, CACHED_LAYOUTS));
        assert!(known.get(name(1)).is_none() && known.get(name(2)).is_some());
        assert_eq!(known.bytes, CACHED_LAYOUTS * small.footprint());
    }

    #[test]
    fn what_is_kept_is_bounded_in_bytes() {
        let (mut known, large) = (KnownLayouts::default(), layout(1 << 20));
        assert!(large.footprint() >= 8 << 20);
        let fit = CACHED_LAYOUT_BYTES / large.footprint();
        for number in 0..fit {
            known.keep(name(number), &large);
        }
        assert!(known.get(name(0)).is_some(), "as much as may be");
        known.keep(name(fit), &large);
        assert!(known.get(name(0)).is_none() && known.get(name(1)).is_some());
        assert_eq!(known.bytes, fit * large.footprint());
    }
}
