//! Numbers in as few bytes as they need: LEB128, and zigzag for differences.

use super::error::StoredError;

/// Seven bits a byte, the lowest first; the top bit says that more follow.
pub(super) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// A difference modulo 2^64 as a number that is small where the difference is near zero.
pub(super) fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ ((difference as i64 >> 63) as u64)
}

/// The difference again.
pub(super) fn unzigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

/// Bytes from which numbers are taken.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// From byte `at` on.
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Reader<'a> {
        Reader { bytes, at }
    }

    /// How many are left.
    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next number.
    pub(super) fn take(&mut self) -> Result<u64, StoredError> {
        let (start, mut number) = (self.at, 0u64);
        for shift in (0..u64::BITS).step_by(7) {
            let &byte = self.bytes.get(self.at).ok_or(StoredError::Cut { at: self.at })?;
            self.at += 1;
            let bits = u64::from(byte & 0x7f);
            let lost = (bits << shift) >> shift != bits;
            let longer = byte == 0 && shift > 0;
            if lost || longer {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(StoredError::Number { at: start })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_in_as_few_bytes_as_they_need() {
        for bits in 0..64 {
            for number in [1u64 << bits, (1 << bits) - 1, u64::MAX << bits, u64::MAX >> bits] {
                let mut bytes = Vec::new();
                put(&mut bytes, number);
                let needed = (64 - number.leading_zeros()).div_ceil(7).max(1);
                assert_eq!(bytes.len(), needed as usize);
                let mut reader = Reader::new(&bytes, 0);
                assert_eq!((reader.take(), reader.left()), (Ok(number), 0));
                assert_eq!(unzigzag(zigzag(number)), number);
                let cut = Reader::new(&bytes[..bytes.len() - 1], 0).take();
                assert_eq!(cut, Err(StoredError::Cut { at: bytes.len() - 1 }));
            }
        }
        assert_eq!([0, 1, u64::MAX, 2].map(zigzag), [0, 2, 1, 4]);
    }

    #[test]
    fn longer_than_needed_and_more_than_64_bits_are_no_numbers() {
        let most = [&[0xff; 9][..], &[0x01]].concat();
        assert_eq!(Reader::new(&most, 0).take(), Ok(u64::MAX));
        let more = [&[0xff; 9][..], &[0x02]].concat();
        for bytes in [&[0x80, 0x00][..], &[0xff, 0x80, 0x00], &more, &[0xff; 11]] {
            assert_eq!(Reader::new(bytes, 0).take(), Err(StoredError::Number { at: 0 }));
        }
    }
}
