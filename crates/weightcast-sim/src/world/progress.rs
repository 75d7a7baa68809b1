//! Every world ends. A world whose clock stands still, or that never runs out of events, is
//! stopped, and the story says so.

use weightcast_protocol::{Span, Time};

use crate::world::World;

/// How often the checkers are shown the state of the world.
const LOOK_EVERY: Span = Span::from_millis(250);

/// Most events of one instant. A few for each of some dozens of processes are usual.
const AT_ONCE: u64 = 20_000;

/// Most events of a world: a hundred times those of the busiest worlds.
const IN_ALL: u64 = 20_000_000;

/// Most outputs of one event. Some messages to every process are usual.
pub(crate) const OUTPUTS: u64 = 20_000;

impl World {
    /// The clock goes on to the next event.
    pub(crate) fn progress(&mut self, at: Time) {
        while self.look_at < at {
            self.now = self.look_at;
            self.look_at = self.look_at + LOOK_EVERY;
            self.look_around();
        }
        self.at_once = if at == self.now { self.at_once + 1 } else { 0 };
        self.now = at;
        if self.at_once > AT_ONCE {
            self.hangs(format!("{AT_ONCE} events have happened in this instant"));
        } else if self.report.events > IN_ALL {
            self.hangs(format!("{IN_ALL} events have happened"));
        }
    }

    /// The world would go on for ever: stops it.
    pub(crate) fn hangs(&mut self, why: String) {
        self.over = true;
        self.violated("hang", why);
    }
}
