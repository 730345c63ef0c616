//! `anywire observe`: how this computer is connected, in words.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use driver::Setup;
use joincode::{Code, Profile};
use session::{Event, HostConfig};

use super::say;
use crate::args::ObserveArgs;
use crate::log::Log;
use crate::run::{FAILED, FINE};
use crate::setup;

/// How long the look may take: the session asks for two seconds at most.
const PATIENCE: Duration = Duration::from_secs(10);

/// Looks and prints; the answer is the exit code.
pub(crate) fn run(args: &ObserveArgs) -> u8 {
    let log = if args.show_addresses { Log::new(true) } else { Log::from_env() };
    match look(args.local_port, &log) {
        Ok(profile) => {
            describe(&profile).iter().for_each(|line| say(&log.mask(line)));
            FINE
        }
        Err(why) => {
            log.line(&format!("anywire: {why}"));
            FAILED
        }
    }
}

/// A host's look at its own addresses, by the code it would give away.
fn look(port: u16, log: &Log) -> Result<Profile, String> {
    let mut setup = Setup::host(HostConfig {
        relay_only: true,
        stun: setup::stun(log, None),
        max_players: 1,
        ..HostConfig::new("observer", [0; 12])
    });
    setup.bind = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    setup.vpn = setup::vpn(log);
    let handle = driver::spawn(setup).map_err(|error| error.to_string())?;
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(Event::Code(code)) = handle.event_timeout(Duration::from_millis(100)) {
            return match joincode::parse(&code) {
                Ok(Code::Plain(profile)) => Ok(profile),
                Ok(_) => Err("the own code is of another kind".to_owned()),
                Err(error) => Err(error.to_string()),
            };
        }
    }
    Err("nothing was found out in ten seconds".to_owned())
}

/// The profile as lines.
fn describe(profile: &Profile) -> Vec<String> {
    let text = |address: Option<String>| address.unwrap_or_else(|| "none".to_owned());
    let mut lines = vec![
        format!("local network   {}", text(profile.lan.map(|a| a.to_string()))),
        format!("public address  {}", text(profile.public.map(|a| a.to_string()))),
        format!("IPv6            {}", text(profile.v6.map(|a| a.to_string()))),
    ];
    for vpn in profile.vpn.iter().flatten() {
        lines.push(format!("virtual network {vpn}"));
    }
    let flags = profile.flags;
    lines.push(match (profile.public.is_some(), flags.symmetric) {
        (false, _) => "No STUN server answered: players on other networks have no address to reach you at.".to_owned(),
        (true, true) => {
            "Your router gives every destination another port (symmetric): others reach you only if they are easier to \
             reach themselves."
                .to_owned()
        }
        (true, false) => "Your router keeps one port for all destinations: others can reach you.".to_owned(),
    });
    if flags.cgnat {
        lines.push("Your provider shares one address among many customers (carrier-grade NAT).".to_owned());
    }
    if flags.open {
        lines.push("A port is forwarded to this computer.".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_told_in_words_and_masked_by_the_log() {
        let mut profile = Profile {
            lan: Some("192.168.1.4:29471".parse().unwrap()),
            public: Some("203.0.113.9:29471".parse().unwrap()),
            ..Profile::default()
        };
        let lines = describe(&profile);
        assert_eq!(lines.len(), 4);
        assert!(lines[3].starts_with("Your router keeps one port"));
        assert_eq!(Log::new(false).mask(&lines[1]), "public address  203.0.113.x:29471");
        profile.public = None;
        assert!(describe(&profile)[3].starts_with("No STUN server answered"));
        profile.flags.cgnat = true;
        assert_eq!(describe(&profile).len(), 5);
    }
}
