//! Plans that were written down: what comes back, what is refused, how many bytes it takes.

use crate::world::scene;
use weightcast_plan::stored::{PlanName, StoredError, decode, encode, restore};
use weightcast_plan::{Cell, CoverageError, DType, Layout, LayoutBuilder, Part, Plan, cells, plan};

fn name_of(target: &Layout, cells: &[Cell], sources: &[&Layout]) -> PlanName {
    PlanName::new(target, cells, sources.iter().map(|source| source.digest().0))
}

/// Every plan of a scene with what it was made for.
fn each_plan(seed: u64, mut look: impl FnMut(&Plan, &Layout, &[Cell], &[&Layout])) {
    let (_, _, sources, targets) = scene(seed);
    let (from, to): (Vec<&Layout>, Vec<&Layout>) =
        (sources.iter().collect(), targets.iter().collect());
    for (shard, target) in to.iter().enumerate() {
        let cells = cells(&to, shard);
        look(&plan(target, &cells, &from).unwrap(), target, &cells, &from);
    }
}

#[test]
fn plans_come_back_and_are_small() {
    let (mut copies, mut echoes, mut bytes) = (0, 0, 0);
    for seed in 0..1_000 {
        each_plan(seed, |plan, target, cells, sources| {
            let name = name_of(target, cells, sources);
            let stored = encode(plan, &name);
            assert_eq!(restore(&stored, &name, target, cells, sources).as_ref(), Ok(plan));
            assert_eq!(encode(&decode(&stored, &name).unwrap(), &name), stored);
            copies += plan.copies.len();
            echoes += plan.echoes.len();
            bytes += stored.len() - encode(&Plan::default(), &name).len();
        });
    }
    assert!(copies > 10_000 && echoes > 1_000);
    let each = bytes as f64 / (copies + echoes) as f64;
    println!("{each:.2} bytes for each of {copies} copies and {echoes} echoes");
    // In memory a copy takes 88 bytes. These have nothing in common with their neighbours.
    assert!(each < 11.0, "{each}");
}

/// Projections, experts and a tied embedding: 8 row-sharded sources, one of 4 engines.
fn fixed() -> (Vec<Layout>, Vec<Layout>) {
    let build = |rank: u64, of: u64, engine: bool| {
        let mut b = LayoutBuilder::new();
        let mut add = |name: &str, shape: &[u64], dim: usize| {
            let part = Part::new(name).shape(shape).dim(if engine { dim } else { 0 }, rank, of);
            let lens = part.slice(shape).unwrap().len;
            b.add(name, DType::BF16, &lens, vec![part], 0);
        };
        add("embed", &[320, 64], 0);
        for layer in 0..4 {
            add(&format!("{layer}.o"), &[64, 64], 1);
            for expert in 0..16 {
                add(&format!("{layer}.experts.{expert}.up"), &[96, 64], 0);
                add(&format!("{layer}.experts.{expert}.down"), &[64, 96], 1);
            }
        }
        b.build().unwrap()
    };
    ((0..8).map(|r| build(r, 8, false)).collect(), (0..4).map(|r| build(r, 4, true)).collect())
}

#[test]
fn the_form_and_the_planners_choices_are_what_they_were() {
    let (sources, targets) = fixed();
    let (from, to): (Vec<&Layout>, Vec<&Layout>) =
        (sources.iter().collect(), targets.iter().collect());
    let mine = cells(&to, 1);
    let name = name_of(to[1], &mine, &from);
    let made = plan(to[1], &mine, &from).unwrap();
    let stored = encode(&made, &name);
    let each = stored.len() as f64 / made.copies.len() as f64;
    println!("{} copies, {} bytes, {each:.2} each", made.copies.len(), stored.len());
    assert!(each < 6.0, "{each}");
    // What is stored lives longer than the program. If one of these changes, raise the version in
    // `MAGIC` first: what was stored before is then planned again.
    assert_eq!(
        name.to_string(),
        "d3dd8a895d8c24dcfa66d2a4533af4af-16ad344297a9d923d3857a08758be640"
    );
    assert_eq!(blake3::hash(&stored).to_hex()[..32], *"5c5831ba9e298f3cb859521da7ff37bc");
}

/// Every number of an echo, in forms that follow from the echo before and in others.
#[test]
fn the_form_of_echoes_is_what_it_was() {
    let (mut stored, mut echoes) = (Vec::new(), 0);
    for seed in 0..200 {
        each_plan(seed, |plan, target, cells, sources| {
            let made = encode(plan, &name_of(target, cells, sources));
            if !plan.echoes.is_empty() {
                echoes += plan.echoes.len();
                stored.extend(made);
            }
        });
    }
    println!("{echoes} echoes, {} bytes", stored.len());
    assert!(echoes > 100);
    // As above: if this changes and scenes have not, raise the version in `MAGIC`.
    assert_eq!(blake3::hash(&stored).to_hex()[..32], *"d36675f4f6251d53f698db3d86dab7d7");
}

/// A scene whose first target has several copies and an echo.
const SMALL: u64 = 27;

/// Asks for the plan of a small pair of layouts in these bytes.
fn small(change: impl FnOnce(&mut Vec<u8>)) -> Result<Plan, StoredError> {
    let (_, _, sources, targets) = scene(SMALL);
    let (from, to): (Vec<&Layout>, Vec<&Layout>) =
        (sources.iter().collect(), targets.iter().collect());
    let mine = cells(&to, 0);
    let name = name_of(to[0], &mine, &from);
    let mut bytes = encode(&plan(to[0], &mine, &from).unwrap(), &name);
    change(&mut bytes);
    restore(&bytes, &name, to[0], &mine, &from)
}

/// Gives changed bytes the checksum that they should have.
fn seal(bytes: &mut Vec<u8>) {
    bytes.truncate(bytes.len() - 16);
    let check = blake3::hash(bytes);
    bytes.extend(&check.as_bytes()[..16]);
}

#[test]
fn whatever_is_cut_off_changed_or_added_is_refused() {
    let mut whole = Vec::new();
    let good = small(|bytes| whole.clone_from(bytes)).unwrap();
    assert!(good.copies.len() > 3 && !good.echoes.is_empty() && whole.len() < 200);
    for len in 0..whole.len() {
        assert!(small(|bytes| bytes.truncate(len)).is_err(), "first {len} bytes");
        for bit in 0..8 {
            assert!(small(|bytes| bytes[len] ^= 1 << bit).is_err(), "bit {bit} of byte {len}");
        }
    }
    assert_eq!(small(|bytes| bytes.push(0)), Err(StoredError::Checksum));
    // With a checksum that is right, the proof is what stands between the bytes and memory.
    let (mut untrue, mut same) = (0, 0);
    for at in 0..whole.len() - 16 {
        for value in 0..=255 {
            let changed = small(|bytes| {
                bytes[at] = value;
                seal(bytes);
            });
            match changed {
                Ok(plan) => same += usize::from(plan == good),
                Err(StoredError::Untrue(_)) => untrue += 1,
                Err(_) => {}
            }
        }
    }
    assert!(untrue > 1_000 && same >= whole.len() - 16, "{untrue} untrue, {same} the same");
}

#[test]
fn what_is_wrong_is_named() {
    let at = |at: usize, value: u8| small(|bytes| bytes[at] = value).unwrap_err();
    assert_eq!(small(Vec::clear), Err(StoredError::Foreign { bytes: 0 }));
    assert!(matches!(at(0, b'W'), StoredError::Foreign { .. }));
    assert_eq!(at(7, 9), StoredError::Version { found: 9 });
    assert_eq!(at(50, 0xff), StoredError::Checksum);
    let others = small(|bytes| {
        bytes[9] ^= 1;
        seal(bytes);
    });
    assert!(matches!(others, Err(StoredError::OtherLayouts { .. })), "{others:?}");
    let coded = small(|bytes| {
        bytes[40] = 5;
        seal(bytes);
    });
    assert_eq!(coded, Err(StoredError::Codec { number: 5 }));
    assert!(coded.unwrap_err().to_string().contains("codec 5"));
    let more = small(|bytes| {
        bytes.splice(41..41, [0xff, 0xff, 0x7f]);
        seal(bytes);
    });
    assert!(matches!(more, Err(StoredError::Count { what: "copy", count: 0x1f_ffff })), "{more:?}");
}

/// One matrix whose target memory has gaps, taken from one source: rows that are pieces of their own.
#[test]
fn more_pieces_than_may_be_looked_at_are_refused_without_looking() {
    let rows = 1 << 23;
    let layout = |width: u64, along: u64| {
        let mut b = LayoutBuilder::new();
        let part = Part::new("w").shape([rows, along]).dim(1, 0, along / width);
        b.add("w", DType::U8, &[rows, width], vec![part], 0);
        b.build().unwrap()
    };
    let (target, source) = (layout(1, 2), layout(2, 2));
    let mine = cells(&[&target], 0);
    let name = name_of(&target, &mine, &[&source]);
    let mut made = plan(&target, &mine, &[&source]).unwrap();
    assert_eq!((made.copies.len(), made.copies[0].rows), (1, rows));
    assert!(restore(&encode(&made, &name), &name, &target, &mine, &[&source]).is_ok());
    // Columns of two sources side by side are one piece.
    let column = |at| {
        let mut b = LayoutBuilder::new();
        b.add("w", DType::U8, &[rows, 1], vec![Part::new("w").shape([rows, 2]).dim(1, at, 2)], 0);
        b.build().unwrap()
    };
    let (columns, both) = ([column(0), column(1)], layout(2, 2));
    let (columns, all) = (columns.each_ref(), cells(&[&both], 0));
    let of_two = name_of(&both, &all, &columns);
    let beside = plan(&both, &all, &columns).unwrap();
    assert_eq!((beside.copies.len(), beside.copies[0].rows), (2, rows));
    assert!(restore(&encode(&beside, &of_two), &of_two, &both, &all, &columns).is_ok());
    made.copies[0].target_pitch = 2;
    let refused = restore(&encode(&made, &name), &name, &target, &mine, &[&source]);
    assert!(
        matches!(refused, Err(StoredError::Untrue(CoverageError::Pieces { .. }))),
        "{refused:?}"
    );
}
