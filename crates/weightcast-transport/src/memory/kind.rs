//! The kinds of memory that a region can have.

/// Where the bytes of a region come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MemoryKind {
    /// The address space of the process.
    Host = 1,
    /// Nowhere: the bytes are made when they are read.
    Computed = 2,
}

impl MemoryKind {
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    /// `None` for a kind of a later release.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        [Self::Host, Self::Computed].into_iter().find(|kind| kind.code() == code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ends know them: they are a format.
    #[test]
    fn kinds_are_known_numbers() {
        let known = (0..=255).filter_map(|code| Some((code, MemoryKind::from_code(code)?)));
        let known: Vec<_> = known.collect();
        assert_eq!(known, [(1, MemoryKind::Host), (2, MemoryKind::Computed)]);
    }
}
