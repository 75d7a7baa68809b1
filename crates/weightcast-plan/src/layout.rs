//! Layouts: which slices of which logical tensors lie where in one shard's memory.

use std::fmt;
use std::ops::Range;

use crate::entry_check;
use crate::error::LayoutError;
use crate::limits::{MAX_BUFFERS, MAX_BYTES, MAX_ENTRIES, MAX_TENSORS};
use crate::memory_check;
use crate::packed::Packed;
use crate::tensor::{Tensor, first_half};

pub use crate::entry::Entry;

/// What one shard's memory holds: checked, in canonical order, immutable.
///
/// Two shards that hold the same things in the same places have equal layouts and equal digests,
/// in whatever order they were described; numbers of tensors and entries therefore mean the same
/// in both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    buffers: Vec<u64>,
    tensors: Vec<Tensor>,
    entries: Packed,
    /// The entries of tensor `t` are `first[t]..first[t + 1]`.
    first: Vec<u32>,
    /// For each entry the one whose bytes it shares: itself, or for tied weights the first. Empty
    /// where no weights are tied.
    primary: Vec<u32>,
    bytes: u64,
}

/// The name of a layout: 16 bytes of BLAKE3 over its canonical encoding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LayoutDigest(pub [u8; 16]);

impl Layout {
    /// Checks and sorts.
    ///
    /// `buffers` are the bytes of each registered buffer, one contiguous piece of memory each;
    /// `tensors` the logical tensors it touches, each once; `entries` refer to both by place.
    /// Errors: bounds, strides, the same element twice, shared memory that is not a tied weight.
    pub fn new(
        buffers: Vec<u64>,
        tensors: Vec<Tensor>,
        entries: Vec<Entry>,
    ) -> Result<Layout, LayoutError> {
        within("tensors", tensors.len(), MAX_TENSORS)?;
        within("entries", entries.len(), MAX_ENTRIES)?;
        bounded(&buffers)?;
        let (tensors, place) = sorted(tensors)?;
        let mut entries = entries;
        for entry in &mut entries {
            let place = place.get(entry.tensor as usize);
            entry.tensor = *place
                .ok_or(LayoutError::NoTensor { tensor: entry.tensor, tensors: tensors.len() })?;
            entry_check::check(entry, &tensors[entry.tensor as usize], &buffers)?;
        }
        entries.sort_unstable();
        let mut packed = Packed::default();
        entries.iter().for_each(|entry| packed.push(entry));
        drop(entries);
        Layout::checked(buffers, tensors, packed)
    }

    /// A layout of what is in canonical order already, as one gives it: tensors by name, entries as
    /// they sort, strides as they are made canonical. Entries are taken one by one, and nothing is
    /// made of them but the layout; `room` is what they take at most: their number, and the bytes of
    /// their numbers at seven bits a byte.
    ///
    /// # Errors
    /// Those of [`Layout::new`]; what is not in order; what an entry is instead of one.
    pub fn in_order<E: From<LayoutError>>(
        buffers: Vec<u64>,
        tensors: Vec<Tensor>,
        entries: impl IntoIterator<Item = Result<Entry, E>>,
        room: (usize, usize),
    ) -> Result<Layout, E> {
        within("tensors", tensors.len(), MAX_TENSORS)?;
        bounded(&buffers)?;
        if let Some(at) = tensors.windows(2).position(|pair| pair[0].name() >= pair[1].name()) {
            return Err(LayoutError::OutOfOrder { what: "tensor", number: at + 1 }.into());
        }
        let mut packed = Packed::with_room(room.0, room.1);
        let mut last: Option<Entry> = None;
        for entry in entries {
            let given = entry?;
            within("entries", packed.len() + 1, MAX_ENTRIES)?;
            let tensor = tensors.get(given.tensor as usize);
            let tensor = tensor
                .ok_or(LayoutError::NoTensor { tensor: given.tensor, tensors: tensors.len() })?;
            let mut entry = given.clone();
            entry_check::check(&mut entry, tensor, &buffers)?;
            if entry != given || last.is_some_and(|last| last > entry) {
                return Err(LayoutError::OutOfOrder { what: "entry", number: packed.len() }.into());
            }
            packed.push(&entry);
            last = Some(entry);
        }
        Ok(Layout::checked(buffers, tensors, packed)?)
    }

    /// Checks what concerns several entries, which are in order and each right by itself.
    fn checked(
        buffers: Vec<u64>,
        tensors: Vec<Tensor>,
        entries: Packed,
    ) -> Result<Layout, LayoutError> {
        let (mut buffers, mut tensors, entries) = (buffers, tensors, entries.fitted());
        buffers.shrink_to_fit();
        tensors.shrink_to_fit();
        let first = firsts(&entries, tensors.len());
        entry_check::held_once(&tensors, &entries, &first)?;
        let primary = memory_check::primaries(&tensors, &entries)?;
        let mut layout = Layout { buffers, tensors, entries, first, primary, bytes: 0 };
        let own = |&entry: &u32| !layout.is_alias(entry);
        layout.bytes =
            (0..layout.entries.len() as u32).filter(own).map(|e| layout.entry_bytes(e)).sum();
        Ok(layout)
    }

    /// Bytes of each buffer.
    pub fn buffers(&self) -> &[u64] {
        &self.buffers
    }

    /// The logical tensors, sorted by name.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The entries, sorted by tensor and slice. Each is made as it is asked for.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = Entry> + Clone + '_ {
        self.entries.iter()
    }

    /// Entry number `number`.
    ///
    /// # Panics
    /// If there is none.
    pub fn entry(&self, number: u32) -> Entry {
        self.entries.get(number)
    }

    /// Bytes held: every byte once, padding and empty slices not at all.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that it takes in memory, beside its own fields.
    pub fn footprint(&self) -> usize {
        let tensors: usize = self.tensors.iter().map(Tensor::footprint).sum();
        let numbers = 2 * self.buffers.len() + self.first.len() + self.primary.len();
        self.entries.footprint() + tensors + 4 * numbers
    }

    /// The number of the tensor with this name.
    pub fn find(&self, name: &str) -> Option<u32> {
        self.tensors.binary_search_by(|t| t.name().cmp(name)).ok().map(|at| at as u32)
    }

    /// For each tensor its number in `other`, where that has the name. Both are sorted: one pass.
    pub(crate) fn numbers_in(&self, other: &Layout) -> Vec<Option<u32>> {
        let mut theirs = other.tensors.iter().enumerate().peekable();
        let number = |tensor: &Tensor| {
            while theirs.next_if(|(_, t)| t.name() < tensor.name()).is_some() {}
            theirs.peek().filter(|(_, t)| t.name() == tensor.name()).map(|&(at, _)| at as u32)
        };
        self.tensors.iter().map(number).collect()
    }

    /// The numbers of the entries of tensor number `tensor`.
    pub fn entries_of(&self, tensor: u32) -> Range<u32> {
        self.first[tensor as usize]..self.first[tensor as usize + 1]
    }

    /// The entry whose bytes entry number `entry` shares: itself, unless it is a tied weight's
    /// further name.
    pub fn primary(&self, entry: u32) -> u32 {
        self.primary.get(entry as usize).copied().unwrap_or(entry)
    }

    /// Whether entry number `entry` is a further name for bytes that another entry has.
    pub fn is_alias(&self, entry: u32) -> bool {
        self.primary(entry) != entry
    }

    /// The tensor of entry number `entry`.
    pub fn tensor_of(&self, entry: u32) -> &Tensor {
        &self.tensors[self.entries.tensor(entry) as usize]
    }

    /// Bytes of entry number `entry`.
    pub fn entry_bytes(&self, entry: u32) -> u64 {
        let Entry { tensor, slice, .. } = self.entry(entry);
        slice.volume() * self.tensors[tensor as usize].dtype().bits() / 8
    }

    /// The layout's name, over every field in canonical order.
    pub fn digest(&self) -> LayoutDigest {
        let mut hasher = blake3::Hasher::new_derive_key("weightcast layout 1");
        let mut number = |n: u64| {
            hasher.update(&n.to_le_bytes());
        };
        number(self.buffers.len() as u64);
        self.buffers.iter().for_each(|&bytes| number(bytes));
        number(self.tensors.len() as u64);
        number(self.entries.len() as u64);
        for entry in self.entries() {
            number(entry.tensor.into());
            number(entry.slice.ndim() as u64);
            let slice = entry.slice.start.iter().chain(&entry.slice.len);
            slice.chain(&entry.strides).for_each(|&n| number(n));
            number(entry.buffer.into());
            number(entry.offset);
        }
        for tensor in &self.tensors {
            tensor.encode(&mut hasher);
        }
        LayoutDigest(first_half(&hasher))
    }
}

impl fmt::Display for LayoutDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for LayoutDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LayoutDigest({self})")
    }
}

fn within(what: &'static str, count: usize, most: usize) -> Result<(), LayoutError> {
    if count > most { Err(LayoutError::TooMany { what, count, most }) } else { Ok(()) }
}

fn bounded(buffers: &[u64]) -> Result<(), LayoutError> {
    within("buffers", buffers.len(), MAX_BUFFERS)?;
    let mut total = 0u64;
    for (buffer, &bytes) in buffers.iter().enumerate() {
        total = total.saturating_add(bytes);
        if total > MAX_BYTES {
            return Err(LayoutError::BufferBytes { buffer: buffer as u32 });
        }
    }
    Ok(())
}

/// The tensors by name, and for each given place its sorted place.
fn sorted(tensors: Vec<Tensor>) -> Result<(Vec<Tensor>, Vec<u32>), LayoutError> {
    let mut order: Vec<u32> = (0..tensors.len() as u32).collect();
    order.sort_by(|&a, &b| tensors[a as usize].cmp(&tensors[b as usize]));
    let mut place = vec![0; tensors.len()];
    for (at, &given) in order.iter().enumerate() {
        place[given as usize] = at as u32;
    }
    let mut tensors = tensors;
    tensors.sort();
    match tensors.windows(2).find(|pair| pair[0].name() == pair[1].name()) {
        Some(pair) => Err(LayoutError::TensorTwice {
            name: pair[0].name().to_owned(),
            first: pair[0].to_string(),
            second: pair[1].to_string(),
        }),
        None => Ok((tensors, place)),
    }
}

/// Where the entries of each tensor begin, and where the last one's end.
fn firsts(entries: &Packed, tensors: usize) -> Vec<u32> {
    let mut first = vec![0; tensors + 1];
    (0..entries.len() as u32).for_each(|entry| first[entries.tensor(entry) as usize + 1] += 1);
    for tensor in 0..tensors {
        first[tensor + 1] += first[tensor];
    }
    first
}
