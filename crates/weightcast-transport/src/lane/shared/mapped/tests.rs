use super::*;
use crate::export::lending::Lending;
use crate::memory::kind::MemoryKind;
use rustix::fs::MemfdFlags;
use rustix::io::fcntl_dupfd_cloexec;
use std::sync::atomic::AtomicBool;

/// What a source lends of these regions.
fn lent(id: u64, regions: &[Region]) -> (Lending, ExportDescription, Vec<LentPlace>) {
    let lending = Lending::of(ExportId(id), regions);
    let Lending::Whole(lent) = &lending else { panic!("not shared") };
    let places = lent.places().to_vec();
    let described = |region: &Region| RegionDescription {
        len: region.len() as u64,
        kind: Some(MemoryKind::Host),
    };
    let regions = regions.iter().map(described).collect();
    (lending, ExportDescription { regions, ..ExportDescription::default() }, places)
}

fn files(lending: &Lending) -> Vec<OwnedFd> {
    let Lending::Whole(lent) = lending else { panic!("not shared") };
    lent.files().into_iter().map(|file| fcntl_dupfd_cloexec(file, 0).unwrap()).collect()
}

fn map(
    description: &ExportDescription,
    places: &[LentPlace],
    files: Vec<OwnedFd>,
    known: &[Arc<Mapped>],
) -> Result<Mapped, String> {
    Mapped::map(description, places.to_vec(), files, known, &Patience::default()).unwrap()
}

fn shared(bytes: &[u8]) -> Region {
    let region = Region::allocate_shared(bytes.len()).unwrap();
    region.write_at(0, bytes).unwrap();
    region
}

#[test]
fn regions_are_found_where_their_owner_has_them_and_each_file_is_mapped_once() {
    let (one, other) = (shared(b"one and more"), shared(b"other"));
    let parts = [other.clone(), one.part(4, 8).unwrap(), Region::allocate(0).unwrap(), one];
    let (lending, description, places) = lent(5, &parts);
    let first = Arc::new(map(&description, &places, files(&lending), &[]).unwrap());
    let content = |mapped: &Mapped| mapped.regions.iter().map(Region::to_vec).collect::<Vec<_>>();
    let expected = [&b"other"[..], b"and more", b"", b"one and more"].map(<[u8]>::to_vec);
    assert_eq!(content(&first), expected);
    assert!(first.regions.iter().all(|region| !region.is_writable()));
    assert!(first.word.is(ExportId(5)));
    lending.fence();
    assert!(!first.word.is(ExportId(5)));

    // The next generation, of the same memory.
    let (lending, description, places) = lent(6, &parts);
    let known = [Arc::clone(&first)];
    let next = map(&description, &places, files(&lending), &known).unwrap();
    for (old, new) in first.views.iter().zip(&next.views) {
        assert!(Arc::ptr_eq(old, new), "mapped before");
    }
    assert!(next.word.is(ExportId(6)));
    assert!(Arc::ptr_eq(&first.regions, &next.regions), "they lie where they lay");

    // In another order, at another place, of another length, and in another file: none is where it was.
    let mut moved = parts.clone();
    moved.swap(0, 1);
    let shorter = [&parts[..3], &[parts[3].part(0, 5).unwrap()]].concat();
    let elsewhere = [&[shared(b"there")], &parts[1..]].concat();
    let slid = [&parts[..1], &[parts[3].part(2, 8).unwrap()], &parts[2..]].concat();
    for regions in [&moved[..], &slid, &shorter, &elsewhere, &parts[..3]] {
        let (lending, description, places) = lent(7, regions);
        let next = map(&description, &places, files(&lending), &known).unwrap();
        let expected: Vec<_> = regions.iter().map(Region::to_vec).collect();
        assert_eq!(content(&next), expected);
    }
}

#[test]
fn what_does_not_fit_is_not_mapped() {
    let (lending, description, places) = lent(5, &[shared(b"weights")]);
    let why = |places: &[LentPlace], files| {
        map(&description, places, files, &[]).err().expect("it does not fit")
    };
    assert!(why(&places, Vec::new()).contains("no file came"));
    assert!(why(&[], files(&lending)).contains("of 1"));
    let outside = [(0, 0), (2, 0), (u16::MAX, 0), (1, 4_090), (1, u64::MAX)];
    for (file, offset) in outside {
        let said = why(&[LentPlace { file, offset }], files(&lending));
        assert!(said.contains("does not lie"), "{file}, {offset}: {said}");
    }
    let lost = files(&lending).into_iter().take(1).collect();
    assert!(why(&places, lost).contains("does not lie"));
    let unsealed = || rustix::fs::memfd_create("weights", MemfdFlags::ALLOW_SEALING).unwrap();
    for bad in 0..2 {
        let mut files = files(&lending);
        files[bad] = unsealed();
        assert!(why(&places, files).contains("not sealed"), "{bad}");
    }
}

#[test]
fn who_gives_up_maps_nothing() {
    let (lending, description, places) = lent(5, &[shared(b"weights")]);
    let cancel = AtomicBool::new(true);
    let patience = Patience { cancel: Some(&cancel), ..Patience::default() };
    let mapped = Mapped::map(&description, places, files(&lending), &[], &patience);
    assert_eq!(mapped.err(), Some(TransportError::Cancelled));
}

/// Their source may have given the memory up, which is there as long as it is mapped.
#[test]
fn fenced_exports_are_forgotten_with_the_next_one() {
    let mut known = MappedExports::default();
    let mut lendings = Vec::new();
    for id in 1..=4 {
        let (lending, description, places) = lent(id, &[shared(b"weights")]);
        let mapped = map(&description, &places, files(&lending), &[]).map(Arc::new);
        known.insert(ExportId(id), mapped);
        lendings.push(lending);
    }
    known.insert(ExportId(5), Err("why".to_owned()));
    let there = |known: &MappedExports| {
        (1..=6).filter(|id| known.get(ExportId(*id)).is_some()).collect::<Vec<u64>>()
    };
    assert_eq!((there(&known), known.all().len()), (vec![1, 2, 3, 4, 5], 4));
    lendings[0].fence();
    lendings[2].fence();
    known.insert(ExportId(6), Err("why".to_owned()));
    assert_eq!((there(&known), known.all().len()), (vec![2, 4, 5, 6], 2));
    for id in 100..100 + MAX_DESCRIPTIONS as u64 {
        known.insert(ExportId(id), Err("why".to_owned()));
    }
    assert_eq!((there(&known), known.0.len()), (vec![], MAX_DESCRIPTIONS));
}
