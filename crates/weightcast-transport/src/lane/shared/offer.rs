//! What a source says of the memory of an export to readers of its host: that it is lent, or why not.
//!
//! Three numbers: which of these it is, and two that go with it.

use crate::export::lending::Lending;
use crate::wire::bodies::Fields;
use crate::wire::description::ExportDescription;
use crate::wire::put;

/// The number of the lane out of shared memory.
pub(super) const LANE: u64 = 4;

/// As [`Lending`]; private memory is not spoken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    Whole,
    Partly { private: u64, first: u64 },
    Scattered { files: u64 },
    NoWord,
}

impl Offer {
    pub(super) fn of(lending: &Lending) -> Option<Self> {
        match *lending {
            Lending::Private => None,
            Lending::Partly { private, first } => Some(Self::Partly { private, first }),
            Lending::Scattered { files } => Some(Self::Scattered { files }),
            Lending::NoWord => Some(Self::NoWord),
            Lending::Whole(_) => Some(Self::Whole),
        }
    }

    pub(super) fn encode(self) -> Vec<u8> {
        let numbers = match self {
            Self::Whole => [0, 0, 0],
            Self::Partly { private, first } => [1, private, first],
            Self::Scattered { files } => [2, files, 0],
            Self::NoWord => [3, 0, 0],
        };
        let mut bytes = Vec::new();
        put(&mut bytes, &numbers);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let [kind, one, other] = [fields.u64().ok()?, fields.u64().ok()?, fields.u64().ok()?];
        fields.end().ok()?;
        match kind {
            0 => Some(Self::Whole),
            1 => Some(Self::Partly { private: one, first: other }),
            2 => Some(Self::Scattered { files: one }),
            3 => Some(Self::NoWord),
            _ => None,
        }
    }

    /// What a description holds. Nothing if none of the memory is shared.
    pub(super) fn in_(description: &ExportDescription) -> Option<Self> {
        Self::decode(description.descriptor(LANE)?)
    }

    /// Why the memory is not lent, if it is not.
    pub(super) fn why_not(self) -> Option<String> {
        match self {
            Self::Whole => None,
            Self::Partly { private, first } => Some(format!(
                "{private} of its regions are not in shared memory, the first of them is number {first}"
            )),
            Self::Scattered { files } => {
                Some(format!("its shared memory lies in {files} files, too many to be passed"))
            }
            Self::NoWord => Some("the source had no file for the fence word".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_offered_arrives_as_it_was_said() {
        let offers = [
            (Offer::Whole, None),
            (Offer::Partly { private: 3, first: 7 }, Some("3 of its regions")),
            (Offer::Scattered { files: 201 }, Some("201 files")),
            (Offer::NoWord, Some("fence word")),
        ];
        for (offer, why) in offers {
            let bytes = offer.encode();
            assert_eq!(Offer::decode(&bytes), Some(offer));
            assert_eq!(Offer::decode(&bytes[1..]), None);
            assert_eq!(Offer::decode(&[&bytes[..], &[0]].concat()), None);
            let said = offer.why_not();
            assert_eq!(said.is_some(), why.is_some(), "{offer:?}");
            assert!(said.is_none_or(|said| said.contains(why.unwrap())), "{offer:?}");
        }
        assert_eq!(Offer::decode(&4_u64.to_le_bytes().repeat(3)), None);
    }
}
