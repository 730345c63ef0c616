//! `anywire punch`: whether two computers reach each other, without a game. One shows a code and waits, the other takes
//! it; both say by which way they met and how good it is.

use std::io::IsTerminal;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use driver::{Handle, Setup};
use seam::LinkStats;
use session::{Command, Event, HostConfig, JoinConfig};

use super::say;
use crate::args::PunchArgs;
use crate::log::Log;
use crate::run::{FAILED, FINE, STOPPED, WRONG};
use crate::setup;
use crate::stop::Stop;

/// How long the way is measured once it is open.
const MEASURE: Duration = Duration::from_secs(8);

/// Runs one end of the test; the answer is the exit code.
pub(crate) fn run(args: &PunchArgs) -> u8 {
    let log = Log::from_env();
    let code = args.code.concat();
    let setup = if code.is_empty() { waiting(&log) } else { dialling(args, &code, &log) };
    let mut setup = match setup {
        Ok(setup) => setup,
        Err((why, exit)) => {
            log.line(&format!("anywire: {why}"));
            return exit;
        }
    };
    setup.bind = SocketAddr::from((Ipv4Addr::UNSPECIFIED, args.local_port));
    setup.vpn = setup::vpn(&log);
    let started = Stop::new(None).map_err(|error| error.to_string());
    let opened = started.and_then(|stop| driver::spawn(setup).map_err(|error| error.to_string()).map(|h| (h, stop)));
    match opened {
        Ok((handle, stop)) => meet(&handle, stop, &log),
        Err(why) => {
            log.line(&format!("anywire: {why}"));
            FAILED
        }
    }
}

fn waiting(log: &Log) -> Result<Setup, (String, u8)> {
    let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = driver::entropy().map_err(|error| (error.to_string(), FAILED))?;
    Ok(Setup::host(HostConfig {
        lobby_name: "punch test".to_owned(),
        stun: setup::stun(log, None),
        max_players: 2,
        ..HostConfig::new("first", [a, b, c, d, e, f, g, h, i, j, k, l])
    }))
}

fn dialling(args: &PunchArgs, code: &str, log: &Log) -> Result<Setup, (String, u8)> {
    let code = joincode::read(code).map_err(|error| (format!("bad code: {error}"), WRONG))?;
    Ok(Setup::join(JoinConfig {
        mesh: false,
        timeout: Duration::from_secs_f64(args.timeout),
        stun: setup::stun(log, None),
        ..JoinConfig::new("second", code)
    }))
}

/// Waits for the other end, measures, and says what came of it.
fn meet(handle: &Handle, mut stop: Stop, log: &Log) -> u8 {
    let mut until: Option<Instant> = None;
    let mut measured: Option<LinkStats> = None;
    let mut stopped = false;
    loop {
        let now = Instant::now();
        if !stopped && stop.reason(now).is_some() {
            stopped = true;
            let _over = handle.command(Command::Quit);
        }
        if until.is_some_and(|until| now >= until) && !stopped {
            stopped = true;
            let _over = handle.command(Command::Quit);
        }
        match handle.event_timeout(Duration::from_millis(50)) {
            Some(Event::Code(code)) => {
                say(&format!("CODE={code}"));
                if std::io::stderr().is_terminal() {
                    log.line("On the other computer run: anywire punch CODE");
                }
            }
            Some(Event::Roster(roster)) if roster.players.len() > 1 => {
                until.get_or_insert(now + MEASURE);
            }
            Some(Event::Links(links)) => {
                let other = links.values().find(|stats| stats.rtt.is_some());
                measured = other.cloned().or(measured);
            }
            Some(Event::Log(line)) => log.line(&line),
            Some(Event::Ended(end)) => {
                return match (until, measured) {
                    (Some(_), measured) => {
                        log.line(&verdict(measured.as_ref()));
                        FINE
                    }
                    (None, _) if stopped => STOPPED,
                    (None, _) => {
                        log.line(&format!("They do not reach each other: {end}."));
                        FAILED
                    }
                };
            }
            _ => {}
        }
    }
}

fn verdict(stats: Option<&LinkStats>) -> String {
    let Some(stats) = stats else { return "The two computers reach each other.".to_owned() };
    let rtt = stats.rtt.map_or_else(String::new, |rtt| format!(", {:.1} ms there and back", rtt.as_secs_f64() * 1e3));
    let loss = stats.loss.map_or_else(String::new, |loss| format!(", {:.0} % lost", loss * 100.0));
    format!("The two computers reach each other{rtt}{loss}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_says_what_was_measured() {
        let stats = LinkStats { rtt: Some(Duration::from_micros(31_400)), loss: Some(0.02), ..LinkStats::default() };
        assert_eq!(verdict(Some(&stats)), "The two computers reach each other, 31.4 ms there and back, 2 % lost.");
        assert_eq!(verdict(None), "The two computers reach each other.");
    }
}
