//! Who gives which rows of tensors that several sources hold in different boxes that overlap, against
//! a second writing of the choice over plain ranges.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use crate::world::{Rng, mix};
use weightcast_plan::{DType, Layout, LayoutBuilder, Part, cells, plan};

const ROW: u64 = 8;

/// The first row that a shard holds of each tensor, and one past the last.
type HeldRows = Vec<Option<(u64, u64)>>;

fn layout(lengths: &[u64], rows: &HeldRows) -> Layout {
    let mut b = LayoutBuilder::new();
    for (tensor, (length, rows)) in lengths.iter().zip(rows).enumerate() {
        let &Some((start, end)) = rows else { continue };
        let name = format!("w{tensor:02}");
        let part = Part::new(&name).shape([*length, ROW / 2]).range(0, start, end - start);
        b.add(name, DType::BF16, &[end - start, ROW / 2], vec![part], 0);
    }
    b.build().unwrap()
}

fn range(rng: &mut Rng, length: u64) -> (u64, u64) {
    let start = rng.below(length);
    (start, start + 1 + rng.below(length - start))
}

/// Lengths of tensors, what is wanted of them, and what each source has, which is all between them.
fn drawn(rng: &mut Rng) -> (Vec<u64>, HeldRows, Vec<HeldRows>) {
    let lengths: Vec<u64> = (0..2 + rng.below(6)).map(|_| 2 + rng.below(20)).collect();
    let shards = 2 + rng.below(5) as usize;
    let mut wanted = Vec::new();
    let mut sources = vec![Vec::new(); shards];
    for &length in &lengths {
        let (start, end) = range(rng, length);
        wanted.push(Some((start, end)));
        loop {
            let one = |rng: &mut Rng| rng.chance(80).then(|| range(rng, length));
            let held: HeldRows = (0..shards).map(|_| one(rng)).collect();
            if (start..end).all(|row| held.iter().flatten().any(|(a, b)| (*a..*b).contains(&row))) {
                sources.iter_mut().zip(held).for_each(|(source, rows)| source.push(rows));
                break;
            }
        }
    }
    (lengths, wanted, sources)
}

/// The choice, written a second time.
struct Charging {
    /// Bytes that each source has given.
    given: Vec<u64>,
    /// Tensors of which boxes overlapped without any being all that was wanted.
    overlapped: usize,
}

impl Charging {
    /// The one of these that has given least gives so many rows.
    fn least(&mut self, holders: &[usize], rows: &Range<u64>) -> usize {
        let least = *holders.iter().min_by_key(|s| (self.given[**s], **s)).unwrap();
        self.given[least] += (rows.end - rows.start) * ROW;
        least
    }

    /// Who gives which rows of one tensor.
    fn of(&mut self, wanted: (u64, u64), held: &[Option<(u64, u64)>]) -> Vec<(Range<u64>, usize)> {
        // Start and length of what is offered, and by whom.
        let mut offers = BTreeMap::<(u64, u64), Vec<usize>>::new();
        for (source, held) in held.iter().enumerate() {
            let Some((start, end)) = held.map(|h| (h.0.max(wanted.0), h.1.min(wanted.1))) else {
                continue;
            };
            if start < end {
                offers.entry((start, end - start)).or_default().push(source);
            }
        }
        let rows = |(start, len): (u64, u64)| start..start + len;
        let whole = (wanted.0, wanted.1 - wanted.0);
        if let Some(holders) = offers.get(&whole) {
            return vec![(rows(whole), self.least(holders, &rows(whole)))];
        }
        if offers.keys().map(|(_, len)| len).sum::<u64>() == whole.1 {
            let give = |(offer, holders): (&_, &Vec<_>)| {
                (rows(*offer), self.least(holders, &rows(*offer)))
            };
            return offers.iter().map(give).collect();
        }
        self.overlapped += 1;
        let (mut parts, mut left) = (Vec::new(), vec![rows(whole)]);
        while let Some(piece) = left.pop() {
            let inside = |offer| {
                let offer = rows(offer);
                offer.start.max(piece.start)..offer.end.min(piece.end)
            };
            let best = offers.iter().filter(|(offer, _)| !inside(**offer).is_empty());
            let (offer, holders) = best
                .max_by_key(|(offer, holders)| {
                    let given = holders.iter().map(|s| self.given[*s]).min();
                    (inside(**offer).end - inside(**offer).start, Reverse(given))
                })
                .unwrap();
            let part = inside(*offer);
            let rest = [piece.start..part.start, part.end..piece.end];
            left.extend(rest.into_iter().filter(|rest| !rest.is_empty()));
            let giver = self.least(holders, &part);
            parts.push((part, giver));
        }
        parts
    }
}

#[test]
fn each_part_is_charged_to_whoever_gives_it() {
    let mut overlapped = 0;
    for seed in 0..3_000 {
        let (lengths, wanted, sources) = drawn(&mut Rng(mix(seed)));
        let target = layout(&lengths, &wanted);
        let layouts: Vec<Layout> = sources.iter().map(|rows| layout(&lengths, rows)).collect();
        let from: Vec<&Layout> = layouts.iter().collect();
        let mine = cells(&[&target], 0);
        let plan = plan(&target, &mine, &from).unwrap();
        let mut found = BTreeMap::new();
        for copy in &plan.copies {
            let entry = mine[copy.cell as usize].entry;
            for row in (0..copy.rows).flat_map(|row| {
                let start = copy.position + row * copy.position_pitch;
                (start..start + copy.row_bytes).step_by(ROW as usize)
            }) {
                let tensor = target.tensor_of(entry).name().to_owned();
                found.insert((tensor, row / ROW), copy.source as usize);
            }
        }
        let mut choice = Charging { given: vec![0; sources.len()], overlapped: 0 };
        let mut expected = BTreeMap::new();
        for (tensor, wanted) in wanted.iter().enumerate() {
            let held: Vec<_> = sources.iter().map(|rows| rows[tensor]).collect();
            for (rows, giver) in choice.of(wanted.unwrap(), &held) {
                expected.extend(rows.map(|row| ((format!("w{tensor:02}"), row), giver)));
            }
        }
        assert_eq!(found, expected, "seed {seed}");
        assert_eq!(plan.bytes_by_source(sources.len()), choice.given, "seed {seed}");
        overlapped += choice.overlapped;
    }
    assert!(overlapped > 1_000, "{overlapped}");
}
