//! How the bytes of reads and writes are coded on the wire.
//!
//! The header's status says so, of a `Read` how its answer is to be coded, of a `Data` or a `Write` how
//! its bytes are. A codec that an end does not have is refused by its number.

use crate::base::error::RequestRefusal;
use crate::wire::frames::Header;

/// How bytes are coded on the wire. So far as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum WireCodec {
    /// The bytes of memory.
    Raw = 0,
}

impl WireCodec {
    /// The codec that a header names.
    ///
    /// # Errors
    /// [`RequestRefusal::UnknownCodec`], with its number.
    pub(crate) fn of(header: Header) -> Result<Self, RequestRefusal> {
        let known = [Self::Raw].into_iter().find(|codec| *codec as u8 == header.status);
        known.ok_or(RequestRefusal::UnknownCodec { codec: header.status })
    }
}
