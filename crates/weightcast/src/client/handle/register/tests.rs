//! What a shard finds out by itself before it registers.

use weightcast_plan::{DType, LayoutBuilder, Part};

use super::super::tests::{HandleScene, HeardCall, LONG, somebody};
use super::*;
use crate::client::connection::tests::{Said, whole};

fn region(bytes: usize) -> Region {
    Region::allocate(bytes).unwrap()
}

#[test]
fn each_buffer_has_one_region_of_its_size() {
    let layout = Layout::new(vec![8, 0, 24], Vec::new(), Vec::new()).unwrap();
    let check = |sizes: &[usize]| {
        let regions: Vec<Region> = sizes.iter().map(|bytes| region(*bytes)).collect();
        check_regions(&layout, &regions).map_err(|error| error.to_string())
    };
    assert_eq!(check(&[8, 0, 24]), Ok(()));
    for (sizes, said) in [
        (vec![], "3 buffers, 0 regions"),
        (vec![8, 0], "3 buffers, 2 regions"),
        (vec![8, 0, 24, 0], "3 buffers, 4 regions"),
        (vec![7, 0, 24], "buffer 0 has 8 bytes in the layout and 7 in memory"),
        (vec![9, 0, 24], "buffer 0 has 8 bytes in the layout and 9 in memory"),
        (vec![8, 1, 24], "buffer 1 has 0 bytes in the layout and 1 in memory"),
        (vec![8, 0, 23], "buffer 2 has 24 bytes in the layout and 23 in memory"),
        (vec![24, 0, 8], "buffer 0 has 8 bytes in the layout and 24 in memory"),
    ] {
        let refused = check(&sizes).unwrap_err();
        assert!(refused.contains(said), "{sizes:?}: {refused}");
    }
}

#[test]
fn shapes_are_looked_up_where_one_is_missing_and_only_there() {
    let open = |part: Part, bytes: u64| {
        let mut builder = LayoutBuilder::new();
        builder.add("w", DType::U8, &[bytes], vec![part], 0);
        LayoutSource::Open(builder)
    };
    assert!(lacks_shapes(&open(Part::new("w"), 4)));
    assert!(!lacks_shapes(&open(Part::new("w").shape([4]), 4)));
    // Wrong in another way: that is said at once, and nobody is waited for.
    assert!(!lacks_shapes(&open(Part::new("w").shape([5]), 4)));
    assert!(!lacks_shapes(&LayoutSource::Known(Layout::new(vec![], vec![], vec![]).unwrap())));
}

/// Shard `shard` of two, by rows of `w`.
fn half(shard: u64) -> Layout {
    let mut builder = LayoutBuilder::new();
    let part = Part::new("w").shape([8]).dim(0, shard, 2);
    builder.add("w", DType::U8, &[4], vec![part], 0);
    builder.build().unwrap()
}

/// One whole tensor of this name and type.
fn whole_of(name: &str, dtype: DType) -> Layout {
    let mut builder = LayoutBuilder::new();
    builder.add(name, dtype, &[8], vec![Part::new(name).shape([8])], 0);
    builder.build().unwrap()
}

fn name_of(layout: &Layout) -> ContentDigest {
    manifest::blob_digest(&manifest::encode(layout))
}

/// The server's reply to a stored manifest.
fn stored() -> Said {
    whole(b"")
}

fn fetched(layout: &Layout) -> Said {
    whole(&manifest::encode(layout))
}

fn down() -> Said {
    Said::Refused(tonic::Status::unavailable("down"))
}

/// A group that registers these layouts.
fn registered(layouts: &[&Layout]) -> Answer {
    let layouts = layouts.iter().map(|layout| name_of(layout)).collect();
    Answer::Registered { layouts, siblings: [].into() }
}

fn register(scene: &HandleScene, layout: &Layout, regions: &[Region]) -> Result<(), Error> {
    scene.handle.register(LayoutSource::Known(layout.clone()), regions.to_vec(), LONG)
}

/// Neither the memory nor its reservation is kept.
#[track_caller]
fn nothing_is_registered(scene: &HandleScene, layout: &Layout, regions: &[Region]) {
    assert!(scene.own().shared.current().is_none());
    assert!(scene.own().reservation.lock().unwrap().is_none());
    let free = somebody().reserve(ReservedMemory::new(layout, regions), true);
    assert!(free.is_ok(), "nobody holds it");
}

fn export_of(call: &Call) -> (ContentDigest, u64, u64) {
    match call {
        Call::Register { layout, export, bytes } => (*layout, export.0, *bytes),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_all_shards_agree_on_is_registered_and_given_back() {
    let (ours, theirs, regions) = (half(0), half(1), [region(4)]);
    let answer = registered(&[&ours, &theirs]);
    let said = vec![stored(), fetched(&ours), fetched(&theirs)];
    let mut answers = vec![Ok(answer), Err(misuse()), Ok(Answer::Unregistered)].into_iter();
    let scene = HandleScene::new(2, said, move |_| answers.next().unwrap());
    register(&scene, &ours, &regions).unwrap();
    let calls = scene.calls();
    let (layout, export, bytes) = export_of(&calls[0]);
    assert_eq!((calls.len(), layout, bytes), (1, name_of(&ours), 4));
    let (made, id) = scene.own().shared.current().unwrap();
    assert_eq!((id, made.layout.buffers()), (ExportId(export), &[4][..]));
    assert_eq!(made.regions[0].address(), regions[0].address());
    let taken = || somebody().reserve(ReservedMemory::new(&ours, &regions), false);
    assert!(taken().is_err());
    // What the group does not take back stays.
    assert!(scene.handle.unregister(LONG).is_err());
    assert!(scene.own().shared.current().is_some() && taken().is_err());
    scene.handle.unregister(LONG).unwrap();
    assert_eq!(scene.calls(), [Call::Unregister, Call::Unregister]);
    nothing_is_registered(&scene, &ours, &regions);
}

fn misuse() -> CallError {
    CallError::Misuse { detail: "says a test".to_owned() }
}

#[test]
fn a_call_that_is_made_again_names_the_same_memory_and_stores_its_layout_again() {
    let (ours, regions) = (half(0), [region(4)]);
    let version = weightcast_protocol::Version { epoch: weightcast_protocol::Epoch(0), number: 1 };
    let described = Answer::Described { version, layouts: [].into() };
    let both = half(1);
    let answers = [described.clone(), described, registered(&[&ours, &both])];
    let mut answers = answers.into_iter();
    let said = vec![stored(), stored(), stored(), fetched(&ours), fetched(&both)];
    let scene = HandleScene::new(2, said, move |_| Ok(answers.next().unwrap()));
    register(&scene, &ours, &regions).unwrap();
    let calls = scene.calls();
    assert_eq!((calls.len(), &calls[0]), (3, &calls[1]));
    assert_eq!(calls[1], calls[2]);
    assert_eq!(scene.requests.load(std::sync::atomic::Ordering::Relaxed), 5);
}

/// What the caller left open is as in the newest version, for which the call waits as long as it may.
#[test]
fn missing_shapes_are_those_of_the_newest_version() {
    let published = whole_of("w", DType::U8);
    let version = weightcast_protocol::Version { epoch: weightcast_protocol::Epoch(0), number: 1 };
    let described = || Answer::Described { version, layouts: [name_of(&published)].into() };
    let answers = vec![described(), registered(&[&published]), described()];
    let mut answers = answers.into_iter();
    // What was fetched once is known.
    let said = vec![fetched(&published), stored()];
    let scene = HandleScene::new(1, said, move |_| Ok(answers.next().unwrap()));
    let mut builder = LayoutBuilder::new();
    builder.add("w", DType::U8, &[8], vec![Part::new("w")], 0);
    scene.handle.register(LayoutSource::Open(builder), vec![region(8)], LONG).unwrap();
    let mut calls = Vec::new();
    for heard in scene.heard() {
        let HeardCall::Call(call, deadline) = heard else { panic!("{heard:?}") };
        let (whole, half) = (crate::clock::span(LONG), crate::clock::span(LONG / 2));
        assert!(deadline < whole && deadline > half, "{call:?}: what is left");
        calls.push(call);
    }
    assert_eq!(calls[0], Call::Describe { selector: Selector::Latest });
    let (layout, _, bytes) = export_of(&calls[1]);
    assert_eq!((calls.len(), layout, bytes), (2, name_of(&published), 8));
    let catalog = scene.handle.catalog(LONG).unwrap();
    assert_eq!(catalog.values().collect::<Vec<_>>(), [&published.tensors()[0]]);
    assert_eq!(scene.calls(), [Call::Describe { selector: Selector::Latest }]);
}

#[test]
fn whoever_cannot_fetch_the_layouts_of_its_group_leaves_it() {
    let (ours, regions) = (half(0), [region(4)]);
    let answer = registered(&[&ours, &half(1)]);
    let said = vec![stored(), fetched(&ours), down()];
    let scene = HandleScene::new(2, said, move |_| Ok(answer.clone()));
    let error = register(&scene, &ours, &regions).unwrap_err();
    assert!(matches!(error, Error::Call(CallError::ServerUnreachable { .. })), "{error}");
    let heard = scene.heard();
    let [HeardCall::Call(Call::Register { .. }, _), HeardCall::Close(deadline)] = &heard[..] else {
        panic!("{heard:?}")
    };
    assert_eq!(*deadline, crate::clock::span(LEAVE));
    nothing_is_registered(&scene, &ours, &regions);
}

#[test]
fn what_all_shards_find_wrong_all_take_back() {
    let (ours, regions) = (half(0), [region(4)]);
    // Another type; and nobody holds the rest.
    let wrong =
        [(whole_of("w", DType::I8), "another shard"), (whole_of("b", DType::U8), "[4:8] of w")];
    for (theirs, found) in wrong {
        for (taken_back, left) in [(Ok(Answer::Unregistered), false), (Err(misuse()), true)] {
            let mut answers = vec![Ok(registered(&[&ours, &theirs])), taken_back].into_iter();
            let said = vec![stored(), fetched(&ours), fetched(&theirs)];
            let scene = HandleScene::new(2, said, move |_| answers.next().unwrap());
            // However little time is left, there is some to take it back.
            let source = LayoutSource::Known(ours.clone());
            let error = scene.handle.register(source, regions.to_vec(), LEAVE);
            let error = error.unwrap_err().to_string();
            assert!(error.contains(found), "{error}");
            let heard = scene.heard();
            let closed = matches!(heard.last(), Some(HeardCall::Close(_)));
            assert_eq!((heard.len(), closed), (2 + usize::from(left), left), "{heard:?}");
            assert_eq!(heard[1], HeardCall::Call(Call::Unregister, crate::clock::span(LEAVE)));
            nothing_is_registered(&scene, &ours, &regions);
        }
    }
}

#[test]
fn what_a_shard_finds_wrong_by_itself_it_declines() {
    for shards in [1, 2] {
        let ours = half(0);
        // The memory is too small; the layout cannot be stored; somebody else fills the memory.
        for case in 0..3 {
            let regions = [region(if case == 0 { 3 } else { 4 })];
            let said = if case == 1 { vec![down()] } else { vec![] };
            let scene = HandleScene::new(shards, said, |_| Ok(Answer::Unpublished));
            let theirs = (case == 2)
                .then(|| somebody().reserve(ReservedMemory::new(&ours, &regions), true).unwrap());
            let error = register(&scene, &ours, &regions).unwrap_err();
            let calls = scene.calls();
            let detail = error.to_string();
            let declined: &[Call] = match shards {
                1 => &[],
                _ => &[Call::Decline { detail }],
            };
            assert_eq!(calls, declined, "case {case}");
            drop(theirs);
            if case > 0 {
                nothing_is_registered(&scene, &ours, &regions);
            }
        }
    }
}

/// Nobody else holds what a handle may fill at any time. A trainer's is filled by its trainer alone, and some not at all.
#[test]
fn memory_is_kept_from_others_where_it_may_be_filled() {
    for (fills, fixed) in [(true, false), (true, true), (false, false), (false, true)] {
        let (ours, memory) = (whole_of("w", DType::U8), region(8));
        let regions = [if fixed { memory.read_only() } else { memory }];
        let (answer, said) = (registered(&[&ours]), vec![stored(), fetched(&ours)]);
        let scene = HandleScene::made(fills, None, 1, said, move |_| Ok(answer.clone()));
        register(&scene, &ours, &regions).unwrap();
        let theirs = somebody().reserve(ReservedMemory::new(&ours, &regions), false);
        assert_eq!(theirs.is_err(), fills && !fixed, "fills: {fills}, read-only: {fixed}");
    }
}

#[test]
fn a_layout_that_is_not_stored_in_time_is_not_waited_for() {
    let (ours, regions) = (half(0), [region(4)]);
    let scene = HandleScene::new(1, vec![Said::Silent], |_| Ok(Answer::Unpublished));
    let source = LayoutSource::Known(ours.clone());
    let late = scene.handle.register(source, regions.to_vec(), std::time::Duration::ZERO);
    match late.unwrap_err() {
        Error::Call(CallError::ServerUnreachable { server, reason }) => {
            assert!(server == "one" && reason.contains("before the deadline"), "{reason}");
        }
        other => panic!("{other}"),
    }
    assert!(scene.calls().is_empty());
    nothing_is_registered(&scene, &ours, &regions);
}

#[test]
fn nothing_is_registered_by_a_handle_that_is_closed() {
    let (ours, regions) = (half(0), [region(4)]);
    let scene = HandleScene::new(2, vec![], |_| Ok(Answer::Unpublished));
    scene.handle.close(LONG);
    scene.heard();
    let error = register(&scene, &ours, &regions).unwrap_err().to_string();
    assert!(error.contains("the handle is closed"), "{error}");
    assert!(scene.heard().is_empty());
    nothing_is_registered(&scene, &ours, &regions);
}
