//! The live panel. It draws on the terminal device itself, so that standard output and standard error stay free for
//! whoever redirected them, and it leaves the terminal as it found it: at the end, after a panic, after a signal.

mod draw;
mod input;
mod keys;
mod model;
mod qr;
mod roster;
mod theme;

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::{cursor, execute, terminal};
use data_encoding::BASE64;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use session::Event;

pub(crate) use input::Action;
use keys::Keys;
use model::Model;
use theme::Theme;

use crate::clock;
use crate::log::Log;

/// Whether the terminal is in the panel's hands: what a panic has to undo.
static HELD: AtomicBool = AtomicBool::new(false);

/// The terminal, drawn on directly.
#[cfg(unix)]
const DEVICE: &str = "/dev/tty";
#[cfg(windows)]
const DEVICE: &str = "CONOUT$";

/// A panel on the terminal.
pub(crate) struct Panel {
    terminal: Terminal<CrosstermBackend<File>>,
    device: File,
    model: Model,
    theme: Theme,
    log: Log,
    keys: Keys,
    stale: bool,
    gone: bool,
}

/// Whether a person sits at a terminal that a panel can use: keys come from one and somebody looks at it.
pub(crate) fn possible() -> bool {
    let seen = io::stderr().is_terminal() || io::stdout().is_terminal();
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stdin().is_terminal() && seen && !dumb && device().is_ok()
}

fn device() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(DEVICE)
}

/// Undoes what [`Panel::open`] did to the terminal; without a panel it does nothing.
fn release() {
    if HELD.swap(false, Ordering::SeqCst) {
        if let Ok(mut device) = device() {
            let _ = execute!(device, DisableBracketedPaste, terminal::LeaveAlternateScreen, cursor::Show);
        }
        let _ = terminal::disable_raw_mode();
    }
}

/// A panic on the panel's thread gives the terminal back before it speaks; one on another thread goes to the log,
/// because the panel still owns the screen.
fn release_on_panic(log: Log) {
    let owner = std::thread::current().id();
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().id() == owner {
            release();
        } else if HELD.load(Ordering::SeqCst) {
            log.line(&format!("[panic] {info}"));
            return;
        }
        before(info);
    }));
}

impl Panel {
    /// Takes the terminal.
    ///
    /// # Errors
    /// When there is none, or it refuses.
    pub(crate) fn open(host: bool, release_name: &str, log: Log) -> io::Result<Self> {
        let mut device = device()?;
        release_on_panic(log.clone());
        terminal::enable_raw_mode()?;
        HELD.store(true, Ordering::SeqCst);
        let taken = execute!(device, terminal::EnterAlternateScreen, EnableBracketedPaste, cursor::Hide)
            .and_then(|()| device.try_clone())
            .and_then(|writer| Terminal::new(CrosstermBackend::new(writer)));
        match taken {
            Ok(terminal) => {
                // Lines on a redirected standard error do no harm to the screen.
                log.use_stderr(!io::stderr().is_terminal());
                let model = Model::new(host, release_name.to_owned());
                Ok(Self {
                    terminal,
                    device,
                    model,
                    theme: Theme::from_env(),
                    log,
                    keys: Keys::listen(),
                    stale: true,
                    gone: false,
                })
            }
            Err(error) => {
                release();
                Err(error)
            }
        }
    }

    /// Shows what happened.
    pub(crate) fn apply(&mut self, event: &Event) {
        let clock = match event {
            Event::Chat { ts, .. } => clock::hm(*ts),
            _ => clock::hm(None),
        };
        match event {
            Event::Status { state, detail } => {
                let detail = self.log.mask(detail);
                self.model.apply(&Event::Status { state: *state, detail }, &clock);
            }
            event => self.model.apply(event, &clock),
        }
        self.stale = true;
    }

    /// Runs `print` with the terminal as it was before the panel, then takes it back: how a line gets to a standard
    /// output that is this same terminal.
    pub(crate) fn aside(&mut self, print: impl FnOnce()) {
        let _ = execute!(self.device, terminal::LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
        print();
        let _ = terminal::enable_raw_mode();
        let all = terminal::Clear(terminal::ClearType::All);
        let _ = execute!(self.device, terminal::EnterAlternateScreen, all, cursor::Hide);
        // Forgets what was drawn, so that the next frame is whole. (`Terminal::clear` would ask the terminal where its
        // cursor is and wait for the answer.)
        self.terminal.swap_buffers();
        self.stale = true;
    }

    /// Draws if something changed, then waits for a key, at most `patience`.
    pub(crate) fn turn(&mut self, patience: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        if let Err(error) = self.draw() {
            // A closed terminal does not always send a signal: whoever ignores it is here without a screen.
            if !std::mem::replace(&mut self.gone, true) {
                self.log.line(&format!("[panel] the terminal is gone: {error}"));
                actions.push(Action::Quit);
            }
            std::thread::sleep(patience);
            return actions;
        }
        let mut patience = patience;
        // Keys that came together are taken together: a paste must not cost a frame a letter.
        while actions.len() < 64 {
            match self.keys.next(patience) {
                Ok(Some(event)) => {
                    self.stale = true;
                    if let Some(action) = input::take(&mut self.model, &event, Instant::now()) {
                        self.serve(action, &mut actions);
                    }
                    patience = Duration::ZERO;
                }
                Ok(None) => break,
                Err(error) => {
                    self.log.line(&format!("[panel] the terminal is gone: {error}"));
                    actions.push(Action::Quit);
                    break;
                }
            }
        }
        actions
    }

    fn serve(&mut self, action: Action, actions: &mut Vec<Action>) {
        match action {
            // OSC 52: the terminal puts it on the clipboard of the computer the person sits at, over SSH as well.
            Action::Copy(text) => {
                let _ = write!(self.device, "\x1b]52;c;{}\x07", BASE64.encode(text.as_bytes()));
                let _ = self.device.flush();
            }
            action => actions.push(action),
        }
    }

    fn draw(&mut self) -> io::Result<()> {
        let lines = self.log.collect();
        self.stale |= !lines.is_empty();
        self.model.logged(lines);
        let noticed = self.model.notice.is_some();
        self.model.tick(Instant::now());
        self.stale |= noticed && self.model.notice.is_none();
        if std::mem::take(&mut self.stale) {
            let (model, theme) = (&self.model, self.theme);
            self.terminal.draw(|frame| draw::draw(frame, model, theme))?;
        }
        Ok(())
    }
}

impl Drop for Panel {
    fn drop(&mut self) {
        release();
        self.log.use_stderr(true);
    }
}
