//! Placements against torch itself, and against the definition element by element.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use weightcast_plan::{Mesh, Placement, PlacementError, Slice, limits, local_slices};

fn numbers(text: &str) -> Vec<u64> {
    text.split(',').filter(|n| !n.is_empty()).map(|n| n.trim().parse().unwrap()).collect()
}

fn placement(text: &str) -> Placement {
    match text.split_at(1) {
        ("S", dim) => Placement::Shard { dim: dim.parse().unwrap() },
        ("X", rest) => {
            let (dim, factor) = rest.split_once('/').unwrap();
            let split_factor = factor.parse().unwrap();
            Placement::StridedShard { dim: dim.parse().unwrap(), split_factor }
        }
        _ => Placement::Replicate,
    }
}

fn mesh(sizes: &[u64]) -> Mesh {
    Mesh::new(sizes.iter().enumerate().map(|(at, &size)| (format!("axis{at}"), size))).unwrap()
}

/// Row-major number of a slice's first or last element.
fn element(shape: &[u64], at: impl Fn(usize) -> u64) -> u64 {
    (0..shape.len()).fold(0, |n, d| n * shape[d] + at(d))
}

fn check(facts: &str, shape: &[u64], slice: &Slice) {
    for fact in facts.split_whitespace() {
        let (what, value) = fact.split_once('=').unwrap();
        let value = numbers(value);
        let got = match what {
            "shape" => slice.len.clone(),
            "offset" => slice.start.clone(),
            "rows" => (slice.start[0]..slice.end(0)).collect(),
            "columns" => vec![slice.start[1], slice.end(1)],
            "first" => vec![element(shape, |d| slice.start[d])],
            "last" => vec![element(shape, |d| slice.end(d) - 1)],
            other => panic!("what is {other}?"),
        };
        assert_eq!(got, value, "{what}");
    }
}

#[test]
fn torch_agrees() {
    let mut cases = 0;
    for line in include_str!("data/torch_placements.txt").lines().filter(|l| !l.starts_with('#')) {
        let fields: Vec<&str> = line.split(';').map(str::trim).collect();
        let [sizes, placements, rank, shape, facts] = fields[..] else { panic!("{line}") };
        let placements: Vec<Placement> = placements.split(' ').map(placement).collect();
        let (shape, rank) = (numbers(shape), rank.parse().unwrap());
        let slices = local_slices(&shape, &mesh(&numbers(sizes)), &placements, rank).unwrap();
        assert_eq!(slices.len(), 1, "{line}");
        println!("{line}");
        check(facts, &shape, &slices[0]);
        cases += 1;
    }
    assert_eq!(cases, 184);
}

#[test]
fn meshes_of_a_32_rank_trainer() {
    let mesh = Mesh::new([("fsdp", 2), ("pp", 2), ("ep", 8)]).unwrap();
    let (mut dense, mut expert) = (mesh.groups(&["fsdp", "ep"]), mesh.groups(&["fsdp"]));
    dense.reverse();
    expert.reverse();
    for line in include_str!("data/mesh_32.txt").lines().filter(|l| !l.starts_with('#')) {
        let ranks =
            || -> Vec<u64> { line.split(' ').filter_map(|word| word.parse().ok()).collect() };
        match line.split(' ').next().unwrap() {
            "rank" => assert_eq!(mesh.coordinate(ranks()[0]), Some(ranks()[1..].to_vec())),
            "dense" => assert_eq!(dense.pop(), Some(ranks())),
            _ => assert_eq!(expert.pop(), Some(ranks())),
        }
    }
    assert!(dense.is_empty() && expert.is_empty());
}

#[test]
fn refuses_what_makes_no_sense() {
    let mesh = mesh(&[2, 2]);
    let shard = Placement::Shard { dim: 0 };
    let strided = |dim, split_factor| Placement::StridedShard { dim, split_factor };
    let local = |shape: &[u64], placements: &[Placement], rank| {
        local_slices(shape, &mesh, placements, rank).unwrap_err()
    };
    assert!(matches!(local(&[4], &[shard, shard], 4), PlacementError::Rank { .. }));
    assert!(matches!(local(&[4], &[shard], 0), PlacementError::Count { .. }));
    assert!(matches!(local(&[], &[shard, shard], 0), PlacementError::Dim { .. }));
    assert!(matches!(local(&[4], &[strided(0, 0), shard], 0), PlacementError::SplitFactor { .. }));
    let most = limits::MAX_PIECES as u64;
    assert!(local_slices(&[4], &mesh, &[strided(0, most), shard], 0).is_ok());
    let more = local(&[4], &[strided(0, most + 1), shard], 0);
    assert!(matches!(more, PlacementError::SplitFactor { .. }));
    assert!(matches!(local(&[4], &[shard, strided(1, 2)], 0), PlacementError::Dim { dim: 1, .. }));
    let both = [strided(0, 3), strided(1, 3)];
    assert!(matches!(local(&[12, 12], &both, 0), PlacementError::Interleaved { .. }));
}

/// `torch.chunk`, on a list.
fn chunked(list: &[u64], index: u64, of: u64) -> Vec<u64> {
    let each = (list.len() as u64).div_ceil(of).max(1) as usize;
    list.chunks(each).nth(index as usize).unwrap_or_default().to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::with_cases(500)
    })]

    /// Over FSDP2 on TP, a rank holds its FSDP chunk of its TP chunk, even or not.
    #[test]
    fn tensor_parallel_splits_first(rows in 0u64..40, dp in 1u64..6, tp in 1u64..6) {
        let placements =
            [Placement::StridedShard { dim: 0, split_factor: tp }, Placement::Shard { dim: 0 }];
        let all: Vec<u64> = (0..rows).collect();
        for rank in 0..dp * tp {
            let slices = local_slices(&[rows], &mesh(&[dp, tp]), &placements, rank).unwrap();
            prop_assert_eq!(slices.len(), 1);
            let held: Vec<u64> = (slices[0].start[0]..slices[0].end(0)).collect();
            prop_assert_eq!(held, chunked(&chunked(&all, rank % tp, tp), rank / tp, dp));
        }
    }

    /// A lone strided shard is interleaved: the local tensor is the boxes one after the other.
    #[test]
    fn strided_shards_interleave(rows in 0u64..40, size in 1u64..6, split_factor in 2u64..6) {
        let placements = [Placement::StridedShard { dim: 0, split_factor }];
        let all: Vec<u64> = (0..rows).collect();
        for rank in 0..size {
            let slices = local_slices(&[rows, 2], &mesh(&[size]), &placements, rank).unwrap();
            let held: Vec<u64> = slices.iter().flat_map(|s| s.start[0]..s.end(0)).collect();
            let pieces = (0..split_factor).map(|piece| chunked(&all, piece, split_factor));
            let expected: Vec<u64> = pieces.flat_map(|p| chunked(&p, rank, size)).collect();
            prop_assert_eq!(held, expected);
        }
    }

    /// Any number of axes over one dimension: in the order that the split factors tell, if there is
    /// one in which each is the product of the cuts made before it by axes further right; else one
    /// after the other as they stand.
    #[test]
    fn split_factors_tell_the_order_of_cuts_or_interleave(
        rows in 0u64..50, axes in prop::collection::vec((1u64..4, 1u64..5), 1..4),
    ) {
        let sizes: Vec<u64> = axes.iter().map(|axis| axis.0).collect();
        let placements: Vec<Placement> = axes.iter().map(|&(_, split_factor)| match split_factor {
            1 => Placement::Shard { dim: 0 },
            _ => Placement::StridedShard { dim: 0, split_factor },
        }).collect();
        let mesh = mesh(&sizes);
        let orders = (0..axes.len()).fold(vec![vec![]], |orders: Vec<Vec<usize>>, at| {
            let put = |order: &Vec<usize>| (0..=order.len()).map(|place| {
                let mut longer = order.clone();
                longer.insert(place, at);
                longer
            }).collect::<Vec<_>>();
            orders.iter().flat_map(put).collect()
        });
        let tells = |order: &&Vec<usize>| order.iter().enumerate().all(|(done, &at)| {
            let before = order[..done].iter().filter(|&&other| other > at);
            before.map(|&other| sizes[other]).product::<u64>() == axes[at].1
        });
        let order = orders.iter().find(tells);
        for rank in 0..mesh.size() {
            let place = mesh.coordinate(rank).unwrap();
            let mut all: Vec<u64> = (0..rows).collect();
            for at in order.cloned().unwrap_or((0..axes.len()).collect()) {
                let factor = if order.is_some() { 1 } else { axes[at].1 };
                let pieces = (0..factor).map(|piece| chunked(&all, piece, factor));
                all = pieces.flat_map(|p| chunked(&p, place[at], sizes[at])).collect();
            }
            let slices = local_slices(&[rows], &mesh, &placements, rank).unwrap();
            let held: Vec<u64> = slices.iter().flat_map(|s| s.start[0]..s.end(0)).collect();
            prop_assert_eq!(&held, &all);
            // In as few boxes as that can be said in.
            let breaks = all.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
            prop_assert_eq!(slices.len(), breaks + 1);
        }
    }

    /// Whatever the placements, the ranks together hold every element, equally often.
    #[test]
    fn ranks_cover_the_tensor(
        shape in prop::collection::vec(0u64..7, 1..4),
        axes in prop::collection::vec((1u64..4, 0usize..4), 0..4),
    ) {
        let mesh = mesh(&axes.iter().map(|a| a.0).collect::<Vec<_>>());
        let placements: Vec<Placement> = axes
            .iter()
            .map(|&(_, dim)| match dim < shape.len() {
                true => Placement::Shard { dim },
                false => Placement::Replicate,
            })
            .collect();
        let copies: u64 = axes.iter().filter(|a| a.1 >= shape.len()).map(|a| a.0).product();
        let mut held = 0;
        let mut rest = vec![Slice::full(&shape)];
        for rank in 0..mesh.size() {
            for slice in local_slices(&shape, &mesh, &placements, rank).unwrap() {
                prop_assert!(slice.fits(&shape));
                held += slice.volume();
                rest = rest.iter().flat_map(|r| r.subtract(&slice)).collect();
            }
        }
        prop_assert_eq!(held, copies * shape.iter().product::<u64>());
        prop_assert!(rest.iter().all(Slice::is_empty));
    }
}
