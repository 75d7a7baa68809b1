//! Points of a read at which a test can stop it: what happens there happens at no other time, so no
//! race decides whether the test sees anything.

use std::fmt;
use std::sync::Arc;

/// A point that a piece comes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldPoint {
    /// Before the piece is asked for.
    Asking,
    /// The source is being filled, and not all that was asked for is final there.
    Waiting,
    /// Before bytes are taken from the source's memory; over TCP, at the source.
    Taking,
    /// After the bytes were taken, before the look at the fence word; over TCP, at the source.
    Judging,
    /// The piece has arrived and was served, and is not counted as progress yet.
    Telling,
}

/// What is done at such points: nothing, but in tests.
#[derive(Clone, Default)]
pub struct Holds(Option<Arc<dyn Fn(HoldPoint) + Send + Sync>>);

impl Holds {
    /// Calls `stop` at every point, on the thread that comes by.
    pub fn new(stop: impl Fn(HoldPoint) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(stop)))
    }

    pub(crate) fn at(&self, point: HoldPoint) {
        if let Some(stop) = &self.0 {
            stop(point);
        }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.is_some()
    }
}

impl fmt::Debug for Holds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Holds").field(&self.is_set()).finish()
    }
}
