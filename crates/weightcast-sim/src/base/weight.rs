//! How much a server remembers: the length of its whole `{:?}` text. The server's own counts are
//! not asked.

use std::fmt::{self, Debug, Write};

/// Counts what is written, and keeps nothing.
struct Count(usize);

impl Write for Count {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

/// The length of a value's `{:?}` text, in bytes.
pub(crate) fn weight(of: &impl Debug) -> usize {
    let mut count = Count(0);
    write!(count, "{of:?}").expect("counting does not fail");
    count.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_said_is_counted() {
        for length in [0, 1, 2, 77] {
            let text = vec![7u8; length];
            assert_eq!(weight(&text), format!("{text:?}").len());
        }
    }
}
