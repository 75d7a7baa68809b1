//! Whether processes of this host can map the memory of an export, and what they are handed to do so.

use crate::base::id::ExportId;
use crate::base::limits::MAX_LENT_FILES;
use crate::export::shared_word::SharedWord;
use crate::memory::region::Region;
use crate::memory::shared::{self, SharedAllocation};
use crate::wire::LentPlace;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// How the memory of an export lies.
pub(crate) enum Lending {
    /// Nothing of it is shared.
    Private,
    /// So many regions are not, the first of them that one. Readers read an export in one way, so it is
    /// not lent.
    Partly { private: u64, first: u64 },
    /// It lies in so many files: more than are handed over at once.
    Scattered { files: u64 },
    /// All of it is shared, and the system has no file for a fence word beside it.
    NoWord,
    /// All of it can be mapped.
    Whole(Lent),
}

/// What a reader is handed: files, and where in them each region lies.
pub(crate) struct Lent {
    word: SharedWord,
    files: Vec<Arc<SharedAllocation>>,
    places: Vec<LentPlace>,
}

impl Lending {
    /// Of an export of these regions.
    pub(crate) fn of(id: ExportId, regions: &[Region]) -> Self {
        let found = shared::find(regions.iter().map(|region| (region.address(), region.len())));
        let is_private = |at: usize| found[at].is_none() && !regions[at].is_empty();
        let private = (0..regions.len()).filter(|at| is_private(*at)).count();
        if found.iter().all(Option::is_none) {
            return Self::Private;
        }
        if let Some(first) = (0..regions.len()).find(|at| is_private(*at)) {
            return Self::Partly { private: private as u64, first: first as u64 };
        }
        let (mut files, mut places) = (Vec::new(), Vec::with_capacity(regions.len()));
        for (region, found) in regions.iter().zip(found) {
            let place = found.filter(|_| !region.is_empty());
            places.push(place.map_or(LentPlace::default(), |place| place_in(&mut files, place)));
        }
        if files.len() > MAX_LENT_FILES {
            return Self::Scattered { files: files.len() as u64 };
        }
        match SharedWord::new(id) {
            Ok(word) => Self::Whole(Lent { word, files, places }),
            Err(error) => {
                tracing::warn!(%error, "shared memory is not lent: no page for a fence word");
                Self::NoWord
            }
        }
    }

    /// Ends it for readers who have mapped it.
    pub(crate) fn fence(&self) {
        if let Self::Whole(lent) = self {
            lent.word.fence();
        }
    }
}

/// Regions follow one another in few files, so the last file is looked at first.
fn place_in(
    files: &mut Vec<Arc<SharedAllocation>>,
    (allocation, offset): (Arc<SharedAllocation>, usize),
) -> LentPlace {
    let at = files.iter().rposition(|file| Arc::ptr_eq(file, &allocation));
    let at = at.unwrap_or_else(|| {
        files.push(allocation);
        files.len() - 1
    });
    LentPlace { file: u16::try_from(at + 1).unwrap_or(u16::MAX), offset: offset as u64 }
}

impl Lent {
    /// The fence word's page, and behind it the files of the regions, whose first is number 1.
    pub(crate) fn files(&self) -> Vec<BorrowedFd<'_>> {
        let own = [self.word.file()].into_iter();
        own.chain(self.files.iter().map(|file| file.file())).collect()
    }

    /// Of each region.
    pub(crate) fn places(&self) -> &[LentPlace] {
        &self.places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(len: usize) -> Region {
        Region::allocate_shared(len).unwrap()
    }

    fn private(len: usize) -> Region {
        Region::allocate(len).unwrap()
    }

    #[test]
    fn an_export_is_lent_if_all_its_bytes_are_shared() {
        let (one, other) = (shared(10_000), shared(5));
        let of = |regions: &[Region]| Lending::of(ExportId(5), regions);
        assert!(matches!(of(&[]), Lending::Private));
        assert!(matches!(of(&[private(3), private(0)]), Lending::Private));
        let mixed = [one.clone(), private(3), other.clone(), private(1)];
        assert!(matches!(of(&mixed), Lending::Partly { private: 2, first: 1 }));
        let parts = [other.clone(), one.part(7, 90).unwrap(), private(0), one.clone()];
        let Lending::Whole(lent) = of(&parts) else { panic!("all of it is shared") };
        let place = |file, offset| LentPlace { file, offset };
        assert_eq!(lent.places(), [place(1, 0), place(2, 7), place(0, 0), place(2, 0)]);
        assert_eq!(lent.files().len(), 3);
    }

    #[test]
    fn so_many_files_are_lent_and_no_more() {
        let mut regions: Vec<_> = (0..MAX_LENT_FILES).map(|_| shared(1)).collect();
        let of = |regions: &[Region]| Lending::of(ExportId(5), regions);
        assert!(matches!(of(&regions), Lending::Whole(_)));
        regions.push(shared(1));
        assert!(
            matches!(of(&regions), Lending::Scattered { files } if files == MAX_LENT_FILES as u64 + 1)
        );
    }
}
