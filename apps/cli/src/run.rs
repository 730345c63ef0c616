//! One session from its start to its exit code.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use driver::{Handle, Setup};
use lobby::{End, State};
use session::{Command, Event, Publish};

use crate::args::Ui;
use crate::forward::Forward;
use crate::ipc::{Asked, Ipc};
use crate::log::Log;
use crate::panel::{self, Action, Panel};
use crate::plain::Plain;
use crate::stop::Stop;

/// How a program ends: 0 as asked, 1 not started or not reached, 2 wrong code or command line, 130 stopped early.
pub(crate) const FINE: u8 = 0;
/// Could not start, or could not reach the lobby.
pub(crate) const FAILED: u8 = 1;
/// The code or the command line is wrong.
pub(crate) const WRONG: u8 = 2;
/// Stopped before the lobby was up.
pub(crate) const STOPPED: u8 = 130;

/// How long keys and events are waited for at a time.
const WAIT: Duration = Duration::from_millis(30);
/// How often the game's files are looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How long leaving may take before the program ends anyway.
const LEAVING: Duration = Duration::from_secs(3);

/// What a run needs beside its driver.
pub(crate) struct Run {
    /// Whether this is the host.
    pub(crate) host: bool,
    /// The release shown in the panel.
    pub(crate) release: String,
    /// Where to show it.
    pub(crate) ui: Ui,
    /// The game's files.
    pub(crate) ipc: Ipc,
    /// Logs to pass on.
    pub(crate) forward: Forward,
    /// How a host is listed, where there is a master.
    pub(crate) listing: Option<Listing>,
    /// Reasons to leave.
    pub(crate) stop: Stop,
    /// The log.
    pub(crate) log: Log,
}

/// A host's row in a public list.
pub(crate) struct Listing {
    /// The row.
    pub(crate) publish: Publish,
    /// Whether it is listed from the start.
    pub(crate) on: bool,
}

/// Where the lobby is shown.
enum Show {
    Panel(Box<Panel>),
    Plain(Plain),
    Nothing,
}

impl Run {
    /// Opens the session and runs it. The answer is the exit code.
    pub(crate) fn go(mut self, setup: Setup) -> u8 {
        let handle = match driver::spawn(setup) {
            Ok(handle) => handle,
            Err(error) => return self.fail(&error.to_string(), FAILED),
        };
        let mut show = match self.show() {
            Ok(show) => show,
            Err(error) => return self.fail(&format!("no panel here: {error}"), FAILED),
        };
        if self.host {
            self.ipc.set_stream_port(handle.facts().local.port);
        }
        let (end, up, stopped) = self.attend(&handle, &mut show);
        drop(show);
        let end = end.unwrap_or_else(|| End::Fault("the session did not end in time".to_owned()));
        self.log.line(&format!("[lobby] {end}"));
        exit_code(&end, up, stopped)
    }

    /// Ends before there was a session, with the reason in the log and the files.
    pub(crate) fn fail(mut self, why: &str, code: u8) -> u8 {
        self.ipc.status(State::Failed, why);
        self.log.line(&format!("anywire: {why}"));
        code
    }

    fn show(&self) -> io::Result<Show> {
        let panel = match self.ui {
            Ui::Panel => true,
            Ui::Auto => panel::possible(),
            Ui::Plain | Ui::None => false,
        };
        Ok(match self.ui {
            Ui::None => Show::Nothing,
            _ if panel => Show::Panel(Box::new(Panel::open(self.host, &self.release, self.log.clone())?)),
            _ => Show::Plain(Plain::default()),
        })
    }

    /// Passes everything on until the session ends: its end if it said one, whether it ever was up, and whether it was
    /// stopped from outside or by the player.
    fn attend(&mut self, handle: &Handle, show: &mut Show) -> (Option<End>, bool, bool) {
        let mut up = false;
        let mut leaving: Option<Instant> = None;
        let mut look = Instant::now();
        let listed = self.listing.as_ref().filter(|listing| listing.on).map(|listing| listing.publish.clone());
        if let Some(publish) = listed {
            self.send(handle, Command::Publish(Some(publish)));
        }
        loop {
            while let Some(event) = handle.try_event() {
                up |= is_up(&event, self.host);
                self.tell(&event, show);
                if let Event::Ended(end) = event {
                    return (Some(end), up, leaving.is_some());
                }
            }
            let now = Instant::now();
            let mut commands = Vec::new();
            if now >= look {
                look = now + LOOK;
                commands.extend(self.asked());
                commands.extend(self.forward.poll(now, &mut self.ipc));
            }
            if let Some(reason) = self.stop.reason(now).filter(|_| leaving.is_none()) {
                self.log.line(&format!("[lobby] leaving: {reason}"));
                commands.push(Command::Quit);
            }
            let fresh = match show {
                Show::Panel(panel) => {
                    commands.extend(panel.turn(WAIT).into_iter().filter_map(command));
                    None
                }
                Show::Plain(_) | Show::Nothing => handle.event_timeout(LOOK),
            };
            if let Some(event) = fresh {
                up |= is_up(&event, self.host);
                self.tell(&event, show);
                if let Event::Ended(end) = event {
                    return (Some(end), up, leaving.is_some());
                }
            }
            for command in commands {
                if command == Command::Quit {
                    leaving.get_or_insert(now + LEAVING);
                }
                self.send(handle, command);
            }
            if leaving.is_some_and(|deadline| now >= deadline) {
                return (Some(End::Quit), up, true);
            }
        }
    }

    /// A refusal is said once: a game that writes faster than the session takes must not fill a log as well.
    fn send(&mut self, handle: &Handle, command: Command) {
        if let Err(error) = handle.command(command) {
            self.ipc.once(&format!("a command was not taken: {error}"));
        }
    }

    /// Commands the game wrote.
    fn asked(&mut self) -> Vec<Command> {
        let mut commands = Vec::new();
        for asked in self.ipc.poll() {
            match asked {
                Asked::Session(command) => commands.push(command),
                Asked::StartWithSave { save, switch } => match files::save(&save) {
                    Ok(files) => commands.push(Command::StartWith { files, switch }),
                    Err(why) => {
                        self.ipc.status(self.ipc.state(), &why.to_string());
                        self.log.line(&format!("[xfer] {why}"));
                        commands.push(Command::Note(why.to_string()));
                    }
                },
                Asked::Publish(on) => match &self.listing {
                    Some(listing) => commands.push(Command::Publish(on.then(|| listing.publish.clone()))),
                    None => self.ipc.once("no master server is named: start the host with --publish URL"),
                },
                Asked::NotYet(what) => self.ipc.once(&format!("not in this build yet: the command \"{what}\"")),
                Asked::Bad(what) => self.ipc.once(&format!("lobby_in.jsonl: skipped {what}")),
            }
        }
        commands
    }

    fn tell(&mut self, event: &Event, show: &mut Show) {
        match event {
            Event::Log(line) => self.log.line(line),
            Event::Code(code) => match show {
                Show::Panel(panel) if io::stdout().is_terminal() => panel.aside(|| print_code(code)),
                Show::Panel(_) | Show::Plain(_) | Show::Nothing => print_code(code),
            },
            Event::Roster(roster) => self.forward.name(&roster.you),
            _ => {}
        }
        self.ipc.apply(event);
        match show {
            Show::Panel(panel) => panel.apply(event),
            Show::Plain(plain) => {
                for line in plain.lines(event) {
                    self.log.line(&line);
                }
            }
            Show::Nothing => {}
        }
    }
}

/// The one line of standard output. A broken one is nobody's reason to die.
fn print_code(code: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "CODE={code}").and_then(|()| out.flush());
}

fn command(action: Action) -> Option<Command> {
    match action {
        Action::Session(command) => Some(command),
        Action::Quit => Some(Command::Quit),
        Action::Copy(_) => None,
    }
}

/// Whether this event shows that the lobby is up.
fn is_up(event: &Event, host: bool) -> bool {
    match event {
        Event::Code(_) => host,
        Event::Status { state, .. } => *state == State::Connected,
        _ => false,
    }
}

/// What the shell is told.
fn exit_code(end: &End, up: bool, stopped: bool) -> u8 {
    match end {
        End::Quit if !up && stopped => STOPPED,
        End::Quit | End::HostClosed => FINE,
        End::BadCode(_) => WRONG,
        _ => FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_the_original() {
        assert_eq!(exit_code(&End::Quit, true, true), FINE);
        assert_eq!(exit_code(&End::Quit, false, true), STOPPED);
        assert_eq!(exit_code(&End::HostClosed, true, false), FINE);
        assert_eq!(exit_code(&End::BadCode("the code is empty".into()), false, false), WRONG);
        for end in [
            End::HostGone,
            End::Rejected("lobby full".into()),
            End::Version { mine: "1".into(), theirs: "2".into() },
            End::Unconfirmed,
            End::Unreachable("nobody answered".into()),
            End::Fault("x".into()),
        ] {
            assert_eq!(exit_code(&end, true, false), FAILED, "{end}");
        }
    }

    #[test]
    fn a_host_is_up_with_its_code_and_a_joiner_when_connected() {
        let status = |state| Event::Status { state, detail: String::new() };
        assert!(is_up(&Event::Code("X".into()), true));
        assert!(is_up(&status(State::Connected), false));
        assert!(!is_up(&status(State::Waiting), true) && !is_up(&status(State::Connecting), false));
    }
}
