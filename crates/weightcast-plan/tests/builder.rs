//! Layouts written by hand: fusion, stacks, padding, ties, and the errors people meet.

use weightcast_plan::{
    Catalog, DType, Layout, LayoutBuilder, LayoutError, Part, Tensor, cells, missing, plan, prove,
};

/// A small model as published.
fn catalog() -> Catalog {
    let tensors = [
        ("embed.weight", &[10, 4][..]),
        ("lm_head.weight", &[10, 4]),
        ("layers.0.q_proj.weight", &[8, 4]),
        ("layers.0.k_proj.weight", &[4, 4]),
        ("layers.0.v_proj.weight", &[4, 4]),
        ("layers.0.down_proj.weight", &[4, 6]),
        ("layers.0.experts.0.up.weight", &[6, 4]),
        ("layers.0.experts.1.up.weight", &[6, 4]),
        ("layers.0.experts.0.down.weight", &[4, 6]),
        ("layers.0.experts.1.down.weight", &[4, 6]),
        ("scale.a", &[]),
        ("scale.b", &[]),
    ];
    let tensor = |(name, shape): (&str, &[u64])| {
        (name.to_owned(), Tensor::new(name, DType::BF16, shape).unwrap())
    };
    tensors.into_iter().map(tensor).collect()
}

/// Rank `rank` of two of an engine that fuses what it can.
fn engine(rank: u64) -> LayoutBuilder {
    let mut b = LayoutBuilder::new();
    let half = |name: &str, dim| vec![Part::new(name).dim(dim, rank, 2)];
    // Vocabulary padded to 12 rows, 6 a rank; the second has 4 rows and padding.
    let rows = if rank == 0 { 6 } else { 4 };
    let vocab = |name: &str| vec![Part::new(name).range(0, rank * 6, rows)];
    b.add("embed", DType::BF16, &[6, 4], vocab("embed.weight"), 0);
    b.pad().also(vocab("lm_head.weight"), 0);
    let qkv =
        ["q", "k", "v"].map(|x| Part::new(format!("layers.0.{x}_proj.weight")).dim(0, rank, 2));
    b.add("qkv", DType::BF16, &[8, 4], qkv.into(), 0);
    b.add("down", DType::BF16, &[4, 3], half("layers.0.down_proj.weight", 1), 0);
    let expert = |e: u64, x: &str, dim| {
        Part::new(format!("layers.0.experts.{e}.{x}.weight")).dim(dim, rank, 2)
    };
    b.add("w13", DType::BF16, &[2, 3, 4], (0..2).map(|e| expert(e, "up", 0)).collect(), 0);
    b.add("w2", DType::BF16, &[2, 4, 3], (0..2).map(|e| expert(e, "down", 1)).collect(), 0);
    let scales = vec![Part::new("scale.a").whole(), Part::new("scale.b").whole()];
    b.add("scales", DType::BF16, &[2], scales, 0);
    b
}

/// Everything in one place, under its own name.
fn trainer() -> Layout {
    let mut b = LayoutBuilder::new();
    for tensor in catalog().values() {
        let part = Part::new(tensor.name()).shape(tensor.shape());
        b.add(tensor.name(), tensor.dtype(), tensor.shape(), vec![part], 0);
    }
    b.build().unwrap()
}

#[test]
fn engines_fuse_stack_pad_and_tie() {
    let ranks = [0, 1].map(|rank| engine(rank).resolve(&catalog()).unwrap());
    let group = [&ranks[0], &ranks[1]];
    assert!(missing(&group, &catalog()).is_empty());
    let qkv = group[1].entries_of(group[1].find("layers.0.v_proj.weight").unwrap());
    let v = group[1].entry(qkv.start);
    assert_eq!((v.buffer, v.offset, v.slice.to_string()), (1, 6 * 8, "[2:4, 0:4]".to_owned()));
    let w2 = group[0].find("layers.0.experts.1.down.weight").unwrap();
    let w2 = group[0].entry(group[0].entries_of(w2).start);
    assert_eq!((w2.buffer, w2.offset, w2.slice.to_string()), (4, 24, "[0:4, 0:3]".to_owned()));
    let source = trainer();
    for (rank, layout) in group.iter().enumerate() {
        let mine = cells(&group, rank);
        let plan = plan(layout, &mine, &[&source]).unwrap();
        prove(layout, &mine, &[&source], &plan).unwrap();
        assert_eq!(plan.bytes(), layout.bytes());
        assert_eq!(plan.echoes.len(), 1, "the tied head is digested, not copied");
        assert!(plan.copies.len() <= mine.len(), "at most one copy a cell");
    }
    // Scales are on both ranks, counted on the first.
    let counted = |rank| cells(&group, rank).iter().filter(|c| c.copies == 2 && c.counted).count();
    assert_eq!((counted(0), counted(1)), (2, 0));
    assert_eq!(engine(0).buffer_names().nth(1), Some("qkv"));
}

#[test]
fn columns_go_side_by_side() {
    let mut b = LayoutBuilder::new();
    let parts = ["a", "b"].map(|name| Part::new(name).shape([3, 4]));
    b.add("wide", DType::F32, &[3, 8], parts.into(), 1);
    let layout = b.build().unwrap();
    assert_eq!(layout.entry(1).offset, 16);
    assert_eq!(layout.entry(1).strides, [32, 4]);
}

#[test]
fn cuts_compose() {
    let part = Part::new("a").dim(0, 1, 2).dim(0, 0, 2).range(1, 1, 2);
    assert_eq!(part.slice(&[10, 4]).unwrap().to_string(), "[5:8, 1:3]");
    assert!(matches!(part.slice(&[10]), Err(LayoutError::PartDim { .. })));
    assert!(matches!(part.slice(&[10, 2]), Err(LayoutError::PartRange { .. })));
    // A range is one of what the cuts before it left: to the end of that, and no further.
    let second = |start, len| Part::new("a").dim(0, 1, 2).range(0, start, len).slice(&[10]);
    assert_eq!(second(0, 5).unwrap().to_string(), "[5:10]");
    assert_eq!(second(5, 0).unwrap().to_string(), "[10:10]");
    for (start, len) in [(0, 6), (1, 5), (6, 0), (1, u64::MAX)] {
        let past = second(start, len).unwrap_err();
        assert!(matches!(past, LayoutError::PartRange { size: 5, .. }), "{past}");
    }
    let none = Part::new("a").dim(0, 2, 2).slice(&[4]);
    assert!(matches!(none, Err(LayoutError::PartChunk { .. })));
}

fn refused(shape: &[u64], parts: Vec<Part>, along: usize) -> LayoutError {
    let mut b = LayoutBuilder::new();
    b.add("local", DType::BF16, shape, parts, along);
    b.resolve(&catalog()).unwrap_err()
}

#[test]
fn sizes_must_add_up() {
    let q = || Part::new("layers.0.q_proj.weight");
    for (shape, parts) in [
        (&[9, 4][..], vec![q()]),
        (&[6, 4], vec![q()]),
        (&[8, 4], vec![q(), Part::new("layers.0.k_proj.weight")]),
        (&[8, 4], vec![]),
    ] {
        let error = refused(shape, parts, 0);
        assert!(matches!(error, LayoutError::Sizes { .. }), "{error}");
        assert!(error.to_string().contains("pad()"));
    }
    let other = refused(&[8, 5], vec![q()], 0);
    assert!(matches!(other, LayoutError::PartShape { .. }), "{other}");
    assert!(matches!(refused(&[8, 4], vec![q()], 2), LayoutError::PartShape { .. }));
    assert!(matches!(refused(&[8], vec![q()], 0), LayoutError::PartShape { .. }));
    let huge = refused(&[u64::MAX, 4], vec![q()], 0);
    assert!(matches!(huge, LayoutError::BufferShape { .. }));
}

#[test]
fn types_and_shapes_are_the_published_ones() {
    let mut b = LayoutBuilder::new();
    b.add("q", DType::F32, &[8, 4], vec![Part::new("layers.0.q_proj.weight")], 0);
    let error = b.resolve(&catalog()).unwrap_err();
    let error = error.to_string();
    let said = "buffer q: layers.0.q_proj.weight is BF16 in the published version, F32 here";
    assert!(error.starts_with(said) && error.contains("Layout.cast"), "{error}");
    let part = Part::new("layers.0.q_proj.weight").shape([8, 5]);
    assert!(matches!(refused(&[8, 4], vec![part], 0), LayoutError::ShapeMismatch { .. }));
    let mut b = LayoutBuilder::new();
    b.add("q", DType::F32, &[8, 4], vec![Part::new("q")], 0);
    assert!(matches!(b.build(), Err(LayoutError::NoShape { .. })));
}

#[test]
fn all_unmatched_names_are_listed_with_their_neighbours() {
    let mut b = LayoutBuilder::new();
    b.add("k", DType::BF16, &[4, 4], vec![Part::new("model.layers.0.k_proj.weight")], 0);
    b.add("v", DType::BF16, &[4, 4], vec![Part::new("layers.0.v_porj.weight")], 0);
    b.add("x", DType::BF16, &[1], vec![Part::new("zzz")], 0);
    let Err(LayoutError::Unmatched { names }) = b.resolve(&catalog()) else { panic!() };
    let found: Vec<_> =
        names.iter().map(|u| (u.name.as_str(), u.nearest.first().map(String::as_str))).collect();
    assert_eq!(
        found,
        [
            ("layers.0.v_porj.weight", Some("layers.0.v_proj.weight")),
            ("model.layers.0.k_proj.weight", Some("layers.0.k_proj.weight")),
            ("zzz", None),
        ]
    );
    let text = b.resolve(&catalog()).unwrap_err().to_string();
    assert!(text.contains("layers.0.v_porj.weight (near: layers.0.v_proj.weight"), "{text}");
    assert!(!text.contains("PEFT") && !text.contains("tied"), "{text}");
}

#[test]
fn names_that_fail_for_known_reasons_say_what_to_do() {
    let said = |published: &str, wanted: &str| {
        let tensor = Tensor::new(published, DType::BF16, [4, 4]).unwrap();
        let catalog = [(published.to_owned(), tensor)].into();
        let mut b = LayoutBuilder::new();
        b.add("x", DType::BF16, &[4, 4], vec![Part::new(wanted)], 0);
        b.resolve(&catalog).unwrap_err().to_string()
    };
    let peft = "base_model.model.layers.0.q_proj.base_layer.weight";
    assert!(said(peft, "layers.0.q_proj.weight").contains("rename="));
    assert!(said("layers.0.q_proj.weight", peft).contains("rename="));
    assert!(said("model.embed_tokens.weight", "lm_head.weight").contains("also"));
    let mut b = LayoutBuilder::new();
    b.add("x", DType::F32, &[4, 4], vec![Part::new("w")], 0);
    let published = Tensor::new("w", DType::BF16, [4, 4]).unwrap();
    let error = b.resolve(&[("w".to_owned(), published)].into()).unwrap_err().to_string();
    assert!(error.contains("Layout.cast"), "{error}");
}

/// Random numbers: the same everywhere.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % n
    }
}

/// Every index of a shape, row by row.
fn indices(shape: &[u64]) -> Vec<Vec<u64>> {
    shape.iter().fold(vec![Vec::new()], |all, &size| {
        let longer = |index: &Vec<u64>| {
            let index = index.clone();
            (0..size).map(move |at| [index.as_slice(), &[at]].concat()).collect::<Vec<_>>()
        };
        all.iter().flat_map(longer).collect()
    })
}

/// `torch.cat` of the parts along a dimension, row-major: where each element comes to lie.
#[test]
fn local_tensors_are_their_parts_one_after_the_other() {
    let mut rng = Rng(5);
    let (mut laid, mut stacked, mut padded) = (0, 0, 0);
    for seed in 0..2_000 {
        let dtype = [DType::BF16, DType::F32, DType::U8, DType::F4][rng.below(4) as usize];
        let pair = dtype.step_elements();
        // Of a stack, the leading dimension of the local tensor is folded into that of its parts.
        let stack = rng.below(3) == 0 && pair == 1;
        let ndim = 1 + rng.below(3) as usize;
        let along = if stack { 0 } else { rng.below(ndim as u64) as usize };
        let mut lens: Vec<u64> = (0..ndim).map(|_| 1 + rng.below(4)).collect();
        lens[ndim - 1] *= pair;
        let count = 1 + rng.below(3);
        let mut parts = Vec::new();
        let mut used = 0;
        for at in 0..count {
            let mut mine = lens.clone();
            if !stack {
                mine[along] = (1 + rng.below(4)) * if along + 1 == ndim { pair } else { 1 };
            }
            let (before, behind) = (rng.below(3) * pair, rng.below(3) * pair);
            let mut global = mine.clone();
            global[along] += before + behind;
            let part = Part::new(format!("p{at}")).shape(global.as_slice());
            parts.push((part.range(along, before, mine[along]), mine.clone()));
            used += mine[along];
        }
        let mut local = lens.clone();
        local[along] = used;
        let pad = rng.below(4) == 0 && !stack;
        if pad {
            local[along] += (1 + rng.below(3)) * if along + 1 == ndim { pair } else { 1 };
        }
        let shape = if stack { [vec![count], lens.clone()].concat() } else { local.clone() };
        let mut b = LayoutBuilder::new();
        b.add("local", dtype, &shape, parts.iter().map(|(part, _)| part.clone()).collect(), along);
        if pad {
            assert!(matches!(b.build(), Err(LayoutError::Sizes { .. })), "padding is said");
            b.pad();
        }
        let layout = b.build().unwrap();
        assert_eq!(layout.buffers(), [local.iter().product::<u64>() * dtype.bits() / 8]);
        let mut at = 0;
        for (number, (_, mine)) in (0..).zip(&parts) {
            let entry = layout.entry(number);
            assert_eq!(entry.slice.len, *mine);
            for index in indices(mine).iter().filter(|index| index[ndim - 1] % pair == 0) {
                // Its index in the local tensor, and its number there.
                let mut here = index.clone();
                here[along] += at;
                let element = here.iter().zip(&local).fold(0, |n, (i, size)| n * size + i);
                let steps = (0..ndim).map(|d| {
                    let pairs = if d + 1 == ndim { pair } else { 1 };
                    index[d] / pairs * entry.strides[d]
                });
                let lies = entry.offset + steps.sum::<u64>();
                assert_eq!(lies, element * dtype.bits() / 8, "seed {seed}: {index:?} of {number}");
                laid += 1;
            }
            at += mine[along];
        }
        stacked += usize::from(stack);
        padded += usize::from(pad);
    }
    assert!(laid > 10_000 && stacked > 100 && padded > 100, "{laid} {stacked} {padded}");
}

#[test]
fn parts_that_begin_within_a_byte_are_refused() {
    let built = |first: u64| {
        let mut b = LayoutBuilder::new();
        let parts = [("a", first), ("b", 6 - first)];
        let part = |(name, len): (&str, u64)| Part::new(name).shape([2, 8]).range(1, 0, len);
        b.add("local", DType::F4, &[2, 6], parts.map(part).into(), 1);
        b.build()
    };
    assert!(built(2).is_ok() && built(4).is_ok());
    for odd in [1, 3, 5] {
        assert!(matches!(built(odd), Err(LayoutError::SplitsByte { .. })), "{odd}");
    }
}

/// As many names as are useful, and how many there are besides.
#[test]
fn long_lists_of_unmatched_names_are_cut() {
    let said = |count: usize| {
        let mut b = LayoutBuilder::new();
        for at in 0..count {
            b.add("x", DType::BF16, &[1], vec![Part::new(format!("zzz.{at:02}"))], 0);
        }
        b.resolve(&Catalog::new()).unwrap_err().to_string()
    };
    for (count, shown, more) in [(1, 1, None), (8, 8, None), (9, 8, Some(1)), (20, 8, Some(12))] {
        let text = said(count);
        assert_eq!(text.matches("zzz.").count(), shown, "{text}");
        let and = more.map(|more| format!("and {more} more"));
        assert!(and.map_or(!text.contains(" more"), |and| text.contains(&and)), "{text}");
    }
    // Suggestions cost a look at all that is published: the first names have them.
    let mut b = LayoutBuilder::new();
    let shape: &[u64] = &[1];
    for at in 0..20 {
        b.add("x", DType::BF16, shape, vec![Part::new(format!("layers.{at:02}.wieght"))], 0);
    }
    let published = Tensor::new("layers.00.weight", DType::BF16, shape).unwrap();
    let catalog = [(published.name().to_owned(), published)].into();
    let Err(LayoutError::Unmatched { names }) = b.resolve(&catalog) else { panic!("unmatched") };
    assert_eq!(names.len(), 20);
    assert_eq!(names.iter().filter(|u| !u.nearest.is_empty()).count(), 16);
    assert!(!names[15].nearest.is_empty());
}

#[test]
fn one_name_is_one_tensor() {
    let mut b = LayoutBuilder::new();
    for (buffer, rows) in [("x", 2), ("y", 3)] {
        let part = Part::new("w").shape([rows, 2]).range(0, 0, 1);
        b.add(buffer, DType::BF16, &[1, 2], vec![part], 0);
    }
    assert!(matches!(b.build(), Err(LayoutError::TensorTwice { .. })));
}
