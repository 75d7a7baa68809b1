//! The bytes between two processes, and the connections that carry them.
//!
//! Reading order: [`frames`] and [`bodies`] are the format, [`handshake`] and [`mac`] the proof of the
//! token; [`dial`] and [`local`] connect a reader, [`stream`] is its connection, [`pool`] keeps several.

mod bodies;
pub(crate) mod credentials;
mod dial;
mod frames;
pub(crate) mod handshake;
pub(crate) mod local;
pub(crate) mod local_name;
pub(crate) mod mac;
pub(crate) mod poll;
pub(crate) mod pool;
pub(crate) mod socket;
pub(crate) mod stream;

pub(crate) use bodies::{
    Ask, Description, decode_description, decode_digest, decode_digests, decode_identity,
    decode_named, decode_noted, decode_read, put_extent, put_identity, put_placed,
};
pub(crate) use frames::{HEADER_BYTES, Header, Kind, Malformed, begin, finish, named, put};
