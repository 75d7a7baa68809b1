//! `weightcast top`: a job at a glance, in a terminal.
//!
//! `polling` asks the server in the background; `state` keeps what the server has said, and what of it was new
//! (`incidents`); `keys` changes what is looked at; `screen` makes lines of the state, and nothing else; `terminal` is
//! the one file that touches the terminal.

mod incidents;
mod keys;
mod polling;
mod screen;
mod state;
mod terminal;

use std::io::IsTerminal;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use clap::Args;

use crate::job::asked::JobServer;
use crate::job::serve::positive;
use state::TopState;
use terminal::{Input, TakenTerminal};

/// How long to wait for a key before the screen is drawn again, with new ages.
const REDRAW: Duration = Duration::from_millis(250);

/// Arguments of `top`.
#[derive(Args)]
#[command(after_help = "\
keys: q or Ctrl-C quits, Tab and the arrows to the sides go to another model, up and down scroll the
replicas, s sorts them otherwise, p pauses

A server that can't be reached is asked again; the last answer stays on the screen.")]
pub(crate) struct Top {
    #[command(flatten)]
    asked: JobServer,
    /// The model to begin with; the first one by name, if not given
    #[arg(long)]
    model: Option<String>,
    /// Seconds between two questions
    #[arg(long, default_value_t = 1.0, value_parser = positive)]
    interval: f64,
}

pub(crate) fn run(arguments: Top) -> anyhow::Result<()> {
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    ensure!(
        terminal,
        "top needs a terminal; `weightcast status --watch` prints wherever it is run"
    );
    let interval = Duration::from_secs_f64(arguments.interval);
    let mut state = TopState::new(arguments.asked.name(), arguments.model);
    let answers = polling::start(arguments.asked.options(), interval)?;
    let began = Instant::now();
    let mut terminal = TakenTerminal::take()?;
    loop {
        match answers.try_recv() {
            Ok(answer) => state.hear(began.elapsed(), answer),
            Err(TryRecvError::Empty) => {
                terminal
                    .draw(|width, height| screen::lines(&state, began.elapsed(), width, height))?;
                match terminal.wait(REDRAW)? {
                    Input::Key(key) if !keys::press(&mut state, key) => return Ok(()),
                    Input::Key(_) | Input::Other => {}
                }
            }
            Err(TryRecvError::Disconnected) => bail!("the thread that asks the server has died"),
        }
    }
}
