//! The one field of a message that can grow: a list of sources, of layouts, of replicas. The field is encoded once for
//! all that are told the same.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use prost::Message;
use prost::bytes::Bytes;
use weightcast_protocol::ContentDigest;
use weightcast_protocol::message::{Listing, Sibling, SourceShard};

use super::MalformedMessage;
use super::values::{listing_frame, source_shard_frame};
use crate::wire;

/// Counts the bytes that are alive, wherever they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByteMeter(Arc<AtomicUsize>);

impl ByteMeter {
    pub(crate) fn alive(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts `bytes` until the result is dropped.
    pub(crate) fn hold(&self, bytes: usize) -> Hold {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Hold { bytes, meter: self.clone() }
    }
}

/// Bytes that a meter counts.
#[derive(Debug)]
pub(crate) struct Hold {
    bytes: usize,
    meter: ByteMeter,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.meter.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bytes that are counted as long as a clone of them is alive.
struct Counted {
    bytes: Vec<u8>,
    _hold: Hold,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Makes frames of messages. The last bytes of each kind of field are used again for all that are
/// told the same: the shards of a group, and groups that ask before anything has changed.
#[derive(Default)]
pub(crate) struct Encoder {
    meter: ByteMeter,
    listing: Option<(Arc<Listing>, Bytes)>,
    shards: Option<(Arc<[SourceShard]>, Bytes)>,
    layouts: Option<(Arc<[ContentDigest]>, Bytes)>,
    registered: Option<(Arc<RegisteredLists>, Bytes)>,
}

/// Both lists of an answer to `register`.
type RegisteredLists = (Arc<[ContentDigest]>, Arc<[Sibling]>);

impl Encoder {
    /// An encoder whose fields are counted by `meter`, each once.
    pub(crate) fn new(meter: ByteMeter) -> Self {
        Self { meter, ..Self::default() }
    }

    pub(super) fn listing(&mut self, listing: Arc<Listing>) -> Bytes {
        let make = |of: &Listing| listing_frame(of).encode_to_vec();
        made_once(&mut self.listing, &self.meter, listing, Arc::ptr_eq, make)
    }

    pub(super) fn shards(&mut self, shards: Arc<[SourceShard]>) -> Bytes {
        let make = |of: &[SourceShard]| {
            let shards = of.iter().map(source_shard_frame).collect();
            wire::SourceShards { shards }.encode_to_vec()
        };
        made_once(&mut self.shards, &self.meter, shards, Arc::ptr_eq, make)
    }

    pub(super) fn layouts(&mut self, layouts: Arc<[ContentDigest]>) -> Bytes {
        made_once(&mut self.layouts, &self.meter, layouts, Arc::ptr_eq, joined)
    }

    pub(super) fn registered(
        &mut self,
        layouts: Arc<[ContentDigest]>,
        siblings: Arc<[Sibling]>,
    ) -> Bytes {
        let make = |(layouts, siblings): &RegisteredLists| {
            let (layouts, siblings) = (joined(layouts), siblings.iter().map(sibling_frame));
            wire::Registered { layouts, siblings: siblings.collect() }.encode_to_vec()
        };
        let same = |one: &Arc<RegisteredLists>, other: &Arc<RegisteredLists>| {
            Arc::ptr_eq(&one.0, &other.0) && Arc::ptr_eq(&one.1, &other.1)
        };
        let lists = Arc::new((layouts, siblings));
        made_once(&mut self.registered, &self.meter, lists, same, make)
    }
}

fn joined(layouts: &[ContentDigest]) -> Vec<u8> {
    layouts.iter().flat_map(|digest| digest.0).collect()
}

fn sibling_frame(of: &Sibling) -> wire::Sibling {
    wire::Sibling {
        shard: of.shard,
        host: of.host,
        data_address: of.data_address.clone(),
        export: of.export.0,
    }
}

fn made_once<T: ?Sized>(
    last: &mut Option<(Arc<T>, Bytes)>,
    meter: &ByteMeter,
    what: Arc<T>,
    same: impl Fn(&Arc<T>, &Arc<T>) -> bool,
    make: impl FnOnce(&T) -> Vec<u8>,
) -> Bytes {
    if let Some((before, bytes)) = last
        && same(before, &what)
    {
        return bytes.clone();
    }
    let bytes = make(&what);
    let hold = meter.hold(bytes.len());
    let bytes = Bytes::from_owner(Counted { bytes, _hold: hold });
    *last = Some((what, bytes.clone()));
    bytes
}

/// A large field that came in pages; empty if none did.
#[derive(Default)]
pub(super) struct Field(pub(super) Vec<u8>);

impl Field {
    /// The field, from its place in the message or from the pages before it.
    pub(super) fn or(&mut self, inline: Bytes) -> Result<Bytes, MalformedMessage> {
        match (inline.is_empty(), self.0.is_empty()) {
            (_, true) => Ok(inline),
            (true, false) => Ok(mem::take(&mut self.0).into()),
            (false, false) => Err(MalformedMessage("a field both in pages and not")),
        }
    }
}
