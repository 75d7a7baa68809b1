//! Scenarios: clusters of a given size, written down in files. A file puts values that were
//! measured on a real cluster beside the predicted ones.
//!
//! The reference server and the client sessions are the real ones; units of progress are as large
//! as the transports'. Bytes are a fluid: a shard that reads from another gets its max-min fair
//! share of the links between them, and a relay is read no faster than it is filled itself. Nothing
//! is drawn at random: a scenario always plays the same.
//!
//! `file` and `setting` are what is written down, and `check` finds what is wrong with it.
//! `cluster` makes the machines, `player` plays the events that `event` lists, and `hosting` does
//! what the server and the sessions ask for. `worker` is one shard's process: `script` is what it
//! does, `reading` how it reads, `seeding` its seeds in CPU memory. `flows` and `links` say how
//! fast bytes move. `outcome` is what was seen, and `compare` puts it beside the figure.

mod check;
mod cluster;
mod compare;
mod event;
mod file;
mod flows;
mod hosting;
mod links;
mod outcome;
mod player;
mod reading;
mod script;
mod seeding;
mod setting;
mod worker;

pub use check::ScenarioError;
pub use compare::{CaseComparison, ComparedValue};
pub use file::{Case, Measure, Origin, Reported, Scenario, StallFormula};
pub use outcome::{LinkBytes, Outcome, Stall};
pub use setting::{
    Between, Datacentre, Goodput, GroupRole, GroupSetting, LinkLatency, Protocol, ScriptStep,
    Setting, Verb,
};

/// Plays one case of a scenario to its end.
///
/// Errors: `Unfinished` if a call that the script makes never ends.
pub fn play(case: &str, setting: &Setting) -> Result<Outcome, ScenarioError> {
    player::Player::new(setting).play(case)
}
