//! From what a player typed to what a session is made with.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use driver::{AskRouter, Role, Setup};
use netem::Impairment;
use session::{GameSide, HostConfig, JoinConfig, StunServer};

use crate::args::{CommonArgs, HostArgs, Switch, bridge};
use crate::log::Log;

/// Asked for the public address unless `TPF2MP_STUN` names others (netpunch wire, section 12.1).
const STUN: [(&str, u16); 4] = [
    ("stun.l.google.com", 19_302),
    ("stun.nextcloud.com", 3_478),
    ("stun.cloudflare.com", 3_478),
    ("stun.services.mozilla.com", 3_478),
];

/// Most STUN servers asked.
const STUN_MAX: usize = 8;

/// Most players of a lobby, the host included.
const PLAYERS: u16 = 200;

/// A folder for a game's files, kept from other runs of this program where it is one of ours.
#[derive(Debug)]
pub(crate) struct IoDir {
    /// Where.
    pub(crate) path: PathBuf,
    _lock: Option<File>,
}

/// The io dir: the one named, the current one for the original's name, else `host` or `join` (with `-2`, `-3`, ... when
/// other runs hold those) in the player's data folder.
///
/// # Errors
/// When the folder cannot be made or all are held.
pub(crate) fn io_dir(named: Option<&Path>, legacy: bool, role: &str) -> io::Result<IoDir> {
    match named {
        Some(path) => Ok(IoDir { path: path.to_owned(), _lock: None }),
        None if legacy => Ok(IoDir { path: PathBuf::from("."), _lock: None }),
        None => free_dir(&data_dir(), role),
    }
}

/// The first folder of `role` that no other run holds.
fn free_dir(base: &Path, role: &str) -> io::Result<IoDir> {
    for n in 1..=200 {
        let path = base.join(if n == 1 { role.to_owned() } else { format!("{role}-{n}") });
        fs::create_dir_all(&path)?;
        let lock = File::create(path.join(".lock"))?;
        match lock.try_lock() {
            Ok(()) => return Ok(IoDir { path, _lock: Some(lock) }),
            Err(fs::TryLockError::WouldBlock) => {}
            // A file system without locks: this run takes the folder as it is.
            Err(fs::TryLockError::Error(_)) => return Ok(IoDir { path, _lock: None }),
        }
    }
    Err(io::Error::other("200 lobbies run on this computer already"))
}

/// Where this program keeps a player's files.
fn data_dir() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || set("HOME").unwrap_or_else(std::env::temp_dir);
    if cfg!(windows) {
        set("LOCALAPPDATA").unwrap_or_else(std::env::temp_dir).join("anywire")
    } else if cfg!(target_os = "macos") {
        home().join("Library/Application Support/anywire")
    } else {
        set("XDG_DATA_HOME").unwrap_or_else(|| home().join(".local/share")).join("anywire")
    }
}

/// Reads a list of STUN servers as `TPF2MP_STUN` holds it: `host:port,host:port`, or `off` for none. The second value
/// names entries that are neither.
fn stun_list(text: &str) -> (Vec<StunServer>, Vec<String>) {
    let (mut servers, mut bad) = (Vec::new(), Vec::new());
    if text.trim().eq_ignore_ascii_case("off") {
        return (servers, bad);
    }
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let (host, port) = entry.rsplit_once(':').unwrap_or((entry, "3478"));
        match port.parse() {
            Ok(port) if !host.is_empty() && servers.len() < STUN_MAX => {
                servers.push(StunServer { host: host.trim_matches(['[', ']']).to_owned(), port });
            }
            Ok(_) | Err(_) => bad.push(entry.to_owned()),
        }
    }
    (servers, bad)
}

/// The STUN servers to ask: the master's own first, where there is one, so that nobody else is needed. `TPF2MP_STUN=off`
/// asks none of them.
pub(crate) fn stun(log: &Log, master: Option<&str>) -> Vec<StunServer> {
    let mut servers = named_stun(log);
    if let Some(own) = master.and_then(StunServer::of_master)
        && !servers.is_empty()
        && !servers.contains(&own)
    {
        servers.insert(0, own);
        servers.truncate(STUN_MAX);
    }
    servers
}

/// Whether and how the router is asked to let others in. Who asks no STUN server wants nothing of the world outside.
pub(crate) fn portmap(switch: Option<Switch>, stun: &[StunServer]) -> Option<AskRouter> {
    let on = match switch {
        Some(switch) => switch == Switch::On,
        None => !stun.is_empty(),
    };
    on.then(|| AskRouter { state_file: Some(data_dir().join("router")) })
}

fn named_stun(log: &Log) -> Vec<StunServer> {
    match std::env::var("TPF2MP_STUN") {
        Ok(text) if !text.trim().is_empty() => {
            let (servers, bad) = stun_list(&text);
            for entry in bad {
                log.line(&format!("[net] TPF2MP_STUN: '{entry}' is no host:port"));
            }
            servers
        }
        Ok(_) | Err(_) => STUN.map(|(host, port)| StunServer { host: host.to_owned(), port }).to_vec(),
    }
}

/// The player's own idea of the virtual network's address.
pub(crate) fn vpn(log: &Log) -> Option<Ipv4Addr> {
    let text = std::env::var("TPF2MP_VPN_IP").ok().filter(|text| !text.trim().is_empty())?;
    let parsed = text.trim().parse().ok();
    if parsed.is_none() {
        log.line("[net] TPF2MP_VPN_IP is no IPv4 address and is ignored");
    }
    parsed
}

/// Faults to put on what is sent: the flag's, else those of the file in the io dir, which is read once.
///
/// # Errors
/// The flag's mistake, in a sentence.
pub(crate) fn impairment(flag: Option<&str>, dir: &Path, log: &Log) -> Result<Option<Impairment>, String> {
    let impairment = match flag {
        Some(text) => {
            let lines = text.replace(',', "\n");
            lines.parse::<Impairment>().map_err(|bad| format!("--impair: '{}': {}", bad.text, bad.why))?
        }
        None => {
            let Ok(text) = fs::read_to_string(dir.join("tpf2mp_netsim.txt")) else { return Ok(None) };
            let (impairment, bad) = Impairment::read(&text);
            for line in bad {
                log.line(&format!("[netsim] tpf2mp_netsim.txt, {line}"));
            }
            impairment
        }
    };
    if impairment.is_none() {
        return Ok(None);
    }
    log.line(&format!("[netsim] impairing what this instance sends: {impairment}"));
    Ok(Some(impairment))
}

/// What a host is opened with.
pub(crate) struct HostParts {
    pub(crate) password: Option<String>,
    pub(crate) secret: [u8; 12],
    pub(crate) impair: Option<Impairment>,
    pub(crate) stun: Vec<StunServer>,
    pub(crate) vpn: Option<Ipv4Addr>,
    pub(crate) rendezvous: Option<String>,
    pub(crate) portmap: Option<AskRouter>,
}

/// A host's driver.
pub(crate) fn host(args: &HostArgs, parts: HostParts, dir: &Path) -> Setup {
    let common = &args.common;
    let game =
        if args.relay_only { GameSide::None } else { GameSide::Loopback { bridge: bridge(common.game_local_port) } };
    let config = HostConfig {
        version: common.release.clone(),
        lobby_name: args.lobby_name.clone(),
        password: parts.password.map(seam::Secret::new),
        relay_only: args.relay_only,
        companies: args.companies,
        game,
        stun: parts.stun,
        max_players: PLAYERS,
        impair: parts.impair,
        rendezvous: parts.rendezvous,
        guess: common.master.guesses(),
        survey: true,
        ..HostConfig::new(&common.name, parts.secret)
    };
    Setup { portmap: parts.portmap, ..finish(Role::Host(config), args.local_port, common, parts.vpn, dir) }
}

/// A joiner's driver.
pub(crate) fn join(common: &CommonArgs, port: u16, config: JoinConfig, vpn: Option<Ipv4Addr>, dir: &Path) -> Setup {
    finish(Role::Join(config), port, common, vpn, dir)
}

fn finish(role: Role, port: u16, common: &CommonArgs, vpn: Option<Ipv4Addr>, dir: &Path) -> Setup {
    let bind = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let files = Some(dir.to_owned());
    Setup { role, bind, relay_port: common.game_relay_port, vpn, portmap: None, files, seed: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Dir;

    fn quiet() -> Log {
        let log = Log::new(false);
        log.use_stderr(false);
        log
    }

    #[test]
    fn stun_servers_are_a_list_or_off() {
        let (servers, bad) = stun_list("a.example:19302, 192.0.2.1 ,[2001:db8::1]:5,x:99999,:1");
        let named: Vec<_> = servers.iter().map(|s| format!("{} {}", s.host, s.port)).collect();
        assert_eq!(named, ["a.example 19302", "192.0.2.1 3478", "2001:db8::1 5"]);
        assert_eq!(bad, ["x:99999", ":1"]);
        assert_eq!(stun_list("off"), (vec![], vec![]));
    }

    #[test]
    fn the_router_is_asked_where_the_world_outside_is() {
        let server = StunServer { host: "a.example".to_owned(), port: 3478 };
        let some = std::slice::from_ref(&server);
        assert!(portmap(None, some).is_some_and(|ask| ask.state_file.is_some()));
        assert_eq!(portmap(None, &[]), None);
        assert_eq!(portmap(Some(Switch::Off), some), None);
        assert!(portmap(Some(Switch::On), &[]).is_some());
    }

    #[test]
    fn two_runs_never_share_a_folder_of_ours() {
        let dir = Dir::new("setup-dirs");
        let first = free_dir(dir.path(), "join").unwrap();
        let second = free_dir(dir.path(), "join").unwrap();
        assert!(first.path.ends_with("join") && second.path.ends_with("join-2"));
        drop(first);
        assert!(free_dir(dir.path(), "join").unwrap().path.ends_with("join"));
    }

    #[test]
    fn a_named_folder_and_the_originals_are_taken_as_they_are() {
        assert_eq!(io_dir(Some(Path::new("/x/y")), true, "host").unwrap().path, Path::new("/x/y"));
        assert_eq!(io_dir(None, true, "host").unwrap().path, Path::new("."));
    }

    #[test]
    fn faults_come_from_the_flag_or_the_file() {
        let (dir, log) = (Dir::new("setup-netsim"), quiet());
        assert_eq!(impairment(None, dir.path(), &log), Ok(None));
        fs::write(dir.path().join("tpf2mp_netsim.txt"), "loss=0.05\nspeed=3\n").unwrap();
        let file = impairment(None, dir.path(), &log).unwrap().unwrap();
        assert!((file.loss - 0.05).abs() < 1e-9);
        let flag = impairment(Some("delay=0.1,jitter=0.02"), dir.path(), &log).unwrap().unwrap();
        assert_eq!((flag.loss, flag.delay.as_millis()), (0.0, 100));
        let lines = log.collect();
        assert!(lines[0].starts_with("[netsim] tpf2mp_netsim.txt, line 2: 'speed=3'"), "{lines:?}");
        assert!(lines[1].starts_with("[netsim] impairing what this instance sends: loss 5%"), "{lines:?}");
        let wrong = impairment(Some("loss=much"), dir.path(), &log).unwrap_err();
        assert!(wrong.starts_with("--impair: 'loss=much': "), "{wrong}");
    }
}
