//! What a lane that takes bytes itself knows of a source that is still being filled.

use super::task::LaneTask;
use crate::base::error::TransportError;
use crate::piece::filling::are_final;
use crate::piece::pieces::Piece;
use crate::piece::units::Units;

/// Which units of a source are known to be final. Of a source that is whole, nothing need be known.
pub(super) struct FinalUnits(Option<(Units, Vec<u8>)>);

impl FinalUnits {
    pub(super) fn new(task: &LaneTask<'_>) -> Self {
        let lengths = task.description.regions.iter().map(|region| region.len);
        Self(task.description.filling.then(|| (Units::new(lengths), Vec::new())))
    }

    #[cfg(test)]
    pub(super) fn forget(&mut self) {
        self.0.as_mut().expect("of a source that is being filled").1.clear();
    }

    /// Waits until a piece is final.
    ///
    /// # Errors
    /// [`TransportError::Fenced`], or whatever ends the patience.
    pub(super) fn wait(
        &mut self,
        task: &LaneTask<'_>,
        piece: &Piece,
    ) -> Result<(), TransportError> {
        let Some((units, bits)) = &mut self.0 else { return Ok(()) };
        let LaneTask { port, export, generation, pieces, patience, .. } = *task;
        let mut is_final = true;
        pieces.rows(piece, |copy, row, len| {
            let touched = units.touched(copy.source_region, row.source, len as u64);
            is_final &= are_final(bits, touched);
        });
        if is_final {
            return Ok(());
        }
        let extents = pieces.spans(piece).iter().map(|span| span.extent(pieces.copies()));
        let answer = port.wait_final(export, generation, extents, &patience);
        *bits = answer.map_err(|error| error.while_reading(export))?;
        Ok(())
    }
}
