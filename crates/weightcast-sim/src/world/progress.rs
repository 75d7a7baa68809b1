//! A world ends: one that goes on without its clock, or with ever more events, is stopped, and its
//! story says so.

use weightcast_protocol::{Span, Time};

use crate::world::World;

/// How often the world is looked at in passing.
const LOOK_EVERY: Span = Span::from_millis(250);

/// Events of one instant: a few for each process, of which there are some dozens.
const AT_ONCE: u64 = 20_000;

/// Events of a world: a hundred times what the busiest have.
const IN_ALL: u64 = 20_000_000;

/// What one event may have a process or a server do: some messages to everybody.
pub(crate) const OUTPUTS: u64 = 20_000;

impl World {
    /// The next event happens then.
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

    /// It would go on for ever.
    pub(crate) fn hangs(&mut self, why: String) {
        self.over = true;
        self.violated("hang", why);
    }
}
