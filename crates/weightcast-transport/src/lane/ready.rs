//! Which pieces a source has that is still being filled: those are asked for first.
//!
//! Such a source may get its bytes in any order: from several sources of its own, each at its own pace. A reader that
//! asked in the order of memory would stand still for one of them while the source has much that others brought.

use super::task::LaneTask;
use crate::base::error::TransportError;
use crate::base::limits::LOOK_PERIOD;
use crate::piece::filling::are_final;
use crate::piece::pieces::{Piece, Pieces};
use crate::piece::units::Units;
use std::collections::BTreeMap;
use std::time::Instant;

/// What a lane knows of a source that is being filled. Of one that has everything, nothing need be known.
pub(super) struct ReadyPieces(Option<Arrivals>);

impl ReadyPieces {
    pub(super) fn new(task: &LaneTask<'_>) -> Self {
        let lengths = task.description.regions.iter().map(|region| region.len);
        let filling = task.description.filling;
        Self(filling.then(|| Arrivals::new(Units::new(lengths), task.pieces)))
    }

    /// Makes pieces ready that the source has by now, waiting for one if nothing else is under way. False if only those
    /// should be asked for.
    ///
    /// # Errors
    /// [`TransportError::Fenced`], that the source is gone, or whatever ends the patience.
    pub(super) fn look(&mut self, task: &LaneTask<'_>, idle: bool) -> Result<bool, TransportError> {
        let Some(arrivals) = &mut self.0 else { return Ok(true) };
        while !task.pieces.has_ready() && !task.pieces.is_drawn() {
            if !idle && Instant::now() < arrivals.again {
                break;
            }
            if !arrivals.look(task, idle)? {
                return Ok(true);
            }
            if !idle {
                break;
            }
        }
        Ok(false)
    }

    /// Waits until a piece is final, whichever it is.
    ///
    /// # Errors
    /// As [`look`](Self::look).
    pub(super) fn wait(
        &mut self,
        task: &LaneTask<'_>,
        piece: &Piece,
    ) -> Result<(), TransportError> {
        let Some(arrivals) = &mut self.0 else { return Ok(()) };
        let LaneTask { port, export, generation, pieces, patience, .. } = *task;
        if arrivals.has_all(pieces, piece) {
            return Ok(());
        }
        let extents = pieces.spans(piece).iter().map(|span| span.extent(pieces.copies()));
        let bits = port.wait_final(export, generation, extents, &patience);
        arrivals.learn(bits.map_err(|error| error.while_reading(export))?, pieces);
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn forget(&mut self) {
        self.0.as_mut().expect("of a source that is being filled").bits.clear();
    }
}

/// Which units of a source are known to be final, and which pieces wait for others.
struct Arrivals {
    units: Units,
    /// One bit a unit, set if that one is final.
    bits: Vec<u8>,
    /// By unit that is not final, pieces that have bytes there: each waits for one of its units.
    waiting: BTreeMap<usize, Vec<usize>>,
    /// When the source may be asked again while pieces are under way.
    again: Instant,
}

impl Arrivals {
    fn new(units: Units, pieces: &Pieces) -> Self {
        let mut waiting = BTreeMap::<_, Vec<_>>::new();
        for number in 0..pieces.count() {
            let first = touched(&units, pieces, pieces.get(number)).next();
            waiting.entry(first.expect("pieces have bytes")).or_default().push(number);
        }
        Self { units, bits: Vec::new(), waiting, again: Instant::now() }
    }

    fn has(&self, unit: usize) -> bool {
        are_final(&self.bits, unit..unit + 1)
    }

    fn has_all(&self, pieces: &Pieces, piece: &Piece) -> bool {
        touched(&self.units, pieces, piece).all(|unit| self.has(unit))
    }

    /// Asks the source what it has; if it should be waited for, once that is more than is known. False if it does not
    /// say: its port has no place for the question, or it has everything by now.
    fn look(&mut self, task: &LaneTask<'_>, wait: bool) -> Result<bool, TransportError> {
        let (begun, LaneTask { port, export, generation, patience, .. }) = (Instant::now(), *task);
        let known = self.bits.iter().map(|bits| u64::from(bits.count_ones())).sum();
        let bits = port.progress(export, generation, wait.then_some(known), &patience);
        let bits = bits.map_err(|error| error.while_reading(export))?;
        let Some(bits) = bits.filter(|bits| !bits.is_empty()) else { return Ok(false) };
        self.learn(bits, task.pieces);
        // No oftener than answers come.
        self.again = Instant::now() + begun.elapsed().max(LOOK_PERIOD);
        Ok(true)
    }

    /// Tells the pieces which are ready by these bits.
    fn learn(&mut self, bits: Vec<u8>, pieces: &Pieces) {
        self.bits = bits;
        let arrived = self.waiting.keys().copied().filter(|unit| self.has(*unit));
        let mut ready = Vec::new();
        for unit in arrived.collect::<Vec<_>>() {
            for number in self.waiting.remove(&unit).expect("of its keys") {
                let mut units = touched(&self.units, pieces, pieces.get(number));
                match units.find(|unit| !self.has(*unit)) {
                    Some(missing) => self.waiting.entry(missing).or_default().push(number),
                    None => ready.push(number),
                }
            }
        }
        ready.sort_unstable();
        pieces.make_ready(ready.into_iter());
    }
}

/// The units in which a piece has bytes at the source, and those between the rows of a copy.
fn touched<'a>(
    units: &'a Units,
    pieces: &'a Pieces,
    piece: &'a Piece,
) -> impl Iterator<Item = usize> + 'a {
    pieces.spans(piece).iter().flat_map(|span| {
        let extent = span.extent(pieces.copies());
        let len = (extent.rows - 1) * extent.pitch + extent.row_bytes;
        units.touched(extent.region, extent.offset, len)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::limits::MIN_UNIT_BYTES;
    use crate::piece::copy::StridedCopy;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const UNIT: u64 = MIN_UNIT_BYTES;

    /// Columns of rows that are two units apart, and whole units, of two regions of 40 units.
    fn copies() -> impl Strategy<Value = Vec<StridedCopy>> {
        let copy = (0..2_u32, 0..30_u64, 1..4_u64, 1..2 * UNIT, any::<bool>());
        let strided = |(region, unit, rows, len, dense): (_, _, _, u64, bool)| StridedCopy {
            source_region: region,
            source_offset: unit * UNIT + 5,
            source_pitch: if dense { len } else { 2 * UNIT },
            target_region: 0,
            target_offset: 0,
            target_pitch: len,
            row_bytes: len,
            rows,
            slot: 0,
            position: 0,
            position_pitch: len,
        };
        prop::collection::vec(copy.prop_map(strided), 1..20)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// Units become final in any order. A piece is ready once all from its first byte to its last are.
        #[test]
        fn pieces_are_ready_once_all_their_units_are_final(
            copies in copies(),
            size in prop_oneof![Just(10_000), Just(UNIT as usize), Just(3 * UNIT as usize)],
            order in Just((0..80).collect::<Vec<usize>>()).prop_shuffle(),
            step in 1..30_usize,
        ) {
            let pieces = Pieces::cut(&copies, size);
            let units = Units::new([40 * UNIT; 2].into_iter());
            prop_assert_eq!(units.count(), 80);
            let mut ready = Arrivals::new(units, &pieces);
            let (mut bits, mut drawn) = (vec![0_u8; 10], BTreeSet::new());
            for arrived in order.chunks(step) {
                arrived.iter().for_each(|unit| bits[unit / 8] |= 1 << (unit % 8));
                ready.learn(bits.clone(), &pieces);
                while let Some(piece) = pieces.draw_ready() {
                    prop_assert!(drawn.insert(std::ptr::from_ref(piece)), "drawn twice");
                }
                let is_there = |piece: &Piece| pieces.spans(piece).iter().all(|span| {
                    let extent = span.extent(pieces.copies());
                    let end = extent.offset + (extent.rows - 1) * extent.pitch + extent.row_bytes;
                    let at = |byte: u64| (u64::from(extent.region) * 40 + byte / UNIT) as usize;
                    (at(extent.offset)..=at(end - 1)).all(|unit| bits[unit / 8] >> (unit % 8) & 1 == 1)
                });
                for number in 0..pieces.count() {
                    let piece = pieces.get(number);
                    prop_assert_eq!(drawn.contains(&std::ptr::from_ref(piece)), is_there(piece));
                    prop_assert_eq!(ready.has_all(&pieces, piece), is_there(piece));
                }
            }
            prop_assert!(pieces.is_drawn() && pieces.draw().is_none());
        }
    }
}
