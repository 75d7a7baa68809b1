//! The bytes between two processes, and the connections that carry them.
//!
//! Reading order: [`frames`], [`bodies`], [`codec`], [`description`], [`write_frame`] and [`word_frame`] are the format,
//! [`handshake`] and [`mac`] the proof of the token; [`dial`] and [`local`] connect a reader, [`stream`] is its connection, [`pool`]
//! keeps several. [`local_source`] is a source of this host, as the kernel vouches for it.

pub(crate) mod bodies;
pub(crate) mod codec;
pub(crate) mod credentials;
pub(crate) mod description;
mod dial;
mod frames;
pub(crate) mod handshake;
pub(crate) mod local;
pub(crate) mod local_name;
pub(crate) mod local_source;
pub(crate) mod mac;
pub(crate) mod poll;
pub(crate) mod pool;
pub(crate) mod socket;
pub(crate) mod stream;
pub(crate) mod word_frame;
pub(crate) mod write_frame;

pub(crate) use bodies::{
    Ask, LentPlace, decode_digest, decode_digests, decode_named, decode_noted, decode_numbered,
    decode_read, put_extent, put_identity, put_lent, put_placed,
};
pub(crate) use codec::WireCodec;
pub(crate) use frames::{
    FrameKind, HEADER_BYTES, Header, Malformed, begin, finish, named, numbered, put,
};
