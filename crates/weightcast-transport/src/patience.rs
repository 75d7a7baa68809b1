//! When to stop waiting: deadline, cancellation, or another worker's failure.

use crate::error::TransportError;
use crate::limits::TICK;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What may end a wait. Blocked calls look at it once a [`TICK`].
#[derive(Clone, Copy, Default)]
pub(crate) struct Patience<'a> {
    pub(crate) deadline: Option<Instant>,
    pub(crate) cancel: Option<&'a AtomicBool>,
    pub(crate) stop: Option<&'a AtomicBool>,
}

impl Patience<'_> {
    /// # Errors
    /// [`TransportError::Cancelled`] or [`TransportError::Timeout`] once it is over.
    pub(crate) fn check(&self, what: &'static str) -> Result<(), TransportError> {
        let raised = |flag: Option<&AtomicBool>| flag.is_some_and(|f| f.load(Ordering::Acquire));
        if raised(self.cancel) || raised(self.stop) {
            return Err(TransportError::Cancelled);
        }
        if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(TransportError::Timeout { what });
        }
        Ok(())
    }

    /// How long to block before the next check: never zero.
    pub(crate) fn tick(&self) -> Duration {
        let left = self.deadline.map(|d| d.saturating_duration_since(Instant::now()));
        left.unwrap_or(TICK).clamp(Duration::from_millis(1), TICK)
    }

    /// The same, but no longer than `limit` from now.
    pub(crate) fn at_most(self, limit: Duration) -> Self {
        let limit = Instant::now() + limit;
        Self { deadline: Some(self.deadline.map_or(limit, |d| d.min(limit))), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_brings_the_deadline_nearer_and_never_further() {
        let hour = Duration::from_secs(3600);
        let deadline = Instant::now() + hour;
        let call = || Patience { deadline: Some(deadline), cancel: None, stop: None };
        assert_eq!(call().at_most(2 * hour).deadline, Some(deadline));
        assert!(call().at_most(Duration::ZERO).deadline < Some(deadline));
        let patient = Patience { deadline: None, ..call() };
        assert!(patient.at_most(hour).deadline >= Some(deadline), "from now on");
    }
}
