//! Words on their way to data ports: a line for each.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use super::word::PushWord;

/// Words by the address that they go to.
#[derive(Default)]
pub(in crate::client) struct WordLines(pub(super) Mutex<BTreeMap<String, VecDeque<PushWord>>>);

impl WordLines {
    /// The next word of a line. The line ends with its last word.
    pub(super) fn next(&self, address: &str) -> Option<PushWord> {
        let mut lines = self.0.lock().expect("no panic while held");
        let word = lines.get_mut(address)?.pop_front();
        if word.is_none() {
            lines.remove(address);
        }
        word
    }
}
