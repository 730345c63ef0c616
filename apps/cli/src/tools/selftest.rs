//! `anywire selftest`: the original's self-tests with this build's own sessions, over real sockets on loopback.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use seam::Route;
use session::Command;

use super::party::{self, Guest, until};
use super::say;
use crate::args::Check;
use crate::run::{FAILED, FINE};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Frames each player sends.
const FRAMES: u32 = 200;

/// Runs the checks asked for; the answer is the exit code.
pub(crate) fn run(what: Check) -> u8 {
    let (checks, absent): (&[Check], &[Check]) = match what {
        Check::All => (&[Check::Lobby, Check::Relay, Check::Mesh], &[Check::Transfer, Check::Mods, Check::Dual]),
        Check::Lobby => (&[Check::Lobby], &[]),
        Check::Relay => (&[Check::Relay], &[]),
        Check::Mesh => (&[Check::Mesh], &[]),
        Check::Transfer => (&[], &[Check::Transfer]),
        Check::Mods => (&[], &[Check::Mods]),
        Check::Dual => (&[], &[Check::Dual]),
    };
    let mut failed = checks.is_empty();
    for check in checks {
        let result = match check {
            Check::Relay => relay(),
            Check::Mesh => mesh(),
            _ => lobby(),
        };
        match result {
            Ok(facts) => facts.iter().for_each(|fact| say(&format!("ok    {}: {fact}", name(*check)))),
            Err(why) => {
                failed = true;
                say(&format!("FAIL  {}: {why}", name(*check)));
            }
        }
    }
    for check in absent {
        say(&format!("-     {}: not in this build yet", name(*check)));
    }
    if failed { FAILED } else { FINE }
}

fn name(check: Check) -> &'static str {
    match check {
        Check::All => "all",
        Check::Lobby => "lobby",
        Check::Transfer => "transfer",
        Check::Relay => "relay",
        Check::Mesh => "mesh",
        Check::Mods => "mods",
        Check::Dual => "dual",
    }
}

/// A host and its code.
fn open(relay: bool) -> Result<(Guest, String), String> {
    let mut host = party::host("host", relay).map_err(|error| error.to_string())?;
    for _ in 0..200 {
        host.wait(Duration::from_millis(50));
        if let Some(code) = host.code.clone() {
            return Ok((host, code));
        }
    }
    Err("the host got no code".to_owned())
}

/// Waits for all to see exactly `names`.
fn agree(guests: &mut [Guest], names: &[&str]) -> Result<String, String> {
    let took = until(guests, PATIENCE, |guests| guests.iter().all(|guest| guest.sees() == names));
    match took {
        Some(took) => Ok(format!("{} players agree on the roster after {:.2} s", names.len(), took.as_secs_f64())),
        None => {
            let seen: Vec<String> = guests
                .iter()
                .map(|guest| format!("{} sees {:?} ({:?})", guest.name, guest.sees(), guest.end))
                .collect();
            Err(format!("the rosters differ: {}", seen.join("; ")))
        }
    }
}

/// A host, two joiners and a late one: roster, letters, chat, leaving.
fn lobby() -> Result<Vec<String>, String> {
    let (host, code) = open(false)?;
    let mut facts = vec![format!("a host opened with a code of {} characters", code.len())];
    let mut guests = vec![host, party::join("ada", &code, true)?, party::join("lin", &code, true)?];
    facts.push(agree(&mut guests, &["ada", "host", "lin"])?);
    guests.push(party::join("ada", &code, true)?);
    facts.push(agree(&mut guests, &["ada", "ada#2", "host", "lin"])? + ", a late namesake among them");

    for (n, guest) in guests.iter().enumerate() {
        guest.command(Command::Chat(format!("line {n}")));
    }
    let heard =
        |guest: &Guest| (0..4).all(|n| guest.chat.iter().filter(|(_, text)| *text == format!("line {n}")).count() == 1);
    until(&mut guests, PATIENCE, |guests| guests.iter().all(heard)).ok_or("a chat line was lost or came twice")?;
    facts.push("every chat line reached everybody once".to_owned());

    let mut letters: Vec<String> = Vec::new();
    if let Some(roster) = guests.first().and_then(|host| host.roster.as_ref()) {
        letters = roster.players.values().map(|player| player.letter.clone()).collect();
        letters.sort();
    }
    if letters != ["a", "b", "c", "d"] {
        return Err(format!("the letters are {letters:?}"));
    }
    facts.push("letters a to d, one for each".to_owned());

    if let Some(late) = guests.pop() {
        late.command(Command::Quit);
    }
    facts.push(agree(&mut guests, &["ada", "host", "lin"])? + " when one has left");
    close(&mut guests)?;
    Ok(facts)
}

/// Two joiners that cannot reach each other, and a relay that is no player.
fn relay() -> Result<Vec<String>, String> {
    let (host, code) = open(true)?;
    let mut guests = vec![host, party::join("ada", &code, false)?, party::join("lin", &code, false)?];
    let mut facts = vec![agree(&mut guests, &["ada", "lin"])?];
    facts.push(exchange(&mut guests, &["ada", "lin"])? + " through the relay");
    close(&mut guests)?;
    Ok(facts)
}

/// A host and three joiners that link with each other.
fn mesh() -> Result<Vec<String>, String> {
    let (host, code) = open(false)?;
    let mut guests = vec![host];
    for name in ["ada", "lin", "mia"] {
        guests.push(party::join(name, &code, true)?);
    }
    let mut facts = vec![agree(&mut guests, &["ada", "host", "lin", "mia"])?];
    let direct = |guest: &Guest| {
        let others = guest.links.iter().filter(|(name, _)| **name != guest.name);
        others.filter(|(_, stats)| stats.route == Route::Direct).count() == 3
    };
    let took = until(&mut guests, PATIENCE, |guests| guests.iter().all(direct));
    let took = took.ok_or_else(|| {
        let links: Vec<String> = guests
            .iter()
            .map(|guest| {
                let routes: Vec<String> =
                    guest.links.iter().map(|(name, stats)| format!("{name} {}", stats.route)).collect();
                format!("{}: {}", guest.name, routes.join(", "))
            })
            .collect();
        format!("not everybody is linked directly: {}", links.join("; "))
    })?;
    facts.push(format!("all are linked with each other after {:.2} s", took.as_secs_f64()));
    facts.push(exchange(&mut guests, &["ada", "host", "lin", "mia"])?);
    close(&mut guests)?;
    Ok(facts)
}

/// Every player named sends numbered frames; each other one must get each exactly once, and nobody their own.
fn exchange(guests: &mut [Guest], names: &[&str]) -> Result<String, String> {
    for n in 0..FRAMES {
        for guest in guests.iter().filter(|guest| names.contains(&guest.name.as_str())) {
            guest.command(Command::Frame(frame(&guest.name, n)));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let wanted = |guest: &Guest| -> BTreeMap<Bytes, u32> {
        let others = names.iter().filter(|name| **name != guest.name);
        others.flat_map(|name| (0..FRAMES).map(move |n| (frame(name, n), 1))).collect()
    };
    let players = |guests: &[Guest]| {
        guests.iter().filter(|guest| names.contains(&guest.name.as_str())).all(|guest| guest.frames == wanted(guest))
    };
    until(guests, PATIENCE, players).ok_or_else(|| {
        let wrong: Vec<String> = guests
            .iter()
            .map(|guest| {
                let twice = guest.frames.values().filter(|copies| **copies > 1).count();
                format!("{}: {} frames, {twice} of them more than once", guest.name, guest.frames.len())
            })
            .collect();
        format!("frames are missing or came twice: {}", wrong.join("; "))
    })?;
    Ok(format!("{FRAMES} frames of each of {} players reached all the others once", names.len()))
}

fn frame(name: &str, n: u32) -> Bytes {
    let mut bytes = format!("{name} {n} ").into_bytes();
    bytes.resize(100, b'.');
    bytes.into()
}

/// Ends the lobby: every joiner must be told.
fn close(guests: &mut [Guest]) -> Result<(), String> {
    if let Some(host) = guests.first() {
        host.command(Command::Quit);
    }
    let over = |guests: &[Guest]| guests.iter().all(|guest| guest.end.is_some());
    until(guests, PATIENCE, over).map(|_| ()).ok_or_else(|| "somebody was not told that the lobby closed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_built_fails_when_asked_for_by_name() {
        assert_eq!([Check::Transfer, Check::Mods, Check::Dual].map(run), [FAILED; 3]);
    }

    #[test]
    fn a_host_and_three_joiners_agree_and_talk() {
        let facts = lobby().unwrap();
        assert_eq!(facts.len(), 6, "{facts:?}");
    }

    #[test]
    fn frames_cross_a_relay_both_ways() {
        assert_eq!(relay().unwrap().len(), 2);
    }

    #[test]
    fn linked_players_get_every_frame_once() {
        assert_eq!(mesh().unwrap().len(), 3);
    }
}
