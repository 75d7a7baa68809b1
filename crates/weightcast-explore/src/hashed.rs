//! Values that are shared between states and hashed once: a step changes one or two of many.

use std::fmt::{Debug, Write};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// A part of a state: cheap to copy, hashed by what `{:?}` says of it.
///
/// The machines show all that they hold that way, so a field that somebody adds is hashed as well.
#[derive(Clone)]
pub(crate) struct Hashed<T> {
    value: Arc<T>,
    /// Known once it was asked for: several changes make one step.
    hash: OnceLock<u64>,
}

impl<T: Clone + Debug> Hashed<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Arc::new(value), hash: OnceLock::new() }
    }

    /// Changes the value in this state alone.
    pub(crate) fn change<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> R {
        self.hash = OnceLock::new();
        change(Arc::make_mut(&mut self.value))
    }
}

impl<T> Deref for Hashed<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Debug> Hash for Hashed<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(*self.hash.get_or_init(|| hash(&*self.value)));
    }
}

impl<T: Debug> Debug for Hashed<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.value.fmt(f)
    }
}

fn hash(value: &impl Debug) -> u64 {
    let mut text = Text { hasher: DefaultHasher::new(), skipping: false };
    write!(text, "{value:?}").expect("hashing does not fail");
    text.hasher.finish()
}

/// Takes text in; leaves the counters out, which tell paths to one state apart.
struct Text {
    hasher: DefaultHasher,
    skipping: bool,
}

impl Write for Text {
    fn write_str(&mut self, piece: &str) -> std::fmt::Result {
        // The pieces are those of the derived `Debug`: names, punctuation and values by themselves.
        if self.skipping {
            self.skipping = !piece.contains('}');
        } else if piece == "Counters" {
            self.skipping = true;
        } else {
            self.hasher.write(piece.as_bytes());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weightcast_protocol::server::Counters;

    #[derive(Clone, Debug, Default)]
    struct CountedState {
        counters: Counters,
        count: u32,
    }

    #[test]
    fn what_was_counted_does_not_tell_states_apart() {
        let mut state = CountedState::default();
        let before = hash(&state);
        state.counters.commits = 7;
        assert_eq!(hash(&state), before);
        state.count = 1;
        assert_ne!(hash(&state), before);
    }
}
