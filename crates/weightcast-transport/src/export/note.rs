//! A note on an export: a few opaque bytes of the publisher's, for readers who ask for them.
//!
//! A note never changes once it is set, so a reader gets all of it, whatever is fenced meanwhile. Notes
//! go over the connection even where bytes are read directly.
//!
//! An export may have an early note before: what is known while the memory is still being digested or
//! filled. Readers can wait for either, whichever is there first.

use crate::base::id::ExportId;
use crate::base::limits::MAX_NOTE_BYTES;
use crate::export::table::ExportTable;
use thiserror::Error;

/// Why an export did not take a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoteError {
    /// The export is not served: unknown, fenced or withdrawn.
    #[error("export {export} is not served: add the note between exposing and fencing it")]
    NotServed {
        /// The export.
        export: ExportId,
    },
    /// There is a note already; readers may have seen it.
    #[error("export {export} has a note already: expose again for another")]
    AlreadyNoted {
        /// The export.
        export: ExportId,
    },
    /// The note exceeds [`MAX_NOTE_BYTES`].
    #[error("a note of {bytes} bytes exceeds the limit of {limit}: note less")]
    TooLong {
        /// Bytes of the note.
        bytes: usize,
        /// [`MAX_NOTE_BYTES`].
        limit: usize,
    },
}

impl ExportTable {
    /// Attaches a note to an export, once. It lives until the export is withdrawn.
    ///
    /// # Errors
    /// [`NoteError`]; the export is then as it was.
    pub fn annotate(&self, export: ExportId, note: &[u8]) -> Result<(), NoteError> {
        self.set_note(export, false, note)
    }

    /// Attaches an early note to an export, once: readers who ask for one get it as long as there is no
    /// note.
    ///
    /// # Errors
    /// [`NoteError`]; the export is then as it was.
    pub fn annotate_early(&self, export: ExportId, note: &[u8]) -> Result<(), NoteError> {
        self.set_note(export, true, note)
    }

    fn set_note(&self, export: ExportId, early: bool, note: &[u8]) -> Result<(), NoteError> {
        if note.len() > MAX_NOTE_BYTES {
            return Err(NoteError::TooLong { bytes: note.len(), limit: MAX_NOTE_BYTES });
        }
        let served = self.get(export).ok().filter(|export| export.is_served());
        let served = served.ok_or(NoteError::NotServed { export })?;
        served.notes.set(early, note).map_err(|_| NoteError::AlreadyNoted { export })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Auth, DataServer, Peer, Way};
    use std::time::{Duration, Instant};

    /// Of an export of any generation, as long as may be, and as long as it is served.
    #[test]
    fn a_note_is_as_long_as_allowed_and_of_its_generation() {
        let server = DataServer::bind(([127, 0, 0, 1], 0).into(), Auth::default()).unwrap();
        let soon = Instant::now() + Duration::from_secs(20);
        let peer = Peer::connect_by(Way::Tcp, server.addr(), &Auth::default(), soon).unwrap();
        let limit = MAX_NOTE_BYTES;
        for bytes in [0, limit - 1, limit, limit + 1] {
            let export = server.exports().expose(5, Vec::new());
            let fits = bytes <= limit;
            let expected = if fits { Ok(()) } else { Err(NoteError::TooLong { bytes, limit }) };
            assert_eq!(server.exports().annotate(export, &vec![1; bytes]), expected);
            let found = peer.note(export, 5, soon).unwrap().map(|note| note.len());
            assert_eq!(found, fits.then_some(bytes));
            assert!(peer.note(export, 1, soon).is_err() && peer.note(export, 6, soon).is_err());
            server.exports().fence(export);
            let late = server.exports().annotate(export, b"late");
            assert_eq!(late, Err(NoteError::NotServed { export }));
        }
    }
}
