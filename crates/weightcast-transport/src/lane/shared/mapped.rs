//! Exports of one source whose memory is mapped here.

use crate::base::error::TransportError;
use crate::base::id::ExportId;
use crate::base::limits::MAX_DESCRIPTIONS;
use crate::base::patience::Patience;
use crate::export::shared_word::WordView;
use crate::memory::region::Region;
use crate::memory::shared_view::{FileName, SharedView};
use crate::wire::LentPlace;
use crate::wire::description::{ExportDescription, RegionDescription};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// One export.
pub(super) struct Mapped {
    pub(super) word: WordView,
    /// Those of an earlier export if all lie where they lay.
    pub(super) regions: Arc<[Region]>,
    views: Vec<Arc<SharedView>>,
    places: Vec<LentPlace>,
}

impl Mapped {
    /// Maps what was lent, but for the files of those that are `known`.
    ///
    /// # Errors
    /// Whatever ends the patience; within, why the memory was not mapped.
    pub(super) fn map(
        description: &ExportDescription,
        places: Vec<LentPlace>,
        files: Vec<OwnedFd>,
        known: &[Arc<Self>],
        patience: &Patience<'_>,
    ) -> Result<Result<Self, String>, TransportError> {
        let mut files = files.into_iter();
        let word = match files.next() {
            None => Err("no file came: the source, or this process, may open no more".to_owned()),
            Some(page) => SharedView::map(page).and_then(|view| {
                WordView::new(view).ok_or("the fence word's file is too short".to_owned())
            }),
        };
        let mut views = Vec::new();
        for file in files {
            match view_of(file, known) {
                Ok((view, true)) => views.push(view),
                Ok((view, false)) => {
                    view.populate(patience)?;
                    views.push(view);
                }
                Err(why) => return Ok(Err(why)),
            }
        }
        let alike = known.iter().find(|known| known.is_of(description, &places, &views));
        let whole = || {
            let word = word?;
            let regions = match alike {
                Some(known) => Arc::clone(&known.regions),
                None => regions(description, &places, &views)?.into(),
            };
            Ok(Self { word, regions, views, places })
        };
        Ok(whole())
    }

    /// Whether it has the same regions in the same places.
    fn is_of(
        &self,
        description: &ExportDescription,
        places: &[LentPlace],
        views: &[Arc<SharedView>],
    ) -> bool {
        let lens = description.regions.iter().map(|region| region.len);
        let same = |(own, other): (&Arc<SharedView>, _)| Arc::ptr_eq(own, other);
        self.places == places
            && self.views.len() == views.len()
            && self.views.iter().zip(views).all(same)
            && self.regions.iter().map(|region| region.len() as u64).eq(lens)
    }
}

/// A file's mapping, and whether it was there before.
fn view_of(file: OwnedFd, known: &[Arc<Mapped>]) -> Result<(Arc<SharedView>, bool), String> {
    let name = FileName::of(&file).map_err(|error| error.to_string())?;
    let mut views = known.iter().flat_map(|mapped| &mapped.views);
    match views.find(|view| view.name() == name) {
        Some(view) => Ok((Arc::clone(view), true)),
        None => Ok((Arc::new(SharedView::map(file)?), false)),
    }
}

/// Each region where the source says that it lies, if there is such a place.
fn regions(
    description: &ExportDescription,
    places: &[LentPlace],
    views: &[Arc<SharedView>],
) -> Result<Vec<Region>, String> {
    let lens = &description.regions;
    if places.len() != lens.len() {
        return Err(format!("places of {} regions came, of {}", places.len(), lens.len()));
    }
    let region = |(place, described): (&LentPlace, &RegionDescription)| {
        let (offset, len) =
            (usize::try_from(place.offset).ok()?, usize::try_from(described.len).ok()?);
        if len == 0 {
            return Region::from_bytes(&[]).ok().map(Region::read_only);
        }
        views.get(usize::from(place.file).checked_sub(1)?)?.region(offset, len)
    };
    let found: Option<Vec<_>> = places.iter().zip(lens).map(region).collect();
    found.ok_or("a region does not lie in the files that came".to_owned())
}

/// What became of the exports that were lent, the newest last.
#[derive(Default)]
pub(super) struct MappedExports(Vec<(ExportId, Result<Arc<Mapped>, String>)>);

impl MappedExports {
    pub(super) fn get(&self, export: ExportId) -> Option<Result<Arc<Mapped>, String>> {
        let found = self.0.iter().find(|(known, _)| *known == export);
        found.map(|(_, mapped)| mapped.clone())
    }

    /// All that are mapped.
    pub(super) fn all(&self) -> Vec<Arc<Mapped>> {
        self.0.iter().filter_map(|(_, mapped)| mapped.as_ref().ok().cloned()).collect()
    }

    /// Forgets those that were fenced, whose memory the source may have given up: it is kept for as long as it is
    /// mapped here.
    pub(super) fn insert(&mut self, export: ExportId, mapped: Result<Arc<Mapped>, String>) {
        self.0.retain(|(known, mapped)| match mapped {
            Ok(mapped) => mapped.word.is(*known),
            Err(_) => *known != export,
        });
        if self.0.len() >= MAX_DESCRIPTIONS {
            let _oldest = self.0.remove(0);
        }
        self.0.push((export, mapped));
    }
}

#[cfg(test)]
mod tests;
