//! Slice algebra against sets of elements.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use weightcast_plan::Slice;

fn elements(slice: &Slice) -> BTreeSet<Vec<u64>> {
    let mut points = vec![Vec::new()];
    for d in 0..slice.ndim() {
        let extend = |p: &Vec<u64>| {
            (slice.start[d]..slice.end(d))
                .map(|i| [p.as_slice(), &[i]].concat())
                .collect::<Vec<_>>()
        };
        points = points.iter().flat_map(extend).collect();
    }
    points.into_iter().collect()
}

fn pair() -> impl Strategy<Value = (Slice, Slice)> {
    prop::collection::vec([0u64..5, 0u64..4, 0u64..5, 0u64..4], 0..4).prop_map(|dims| {
        let column = |at: usize| dims.iter().map(|d| d[at]).collect::<Vec<u64>>();
        (Slice::new(column(0), column(1)), Slice::new(column(2), column(3)))
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(2),
        failure_persistence: None,
        ..ProptestConfig::with_cases(1000)
    })]

    #[test]
    fn boxes_are_sets((a, b) in pair()) {
        let (in_a, in_b) = (elements(&a), elements(&b));
        prop_assert_eq!(a.volume() as usize, in_a.len());
        prop_assert_eq!(a.is_empty(), in_a.is_empty());
        prop_assert_eq!(a.contains(&b), in_b.is_subset(&in_a));
        let both: BTreeSet<_> = in_a.intersection(&in_b).cloned().collect();
        prop_assert_eq!(a.intersect(&b).as_ref().map(elements).unwrap_or_default(), both);
        let rest = a.subtract(&b);
        let left: BTreeSet<_> = in_a.difference(&in_b).cloned().collect();
        prop_assert_eq!(rest.iter().map(Slice::volume).sum::<u64>() as usize, left.len());
        prop_assert_eq!(rest.iter().flat_map(elements).collect::<BTreeSet<_>>(), left);
        prop_assert!(rest.iter().all(|r| !r.is_empty()));
    }
}

#[test]
fn scalars_are_one_element() {
    let scalar = Slice::full(&[]);
    assert_eq!((scalar.volume(), scalar.is_empty()), (1, false));
    assert_eq!(scalar.intersect(&scalar), Some(scalar.clone()));
    assert!(scalar.subtract(&scalar).is_empty());
}

#[test]
fn prints_ranges() {
    assert_eq!(Slice::new([0, 512], [4096, 512]).to_string(), "[0:4096, 512:1024]");
    assert_eq!(Slice::full(&[]).to_string(), "[]");
}

#[test]
fn knows_its_shape() {
    assert!(Slice::new([1], [2]).fits(&[3]));
    assert!(!Slice::new([1], [3]).fits(&[3]));
    assert!(!Slice::new([u64::MAX], [2]).fits(&[3]));
    assert!(!Slice::new([0], [1]).fits(&[3, 3]));
}
