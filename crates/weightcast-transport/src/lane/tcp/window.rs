//! How many requests a stream keeps under way: as many as fill the path, and no more.

use crate::base::limits::{MAX_WINDOW, MIN_WINDOW};
use std::time::{Duration, Instant};

/// Twice what was answered during the last way there and back, so that it doubles with each until
/// the path is full. More would hold pieces back: no other stream asks for what this one has
/// asked for, and a reader of this reader waits for the first of those pieces.
pub(crate) struct RequestWindow {
    round_trip: Duration,
    since: Instant,
    /// Answers since then.
    answers: u32,
    requests: usize,
}

impl RequestWindow {
    /// Of a stream on which nothing was asked for yet.
    pub(crate) fn new(round_trip: Duration, now: Instant) -> Self {
        Self { round_trip, since: now, answers: 0, requests: MIN_WINDOW }
    }

    /// An answer has come.
    pub(crate) fn answered(&mut self, now: Instant) {
        self.answers = self.answers.saturating_add(1);
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed < self.round_trip || elapsed.is_zero() {
            return;
        }
        let trips = elapsed.as_secs_f64() / self.round_trip.as_secs_f64();
        let more = (2.0 * f64::from(self.answers) / trips) as usize;
        self.requests = MIN_WINDOW.saturating_add(more).min(MAX_WINDOW);
        (self.since, self.answers) = (now, 0);
    }

    /// Requests to keep under way.
    pub(crate) fn requests(&self) -> usize {
        self.requests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: Duration = Duration::from_millis(100);

    /// After so many round trips on a path that answers at most so many requests in one.
    fn after(trips: u32, at_most: usize) -> usize {
        let begun = Instant::now();
        let mut window = RequestWindow::new(TRIP, begun);
        for done in 1..=trips {
            for _ in 1..window.requests().min(at_most) {
                window.answered(begun + TRIP * done - TRIP / 2);
            }
            window.answered(begun + TRIP * done);
        }
        window.requests()
    }

    #[test]
    fn it_doubles_until_the_path_is_full() {
        assert_eq!([0, 1, 2, 3].map(|trips| after(trips, 1_000)), [2, 6, 14, 30]);
        assert_eq!(after(9, 1_000), MAX_WINDOW);
        assert_eq!(after(9, 5), MIN_WINDOW + 10);
    }

    #[test]
    fn it_is_small_where_the_path_is_short_or_the_source_slow() {
        let begun = Instant::now();
        let mut window = RequestWindow::new(TRIP, begun);
        window.answered(begun + TRIP * 30);
        assert_eq!(window.requests(), MIN_WINDOW);
        let mut window = RequestWindow::new(Duration::ZERO, begun);
        window.answered(begun);
        window.answered(begun + TRIP);
        assert_eq!(window.requests(), MIN_WINDOW);
    }

    #[test]
    fn answers_count_for_the_trip_in_which_they_come() {
        let begun = Instant::now();
        let mut window = RequestWindow::new(TRIP, begun);
        let mut answers = |count: u32, at: Duration| {
            (0..count).for_each(|_| window.answered(begun + at));
            window.requests()
        };
        let moment = Duration::from_nanos(1);
        assert_eq!(answers(7, TRIP - moment), MIN_WINDOW, "the trip is not over");
        assert_eq!(answers(1, TRIP), MIN_WINDOW + 16);
        assert_eq!(answers(3, 2 * TRIP - moment), MIN_WINDOW + 16, "nor is the second");
        assert_eq!(answers(1, 2 * TRIP), MIN_WINDOW + 8, "which begins with none");
        assert_eq!(answers(1, 6 * TRIP), MIN_WINDOW, "one in four trips");
        assert_eq!(answers(1, 8 * TRIP), MIN_WINDOW + 1, "one in two");
        answers(29, 9 * TRIP - moment);
        assert_eq!(answers(1, 9 * TRIP), MIN_WINDOW + 60);
        answers(30, 10 * TRIP - moment);
        assert_eq!(answers(1, 10 * TRIP), MAX_WINDOW);
        answers(100, 11 * TRIP - moment);
        assert_eq!(answers(1, 11 * TRIP), MAX_WINDOW);
    }
}
