//! Bytes that several shards of one group hold, on one host: which shard brings which into the host.
//!
//! Shards of a tensor-parallel group hold some slices alike: norms, replicated attention, key and value heads
//! where there are fewer than ranks. Each of these bytes needs to enter a host once; the other shards there copy
//! the bytes from the memory of the shard that did. Nobody asks anybody: the one that *enters* a byte follows from
//! the tensor, the byte's position in it, and the shards of the host that hold it, so all shards decide alike.

use crate::error::PlanError;
use crate::fold::{Block, join_all};
use crate::group::Cell;
use crate::layout::Layout;
use crate::plan::Copy;
use crate::planner::plan_some;

/// What one shard enters, and what it takes from other shards on its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostShares {
    /// My number in the group.
    shard: u32,
    /// Bytes of a tensor that one shard enters in its turn.
    block: u64,
    /// For each cell of mine who of the host enters its bytes. `None`: nobody else there holds the cell.
    entering: Vec<Option<EnteringShards>>,
    taken: Vec<TakenCopies>,
}

/// What a shard takes from another one on its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenCopies {
    /// The other shard's number in the group.
    pub shard: u32,
    /// The copies. All have this shard as their source, and cells as in the plan they belong to.
    pub copies: Vec<Copy>,
}

/// The shards that enter the bytes of a cell, block by block in turns.
#[derive(Debug, Clone, PartialEq, Eq)]
struct EnteringShards {
    /// Ascending.
    shards: Vec<u32>,
    /// Where the turns begin, so that small tensors do not all fall to the first shard.
    first: u64,
}

impl EnteringShards {
    /// The shard that enters a block of a tensor.
    fn of(&self, block: u64) -> u32 {
        self.shards[(self.first.wrapping_add(block) % self.shards.len() as u64) as usize]
    }
}

/// My tensors in the layouts of the group's shards.
struct Twins<'a> {
    mine: &'a Layout,
    layouts: &'a [&'a Layout],
    /// For each shard the number that each tensor of mine has there.
    numbers: Vec<Vec<Option<u32>>>,
}

impl<'a> Twins<'a> {
    fn of(mine: &'a Layout, layouts: &'a [&'a Layout]) -> Self {
        let numbers = layouts.iter().map(|other| mine.numbers_in(other)).collect();
        Self { mine, layouts, numbers }
    }

    /// Whether a tensor has a further name on any shard.
    fn tied(&self, tensor: u32) -> bool {
        self.layouts.iter().zip(&self.numbers).any(|(layout, numbers)| {
            let twin = numbers[tensor as usize];
            twin.is_some_and(|twin| layout.entries_of(twin).any(|entry| layout.is_alias(entry)))
        })
    }

    /// Whether another shard holds anything of a cell of mine.
    fn hold(&self, other: u32, cell: &Cell) -> bool {
        let tensor = self.mine.entry(cell.entry).tensor as usize;
        let layout = self.layouts[other as usize];
        self.numbers[other as usize][tensor].is_some_and(|twin| {
            let mut entries = layout.entries_of(twin);
            layout.tensors()[twin as usize] == self.mine.tensors()[tensor]
                && entries.any(|entry| layout.entry(entry).slice.intersect(&cell.slice).is_some())
        })
    }
}

impl HostShares {
    /// The shares of shard number `shard` of the group with these layouts. `host` has the numbers of the shards
    /// on its host, and `cells` are the shard's ([`crate::cells`]). `None` if no bytes are shared there. Shards enter
    /// a tensor in turns of `block` bytes, which all have to say alike: [`SHARED_BLOCK`](crate::limits::SHARED_BLOCK).
    ///
    /// A tensor that has a further name on any shard of the group (a tied weight) is not shared.
    ///
    /// # Errors
    /// [`PlanError::TooManyCopies`]: the memory of two shards is cut too differently.
    ///
    /// # Panics
    /// If the group has no shard of one of these numbers.
    pub fn new(
        layouts: &[&Layout],
        shard: u32,
        host: &[u32],
        cells: &[Cell],
        block: u64,
    ) -> Result<Option<Self>, PlanError> {
        let mine = layouts[shard as usize];
        let mut others: Vec<u32> = host.iter().copied().filter(|other| *other != shard).collect();
        others.sort_unstable();
        others.dedup();
        let twins = Twins::of(mine, layouts);
        let entering = cells.iter().map(|cell| {
            if cell.copies < 2 || cell.slice.is_empty() || twins.tied(mine.entry(cell.entry).tensor)
            {
                return None;
            }
            let mut shards: Vec<u32> =
                others.iter().copied().filter(|other| twins.hold(*other, cell)).collect();
            if shards.is_empty() {
                return None;
            }
            shards.push(shard);
            shards.sort_unstable();
            // Keys are odd.
            let first = mine.tensor_of(cell.entry).key()[0] >> 1;
            Some(EnteringShards { shards, first })
        });
        let mut shares = Self { shard, block, entering: entering.collect(), taken: Vec::new() };
        for other in others {
            let copies = shares.taken_from(other, mine, layouts[other as usize], cells)?;
            if !copies.is_empty() {
                shares.taken.push(TakenCopies { shard: other, copies });
            }
        }
        let shared = shares.entering.iter().any(Option::is_some);
        Ok(shared.then_some(shares))
    }

    fn taken_from(
        &self,
        other: u32,
        mine: &Layout,
        theirs: &Layout,
        cells: &[Cell],
    ) -> Result<Vec<Copy>, PlanError> {
        let held = |number: &usize| {
            self.entering[*number].as_ref().is_some_and(|who| who.shards.contains(&other))
        };
        let numbers: Vec<usize> = (0..cells.len()).filter(held).collect();
        let shared: Vec<Cell> = numbers.iter().map(|number| cells[*number].clone()).collect();
        let mut taken = Vec::new();
        for copy in plan_some(mine, &shared, &[theirs])?.copies {
            let copy = Copy { source: other, cell: numbers[copy.cell as usize] as u32, ..copy };
            taken.extend(self.parts_of(&copy, |shard| shard == other));
        }
        Ok(taken)
    }

    /// Whether other shards of the host hold a cell of mine.
    pub fn is_shared(&self, cell: u32) -> bool {
        self.entering[cell as usize].is_some()
    }

    /// The parts of a copy of my plan that I enter myself: all of it, unless its cell is shared.
    pub fn entered(&self, copy: &Copy) -> Vec<Copy> {
        self.parts_of(copy, |shard| shard == self.shard)
    }

    /// The parts of a copy of my plan that others enter: what I read myself where one of them cannot give it.
    pub fn left(&self, copy: &Copy) -> Vec<Copy> {
        if self.is_shared(copy.cell) {
            return self.parts_of(copy, |shard| shard != self.shard);
        }
        Vec::new()
    }

    /// What I take from others, ascending by shard.
    pub fn taken(&self) -> &[TakenCopies] {
        &self.taken
    }

    /// The parts of a copy that these shards enter.
    fn parts_of(&self, copy: &Copy, shards: impl Fn(u32) -> bool) -> Vec<Copy> {
        match &self.entering[copy.cell as usize] {
            Some(who) => parts(copy, self.block, |block| shards(who.of(block))),
            None => vec![*copy],
        }
    }
}

/// The parts of a copy that lie in the wanted blocks of its tensor, joined as far as they go.
fn parts(copy: &Copy, block: u64, wanted: impl Fn(u64) -> bool) -> Vec<Copy> {
    let last = copy.position + (copy.rows - 1) * copy.position_pitch + copy.row_bytes - 1;
    if copy.position / block == last / block {
        return if wanted(copy.position / block) { vec![*copy] } else { Vec::new() };
    }
    let mut found: Vec<Block<3>> = Vec::new();
    let mut row = 0;
    while row < copy.rows {
        let begin = copy.position + row * copy.position_pitch;
        let left = (begin / block + 1) * block - begin;
        let mut rows = 1;
        if copy.row_bytes <= left {
            // With this row, all below it that end in the same block.
            rows += ((left - copy.row_bytes) / copy.position_pitch).min(copy.rows - row - 1);
            if wanted(begin / block) {
                found.push(block_of(copy, row, rows, 0, copy.row_bytes));
            }
        } else {
            let mut at = 0;
            while at < copy.row_bytes {
                let number = (begin + at) / block;
                let len = ((number + 1) * block - begin - at).min(copy.row_bytes - at);
                if wanted(number) {
                    found.push(block_of(copy, row, 1, at, len));
                }
                at += len;
            }
        }
        row += rows;
    }
    join_all(found).iter().map(|block| copy_of(copy, block)).collect()
}

/// These bytes of these rows of a copy, in its source, its target and its tensor.
fn block_of(copy: &Copy, row: u64, rows: u64, from: u64, row_bytes: u64) -> Block<3> {
    let pitch = [copy.source_pitch, copy.target_pitch, copy.position_pitch];
    let begin = [copy.source_offset, copy.target_offset, copy.position];
    let offset = std::array::from_fn(|space| begin[space] + row * pitch[space] + from);
    Block { row_bytes, rows, offset, pitch: if rows == 1 { [row_bytes; 3] } else { pitch } }
}

/// A copy like this one, of other rows.
fn copy_of(copy: &Copy, block: &Block<3>) -> Copy {
    let [source_offset, target_offset, position] = block.offset;
    let [source_pitch, target_pitch, position_pitch] = block.pitch;
    Copy {
        source_offset,
        source_pitch,
        target_offset,
        target_pitch,
        position,
        position_pitch,
        row_bytes: block.row_bytes,
        rows: block.rows,
        ..*copy
    }
}
