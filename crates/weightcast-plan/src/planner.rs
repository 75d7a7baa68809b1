//! The planner: a transfer is the intersection of two layouts.

use std::collections::BTreeMap;

use crate::error::PlanError;
use crate::extent::{distance, in_bytes, packed, shape_in_bytes, strides_in_bytes};
use crate::fold::{Block, fold, join_all};
use crate::group::Cell;
use crate::index::{BoxIndex, first_overlap};
use crate::layout::{Entry, Layout};
use crate::limits::MAX_COPIES;
use crate::plan::{Copy, Plan, inside, runs_of};
use crate::slice::Slice;

/// Finds for every cell of the target the source bytes that fill it.
///
/// `cells` are the target's ([`crate::cells`] over its group, or over itself alone); `sources` the
/// layouts of one source replica's shards, whose numbers the copies carry. Where several shards
/// hold the same elements, the one with the fewest bytes so far gives them, so a plan depends on
/// nothing but its arguments.
pub fn plan(target: &Layout, cells: &[Cell], sources: &[&Layout]) -> Result<Plan, PlanError> {
    let plan = Planner::new(target, cells, sources).run()?;
    #[cfg(debug_assertions)]
    if let Err(error) = crate::coverage::prove(target, cells, sources, &plan) {
        panic!("planner: {error}");
    }
    Ok(plan)
}

/// [`plan`] of some of the target's cells.
pub(crate) fn plan_some(
    target: &Layout,
    cells: &[Cell],
    sources: &[&Layout],
) -> Result<Plan, PlanError> {
    Planner::new(target, cells, sources).run()
}

/// Most missing boxes that an error lists.
const LISTED: usize = 8;

struct Planner<'a> {
    target: &'a Layout,
    cells: &'a [Cell],
    sources: &'a [&'a Layout],
    /// For each source and tensor of the target, its number in the source.
    numbers: Vec<Vec<Option<u32>>>,
    /// Bytes taken from each source so far.
    loads: Vec<u64>,
    plan: Plan,
    missing: Vec<(String, Slice)>,
    more: usize,
}

/// Number of a source shard, and number of an entry in its layout.
type SourceEntry = (u32, u32);

/// All source entries of one tensor.
struct Offers {
    held: Vec<(SourceEntry, Slice)>,
    index: BoxIndex,
}

impl<'a> Planner<'a> {
    fn new(target: &'a Layout, cells: &'a [Cell], sources: &'a [&'a Layout]) -> Self {
        Self {
            target,
            cells,
            sources,
            numbers: sources.iter().map(|source| target.numbers_in(source)).collect(),
            loads: vec![0; sources.len()],
            plan: Plan::default(),
            missing: Vec::new(),
            more: 0,
        }
    }

    fn run(mut self) -> Result<Plan, PlanError> {
        let mut offers: Option<(u32, Offers)> = None;
        for (number, cell) in self.cells.iter().enumerate() {
            let known = self.target.entries().len() > cell.entry as usize;
            let entry = known
                .then(|| self.target.entry(cell.entry))
                .filter(|e| cell.slice.fits(self.target.tensors()[e.tensor as usize].shape()))
                .filter(|e| e.slice.contains(&cell.slice))
                .ok_or(PlanError::ForeignCell { cell: number as u32 })?;
            if cell.slice.is_empty() {
                continue;
            }
            if offers.as_ref().is_none_or(|(tensor, _)| *tensor != entry.tensor) {
                offers = Some((entry.tensor, self.offers(entry.tensor)?));
            }
            let Some((_, offers)) = &offers else { continue };
            self.fill(number, offers)?;
        }
        let Self { mut plan, missing, more, .. } = self;
        if !missing.is_empty() {
            return Err(PlanError::Uncovered { missing, more });
        }
        plan.copies.sort_unstable_by_key(|c| (c.target_buffer, c.target_offset, c.position));
        Ok(plan)
    }

    /// What the sources hold of a tensor of the target.
    fn offers(&self, tensor: u32) -> Result<Offers, PlanError> {
        let wanted = &self.target.tensors()[tensor as usize];
        let mut held = Vec::new();
        for (source, layout) in self.sources.iter().enumerate() {
            let Some(number) = self.numbers[source][tensor as usize] else { continue };
            let found = &layout.tensors()[number as usize];
            if found != wanted {
                return Err(PlanError::TensorMismatch {
                    source_shard: source as u32,
                    found: Box::new(found.clone()),
                    wanted: Box::new(wanted.clone()),
                });
            }
            let entries = layout.entries_of(number);
            held.extend(entries.map(|e| ((source as u32, e), layout.entry(e).slice)));
        }
        let index = BoxIndex::new(held.iter().map(|(_, slice)| slice));
        Ok(Offers { held, index })
    }

    /// Covers one cell, or notes what is missing of it.
    fn fill(&mut self, number: usize, offers: &Offers) -> Result<(), PlanError> {
        let cell = &self.cells[number];
        // The same elements from several shards are one choice.
        let mut choices = BTreeMap::<Slice, Vec<SourceEntry>>::new();
        for near in offers.index.near(&cell.slice) {
            let (held, slice) = &offers.held[near as usize];
            if let Some(both) = slice.intersect(&cell.slice) {
                choices.entry(both).or_default().push(*held);
            }
        }
        let missing = if choices.contains_key(&cell.slice) {
            Vec::new()
        } else {
            cell.slice.subtract_all(choices.keys())
        };
        if !missing.is_empty() {
            self.note(cell, missing);
        } else if self.target.is_alias(cell.entry) {
            self.plan.echoes.extend(runs_of(self.target, self.cells, number));
        } else {
            let parts = self.choose(cell, &choices);
            self.copy(number, &parts)?;
        }
        Ok(())
    }

    fn note(&mut self, cell: &Cell, missing: Vec<Slice>) {
        let name = self.target.tensor_of(cell.entry).name();
        for slice in missing {
            if self.missing.len() < LISTED {
                self.missing.push((name.to_owned(), slice));
            } else {
                self.more += 1;
            }
        }
    }

    /// Disjoint boxes that make up the cell, each with the entry that gives it.
    fn choose(
        &mut self,
        cell: &Cell,
        choices: &BTreeMap<Slice, Vec<SourceEntry>>,
    ) -> Vec<(Slice, SourceEntry)> {
        if let Some(held) = choices.get(&cell.slice) {
            return vec![(cell.slice.clone(), self.lightest(cell, &cell.slice, held))];
        }
        let boxes: Vec<&Slice> = choices.keys().collect();
        if first_overlap(boxes.len(), |at| boxes[at]).is_none() {
            let give = |(slice, held): (&Slice, &Vec<SourceEntry>)| {
                (slice.clone(), self.lightest(cell, slice, held))
            };
            return choices.iter().map(give).collect();
        }
        // Sources that overlap without being equal: the largest piece first.
        let (mut parts, mut left) = (Vec::new(), vec![cell.slice.clone()]);
        while let Some(piece) = left.pop() {
            let offers = choices.iter().filter_map(|(b, held)| Some((b.intersect(&piece)?, held)));
            let best = offers.max_by_key(|(both, held)| {
                let load = held.iter().map(|h| self.loads[h.0 as usize]).min();
                (both.volume(), std::cmp::Reverse(load))
            });
            let (both, held) = best.expect("the boxes cover the cell");
            left.extend(piece.subtract(&both));
            let giver = self.lightest(cell, &both, held);
            parts.push((both, giver));
        }
        parts
    }

    /// The least loaded of these shards, the lowest among equals; it bears the slice from now on.
    fn lightest(&mut self, cell: &Cell, slice: &Slice, held: &[SourceEntry]) -> SourceEntry {
        let giver = *held
            .iter()
            .min_by_key(|h| (self.loads[h.0 as usize], **h))
            .expect("a choice has at least one holder");
        let dtype = self.target.tensor_of(cell.entry).dtype();
        self.loads[giver.0 as usize] += slice.volume() * dtype.bits() / 8;
        giver
    }

    /// Emits the copies of one cell, joined as far as they go.
    fn copy(&mut self, number: usize, parts: &[(Slice, SourceEntry)]) -> Result<(), PlanError> {
        let cell = &self.cells[number];
        let entry = self.target.entry(cell.entry);
        let mut by_buffer = BTreeMap::<(u32, u32), Vec<Block<3>>>::new();
        for (slice, held) in parts {
            let from = self.sources[held.0 as usize].entry(held.1);
            let blocks = self.blocks(&from, &entry, slice)?;
            by_buffer.entry((held.0, from.buffer)).or_default().extend(blocks);
        }
        for ((source, source_buffer), mut blocks) in by_buffer {
            blocks.sort_unstable_by_key(|b| b.offset[POSITION]);
            let copy = |b: Block<3>| Copy {
                source,
                source_buffer,
                source_offset: b.offset[SOURCE],
                source_pitch: b.pitch[SOURCE],
                target_buffer: entry.buffer,
                target_offset: b.offset[TARGET],
                target_pitch: b.pitch[TARGET],
                row_bytes: b.row_bytes,
                rows: b.rows,
                cell: number as u32,
                position: b.offset[POSITION],
                position_pitch: b.pitch[POSITION],
            };
            self.plan.copies.extend(join_all(blocks).into_iter().map(copy));
        }
        Ok(())
    }

    /// One box seen in source memory, target memory and global order.
    fn blocks(&self, from: &Entry, to: &Entry, slice: &Slice) -> Result<Vec<Block<3>>, PlanError> {
        let tensor = &self.target.tensors()[to.tensor as usize];
        let part = in_bytes(tensor.dtype(), slice);
        let strides =
            [strides_in_bytes(from), strides_in_bytes(to), packed(&shape_in_bytes(tensor))];
        let offset = [
            from.offset + inside(tensor, from, &part, &strides[SOURCE]),
            to.offset + inside(tensor, to, &part, &strides[TARGET]),
            distance(&vec![0; part.ndim()], &part.start, &strides[POSITION]),
        ];
        let folded = fold(&part.len, strides.each_ref().map(Vec::as_slice));
        if folded.count() > (MAX_COPIES - self.plan.copies.len().min(MAX_COPIES)) as u64 {
            return Err(PlanError::TooManyCopies { tensor: tensor.name().to_owned() });
        }
        Ok(folded.blocks(offset))
    }
}

/// The three address spaces of a block.
const SOURCE: usize = 0;
const TARGET: usize = 1;
const POSITION: usize = 2;
