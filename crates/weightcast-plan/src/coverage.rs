//! The proof that a plan is right, by other arithmetic than the planner's.
//!
//! Three questions, each answered for every byte: do the cells make up the entries; is every byte
//! of the entries written exactly once and nothing else; does every row come from the memory that
//! holds those very elements, and go to where they belong.

use thiserror::Error;

use crate::group::Cell;
use crate::index::first_overlap;
use crate::layout::Layout;
use crate::plan::{Copy, Plan, Run};
use crate::slice::Slice;
use crate::tensor::Tensor;
use crate::window::{SourceWindows, Window, Windows};

/// What is wrong with a plan. None of these can follow from bad input: the plan is not of these
/// layouts, or there is a bug.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs)] // fields are named in the message
pub enum CoverageError {
    /// The cells are not the entries, cut up.
    #[error("cells of entry {entry} ({tensor}) do not make up its slice")]
    Cells { entry: u32, tensor: String },
    /// A copy or an echo that refers to nothing, or has no bytes.
    #[error("{what} {number} refers to what does not exist, or is empty")]
    Reference { what: &'static str, number: usize },
    /// The copies do not move as many bytes as the target holds.
    #[error("the plan moves {moved} bytes, the target holds {held}")]
    Bytes { moved: u64, held: u64 },
    /// A byte that two rows write.
    #[error("byte {offset} of target buffer {buffer} is written twice")]
    WrittenTwice { buffer: u32, offset: u64 },
    /// A byte of an entry that no row writes, or a byte of no entry that one does.
    #[error(
        "the bytes written differ from the bytes held at byte {offset} of target buffer {buffer}"
    )]
    Tiling { buffer: u32, offset: u64 },
    /// Rows that neither touch nor lie side by side, in larger numbers than may be looked at.
    #[error("the plan writes or echoes more than {most} separate pieces")]
    Pieces { most: u64 },
    /// A row that does not go where its elements belong.
    #[error(
        "copy {copy}: byte {position} of {tensor} does not belong at the target's byte {offset}"
    )]
    Target { copy: usize, tensor: String, position: u64, offset: u64 },
    /// A row that does not come from where its elements are.
    #[error("copy {copy}: byte {position} of {tensor} is not at the source's byte {offset}")]
    Source { copy: usize, tensor: String, position: u64, offset: u64 },
    /// An echo that is not its cell's memory, or cells of tied weights not echoed exactly once.
    #[error("echo of cell {cell} is not exactly the cell's memory")]
    Echo { cell: u32 },
}

/// Proves that `plan` fills every byte of `target`'s entries exactly once, from the bytes of
/// `sources` that hold those elements, and touches nothing else.
pub fn prove(
    target: &Layout,
    cells: &[Cell],
    sources: &[&Layout],
    plan: &Plan,
) -> Result<(), CoverageError> {
    prove_within(target, cells, sources, plan, u64::MAX)
}

/// The same for a plan of unknown origin: gives up where more than so many pieces of the target
/// would have to be looked at one by one.
pub(crate) fn prove_within(
    target: &Layout,
    cells: &[Cell],
    sources: &[&Layout],
    plan: &Plan,
    pieces: u64,
) -> Result<(), CoverageError> {
    cells_make_entries(target, cells)?;
    references(target, cells, sources, plan)?;
    written_once(target, &plan.copies, pieces)?;
    let mut held = SourceWindows::new(sources);
    let mut goes: Option<(u32, Window)> = None;
    for (number, copy) in plan.copies.iter().enumerate() {
        // The next copy is mostly of the same cell.
        let goes = match goes.take().filter(|(cell, _)| *cell == copy.cell) {
            Some(known) => goes.insert(known),
            None => goes.insert((copy.cell, window_of(target, &cells[copy.cell as usize]))),
        };
        let tensor = target.tensor_of(cells[copy.cell as usize].entry);
        rows_true(tensor, &goes.1, &mut held, number, copy)?;
    }
    echoes_true(target, cells, &plan.echoes, pieces)
}

fn cells_make_entries(target: &Layout, cells: &[Cell]) -> Result<(), CoverageError> {
    let mut by_entry: Vec<Vec<&Slice>> = vec![Vec::new(); target.entries().len()];
    for cell in cells {
        let slot = by_entry.get_mut(cell.entry as usize);
        slot.ok_or(CoverageError::Cells { entry: cell.entry, tensor: "none".into() })?
            .push(&cell.slice);
    }
    for (entry, parts) in by_entry.iter().enumerate() {
        let slice = target.entry(entry as u32).slice;
        let tensor = target.tensor_of(entry as u32);
        let inside = parts.iter().all(|p| p.fits(tensor.shape()) && slice.contains(p));
        let volume = parts.iter().map(|p| p.volume()).fold(0, u64::saturating_add);
        if !inside
            || volume != slice.volume()
            || first_overlap(parts.len(), |at| parts[at]).is_some()
        {
            let tensor = tensor.name().to_owned();
            return Err(CoverageError::Cells { entry: entry as u32, tensor });
        }
    }
    Ok(())
}

/// Numbers in range, rows not empty, nothing past the end of 64 bits.
fn references(
    target: &Layout,
    cells: &[Cell],
    sources: &[&Layout],
    plan: &Plan,
) -> Result<(), CoverageError> {
    let cell = |number: u32, alias: bool| {
        cells.get(number as usize).is_some_and(|c| target.is_alias(c.entry) == alias)
    };
    let reach = |offset: u64, pitch: u64, rows: u64, row_bytes: u64| {
        let last = rows.checked_sub(1).and_then(|n| n.checked_mul(pitch));
        row_bytes > 0
            && last.and_then(|l| l.checked_add(offset)?.checked_add(row_bytes)).is_some()
            && rows.checked_mul(row_bytes).is_some()
    };
    for (number, c) in plan.copies.iter().enumerate() {
        let fine = cell(c.cell, false)
            && (c.source as usize) < sources.len()
            && reach(c.source_offset, c.source_pitch, c.rows, c.row_bytes)
            && reach(c.target_offset, c.target_pitch, c.rows, c.row_bytes)
            && reach(c.position, c.position_pitch, c.rows, c.row_bytes);
        if !fine {
            return Err(CoverageError::Reference { what: "copy", number });
        }
    }
    for (number, r) in plan.echoes.iter().enumerate() {
        let fine = cell(r.cell, true)
            && reach(r.offset, r.pitch, r.rows, r.row_bytes)
            && reach(r.position, r.position_pitch, r.rows, r.row_bytes);
        if !fine {
            return Err(CoverageError::Reference { what: "echo", number });
        }
    }
    Ok(())
}

/// A buffer's number, the first byte, and one past the last byte.
type ByteRange = (u32, u64, u64);

/// The bytes written are the bytes held, each once.
fn written_once(target: &Layout, copies: &[Copy], most: u64) -> Result<(), CoverageError> {
    let moved = copies.iter().map(Copy::bytes).fold(0, u64::saturating_add);
    if moved != target.bytes() {
        return Err(CoverageError::Bytes { moved, held: target.bytes() });
    }
    let runs = side_by_side(copies);
    let each = |r: &Run| if r.pitch == r.row_bytes { 1 } else { r.rows };
    if runs.iter().map(each).fold(0, u64::saturating_add) > most {
        return Err(CoverageError::Pieces { most });
    }
    let mut written = Vec::with_capacity(runs.len());
    for r in &runs {
        rows(r.offset, r.pitch, r.row_bytes, r.rows, |start, len| {
            written.push((r.buffer, start, start + len));
        });
    }
    let mut held = Vec::new();
    for entry in (0..target.entries().len() as u32).filter(|&e| !target.is_alias(e)) {
        let window = Window::new(target, entry, &target.entry(entry).slice);
        window.pieces(|start, len| held.push((window.buffer, start, start + len)));
    }
    let overlap = |at: ByteRange| CoverageError::WrittenTwice { buffer: at.0, offset: at.1 };
    let written = union(written).map_err(overlap)?;
    let held = union(held).map_err(overlap)?;
    match (0..written.len().max(held.len())).find(|&at| written.get(at) != held.get(at)) {
        None => Ok(()),
        Some(at) => {
            let first = written.get(at).into_iter().chain(held.get(at)).min();
            let (buffer, offset, _) = *first.expect("one of the two is there");
            Err(CoverageError::Tiling { buffer, offset })
        }
    }
}

/// What is written, columns that lie side by side as one: what several sources give of one matrix.
fn side_by_side(copies: &[Copy]) -> Vec<Run> {
    let mut runs: Vec<Run> = copies.iter().map(Copy::landed).collect();
    runs.sort_unstable_by_key(|run| (run.buffer, run.offset));
    runs.dedup_by(|next, last| {
        let alike = (next.buffer, next.rows, next.pitch) == (last.buffer, last.rows, last.pitch);
        let beside = next.offset == last.offset + last.row_bytes
            && last.row_bytes + next.row_bytes <= last.pitch;
        let joins = last.rows > 1 && alike && beside;
        if joins {
            last.row_bytes += next.row_bytes;
        }
        joins
    });
    runs
}

/// Calls `each` with the rows, or with all of them at once where they touch.
fn rows(offset: u64, pitch: u64, row_bytes: u64, rows: u64, mut each: impl FnMut(u64, u64)) {
    if pitch == row_bytes {
        return each(offset, rows * row_bytes);
    }
    (0..rows).for_each(|row| each(offset + row * pitch, row_bytes));
}

/// Disjoint pieces sorted and merged, or the place where two overlap.
fn union(mut pieces: Vec<ByteRange>) -> Result<Vec<ByteRange>, ByteRange> {
    pieces.sort_unstable();
    let mut merged: Vec<ByteRange> = Vec::new();
    for piece in pieces {
        match merged.last_mut() {
            Some(last) if last.0 == piece.0 && piece.1 < last.2 => return Err(piece),
            Some(last) if last.0 == piece.0 && piece.1 == last.2 => last.2 = piece.2,
            _ => merged.push(piece),
        }
    }
    Ok(merged)
}

fn window_of(target: &Layout, cell: &Cell) -> Window {
    Window::new(target, cell.entry, &cell.slice)
}

/// The rows of a copy, at both ends: those that step alike at once, others one by one.
fn rows_true(
    tensor: &Tensor,
    goes: &Window,
    held: &mut SourceWindows<'_>,
    number: usize,
    copy: &Copy,
) -> Result<(), CoverageError> {
    let windows = held.windows(copy.source, tensor);
    let mut comes: Option<&Window> = None;
    let mut row = 0;
    while row < copy.rows {
        let (to, from) = (copy.landed().after(row), copy.taken().after(row));
        // The next rows are mostly in the same entry.
        if comes.is_none_or(|w| w.locate(from.position).is_none()) {
            comes = windows.and_then(|all| all.find(from.position));
        }
        let whole = goes.whole_rows(&to).zip(comes.and_then(|w| w.whole_rows(&from)));
        row += match whole {
            Some((to, from)) => to.min(from),
            None => row_true(goes, windows, number, tensor, (&from, &to)).map(|()| 1)?,
        };
    }
    Ok(())
}

/// The first row of a copy, as far as memory is contiguous at a time, at both ends.
fn row_true(
    goes: &Window,
    windows: Option<&Windows>,
    copy: usize,
    tensor: &Tensor,
    (from, to): (&Run, &Run),
) -> Result<(), CoverageError> {
    let mut done = 0;
    while done < to.row_bytes {
        let (position, source, offset) = (to.position + done, from.offset + done, to.offset + done);
        let name = || tensor.name().to_owned();
        let go = goes.holds(to.buffer, offset, position).ok_or_else(|| CoverageError::Target {
            copy,
            tensor: name(),
            position,
            offset,
        })?;
        let come = windows.and_then(|all| all.find(position));
        let come = come.and_then(|w| w.holds(from.buffer, source, position)).ok_or_else(|| {
            CoverageError::Source { copy, tensor: name(), position, offset: source }
        })?;
        done += go.min(come);
    }
    Ok(())
}

/// The echoes are the memory of the cells of tied weights' further names, each byte once.
fn echoes_true(
    target: &Layout,
    cells: &[Cell],
    echoes: &[Run],
    most: u64,
) -> Result<(), CoverageError> {
    // Any number of rows may lie at one place.
    if echoes.iter().map(|echo| echo.rows).fold(0, u64::saturating_add) > most {
        return Err(CoverageError::Pieces { most });
    }
    // (cell, position) pieces take the place of (buffer, address) ones.
    let mut echoed: Vec<ByteRange> = Vec::new();
    for echo in echoes {
        let cell = &cells[echo.cell as usize];
        let window = window_of(target, cell);
        for row in 0..echo.rows {
            let mut done = 0;
            while done < echo.row_bytes {
                let position = echo.position + row * echo.position_pitch + done;
                let offset = echo.offset + row * echo.pitch + done;
                let run = window.holds(echo.buffer, offset, position);
                done += run.ok_or(CoverageError::Echo { cell: echo.cell })?;
            }
        }
        rows(echo.position, echo.position_pitch, echo.row_bytes, echo.rows, |start, len| {
            echoed.push((echo.cell, start, start + len));
        });
    }
    let mut bytes = vec![0u64; cells.len()];
    for (cell, start, end) in union(echoed).map_err(|at| CoverageError::Echo { cell: at.0 })? {
        bytes[cell as usize] += end - start;
    }
    for (number, cell) in cells.iter().enumerate().filter(|(_, c)| target.is_alias(c.entry)) {
        let held = cell.slice.volume() * target.tensor_of(cell.entry).dtype().bits() / 8;
        if bytes[number] != held {
            return Err(CoverageError::Echo { cell: number as u32 });
        }
    }
    Ok(())
}
