//! What a master is told: flags, then environment, then a file, then defaults.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, CommandFactory, FromArgMatches, Parser};
use rendezvous::Limits;

/// A port, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// This service is not offered.
    Off,
    /// At this port; 0 lets the system choose.
    At(u16),
}

impl FromStr for Port {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        text.parse().map(Self::At).map_err(|_| format!("'{text}' is neither a port nor off"))
    }
}

/// A range of ports, such as `29600-29699`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// The lowest.
    pub first: u16,
    /// The highest.
    pub last: u16,
}

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('-').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
        match parsed {
            Some((first, last)) if first <= last => Ok(Self { first, last }),
            Some(_) | None => Err(format!("'{text}' is no range of ports; write it as 29600-29699")),
        }
    }
}

/// Addresses that share a prefix, such as `10.0.0.0/8`; an address alone is itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range(pub IpAddr, pub u8);

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is neither an address nor a range such as 10.0.0.0/8");
        let (ip, len) = text.split_once('/').map_or((text, None), |(ip, len)| (ip, Some(len)));
        let ip: IpAddr = ip.parse().map_err(|_| wrong())?;
        let longest = if ip.is_ipv4() { 32 } else { 128 };
        let len = len.map_or(Ok(longest), |len| len.parse().map_err(|_| wrong()))?;
        if len <= longest { Ok(Self(ip, len)) } else { Err(wrong()) }
    }
}

/// Everything a master can be told. Each flag is also an environment variable (`ANYWIRE_MASTER_RELAY_IP` for
/// `--relay-ip`) and a key of the file given with `--config` (`relay-ip = "192.0.2.1"`).
#[derive(Clone, Debug, Args)]
#[command(next_line_help = false)]
pub struct Settings {
    /// TOML file with the same names as the flags; flags and environment count for more
    #[arg(long, env = "ANYWIRE_MASTER_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Port of the HTTP service
    #[arg(long, env = "ANYWIRE_MASTER_PORT", default_value_t = 8471)]
    pub port: u16,
    /// Address of the HTTP service; :: serves IPv4 as well
    #[arg(long, env = "ANYWIRE_MASTER_BIND", default_value = "127.0.0.1")]
    pub bind: IpAddr,
    /// PEM file with the certificate chain; read again on SIGHUP
    #[arg(long, env = "ANYWIRE_MASTER_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// PEM file with the private key
    #[arg(long, env = "ANYWIRE_MASTER_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Addresses whose X-Real-IP header is believed
    #[arg(long, env = "ANYWIRE_MASTER_TRUSTED_PROXY", value_name = "RANGE", value_delimiter = ',')]
    pub trusted_proxy: Vec<Range>,
    /// Addresses that may read /metrics
    #[arg(
        long,
        env = "ANYWIRE_MASTER_METRICS_FROM",
        value_name = "RANGE",
        value_delimiter = ',',
        default_value = "127.0.0.0/8,::1"
    )]
    pub metrics_from: Vec<Range>,
    /// Address that players reach the relay and the pipe at; without it there is neither
    #[arg(long, env = "ANYWIRE_MASTER_RELAY_IP", value_name = "IP")]
    pub relay_ip: Option<IpAddr>,
    /// Address the UDP services are bound to
    #[arg(long, env = "ANYWIRE_MASTER_RELAY_BIND", value_name = "IP", default_value = "0.0.0.0")]
    pub relay_bind: IpAddr,
    /// Relay ports for old peers, one per pair
    #[arg(long, env = "ANYWIRE_MASTER_RELAY_PORTS", value_name = "A-B", default_value = "29600-29699")]
    pub relay_ports: PortRange,
    /// Relay port for all pairs of newer peers, or off
    #[arg(long, env = "ANYWIRE_MASTER_SHARED_PORT", value_name = "PORT", default_value = "29599")]
    pub shared_port: Port,
    /// STUN port, or off
    #[arg(long, env = "ANYWIRE_MASTER_STUN_PORT", value_name = "PORT", default_value = "3478")]
    pub stun_port: Port,
    /// Second STUN port, by which players learn how their router filters, or off
    #[arg(long, env = "ANYWIRE_MASTER_STUN_OTHER_PORT", value_name = "PORT", default_value = "3479")]
    pub stun_other_port: Port,
    /// Second address of this machine, for STUN to tell everything there is to tell about a router; probes come from it
    #[arg(long, env = "ANYWIRE_MASTER_STUN_OTHER_ADDRESS", value_name = "IP")]
    pub stun_other_address: Option<IpAddr>,
    /// Port of the TCP pipe, or off
    #[arg(long, env = "ANYWIRE_MASTER_PIPE_PORT", value_name = "PORT", default_value = "off")]
    pub pipe_port: Port,
    /// Redis or Valkey that several masters share, such as redis://127.0.0.1/
    #[arg(long, env = "ANYWIRE_MASTER_REDIS", value_name = "URL", hide_env_values = true)]
    pub redis: Option<String>,
    /// Most connections at once
    #[arg(long, env = "ANYWIRE_MASTER_CONNECTIONS", default_value_t = 8192)]
    pub connections: usize,
    /// Most connections of one address that is no trusted proxy
    #[arg(long, env = "ANYWIRE_MASTER_ADDRESS_CONNECTIONS", default_value_t = 256)]
    pub address_connections: usize,
    /// Most polls that are held open
    #[arg(long, env = "ANYWIRE_MASTER_HELD_POLLS", default_value_t = 4096)]
    pub held_polls: usize,
    /// Most players without UDP at the relay
    #[arg(long, env = "ANYWIRE_MASTER_STREAMS", default_value_t = 512)]
    pub streams: usize,
    /// Seconds for a request's head, and for its body
    #[arg(long, env = "ANYWIRE_MASTER_REQUEST_SECONDS", default_value_t = 10)]
    pub request_seconds: u64,
    /// Seconds that requests under way get after SIGTERM
    #[arg(long, env = "ANYWIRE_MASTER_DRAIN_SECONDS", default_value_t = 10)]
    pub drain_seconds: u64,
    /// Most rows in the list
    #[arg(long, env = "ANYWIRE_MASTER_ROWS", default_value_t = Limits::default().rows)]
    pub rows: usize,
    /// Most lobbies with knocks
    #[arg(long, env = "ANYWIRE_MASTER_TAGS", default_value_t = Limits::default().tags)]
    pub tags: usize,
    /// Knocks of one address in a minute; 0 for any number
    #[arg(long, env = "ANYWIRE_MASTER_KNOCKS", default_value_t = Limits::default().knocks)]
    pub knocks: u32,
    /// Knocks of one network in a minute; 0 for any number
    #[arg(long, env = "ANYWIRE_MASTER_NETWORK_KNOCKS", default_value_t = Limits::default().network_knocks)]
    pub network_knocks: u32,
    /// Requests of any kind of one address in a minute; 0 for any number
    #[arg(long, env = "ANYWIRE_MASTER_REQUESTS", default_value_t = Limits::default().requests)]
    pub requests: u32,
    /// Probes of one address in a minute; 0 for any number
    #[arg(long, env = "ANYWIRE_MASTER_PROBES", default_value_t = Limits::default().probes)]
    pub probes: u32,
    /// Most relay ports for old peers that one address holds
    #[arg(long, env = "ANYWIRE_MASTER_ADDRESS_PORTS", default_value_t = Limits::default().address_ports)]
    pub address_ports: usize,
    /// Most relay sessions of one network
    #[arg(long, env = "ANYWIRE_MASTER_NETWORK_SESSIONS", default_value_t = Limits::default().network_sessions)]
    pub network_sessions: usize,
    /// Most relay sessions
    #[arg(long, env = "ANYWIRE_MASTER_SESSIONS", default_value_t = Limits::default().sessions)]
    pub sessions: usize,
    /// Bytes a relay session forwards in a second
    #[arg(long, env = "ANYWIRE_MASTER_RELAY_RATE", default_value_t = Limits::default().relay_rate)]
    pub relay_rate: u64,
    /// Most pairs at the pipe
    #[arg(long, env = "ANYWIRE_MASTER_PIPE_PAIRS", default_value_t = Limits::default().pipe_pairs)]
    pub pipe_pairs: usize,
}

#[derive(Parser)]
#[command(name = "anywire-master", version, about = "List games, pass on knocks, relay what cannot go directly")]
struct Alone {
    #[command(flatten)]
    settings: Settings,
}

impl Settings {
    /// Reads arguments, the first of which is the program's name, and the file they or the environment name.
    ///
    /// # Errors
    /// A message for the terminal, `--help` and `--version` included.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let args: Vec<OsString> = args.into_iter().collect();
        let matches = Alone::command().try_get_matches_from(&args)?;
        let first = Alone::from_arg_matches(&matches)?.settings;
        match &first.config {
            None => Ok(first),
            Some(path) => {
                let text =
                    std::fs::read_to_string(path).map_err(|error| wrong(&format!("{}: {error}", path.display())))?;
                let more = from_file(&text, &matches).map_err(|why| wrong(&format!("{}: {why}", path.display())))?;
                Alone::try_parse_from(args.into_iter().chain(more)).map(|alone| alone.settings)
            }
        }
    }

    /// The defaults, as without any argument; the environment is not asked.
    #[must_use]
    pub fn quiet() -> Self {
        let command = Alone::command().mut_args(|arg| arg.env(None::<&str>));
        let matches = command.get_matches_from(["anywire-master"]);
        Alone::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()).settings
    }

    /// The bounds these settings ask for.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            rows: self.rows,
            tags: self.tags,
            knocks: self.knocks,
            network_knocks: self.network_knocks,
            requests: self.requests,
            probes: self.probes,
            address_ports: self.address_ports,
            network_sessions: self.network_sessions,
            sessions: self.sessions,
            relay_rate: self.relay_rate,
            pipe_pairs: self.pipe_pairs,
            ..Limits::default()
        }
    }
}

/// The file's keys as arguments, without those that were given otherwise.
fn from_file(text: &str, given: &ArgMatches) -> Result<Vec<OsString>, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
    let command: Command = Alone::command();
    let mut args = Vec::new();
    for (key, value) in &table {
        let known = command.get_arguments().find(|arg| arg.get_long() == Some(key) && key != "config");
        let arg = known.ok_or_else(|| format!("there is no setting '{key}'"))?;
        let source = given.value_source(arg.get_id().as_str());
        if matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable)) {
            continue;
        }
        let text = match value {
            toml::Value::String(text) => text.clone(),
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Array(list) => {
                let texts = list.iter().map(|one| one.as_str().map(str::to_owned));
                texts.collect::<Option<Vec<_>>>().ok_or_else(|| format!("'{key}' wants texts in its list"))?.join(",")
            }
            _ => return Err(format!("'{key}' wants a text or a number")),
        };
        args.push(format!("--{key}={text}").into());
    }
    Ok(args)
}

fn wrong(message: &str) -> clap::Error {
    clap::Error::raw(clap::error::ErrorKind::ValueValidation, format!("{message}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Settings, String> {
        let args = std::iter::once("anywire-master").chain(args.iter().copied()).map(OsString::from);
        Settings::parse(args).map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_are_those_of_the_specification() {
        let settings = parse(&[]).unwrap();
        assert_eq!((settings.port, settings.relay_ports), (8471, PortRange { first: 29600, last: 29699 }));
        assert_eq!(settings.limits(), Limits::default());
        assert_eq!((settings.pipe_port, settings.stun_port), (Port::Off, Port::At(3478)));
        assert_eq!((settings.stun_other_port, settings.stun_other_address), (Port::At(3479), None));
    }

    #[test]
    fn a_file_counts_for_less_than_a_flag_and_for_more_than_a_default() {
        let path = std::env::temp_dir().join(format!("anywire-master-{}.toml", std::process::id()));
        let text = "port = 1\nrows = 7\nrelay-ip = \"192.0.2.1\"\ntrusted-proxy = [\"127.0.0.1\", \"10.0.0.0/8\"]\n";
        std::fs::write(&path, text).unwrap();
        let config = path.to_str().unwrap();
        let settings = parse(&["--config", config, "--port", "2"]).unwrap();
        assert_eq!((settings.port, settings.rows, settings.tags), (2, 7, 2000));
        assert_eq!(settings.trusted_proxy.len(), 2);
        for (text, why) in [("prot = 1", "no setting 'prot'"), ("port = true", "wants a text"), ("port =", "TOML")] {
            std::fs::write(&path, text).unwrap();
            let error = parse(&["--config", config]).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(parse(&["--config", config]).is_err());
    }

    #[test]
    fn the_file_that_is_shipped_holds_the_defaults() {
        let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/dist/master.toml");
        let (with, without) = (parse(&["--config", shipped]).unwrap(), parse(&[]).unwrap());
        assert_eq!(format!("{:?}", Settings { config: None, ..with }), format!("{without:?}"));
        // What is commented out are settings as well.
        let text = std::fs::read_to_string(shipped).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix('#')).filter(|line| !line.starts_with(' '));
        let seldom: std::collections::BTreeMap<_, _> = lines.map(|line| (line.split(' ').next(), line)).collect();
        let args = Alone::command().get_matches_from(["anywire-master"]);
        assert!(seldom.len() >= 5);
        for line in seldom.values() {
            from_file(line, &args).unwrap();
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for args in [
            &["--relay-ports", "5"][..],
            &["--relay-ports", "9-5"],
            &["--stun-port", "none"],
            &["--trusted-proxy", "10.0.0.0/33"],
            &["--trusted-proxy", "proxy.example"],
            &["--tls-cert", "a.pem"],
        ] {
            assert!(parse(args).is_err(), "{args:?}");
        }
    }
}
