//! What is registered: memory that may not be written, elements that nobody holds, tensors that shards disagree on.

use weightcast_plan::{DType, LayoutBuilder, Part};

use super::*;
use crate::client::memory::digesting::tests::shard_of;

#[test]
fn memory_that_may_not_be_written_is_named() {
    let (layout, regions) = shard_of(0, 1);
    let of = |fixed: [bool; 2]| {
        let regions = regions.iter().zip(fixed);
        let regions =
            regions.map(|(of, fixed)| if fixed { of.clone().read_only() } else { of.clone() });
        let made = RegisteredShard::new(&[Arc::clone(&layout)], 0, regions.collect()).unwrap();
        made.read_only().map(str::to_owned)
    };
    assert_eq!(of([false, false]), None);
    assert_eq!(of([true, false]).as_deref(), Some("matrix"));
    assert_eq!(of([false, true]).as_deref(), Some("vector"));
}

/// A shard that holds ranges of vectors of eight elements.
fn ranges(of: &[(&str, u64, u64)]) -> Arc<Layout> {
    let mut builder = LayoutBuilder::new();
    for (number, (name, start, len)) in of.iter().enumerate() {
        let part = Part::new(*name).shape([8]).range(0, *start, *len);
        builder.add(format!("{name}{number}"), DType::U8, &[*len], vec![part], 0);
    }
    Arc::new(builder.build().unwrap())
}

#[test]
fn what_nobody_holds_is_told() {
    for (held, lacks) in [
        (&[("a", 0, 8)][..], None),
        (&[("a", 0, 4), ("a", 4, 4)], None),
        (&[("a", 0, 5)], Some("[5:8] of a")),
        (&[("a", 2, 4)], Some(" and more of a")),
        (&[("a", 0, 5), ("b", 0, 8)], Some("[5:8] of a")),
        (&[("a", 0, 5), ("b", 0, 6)], Some("[5:8] of a, nor all of 1 other tensors")),
        (&[("a", 0, 5), ("b", 0, 6), ("c", 0, 7)], Some(", nor all of 2 other tensors")),
    ] {
        let layouts = [ranges(held)];
        let buffers = layouts[0].buffers().iter();
        let regions = buffers.map(|bytes| Region::allocate(*bytes as usize).unwrap()).collect();
        let made = RegisteredShard::new(&layouts, 0, regions).unwrap();
        match (made.lacking(&layouts), lacks) {
            (None, None) => {}
            (Some(said), Some(part)) => {
                // Shown as [`Tensor`] and as text, whichever the planner has.
                let said = said.replace(&made.tensors["a"].to_string(), "a");
                assert!(said.contains(part), "{part:?} in {said:?}");
                assert_eq!(said.contains("nor all"), part.contains("nor all"), "{said}");
                assert_eq!(said.contains("and more"), part.contains("and more"), "{said}");
            }
            other => panic!("{held:?}: {other:?}"),
        }
    }
}

#[test]
fn shards_must_agree_on_each_tensor() {
    let of = |dtype, size: u64| {
        let mut builder = LayoutBuilder::new();
        builder.add("w", dtype, &[size], vec![Part::new("w").shape([size])], 0);
        Arc::new(builder.build().unwrap())
    };
    let known = of(DType::U8, 4);
    assert!(union(&[Arc::clone(&known), Arc::clone(&known)]).is_ok());
    for other in [of(DType::U8, 5), of(DType::BF16, 4)] {
        let refused = union(&[Arc::clone(&known), Arc::clone(&known), other]).unwrap_err();
        assert!(refused.to_string().contains("shard 2 registers w as"), "{refused}");
    }
}
