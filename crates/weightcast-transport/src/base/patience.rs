//! When to stop waiting: deadline, cancellation, another worker's failure, or a recall.

use crate::base::error::TransportError;
use crate::base::limits::TICK;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What may end a wait. Blocked calls look at it once a [`TICK`].
#[derive(Clone, Copy, Default)]
pub(crate) struct Patience<'a> {
    pub(crate) deadline: Option<Instant>,
    pub(crate) cancel: Option<&'a AtomicBool>,
    pub(crate) stop: Option<&'a AtomicBool>,
    /// Raised where others are to move what this worker waits for.
    pub(crate) recall: Option<&'a AtomicBool>,
}

impl Patience<'_> {
    /// # Errors
    /// [`TransportError::Cancelled`] or [`TransportError::Timeout`] once it is over.
    pub(crate) fn check(&self, what: &'static str) -> Result<(), TransportError> {
        let raised = |flag: Option<&AtomicBool>| flag.is_some_and(|f| f.load(Ordering::Acquire));
        if raised(self.cancel) || raised(self.stop) || raised(self.recall) {
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
        let call = || Patience { deadline: Some(deadline), ..Patience::default() };
        assert_eq!(call().at_most(2 * hour).deadline, Some(deadline));
        assert!(call().at_most(Duration::ZERO).deadline < Some(deadline));
        let patient = Patience { deadline: None, ..call() };
        assert!(patient.at_most(hour).deadline >= Some(deadline), "from now on");
    }

    #[test]
    fn each_of_four_things_ends_it() {
        let (raised, not) = (AtomicBool::new(true), AtomicBool::new(false));
        let now = Instant::now();
        let later = Some(now + Duration::from_secs(3600));
        let timeout = Err(TransportError::Timeout { what: "resting" });
        let (cancelled, fine) = (Err(TransportError::Cancelled), Ok(()));
        let table = [
            (None, None, None, &fine),
            (later, Some(&not), Some(&not), &fine),
            (Some(now), None, None, &timeout),
            (Some(now), Some(&not), Some(&not), &timeout),
            (later, Some(&raised), Some(&not), &cancelled),
            (later, Some(&not), Some(&raised), &cancelled),
            (Some(now), Some(&raised), None, &cancelled),
            (None, None, Some(&raised), &cancelled),
        ];
        for (deadline, cancel, stop, expected) in table {
            let patience = Patience { deadline, cancel, stop, recall: None };
            assert_eq!(patience.check("resting"), *expected);
            let recalled = Patience { deadline, cancel: None, stop: cancel, recall: stop };
            assert_eq!(recalled.check("resting"), *expected);
            let limited = patience.at_most(Duration::from_secs(7200));
            assert_eq!(limited.check("resting"), *expected, "a limit leaves the flags alone");
        }
    }

    #[test]
    fn a_tick_ends_with_the_deadline_and_takes_a_moment_at_least() {
        let tick = |deadline| Patience { deadline, ..Patience::default() }.tick();
        let now = Instant::now();
        assert_eq!(tick(None), TICK);
        assert_eq!(tick(Some(now + Duration::from_secs(3600))), TICK);
        assert_eq!(tick(Some(now)), Duration::from_millis(1));
        let soon = tick(Some(now + TICK / 2));
        assert!(Duration::from_millis(1) <= soon && soon <= TICK / 2, "{soon:?}");
    }
}
