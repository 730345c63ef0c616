//! `anywire doctor`: how this computer is connected, what is in the way and, with a host's code, which way it would most
//! likely reach that host.
//!
//! It opens a lobby that nobody is told of, lets it find out what a host finds out, asks the master server what it offers,
//! and takes everything back.

mod report;

use std::io::{self, IsTerminal};
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use driver::Setup;
use joincode::{Code, Profile};
use seam::{HttpMethod, Reply, Request};
use session::{Command, Event, Help, HostConfig, Mine, PortState, Verdict};

use super::say;
use crate::args::{DoctorArgs, Inputs};
use crate::log::Log;
use crate::run::{FAILED, FINE, WRONG};
use crate::setup;

use report::{Findings, Master};

/// How long the look may take.
const PATIENCE: Duration = Duration::from_secs(9);
/// How the router behaves is known this long after the own address, or not at all.
const ROUTER_FOR: Duration = Duration::from_millis(1_500);
/// How long the master may take for each question.
const MASTER_FOR: Duration = Duration::from_secs(4);
/// What a stream of datagrams is called (docs/wire/extensions.md, "Relay over HTTP").
const TUNNEL: &str = "anywire-relay/1";

/// Looks and prints. The answer is the exit code: 0 whatever was found, 1 when it could not look, 2 for a wrong code.
pub(crate) fn run(args: &DoctorArgs) -> u8 {
    let log = if args.show_addresses { Log::new(true) } else { Log::from_env() };
    let complain = |why: &str, code: u8| {
        log.line(&format!("anywire: {why}"));
        code
    };
    let master = match args.master() {
        Ok(master) => master,
        Err(error) => return complain(&error.to_string(), WRONG),
    };
    let host = match host(args) {
        Ok(host) => host,
        Err(why) => return complain(&why, WRONG),
    };
    if io::stderr().is_terminal() {
        log.line("Looking; this takes a few seconds.");
    }
    let asked = master.clone().map(|url| thread::spawn(move || ask_master(url)));
    let looked = look(args, master, &log);
    let master = asked.and_then(|asked| asked.join().ok());
    let mut findings = match looked {
        Ok(findings) => findings,
        Err(why) => return complain(&why, FAILED),
    };
    findings.master = master;
    let verdict = host.map(|host| Verdict::of(&host, &mine(&findings)));
    if args.json {
        say(&log.mask(&report::json(&findings, verdict).to_string()));
    } else {
        report::lines(&findings, verdict).iter().for_each(|line| say(&log.mask(line)));
    }
    FINE
}

/// What the code says of its host.
fn host(args: &DoctorArgs) -> Result<Option<Profile>, String> {
    let code = args.code();
    if code.is_empty() {
        return Ok(None);
    }
    let bad = |error: &dyn std::fmt::Display| format!("bad code: {error}");
    match joincode::read(&code).map_err(|error| bad(&error))? {
        Code::Plain(profile) => Ok(Some(profile)),
        Code::Steam(_) => Err("this is a Steam ID, which says nothing of the host's network".to_owned()),
        Code::Locked(locked) => {
            let password = args.password(&mut Inputs::new(io::stdin().lock())).map_err(|error| error.to_string())?;
            let password = password.ok_or_else(|| bad(&joincode::CodeError::NeedsPassword))?;
            let key = joincode::stretch(&password, locked.timestamp());
            locked.open(&key).map(Some).map_err(|error| bad(&error))
        }
    }
}

/// Opens a lobby and waits for what it finds out.
fn look(args: &DoctorArgs, master: Option<String>, log: &Log) -> Result<Findings, String> {
    let stun = setup::stun(log, master.as_deref());
    let portmap = setup::portmap(args.portmap, &stun);
    let secret = seam::Dice::new(driver::entropy().map_err(|error| error.to_string())?).bytes();
    let mut findings = Findings {
        asked_stun: !stun.is_empty(),
        asked_router: portmap.is_some(),
        mtu: net::mtu(),
        ..Findings::default()
    };
    let config = HostConfig {
        relay_only: true,
        rendezvous: master,
        stun,
        survey: true,
        max_players: 1,
        ..HostConfig::new("doctor", secret)
    };
    let mut setup = Setup::host(config);
    setup.bind = SocketAddr::from((Ipv4Addr::UNSPECIFIED, args.local_port));
    (setup.vpn, setup.portmap) = (setup::vpn(log), portmap);
    let handle = driver::spawn(setup).map_err(|error| error.to_string())?;
    let start = Instant::now();
    let (mut coded, mut disproved, mut router) = (None, false, !findings.asked_stun);
    while start.elapsed() < PATIENCE {
        match handle.event_timeout(Duration::from_millis(50)) {
            Some(Event::Code(code)) => {
                if let Ok(Code::Plain(profile)) = joincode::parse(&code) {
                    findings.profile = profile;
                    coded.get_or_insert(Instant::now());
                }
            }
            Some(Event::Router { behaviour, public }) => {
                (findings.behaviour, findings.seen, router) = (behaviour, public, true);
            }
            Some(Event::Port(state)) => {
                disproved |= matches!(state, PortState::Disproved { .. });
                findings.port = Some(state);
            }
            Some(Event::Ended(end)) => return Err(end.to_string()),
            _ => {}
        }
        // After a lie the router is asked another way.
        let settled = match &findings.port {
            None => !findings.asked_router,
            Some(PortState::Open { .. } | PortState::Unproved { .. }) => true,
            Some(_) => !disproved,
        };
        let known = router || coded.is_some_and(|coded| coded.elapsed() >= ROUTER_FOR);
        if coded.is_some() && known && settled {
            break;
        }
    }
    // The router is given back what it gave; waiting for it is part of leaving.
    let _over = handle.command(Command::Quit);
    handle.join();
    Ok(findings)
}

/// What the master answers, as a web server and as a way for datagrams.
fn ask_master(url: String) -> Master {
    let request = Request::Http {
        method: HttpMethod::Get,
        url: format!("{url}/health"),
        body: Vec::new(),
        timeout: MASTER_FOR,
        answer_max: 4 << 10,
    };
    let web = match driver::fetch(&request) {
        Some(Reply::Http { status: 200, .. }) => Ok(()),
        Some(Reply::Http { status, .. }) => Err(format!("it answers {status}: is it a master server?")),
        Some(Reply::Unreachable(why)) => Err(why),
        Some(_) | None => Err("no HTTP in this build".to_owned()),
    };
    let tunnel = driver::try_tunnel(&format!("{url}/relay"), TUNNEL, MASTER_FOR);
    Master { url, web, tunnel }
}

fn mine(findings: &Findings) -> Mine {
    let help = match &findings.master {
        Some(Master { tunnel: Ok(()), .. }) => Help::Tunnel,
        Some(Master { web: Ok(()), .. }) => Help::Master,
        Some(_) | None => Help::None,
    };
    Mine { profile: findings.profile.clone(), behaviour: findings.behaviour, udp: findings.udp() != Some(false), help }
}
