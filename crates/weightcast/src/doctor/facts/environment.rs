//! Variables that are set.

use crate::environment::PREFIX;

/// Those whose names are weightcast's, in order, each with its value.
pub(in crate::doctor) fn variables() -> Vec<(String, String)> {
    let all = std::env::vars_os();
    let mut own: Vec<_> = all
        .map(|(name, value)| {
            (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
        })
        .filter(|(name, _)| name.starts_with(PREFIX))
        .collect();
    own.sort_unstable();
    own
}
