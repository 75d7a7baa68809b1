//! Values as bytes and back (postcard): numbers in as few bytes as they need, no names of fields. So a file is small, and
//! can be read only by a build whose types are the same.

use postcard::ser_flavors::Flavor;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// More bytes than there may be.
#[derive(Debug)]
pub(super) struct Overflow;

/// Bytes that are appended, up to so many in all.
struct Appended<'a> {
    into: &'a mut Vec<u8>,
    most: usize,
}

impl Flavor for Appended<'_> {
    type Output = ();

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        if self.into.len() + bytes.len() > self.most {
            return Err(postcard::Error::SerializeBufferFull);
        }
        self.into.extend_from_slice(bytes);
        Ok(())
    }

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.try_extend(&[byte])
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Appends a value, unless the whole would have more than `most` bytes; then what was appended means nothing.
pub(super) fn append(
    value: &impl Serialize,
    into: &mut Vec<u8>,
    most: usize,
) -> Result<(), Overflow> {
    postcard::serialize_with_flavor(value, Appended { into, most }).map_err(|_| Overflow)
}

/// Takes a value off the front; `None` if the bytes are none.
pub(super) fn take<T: DeserializeOwned>(bytes: &mut &[u8]) -> Option<T> {
    let (value, rest) = postcard::take_from_bytes(bytes).ok()?;
    *bytes = rest;
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_may_fill_all_the_bytes_there_are_and_no_more() {
        let value = [7_u8; 10];
        for (most, fits) in [(11, false), (12, true), (13, true)] {
            let mut bytes = vec![1, 2];
            assert_eq!(append(&value, &mut bytes, most).is_ok(), fits, "{most}");
        }
    }
}
