//! The terminal: taken, drawn on, and given back as it was, even after an error or a panic.

use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use ratatui::text::Line;
use ratatui::{DefaultTerminal, Frame};

/// Input from the terminal.
pub(super) enum Input {
    /// A key was pressed.
    Key(KeyEvent),
    /// No key: the screen is drawn again.
    Other,
}

/// The taken terminal: the other screen, and each key as it is pressed. Dropping the value gives the terminal back.
pub(super) struct TakenTerminal(DefaultTerminal);

impl TakenTerminal {
    /// Takes the terminal. A later panic gives the terminal back before its message is printed.
    pub(super) fn take() -> std::io::Result<Self> {
        let taken = ratatui::try_init();
        taken.map(Self).inspect_err(|_| ratatui::restore())
    }

    /// Draws lines that are made for the width and height of the terminal.
    pub(super) fn draw(
        &mut self,
        lines: impl FnOnce(u16, u16) -> Vec<Line<'static>>,
    ) -> std::io::Result<()> {
        self.0.draw(|frame| {
            let area = frame.area();
            put(frame, &lines(area.width, area.height));
        })?;
        Ok(())
    }

    /// Waits for a key, at most this long.
    pub(super) fn wait(&self, patience: Duration) -> std::io::Result<Input> {
        if !event::poll(patience)? {
            return Ok(Input::Other);
        }
        Ok(match event::read()? {
            Event::Key(key) if key.kind == KeyEventKind::Press => Input::Key(key),
            _ => Input::Other,
        })
    }
}

impl Drop for TakenTerminal {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Draws lines below each other, as many as there is room for.
pub(super) fn put(frame: &mut Frame<'_>, lines: &[Line<'_>]) {
    let area = frame.area();
    for (line, y) in lines.iter().zip(area.y..area.bottom()) {
        frame.buffer_mut().set_line(area.x, y, line, area.width);
    }
}
