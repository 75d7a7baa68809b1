use proptest::prelude::*;
use weightcast_plan::{LayoutBuilder, Part};

use super::*;
use crate::{Cluster, movement};

/// Rank `rank` of `of`: rows of one tensor, tied to a second name, and columns of another; the first rank has one more.
fn rank(rank: u64, of: u64) -> LayoutFile {
    let mut builder = LayoutBuilder::new();
    let rows = |name| Part::new(name).shape([4 * of, 6]).dim(0, rank, of);
    builder.add("rows", DType::BF16, &[5, 6], vec![rows("a")], 0).pad();
    builder.also(vec![rows("b")], 0);
    let columns = Part::new("c").shape([3, 2 * of]).dim(1, rank, of);
    builder.add("columns", DType::F32, &[3, 2], vec![columns], 1);
    if rank == 0 {
        builder.add("packed", DType::F4, &[2, 6], vec![Part::new("aa").shape([2, 6])], 0);
    }
    LayoutFile::of_rank(&builder.build().unwrap(), &["rows", "columns", "packed"].map(String::from))
}

fn all(of: u64) -> LayoutFile {
    LayoutFile::joined((0..of).map(|number| rank(number, of)).collect()).unwrap()
}

#[test]
fn what_is_written_is_read() {
    for of in 1..4 {
        let file = all(of);
        assert_eq!(LayoutFile::parse(&serde_json::to_string(&file).unwrap()).unwrap(), file);
        let cluster = Cluster::of_file(&file).unwrap();
        assert_eq!(cluster.ranks(), of);
        for rank in 0..of {
            let layout = cluster.layout(rank).unwrap();
            let more = if rank == 0 { 6 } else { 0 };
            assert_eq!(layout.transfer_bytes(), 2 * 4 * 6 + 4 * 3 * 2 + more);
            // A row of padding.
            assert_eq!(layout.alloc_bytes(), layout.transfer_bytes() + 12);
        }
        assert!(cluster.layout(of).is_err());
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |change: fn(&mut LayoutFile)| {
        let mut file = all(2);
        change(&mut file);
        LayoutFile::parse(&serde_json::to_string(&file).unwrap()).unwrap_err().to_string()
    };
    for (change, why) in [
        ((|file| file.format = "weightcast-layouts/2".into()) as fn(&mut LayoutFile), "format is"),
        (|file| file.ranks.clear(), "0 ranks"),
        (|file| file.tensors[0].1 = "F33".into(), "unknown dtype"),
        (|file| file.tensors[1].0 = "a".into(), "listed twice"),
        (|file| file.ranks[1].holds[0].0 = 9, "of no tensor"),
        (|file| file.ranks[1].holds[0].1[0] = 5, "no box of its tensor"),
        (|file| file.ranks[1].holds[0].2[0] = 0, "is empty"),
        (|file| file.ranks[1].holds[0].4 = 1 << 40, "outside of the rank's memory"),
        (
            |file| {
                file.ranks[0].holds =
                    [&file.ranks[0].holds[..], &file.ranks[0].holds[1..2]].concat()
            },
            "held twice",
        ),
        (|file| file.ranks[0].bytes = 50, "says that it has 50"),
        (|file| file.ranks[0].holds[1].2[1] = 5, "splits a byte"),
    ] {
        let told = refused(change);
        assert!(told.contains(why), "{why}: {told}");
    }
}

#[test]
fn the_digest_is_of_what_is_held() {
    let digest = |file: &LayoutFile| Cluster::of_file(file).unwrap().digest().unwrap();
    assert_eq!(digest(&all(2)), digest(&all(2)));
    assert_ne!(digest(&all(2)), digest(&all(3)));
    let mut moved = all(2);
    moved.ranks[1].holds[0].1[0] -= 1;
    assert_ne!(digest(&moved), digest(&all(2)));
}

#[test]
fn files_are_planned() {
    let cluster = |of| Cluster::of_file(&all(of)).unwrap();
    // Equal shapes need equal products of ranks: `all(n)` has shapes of its own.
    let (one, two) = (cluster(2), cluster(2));
    let plan = movement::plan(&one, &two, 3, 4).unwrap();
    assert_eq!(plan.defects, Vec::<String>::new());
    assert_eq!(plan.per_target, [78, 72].repeat(3));
    let plan = movement::plan(&one, &cluster(3), 1, 4).unwrap();
    assert!(plan.defects[0].contains("is published as [8, 6] and taken as [12, 6]"), "{plan:?}");
}

proptest! {
    /// Whatever stands in a file, it is read or refused; and what is read has a plan, or defects.
    #[test]
    fn no_text_is_too_strange(at in 0usize..2_000, with in prop::sample::select(b"0123456789-[]{},\":.eaF".to_vec()), cut in 0usize..3) {
        let mut text = serde_json::to_vec(&all(2)).unwrap();
        let at = at % text.len();
        match cut {
            0 => text[at] = with,
            1 => text.insert(at, with),
            _ => drop(text.remove(at)),
        }
        let text = String::from_utf8(text).unwrap();
        if let Ok(file) = LayoutFile::parse(&text) {
            let strange = Cluster::of_file(&file).unwrap();
            let usual = Cluster::of_file(&all(2)).unwrap();
            for (source, target) in [(&strange, &usual), (&usual, &strange)] {
                movement::plan(source, target, 1, 1).unwrap();
                movement::routes(source, target, None, None).unwrap();
            }
        }
    }
}
