//! The terminal: taken, drawn on, and given back as it was, also after an error or a panic.

use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use ratatui::text::Line;
use ratatui::{DefaultTerminal, Frame};

/// What came from the terminal.
pub(super) enum Input {
    /// A key was pressed.
    Key(KeyEvent),
    /// Nothing that is heeded: draw again.
    Other,
}

/// The terminal while it is taken: other screen, each key as it is pressed. Dropping it gives it back.
pub(super) struct TakenTerminal(DefaultTerminal);

impl TakenTerminal {
    /// Takes it. From then on a panic gives it back first, and is told afterwards.
    pub(super) fn take() -> std::io::Result<Self> {
        let taken = ratatui::try_init();
        taken.map(Self).inspect_err(|_| ratatui::restore())
    }

    /// Draws the lines that there are for its width and height.
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

    /// Waits so long for a key.
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

/// One line below the other, as far as there is room.
pub(super) fn put(frame: &mut Frame<'_>, lines: &[Line<'_>]) {
    let area = frame.area();
    for (line, y) in lines.iter().zip(area.y..area.bottom()) {
        frame.buffer_mut().set_line(area.x, y, line, area.width);
    }
}
