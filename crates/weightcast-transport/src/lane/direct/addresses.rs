//! The descriptor of the direct lane: where the fence word and the regions of an export lie in the
//! address space of their process.

use crate::export::served::Export;
use crate::memory::kind::MemoryKind;
use crate::wire::description::ExportDescription;

/// The number of the direct lane on the wire.
pub(super) const LANE: u64 = 2;

/// Addresses of the fence word and of each region, eight bytes each, as the source sent them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses<'a> {
    word: u64,
    regions: &'a [[u8; 8]],
}

impl<'a> Addresses<'a> {
    /// What the source says; nothing if not all of its bytes have an address.
    pub(super) fn put(export: &Export) -> Option<Vec<u8>> {
        let regions = export.regions();
        let mut bytes = Vec::with_capacity(8 * (1 + regions.len()));
        bytes.extend_from_slice(&export.word_address().to_le_bytes());
        for region in regions {
            if region.kind() != MemoryKind::Host {
                return None;
            }
            bytes.extend_from_slice(&region.address().to_le_bytes());
        }
        Some(bytes)
    }

    /// What a description holds. Nothing if the source said nothing for this lane, or no addresses.
    pub(crate) fn of(description: &'a ExportDescription) -> Option<Self> {
        let (numbers, rest) = description.descriptor(LANE)?.as_chunks();
        let (word, regions) = numbers.split_first().filter(|_| rest.is_empty())?;
        Some(Self { word: u64::from_le_bytes(*word), regions })
    }

    /// Whether there is an address for each region, and no region leaves the address space.
    pub(super) fn fit(self, description: &ExportDescription) -> bool {
        let mut ends = (0..self.regions.len())
            .zip(&description.regions)
            .map(|(at, region)| self.region(at).checked_add(region.len));
        self.regions.len() == description.regions.len() && ends.all(|end| end.is_some())
    }

    pub(super) fn word(self) -> u64 {
        self.word
    }

    /// The address of a region that there is.
    pub(crate) fn region(self, region: usize) -> u64 {
        u64::from_le_bytes(self.regions[region])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::ExportId;
    use crate::memory::computed::LeftAsItIs;
    use crate::memory::region::Region;
    use crate::wire::description::{LaneDescriptor, RegionDescription};
    use std::sync::Arc;

    fn described(lens: &[u64], numbers: &[u64]) -> ExportDescription {
        let region = |len: &u64| RegionDescription { len: *len, kind: Some(MemoryKind::Host) };
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        ExportDescription {
            filling: false,
            regions: lens.iter().map(region).collect(),
            descriptors: vec![LaneDescriptor { lane: LANE, bytes }],
        }
    }

    #[test]
    fn each_region_has_an_address_and_ends_in_the_address_space() {
        const MAX: u64 = u64::MAX;
        let table: [(&[u64], &[u64], bool); 8] = [
            (&[], &[7], true),
            (&[20, 40], &[7, 10, 30], true),
            (&[20, 40], &[7, 10], false),
            (&[20, 40], &[7, 10, 30, 50], false),
            (&[], &[], false),
            (&[1], &[7, MAX], false),
            (&[1], &[7, MAX - 1], true),
            (&[1, 2], &[7, 1, MAX - 1], false),
        ];
        for (lens, numbers, fit) in table {
            let description = described(lens, numbers);
            let addresses = Addresses::of(&description);
            assert_eq!(addresses.is_some_and(|all| all.fit(&description)), fit, "{numbers:?}");
        }
        let description = described(&[20, 40], &[7, 10, 30]);
        let addresses = Addresses::of(&description).unwrap();
        assert_eq!((addresses.word(), addresses.region(0), addresses.region(1)), (7, 10, 30));
        assert!(Addresses::of(&ExportDescription::default()).is_none());
        let mut odd = description.clone();
        odd.descriptors[0].bytes.pop();
        assert!(Addresses::of(&odd).is_none());
    }

    /// One region that is made when it is read is enough: no lane reads an export in two ways.
    #[test]
    fn what_is_made_when_it_is_read_has_no_addresses() {
        let held = Region::allocate(3).unwrap();
        let made = Region::computed(3, Arc::new(LeftAsItIs));
        let put = |regions| {
            let export = Export::new(ExportId(5), 1, regions);
            (Addresses::put(&export), export.word_address())
        };
        let (bytes, word) = put(vec![held.clone(), held.clone().read_only()]);
        assert_eq!(bytes.unwrap()[..8], word.to_le_bytes());
        assert_eq!(put(vec![held, made]).0, None);
    }
}
