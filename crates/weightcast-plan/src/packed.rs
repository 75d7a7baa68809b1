//! Entries as bytes: a layout of a stranger may have two million, and most numbers of an entry are
//! small. So a layout takes about what its manifest does.

use crate::entry::Entry;
use crate::slice::Slice;

/// Entries, each found by its number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Packed {
    /// Of each: tensor, buffer, offset, how many dimensions; starts, lengths, strides. Seven bits of
    /// a number in each byte, the lowest first, and one that says whether there are more.
    bytes: Vec<u8>,
    /// Where each begins.
    at: Vec<u32>,
}

impl Packed {
    /// With room for so many entries, of so many bytes together.
    pub(crate) fn with_room(entries: usize, bytes: usize) -> Packed {
        Packed { bytes: Vec::with_capacity(bytes), at: Vec::with_capacity(entries) }
    }

    pub(crate) fn push(&mut self, entry: &Entry) {
        self.at.push(self.bytes.len() as u32);
        let ndim = entry.slice.ndim() as u64;
        let numbers = [entry.tensor.into(), entry.buffer.into(), entry.offset, ndim];
        let lists = entry.slice.start.iter().chain(&entry.slice.len).chain(&entry.strides);
        for mut number in numbers.into_iter().chain(lists.copied()) {
            while number >= 0x80 {
                self.bytes.push(number as u8 | 0x80);
                number >>= 7;
            }
            self.bytes.push(number as u8);
        }
    }

    /// Gives back what was too much room.
    pub(crate) fn fitted(mut self) -> Packed {
        self.bytes.shrink_to_fit();
        self.at.shrink_to_fit();
        self
    }

    /// Bytes that they take in memory.
    pub(crate) fn footprint(&self) -> usize {
        self.bytes.len() + 4 * self.at.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.at.len()
    }

    /// Entry number `number`, of which there is one.
    pub(crate) fn get(&self, number: u32) -> Entry {
        let mut numbers = self.numbers(number);
        let mut next = || numbers.next().expect("as it was pushed");
        let (tensor, buffer, offset, ndim) = (next() as u32, next() as u32, next(), next());
        let mut list = || (0..ndim).map(|_| next()).collect::<Vec<u64>>();
        let slice = Slice { start: list(), len: list() };
        Entry { tensor, slice, buffer, offset, strides: list() }
    }

    /// The tensor of an entry.
    pub(crate) fn tensor(&self, number: u32) -> u32 {
        self.numbers(number).next().expect("as it was pushed") as u32
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = Entry> + Clone + '_ {
        (0..self.at.len() as u32).map(|number| self.get(number))
    }

    fn numbers(&self, number: u32) -> impl Iterator<Item = u64> + '_ {
        let mut rest = self.bytes[self.at[number as usize] as usize..].iter();
        std::iter::from_fn(move || {
            let (mut number, mut place) = (0, 0);
            loop {
                let byte = rest.next()?;
                number |= u64::from(byte & 0x7f) << place;
                if byte & 0x80 == 0 {
                    return Some(number);
                }
                place += 7;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back() {
        let entry = |tensor, offset, numbers: &[u64]| Entry {
            tensor,
            slice: Slice::new(numbers, numbers),
            buffer: tensor / 2,
            offset,
            strides: numbers.to_vec(),
        };
        let entries = [
            entry(0, 0, &[]),
            entry(u32::MAX, u64::MAX, &[u64::MAX; 8]),
            entry(127, 128, &[0, 127, 128, 1 << 56, (1 << 56) - 1]),
        ];
        let mut packed = Packed::default();
        entries.iter().for_each(|entry| packed.push(entry));
        assert!(packed.iter().eq(entries.clone()));
        assert_eq!(packed.len(), 3);
        assert_eq!([0, 1, 2].map(|n| packed.tensor(n)), [0, u32::MAX, 127]);
        assert_eq!(packed.clone().fitted(), packed);
    }
}
