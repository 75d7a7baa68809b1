//! How the bytes of a plan's copies are coded on their way.

/// How bytes are coded between source and target. So far as they are.
///
/// Stored plans carry the number, so a plan for a codec that a release does not have is refused by
/// name, and planned again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Codec {
    /// The bytes of the source are those of the target.
    #[default]
    Raw,
}

impl Codec {
    /// The number under which it is stored.
    pub fn number(self) -> u64 {
        match self {
            Codec::Raw => 0,
        }
    }

    /// The codec of this number, if there is one.
    pub fn of_number(number: u64) -> Option<Self> {
        [Codec::Raw].into_iter().find(|codec| codec.number() == number)
    }
}
