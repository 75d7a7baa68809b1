//! What the screen shows: the last answer, what was new in the answers of the last minutes, and what the user looks at.

use std::collections::VecDeque;
use std::time::Duration;

use weightcast::Status;
use weightcast::wire::ModelStatus;

use super::incidents::{Incident, incidents};
use super::polling::StatusAnswer;

/// How long an incident is shown.
pub(super) const SHOWN: Duration = Duration::from_secs(300);
/// Incidents that are kept: more than any screen shows.
const KEPT: usize = 200;

/// All that the screen is made of. Times are since the program began.
#[derive(Default)]
pub(super) struct TopState {
    /// The name of the server that is asked.
    pub(super) server: String,
    /// The last answer, and its time.
    pub(super) answered: Option<(Duration, Status)>,
    /// Since when no answer has come, and why.
    pub(super) trouble: Option<(Duration, String)>,
    /// Incidents, the newest first.
    pub(super) incidents: VecDeque<Incident>,
    /// The model that was chosen.
    chosen: Option<String>,
    pub(super) sort: Sort,
    /// Place of the first replica that is shown.
    pub(super) first_row: usize,
    /// Whether answers are ignored.
    pub(super) paused: bool,
}

/// In which order replicas are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    /// Replicas in trouble first, then replicas that read, then replicas that wait, then the others.
    #[default]
    Activity,
    /// By name.
    Name,
    /// Replicas that have been stale for longest first.
    Staleness,
}

impl Sort {
    pub(super) fn next(self) -> Self {
        match self {
            Self::Activity => Self::Name,
            Self::Name => Self::Staleness,
            Self::Staleness => Self::Activity,
        }
    }
}

impl TopState {
    /// The state before the first answer.
    pub(super) fn new(server: String, model: Option<String>) -> Self {
        Self { server, chosen: model, ..Self::default() }
    }

    /// Takes an answer, or a failure to get one.
    pub(super) fn hear(&mut self, now: Duration, answer: StatusAnswer) {
        if self.paused {
            return;
        }
        match answer {
            Ok(status) => {
                if let Some((_, before)) = &self.answered {
                    for what in incidents(before, &status) {
                        self.incidents.push_front(Incident { at: now, what });
                    }
                }
                self.answered = Some((now, status));
                self.trouble = None;
            }
            Err(reason) => {
                let since = self.trouble.take().map_or(now, |(since, _)| since);
                self.trouble = Some((since, reason));
            }
        }
        self.incidents.truncate(KEPT);
        self.incidents.retain(|incident| now.saturating_sub(incident.at) < SHOWN);
        self.scroll(0);
    }

    /// The models of the last answer.
    pub(super) fn models(&self) -> &[ModelStatus] {
        self.answered.as_ref().map_or(&[], |(_, status)| &status.models)
    }

    /// The place of the model that is shown.
    pub(super) fn model_index(&self) -> usize {
        let chosen =
            self.models().iter().position(|model| Some(&model.name) == self.chosen.as_ref());
        chosen.unwrap_or(0)
    }

    /// The model that is shown: the chosen model, if the server has that model.
    pub(super) fn model(&self) -> Option<&ModelStatus> {
        self.models().get(self.model_index())
    }

    /// Shows another model.
    pub(super) fn turn_model(&mut self, by: isize) {
        let count = self.models().len() as isize;
        if count > 0 {
            let next = (self.model_index() as isize + by).rem_euclid(count) as usize;
            self.chosen = Some(self.models()[next].name.clone());
            self.first_row = 0;
        }
    }

    /// Shows other replicas.
    pub(super) fn scroll(&mut self, by: isize) {
        let last = self.model().map_or(0, |model| model.replicas.len()).saturating_sub(1);
        self.first_row = self.first_row.saturating_add_signed(by).min(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn timeouts(count: u64) -> StatusAnswer {
        let counters = [("timeouts".to_owned(), count)].into();
        Ok(Status { term: 1, counters, ..Status::default() })
    }

    #[test]
    fn a_server_that_is_silent_is_in_trouble_since_its_last_answer_failed_first() {
        let mut state = TopState::new(String::new(), None);
        state.hear(at(1), Err("refused".to_owned()));
        state.hear(at(2), Err("no answer".to_owned()));
        assert_eq!(state.trouble, Some((at(1), "no answer".to_owned())));
        state.hear(at(3), timeouts(0));
        assert_eq!(
            (state.trouble.as_ref(), state.answered.as_ref().map(|a| a.0)),
            (None, Some(at(3)))
        );
        state.hear(at(4), Err("refused".to_owned()));
        assert_eq!(state.trouble, Some((at(4), "refused".to_owned())));
        assert!(state.answered.is_some(), "the last answer stays");
    }

    #[test]
    fn incidents_are_shown_for_five_minutes_the_newest_first() {
        let mut state = TopState::new(String::new(), None);
        state.hear(at(0), timeouts(4));
        assert!(state.incidents.is_empty(), "nobody knows when those were");
        state.hear(at(10), timeouts(5));
        state.hear(at(20), timeouts(7));
        let when = |state: &TopState| state.incidents.iter().map(|i| i.at).collect::<Vec<_>>();
        assert_eq!(when(&state), [at(20), at(10)]);
        state.hear(at(309), timeouts(7));
        assert_eq!(when(&state).len(), 2);
        state.hear(at(310), Err("refused".to_owned()));
        assert_eq!(when(&state), [at(20)]);
        for second in 0..2 * KEPT as u64 {
            state.hear(at(311), timeouts(8 + second));
        }
        assert_eq!(state.incidents.len(), KEPT);
    }

    #[test]
    fn nothing_is_heard_while_the_screen_is_paused() {
        let mut state = TopState::new(String::new(), None);
        state.hear(at(0), timeouts(0));
        state.paused = true;
        state.hear(at(1), timeouts(3));
        state.hear(at(2), Err("refused".to_owned()));
        assert!(state.incidents.is_empty() && state.trouble.is_none());
        state.paused = false;
        state.hear(at(3), timeouts(3));
        assert_eq!(state.incidents.len(), 1);
    }

    #[test]
    fn a_model_that_goes_is_not_looked_at() {
        let model = |name: &str| ModelStatus { name: name.to_owned(), ..ModelStatus::default() };
        let mut state = TopState::new(String::new(), Some("b".to_owned()));
        state.turn_model(1);
        assert!(state.model().is_none());
        let with = |names: &[&str]| {
            let models = names.iter().map(|name| model(name)).collect();
            Ok(Status { models, ..Status::default() })
        };
        for (names, looked_at) in [(&["a", "b"][..], Some("b")), (&["a"], Some("a")), (&[], None)] {
            state.hear(at(0), with(names));
            assert_eq!(state.model().map(|model| model.name.as_str()), looked_at);
        }
    }
}
