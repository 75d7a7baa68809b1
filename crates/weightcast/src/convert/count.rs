//! Counts the parts of a message before it is decoded: what takes two bytes on the wire may take a
//! hundred in memory. Nothing here allocates.

/// One field of a protobuf message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// A number.
    Varint(u64),
    /// Bytes, a string, a message or a packed list.
    Bytes(&'a [u8]),
    /// A number of fixed size, which nobody here counts.
    Fixed,
}

/// The fields of a message, in order; `None` is where it is cut short or makes no sense.
pub(crate) struct ProtoFields<'a>(&'a [u8]);

impl<'a> ProtoFields<'a> {
    pub(crate) fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn take(&mut self, count: u64) -> Option<&'a [u8]> {
        let count = usize::try_from(count).ok().filter(|count| *count <= self.0.len())?;
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        Some(taken)
    }

    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let key = varint(&mut self.0)?;
        let value = match key & 7 {
            0 => Value::Varint(varint(&mut self.0)?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let length = varint(&mut self.0)?;
                Value::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            _ => return None,
        };
        Some((key >> 3, value))
    }
}

impl<'a> Iterator for ProtoFields<'a> {
    type Item = Option<(u64, Value<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[]; // there is nothing to be made of the rest
        }
        Some(field)
    }
}

/// Takes a number from the front.
pub(crate) fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for place in 0..10 {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        if place == 9 && bits > 1 {
            return None;
        }
        number |= bits << (7 * place);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// How often a message has a field; `None` if the message makes no sense.
pub(crate) fn fields(message: &[u8], number: u64) -> Option<usize> {
    let mut count = 0;
    for field in ProtoFields::of(message) {
        count += usize::from(field?.0 == number);
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_and_nonsense_is_none() {
        // 1: 300, 2: "ab", 2: "", 3: eight bytes, 4: four bytes
        let message =
            [8, 0xac, 2, 18, 2, b'a', b'b', 18, 0, 25, 1, 2, 3, 4, 5, 6, 7, 8, 37, 1, 2, 3, 4];
        let counts = [1, 2, 3, 4, 5].map(|number| fields(&message, number));
        assert_eq!(counts, [Some(1), Some(2), Some(1), Some(1), Some(0)]);
        let first = ProtoFields::of(&message).next();
        assert_eq!(first, Some(Some((1, Value::Varint(300)))));
        for end in [1, 2, 4, 5, 6, 8, 10, 17, 19, 22] {
            assert_eq!(fields(&message[..end], 1), None, "{end}");
        }
        assert_eq!(fields(&[11], 1), None, "a group");
        assert_eq!(fields(&[8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2], 1), None);
        assert_eq!(
            varint(&mut &[255, 255, 255, 255, 255, 255, 255, 255, 255, 1][..]),
            Some(u64::MAX)
        );
    }
}
