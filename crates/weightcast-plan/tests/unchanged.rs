//! Which copies are left out, against two versions that are compared byte by byte.

use std::num::Wrapping;

use crate::world::{Model, Rng, bytes_of, mix, scene};
use weightcast_plan::{
    Copy, EntryDigests, KnownDigests, Layout, Plan, PlanComparison, Slice, Unchanged, cells, plan,
};

const SEEDS: u64 = 400;

/// A digest that adds up, and that a changed byte always changes.
type Toy = Wrapping<u64>;

/// Two versions of a model. A changed stretch of a tensor's content has other bytes in the second.
struct Versions<'a> {
    model: &'a Model,
    /// By content: which positions differ.
    changed: Vec<std::ops::Range<u64>>,
}

impl<'a> Versions<'a> {
    fn random(rng: &mut Rng, model: &'a Model) -> Self {
        let changed = model.tensors.iter().map(|tensor| match rng.below(3) {
            0 => 0..tensor.nbytes(),
            1 => 0..0,
            _ => {
                let at = rng.below(tensor.nbytes().max(1));
                at..at + 1 + rng.below(8)
            }
        });
        Self { changed: changed.collect(), model }
    }

    /// A byte of one of the two versions.
    fn byte(&self, second: bool, tensor: usize, position: u64) -> u64 {
        let changes = second && self.changed[self.model.content[tensor]].contains(&position);
        mix(self.model.byte(tensor, position)) % 251 + u64::from(changes)
    }

    fn digest(&self, second: bool, tensor: usize, slice: &Slice) -> Toy {
        let part = |position| {
            let key = mix(self.model.tensors[tensor].key()[0] ^ mix(position)) | 1;
            Wrapping(self.byte(second, tensor, position)) * Wrapping(key)
        };
        let bytes = bytes_of(&self.model.tensors[tensor], slice);
        bytes.into_iter().map(|(_, position)| part(position)).sum()
    }

    /// The digests of a layout's entries, with so many percent of them.
    fn entries(
        &self,
        rng: &mut Rng,
        second: bool,
        layout: &Layout,
        percent: u64,
    ) -> EntryDigests<Toy> {
        let mut known = Vec::new();
        for (number, entry) in (0..).zip(layout.entries()) {
            if rng.chance(percent) {
                let tensor = self.model.find(layout.tensor_of(number).name());
                known.push((number, self.digest(second, tensor, &entry.slice)));
            }
        }
        known.into_iter().collect()
    }

    /// Whether any byte of a copy differs between the versions.
    fn differs(&self, tensor: usize, copy: &Copy) -> bool {
        (0..copy.rows).any(|row| {
            let start = copy.position + row * copy.position_pitch;
            let mut bytes = start..start + copy.row_bytes;
            bytes.any(|at| self.byte(false, tensor, at) != self.byte(true, tensor, at))
        })
    }

    /// Whether any byte of the entries that a copy may come from differs.
    fn entries_differ(&self, tensor: usize, source: &Layout, cell: &Slice) -> bool {
        let name = self.model.tensors[tensor].name();
        let Some(number) = source.find(name) else { return true };
        source.entries_of(number).any(|entry| {
            let slice = source.entry(entry).slice;
            let near = slice.intersect(cell).is_some();
            near && self.digest(false, tensor, &slice) != self.digest(true, tensor, &slice)
        })
    }
}

/// What is known, and what the two versions are.
struct Case<'a> {
    versions: &'a Versions<'a>,
    target: &'a Layout,
    from: Vec<&'a Layout>,
    plan: Plan,
    cells: Vec<weightcast_plan::Cell>,
}

impl Case<'_> {
    fn tensor(&self, cell: u32) -> usize {
        let entry = self.cells[cell as usize].entry;
        self.versions.model.find(self.target.tensor_of(entry).name())
    }

    fn compare(
        &self,
        plan: &Plan,
        from: &[&Layout],
        known: &KnownDigests<'_, Toy>,
    ) -> Unchanged<Toy> {
        PlanComparison::new(plan, self.target, &self.cells, from).unchanged(known)
    }

    fn held(&self) -> Vec<Toy> {
        let digest = |number| {
            let tensor = self.tensor(number);
            self.versions.digest(false, tensor, &self.cells[number as usize].slice)
        };
        (0..self.cells.len() as u32).map(digest).collect()
    }
}

fn all(digests: &[EntryDigests<Toy>]) -> Vec<Option<&EntryDigests<Toy>>> {
    digests.iter().map(Some).collect()
}

fn each_case(mut check: impl FnMut(u64, &mut Rng, &Case<'_>)) {
    for seed in 0..SEEDS {
        let (mut rng, model, sources, targets) = scene(seed);
        let versions = Versions::random(&mut rng, &model);
        let from: Vec<&Layout> = sources.iter().collect();
        let to: Vec<&Layout> = targets.iter().collect();
        for (shard, target) in to.iter().enumerate() {
            let cells = cells(&to, shard);
            let plan = plan(target, &cells, &from).unwrap();
            let case = Case { versions: &versions, target, from: from.clone(), plan, cells };
            check(seed, &mut rng, &case);
        }
    }
}

#[test]
fn what_is_left_out_is_the_same_in_both_versions_byte_by_byte() {
    let (mut left, mut moved) = (0, 0);
    each_case(|seed, rng, case| {
        let percent = [0, 30, 80, 100];
        let percent = [(); 3].map(|()| percent[rng.below(4) as usize]);
        let mut of = |second, percent| -> Vec<EntryDigests<Toy>> {
            case.from.iter().map(|l| case.versions.entries(rng, second, l, percent)).collect()
        };
        let (wanted, held) = (of(true, percent[0]), of(false, percent[1]));
        let cells = if percent[2] < 50 { Vec::new() } else { case.held() };
        let known = KnownDigests { wanted: &wanted, held: &all(&held), cells: &cells };
        let found = case.compare(&case.plan, &case.from, &known);
        assert_eq!(found.copies.len(), case.plan.copies.len());
        for (copy, same) in case.plan.copies.iter().zip(&found.copies) {
            let differs = case.versions.differs(case.tensor(copy.cell), copy);
            assert!(!(*same && differs), "seed {seed}: {copy:?} is left out, and differs");
            *if *same { &mut left } else { &mut moved } += 1;
        }
        for (number, told) in (0..).zip(&found.cells) {
            let slice = &case.cells[number as usize].slice;
            let real = case.versions.digest(true, case.tensor(number), slice);
            assert!(told.is_none_or(|told| told == real), "seed {seed}: cell {number}");
        }
    });
    assert!(left > 500 && moved > 500, "{left} left out, {moved} moved");
}

/// With everything known: a copy moves only if an entry that gives it has changed.
#[test]
fn what_is_moved_comes_from_a_slice_that_has_changed() {
    let mut moved = 0;
    each_case(|seed, rng, case| {
        let mut of = |second| -> Vec<EntryDigests<Toy>> {
            case.from.iter().map(|l| case.versions.entries(rng, second, l, 100)).collect()
        };
        let (wanted, held) = (of(true), of(false));
        let known = KnownDigests { wanted: &wanted, held: &all(&held), cells: &[] };
        let found = case.compare(&case.plan, &case.from, &known);
        for (copy, same) in case.plan.copies.iter().zip(&found.copies).filter(|(_, same)| !**same) {
            let source = case.from[copy.source as usize];
            let cell = &case.cells[copy.cell as usize].slice;
            let tensor = case.tensor(copy.cell);
            assert!(case.versions.entries_differ(tensor, source, cell), "seed {seed}: {same}");
            moved += 1;
        }
    });
    assert!(moved > 500, "{moved}");
}

/// Digests of which no use is said to be are none: without them the same is found.
#[test]
fn what_is_of_no_use_is_not_missed() {
    let mut dropped = 0;
    each_case(|seed, rng, case| {
        let mut of = |second| -> Vec<EntryDigests<Toy>> {
            case.from.iter().map(|l| case.versions.entries(rng, second, l, 80)).collect()
        };
        let comparison = PlanComparison::new(&case.plan, case.target, &case.cells, &case.from);
        let (wanted, held, cells) = (of(true), of(false), case.held());
        let fewer: Vec<_> =
            (0..).zip(&wanted).map(|(n, w)| comparison.of_use(n, |e| w.get(e))).collect();
        let found = |wanted: &[EntryDigests<Toy>]| {
            comparison.unchanged(&KnownDigests { wanted, held: &all(&held), cells: &cells })
        };
        assert_eq!(found(&fewer), found(&wanted), "seed {seed}");
        let count = |of: &[EntryDigests<Toy>]| of.iter().map(EntryDigests::len).sum::<usize>();
        dropped += count(&wanted) - count(&fewer);
    });
    assert!(dropped > 500, "{dropped}");
}

/// Between equal layouts a reader needs no memory of its sources: its own digests are enough.
#[test]
fn between_equal_layouts_the_readers_own_digests_are_enough() {
    let mut left = 0;
    each_case(|seed, rng, case| {
        let sources = vec![case.target];
        let Ok(plan) = plan(case.target, &case.cells, &sources) else { return };
        let wanted = vec![case.versions.entries(rng, true, case.target, 100)];
        let held = case.held();
        let known = KnownDigests { wanted: &wanted, held: &[], cells: &held };
        let found = case.compare(&plan, &sources, &known);
        for (copy, same) in plan.copies.iter().zip(&found.copies) {
            let cell = &case.cells[copy.cell as usize];
            let whole = case.target.entry(cell.entry).slice == cell.slice;
            let tensor = case.tensor(copy.cell);
            let digest = |second| case.versions.digest(second, tensor, &cell.slice);
            assert_eq!(*same, whole && digest(false) == digest(true), "seed {seed}");
            left += usize::from(*same);
        }
    });
    assert!(left > 500, "{left}");
}

/// Numbers of sources, entries and cells that nothing is known of are no reason to panic.
#[test]
fn of_what_nothing_is_known_nothing_is_left_out() {
    each_case(|seed, rng, case| {
        let mut of = || -> Vec<EntryDigests<Toy>> {
            case.from.iter().map(|l| case.versions.entries(rng, false, l, 100)).collect()
        };
        let (wanted, held) = (of(), of());
        let nothing = KnownDigests::<Toy> { wanted: &[], held: &[], cells: &[] };
        let digests = KnownDigests { wanted: &wanted, held: &all(&held), cells: &[] };
        for (sources, known) in [(&case.from[..], &nothing), (&[], &nothing), (&[], &digests)] {
            let found = case.compare(&case.plan, sources, known);
            assert!(found.copies.iter().all(|same| !same), "seed {seed}");
            assert!(found.cells.iter().all(Option::is_none), "seed {seed}");
        }
    });
}
