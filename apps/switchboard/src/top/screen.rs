//! The terminal, while it is ours.
//!
//! Invariant: it is given back as it was, however that ends: [`Screen`] does it when dropped, and ratatui's panic hook before a panic is reported.

use std::io::{IsTerminal, stdin, stdout};
use std::time::Instant;

use crossterm::event::{Event, EventStream, KeyCode, KeyEventKind, KeyModifiers};
use futures::StreamExt;
use ratatui::DefaultTerminal;

use super::state::View;

/// What somebody at the keyboard wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Quit,
    Scroll(isize),
    /// The terminal has another size.
    Redraw,
}

/// Whether somebody looks at a terminal, and has the keyboard to it.
pub(crate) fn is_available() -> bool {
    stdin().is_terminal() && stdout().is_terminal()
}

/// A terminal that shows nothing but this.
pub(crate) struct Screen {
    terminal: DefaultTerminal,
    events: EventStream,
}

impl Screen {
    pub(crate) fn open() -> std::io::Result<Self> {
        // Before anything that can fail: dropped half-way, it must be given back as well.
        let terminal = ratatui::try_init().inspect_err(|_| ratatui::restore())?;
        Ok(Self { terminal, events: EventStream::new() })
    }

    pub(crate) fn draw(&mut self, view: &View) -> std::io::Result<()> {
        self.terminal.draw(|frame| view.render(frame, Instant::now()))?;
        Ok(())
    }

    /// The next key that means something. A keyboard that is gone quits.
    pub(crate) async fn key(&mut self) -> Key {
        loop {
            match self.events.next().await {
                Some(Ok(event)) => {
                    if let Some(key) = meaning(&event) {
                        return key;
                    }
                }
                Some(Err(_)) | None => return Key::Quit,
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn meaning(event: &Event) -> Option<Key> {
    let key = match event {
        Event::Resize(..) => return Some(Key::Redraw),
        Event::Key(key) if key.kind != KeyEventKind::Release => key,
        _ => return None,
    };
    match key.code {
        // In raw mode the terminal makes no signal of it.
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
        KeyCode::Down | KeyCode::Char('j') => Some(Key::Scroll(1)),
        KeyCode::Up | KeyCode::Char('k') => Some(Key::Scroll(-1)),
        KeyCode::PageDown => Some(Key::Scroll(10)),
        KeyCode::PageUp => Some(Key::Scroll(-10)),
        _ => None,
    }
}
