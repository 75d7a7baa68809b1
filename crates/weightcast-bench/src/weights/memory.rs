//! A shard's memory, filled with content that follows from tensor, place and version.

use std::iter;
use std::thread;

use anyhow::{Result, ensure};
use weightcast::plan::{Layout, Run, cells, runs};
use weightcast::transport::Region;

/// Content is written in words. All slices here begin and end at a word.
const WORD: u64 = 8;
/// Bytes of content that are made or compared at a time.
const BLOCK: u64 = 256 << 10;
/// Buffers of shared memory begin at a page each.
const PAGE: u64 = 4 << 10;
/// Makes neighbouring words differ in all their bytes.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The memory of one shard: one region per buffer of its layout, as a framework allocates it.
pub(crate) struct KnownMemory {
    pub(crate) layout: Layout,
    pub(crate) regions: Vec<Region>,
    /// Runs of bytes, each with its tensor.
    rows: Vec<(Run, KnownTensor)>,
    /// Whether most tensors are the same in a version of odd number as in the one before.
    freezes: bool,
}

/// A tensor whose content is known.
#[derive(Clone, Copy)]
struct KnownTensor {
    /// Hash of its name.
    name: u64,
    /// Its number in the layout.
    number: u32,
}

/// Of so many tensors, one changes in every version of memory that freezes.
const FROZEN: u32 = 10;

impl KnownMemory {
    /// Allocates memory and touches every page.
    pub(crate) fn allocate(layout: Layout) -> Result<Self> {
        let regions = layout.buffers().iter().map(|bytes| warm(*bytes));
        let regions = regions.collect::<Result<Vec<_>>>()?;
        Self::over(layout, regions)
    }

    /// The same of memory that other processes can map: all buffers in one file.
    pub(crate) fn allocate_shared(layout: Layout) -> Result<Self> {
        let starts = layout.buffers().iter().scan(0, |end, bytes| {
            let start = *end;
            *end += bytes.next_multiple_of(PAGE);
            Some((start as usize, *bytes as usize))
        });
        let starts: Vec<_> = starts.collect();
        let all = starts.last().map_or(0, |(start, bytes)| start + bytes);
        let whole = warm_shared(all as u64)?;
        let parts = starts.into_iter().map(|(start, bytes)| Ok(whole.part(start, bytes)?));
        Self::over(layout, parts.collect::<Result<_>>()?)
    }

    fn over(layout: Layout, regions: Vec<Region>) -> Result<Self> {
        let cells = cells(&[&layout], 0);
        let rows = runs(&layout, &cells).into_iter().map(|run| {
            let entry = cells[run.cell as usize].entry;
            let (name, number) = (hash(layout.tensor_of(entry).name()), layout.entry(entry).tensor);
            (run, KnownTensor { name, number })
        });
        let rows = rows.collect();
        Ok(Self { layout, regions, rows, freezes: false })
    }

    /// The same, whose versions of odd numbers differ from the ones before in one tensor of ten.
    pub(crate) fn freezing(self, freezes: bool) -> Self {
        Self { freezes, ..self }
    }

    /// The content of a tensor, from `position` on.
    fn content(&self, tensor: KnownTensor, version: u64, position: u64, bytes: &mut [u8]) {
        let frozen = self.freezes && !tensor.number.is_multiple_of(FROZEN);
        content(tensor.name, if frozen { version & !1 } else { version }, position, bytes);
    }

    /// Bytes in all.
    pub(crate) fn bytes(&self) -> u64 {
        self.layout.bytes()
    }

    /// Writes a version's content.
    pub(crate) fn fill(&self, version: u64) {
        self.each_block(|region, offset, position, bytes, name| {
            self.content(name, version, position, bytes);
            region.write_at(offset, bytes).expect("a layout lies within its regions");
            true
        });
    }

    /// Whether every byte is the version's.
    pub(crate) fn holds(&self, version: u64) -> bool {
        self.each_block(|region, offset, position, bytes, name| {
            let mut expected = vec![0; bytes.len()];
            self.content(name, version, position, &mut expected);
            region.read_at(offset, bytes).expect("a layout lies within its regions");
            expected == bytes
        })
    }

    /// Calls `with(region, offset, position, scratch, tensor)` for all blocks on two threads. True if
    /// all calls return true.
    fn each_block(
        &self,
        with: impl Fn(&Region, usize, u64, &mut [u8], KnownTensor) -> bool + Sync,
    ) -> bool {
        let work = |half: u64| {
            let mut scratch = vec![0; BLOCK as usize];
            let blocks = self.rows.iter().flat_map(|(run, name)| {
                blocks(run)
                    .map(move |(offset, position, len)| (run.buffer, offset, position, len, *name))
            });
            blocks.enumerate().filter(|(at, _)| *at as u64 % 2 == half).all(
                |(_, (buffer, offset, position, len, name))| {
                    let region = &self.regions[buffer as usize];
                    with(region, offset as usize, position, &mut scratch[..len as usize], name)
                },
            )
        };
        thread::scope(|scope| {
            let other = scope.spawn(|| work(1));
            work(0) & other.join().expect("no panics")
        })
    }
}

/// Offset, position and length of the blocks of all rows of a run.
fn blocks(run: &Run) -> impl Iterator<Item = (u64, u64, u64)> {
    let run = *run;
    (0..run.rows).flat_map(move |row| {
        let (offset, position) =
            (run.offset + row * run.pitch, run.position + row * run.position_pitch);
        let starts = iter::successors(Some(0), |at| Some(at + BLOCK));
        starts
            .take_while(move |at| *at < run.row_bytes)
            .map(move |at| (offset + at, position + at, BLOCK.min(run.row_bytes - at)))
    })
}

/// The bytes of a tensor from `position` on.
fn content(name: u64, version: u64, position: u64, bytes: &mut [u8]) {
    debug_assert!(position.is_multiple_of(WORD) && bytes.len().is_multiple_of(WORD as usize));
    let mut word = (name ^ version.wrapping_mul(STEP.rotate_left(32)))
        .wrapping_add((position / WORD).wrapping_mul(STEP));
    for place in bytes.chunks_exact_mut(WORD as usize) {
        place.copy_from_slice(&word.to_le_bytes());
        word = word.wrapping_add(STEP);
    }
}

/// FNV-1a.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Shared memory whose pages are there already.
pub(crate) fn warm_shared(bytes: u64) -> Result<Region> {
    let region = Region::allocate_shared(usize::try_from(bytes)?)?;
    region.prefault();
    Ok(region)
}

/// A region whose pages are in memory already.
pub(crate) fn warm(bytes: u64) -> Result<Region> {
    let region = Region::allocate(usize::try_from(bytes)?)?;
    region.prefault();
    ensure!(region.len() as u64 == bytes, "no memory for {bytes} bytes");
    Ok(region)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::cases::{CaseName, TransferCase};

    /// Blocks are never empty or longer than `BLOCK`, and together they are the rows, byte by byte.
    #[test]
    fn rows_are_cut_into_blocks_without_a_gap() {
        for row_bytes in [1, 8, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 8] {
            for rows in [1, 2, 3] {
                let (pitch, position_pitch) = (row_bytes + 24, row_bytes + 40);
                let run = Run {
                    buffer: 0,
                    offset: 16,
                    pitch,
                    row_bytes,
                    rows,
                    cell: 0,
                    position: 32,
                    position_pitch,
                };
                let found: Vec<(u64, u64, u64)> = blocks(&run).collect();
                let mut next = found.iter();
                for row in 0..rows {
                    let mut done = 0;
                    while done < row_bytes {
                        let &(offset, position, len) = next.next().expect("a block");
                        assert_eq!(offset, 16 + row * pitch + done);
                        assert_eq!(position, 32 + row * position_pitch + done);
                        assert_eq!(len, BLOCK.min(row_bytes - done));
                        done += len;
                    }
                }
                assert_eq!(next.next(), None, "{row_bytes} {rows}");
            }
        }
    }

    /// The content at a place is the same wherever a read begins.
    #[test]
    fn content_is_of_a_place() {
        let mut whole = [0; 64];
        content(hash("w"), 3, 0, &mut whole);
        for from in (0..64).step_by(8) {
            let mut part = vec![0; 64 - from];
            content(hash("w"), 3, from as u64, &mut part);
            assert_eq!(part, whole[from..], "{from}");
        }
        for (name, version) in [("w", 4), ("v", 3)] {
            let mut other = [0; 64];
            content(hash(name), version, 0, &mut other);
            assert!(whole.chunks(8).zip(other.chunks(8)).all(|(a, b)| a != b), "{name} {version}");
        }
    }

    /// From an even version to the next: in one tensor of ten, and from that to the next in all.
    #[test]
    fn frozen_memory_changes_by_a_tenth_and_then_altogether() {
        let case = &TransferCase::of(CaseName::Frozen, true, &[])[0];
        let memory = KnownMemory::allocate(case.targets().unwrap().remove(0)).unwrap();
        let memory = memory.freezing(case.freezes);
        let bytes = |version| {
            memory.fill(version);
            assert!(memory.holds(version) && !memory.holds(version + 1));
            memory.regions.iter().map(Region::to_vec).collect::<Vec<_>>()
        };
        let versions = [4, 5, 6].map(bytes);
        let changed = |one: usize, other: usize| {
            let pairs = versions[one].iter().zip(&versions[other]);
            pairs.filter(|(one, other)| one != other).count()
        };
        let all = versions[0].len();
        assert_eq!((changed(0, 1), changed(1, 2)), (all / 10, all));
    }

    #[test]
    fn content_is_known_and_every_byte_counts() {
        let case = &TransferCase::of(CaseName::QwenReshard, true, &[])[0];
        let memory = KnownMemory::allocate(case.targets().unwrap().remove(1)).unwrap();
        memory.fill(3);
        assert!(memory.holds(3) && !memory.holds(4));
        let last = memory.regions.last().unwrap();
        let mut byte = [0];
        last.read_at(last.len() - 1, &mut byte).unwrap();
        last.write_at(last.len() - 1, &[byte[0] ^ 1]).unwrap();
        assert!(!memory.holds(3));
    }
}
