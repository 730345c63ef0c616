//! What a player types: flags become a [`Command`], and nothing past this module knows how they were spelled.

mod doctor;
mod lan;
mod legacy;
mod masters;
mod secrets;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use doctor::DoctorArgs;
pub(crate) use lan::{LanArgs, LanCommand, LanHostArgs, LanListArgs, LanPeerArgs, LanPingArgs, LanSendArgs};
pub(crate) use legacy::{is_legacy, translate};
pub(crate) use masters::{ListArgs, MasterArgs, url};
pub(crate) use secrets::{InputError, Inputs, Source};

/// Play together over the internet: one player hosts and gets a code, the others join with it.
#[derive(Debug, Parser)]
#[command(
    name = "anywire",
    version,
    max_term_width = 100,
    infer_long_args = true,
    disable_help_subcommand = true,
    after_help = "Examples:\n  anywire host --name Ada                 open a lobby and get its code\n  \
        anywire join TFVLCO4AYCU... --name Lin  join it from another computer\n  \
        anywire list https://master.example     see the games that are open to everybody\n  \
        anywire doctor                          see how this computer is connected, and what is in the way\n\n\
        Exit codes: 0 left normally, 1 could not start or reach the lobby, 2 wrong code or command line,\n\
        130 stopped before the lobby was up."
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The things this program does.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Open a lobby: you get a code to give to your friends.
    Host(Box<HostArgs>),
    /// Join a friend's lobby with the code you were given.
    Join(Box<JoinArgs>),
    /// Find out whether two computers reach each other, without a game.
    Punch(PunchArgs),
    /// Find out how this computer is connected and, with a code, which way it would reach that host.
    Doctor(DoctorArgs),
    /// Show how this computer is connected: its addresses and what its router does to them.
    Observe(ObserveArgs),
    /// Check this build: real lobbies with several players, inside this computer.
    Selftest(SelftestArgs),
    /// Measure this computer: sealing, opening, and frames through two lobbies.
    Bench(BenchArgs),
    /// Show the games that are open to everybody.
    List(ListArgs),
    /// Find hosts in the local network and talk to them over NetherNet.
    #[command(subcommand)]
    Lan(LanCommand),
    /// Run a master server: it lists games, brings players together and relays for those who cannot meet.
    #[command(disable_help_flag = true)]
    Master {
        /// Its settings; --help explains them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "SETTINGS")]
        settings: Vec<OsString>,
    },
    /// The public game list as the original prints it.
    #[command(hide = true)]
    PublicList {
        /// The list's address.
        url: String,
    },
}

/// Where the lobby is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ui {
    /// A live panel when there is a terminal, lines otherwise.
    #[default]
    Auto,
    /// A live panel; fails without a terminal.
    Panel,
    /// Lines on standard error.
    Plain,
    /// Log lines only: a game shows the lobby from its files.
    None,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

/// What host and join have in common.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct CommonArgs {
    /// Your name in the lobby.
    #[arg(long, default_value = "player", help_heading = "Lobby")]
    pub(crate) name: String,

    /// The lobby's password. Others on this computer can see it in the process list; a file, standard input or
    /// ANYWIRE_PASSWORD hide it.
    #[arg(long, value_name = "PASSWORD", help_heading = "Lobby", group = "password_from")]
    pub(crate) password: Option<String>,

    /// Read the password from the first line of this file.
    #[arg(long, value_name = "FILE", help_heading = "Lobby", group = "password_from")]
    pub(crate) password_file: Option<PathBuf>,

    /// Read the password from a line of standard input.
    #[arg(long, help_heading = "Lobby", group = "password_from")]
    pub(crate) password_stdin: bool,

    /// Where to show the lobby [default: auto; plain when this program is called netpunch].
    #[arg(long, value_enum, value_name = "WHERE", help_heading = "Lobby")]
    pub(crate) ui: Option<Ui>,

    /// Folder of the files a game reads and writes [default: a folder of your own for this program; the current
    /// folder when this program is called netpunch].
    #[arg(long, value_name = "DIR", help_heading = "Game")]
    pub(crate) io_dir: Option<PathBuf>,

    /// Release of the game that everybody in the lobby must have.
    #[arg(long, value_name = "VERSION", default_value = session::RELEASE, help_heading = "Game")]
    pub(crate) release: String,

    /// Port on this computer where the game's frames come in [default: 7773 for a host, the first free one of 7774 to
    /// 7805 for a joiner].
    #[arg(long, value_name = "PORT", help_heading = "Game")]
    pub(crate) game_relay_port: Option<u16>,

    /// The game's own port on this computer; frames are taken from it alone.
    #[arg(long, value_name = "PORT", default_value_t = 7771, help_heading = "Game")]
    pub(crate) game_local_port: u16,

    /// A log file whose new lines go to the host's merged log (may be given several times).
    #[arg(long, value_name = "FILE", help_heading = "Game")]
    pub(crate) forward_log: Vec<PathBuf>,

    /// Leave when the process with this number ends.
    #[cfg(not(windows))]
    #[arg(long, value_name = "PID", help_heading = "Game")]
    pub(crate) parent_pid: Option<u32>,

    /// Drop, delay and reorder what is sent, for tests: for example loss=0.05,delay=0.1,jitter=0.02 (also read from
    /// tpf2mp_netsim.txt in the io dir).
    #[arg(long, value_name = "WHAT", help_heading = "Network")]
    pub(crate) impair: Option<String>,

    /// The master server.
    #[command(flatten)]
    pub(crate) master: MasterArgs,

    /// Flags of the original whose machinery is not built yet.
    #[command(flatten)]
    pub(crate) later: LaterArgs,
}

/// Flags of the original that are accepted and do nothing in this build.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Accepted, without effect in this build")]
pub(crate) struct LaterArgs {
    /// Let players without Steam in (everybody gets in in this build).
    #[arg(long)]
    crossplay: bool,
    /// Share mods.
    #[arg(long, overrides_with = "no_share_mods")]
    share_mods: bool,
    /// Do not share mods (nothing is shared in this build).
    #[arg(long)]
    no_share_mods: bool,
    /// Folder of the game's resynchronisation files.
    #[arg(long, value_name = "DIR")]
    sync_runtime_dir: Option<PathBuf>,
    /// Folder of the game's saves.
    #[arg(long, value_name = "DIR")]
    save_dir: Option<PathBuf>,
    /// Process number of the game.
    #[arg(long, value_name = "PID")]
    game_pid: Option<u32>,
}

impl LaterArgs {
    /// One line about what was asked and cannot be done; `None` when nothing was. Wishes that this build grants by
    /// having no such machinery (`--no-share-mods`, `--crossplay`) are not mentioned.
    #[must_use]
    pub(crate) fn report(&self) -> Option<String> {
        let asked = [
            (self.share_mods, "--share-mods"),
            (self.sync_runtime_dir.is_some(), "--sync-runtime-dir"),
            (self.save_dir.is_some(), "--save-dir"),
            (self.game_pid.is_some(), "--game-pid"),
        ];
        let names: Vec<&str> = asked.into_iter().filter_map(|(asked, name)| asked.then_some(name)).collect();
        let verb = if names.len() == 1 { "has" } else { "have" };
        (!names.is_empty()).then(|| format!("not in this build yet: {} {verb} no effect", names.join(", ")))
    }
}

/// `anywire host`.
#[derive(Args, Clone, Debug)]
pub(crate) struct HostArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,

    /// Name of the lobby.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true, help_heading = "Lobby")]
    pub(crate) lobby_name: String,

    /// Give every player a company of their own instead of one for all.
    #[arg(long, help_heading = "Lobby")]
    pub(crate) companies: bool,

    /// Keep the code's secret between runs, for a server that is always on.
    #[arg(long, help_heading = "Lobby")]
    pub(crate) dedicated: bool,

    /// Run a lobby without playing: a meeting point for others (keeps its secret as well).
    #[arg(long, help_heading = "Lobby")]
    pub(crate) relay_only: bool,

    /// UDP port the others reach you at; 0 takes any free one.
    #[arg(long, value_name = "PORT", default_value_t = 29471, help_heading = "Network")]
    pub(crate) local_port: u16,

    /// Ask your router to let the others in, by UPnP, NAT-PMP and PCP [default: on; off where TPF2MP_STUN is off].
    #[arg(long, value_enum, value_name = "ON|OFF", help_heading = "Network")]
    pub(crate) portmap: Option<Switch>,
}

/// `anywire join`.
#[derive(Args, Clone, Debug)]
pub(crate) struct JoinArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,

    /// The code you were given, as you copied it; "-" reads it from standard input. ANYWIRE_CODE and --code-file
    /// work as well.
    #[arg(value_name = "CODE")]
    pub(crate) code: Vec<String>,

    /// Read the code from this file.
    #[arg(long, value_name = "FILE", conflicts_with = "code", help_heading = "Lobby")]
    pub(crate) code_file: Option<PathBuf>,

    /// UDP port to use; 0 takes any free one.
    #[arg(long, value_name = "PORT", default_value_t = 0, help_heading = "Network")]
    pub(crate) local_port: u16,

    /// How many seconds to try to reach the host.
    #[arg(long, value_name = "SECONDS", default_value_t = 40.0, value_parser = seconds, help_heading = "Network")]
    pub(crate) timeout: f64,

    /// Do not connect to the other joiners directly; everything goes through the host.
    #[arg(long, help_heading = "Network")]
    pub(crate) no_mesh: bool,
}

/// `anywire punch`.
#[derive(Args, Clone, Debug)]
pub(crate) struct PunchArgs {
    /// The code the other computer shows. Without it this computer shows one and waits.
    #[arg(value_name = "CODE")]
    pub(crate) code: Vec<String>,

    /// UDP port to use; 0 takes any free one.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) local_port: u16,

    /// How many seconds to try.
    #[arg(long, value_name = "SECONDS", default_value_t = 40.0, value_parser = seconds)]
    pub(crate) timeout: f64,
}

/// `anywire observe`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ObserveArgs {
    /// Show whole addresses. They tell where you live: do not post them.
    #[arg(long)]
    pub(crate) show_addresses: bool,

    /// UDP port to look from; 0 takes any free one.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) local_port: u16,
}

/// `anywire selftest`.
#[derive(Args, Clone, Debug)]
pub(crate) struct SelftestArgs {
    /// What to check.
    #[arg(value_enum, default_value_t = Check::All)]
    pub(crate) what: Check,
}

/// The self-tests of the original and, as `all`, every one this build has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Check {
    /// Everything that is in this build.
    All,
    /// A host, two joiners and a late one: roster and chat.
    Lobby,
    /// Save transfer (not in this build yet).
    Transfer,
    /// Game frames through the relay, both ways.
    Relay,
    /// A host and three joiners linked with each other: every frame arrives once.
    Mesh,
    /// Mods (not in this build yet).
    Mods,
    /// The TCP backup link (not in this build yet).
    Dual,
}

/// `anywire bench`.
#[derive(Args, Clone, Debug)]
pub(crate) struct BenchArgs {
    /// Seconds per measurement.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = seconds)]
    pub(crate) seconds: f64,
}

/// A length of time a person can wait for: more than nothing, at most a day.
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value <= 86_400.0 => Ok(value),
        Ok(_) | Err(_) => Err("a number of seconds above 0 and up to 86400".to_owned()),
    }
}

/// Where the game's own bridge listens.
#[must_use]
pub(crate) fn bridge(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn host(line: &str) -> HostArgs {
        match Cli::try_parse_from(line.split(' ')).unwrap().command {
            Command::Host(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_parser_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_host_needs_no_flag_and_gets_the_ports_of_the_original() {
        let args = host("anywire host");
        assert_eq!((args.local_port, args.common.game_local_port), (29471, 7771));
        assert_eq!((args.common.name.as_str(), args.common.release.as_str()), ("player", "0.7.1.4"));
        assert_eq!(args.common.later.report(), None);
    }

    #[test]
    fn every_flag_of_the_original_is_taken() {
        let line = "anywire host --name a --local-port 1 --io-dir d --password p --lobby-name l --publish u --public \
                    --rendezvous off --crossplay --companies --dedicated --relay-only --no-share-mods \
                    --game-relay-port 7773 --game-local-port 7771 --forward-log x --forward-log y \
                    --sync-runtime-dir s --save-dir t --game-pid 5";
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        let args = host(&line);
        assert!(args.companies && args.dedicated && args.relay_only);
        assert_eq!(args.common.forward_log.len(), 2);
        assert_eq!(
            args.common.later.report().unwrap(),
            "not in this build yet: --sync-runtime-dir, --save-dir, --game-pid have no effect"
        );
    }

    #[test]
    fn wishes_that_come_true_by_themselves_are_not_reported() {
        assert_eq!(host("anywire host --rendezvous off --no-share-mods --crossplay").common.later.report(), None);
        let one = host("anywire host --game-pid 5").common.later.report().unwrap();
        assert_eq!(one, "not in this build yet: --game-pid has no effect");
    }

    #[test]
    fn a_code_pasted_with_spaces_is_one_code() {
        let cli = Cli::try_parse_from(["anywire", "join", "TFVL", "CO4A", "--no-mesh", "--timeout", "5"]).unwrap();
        let Command::Join(args) = cli.command else { panic!() };
        assert_eq!(args.code, ["TFVL", "CO4A"]);
        assert!(args.no_mesh && args.timeout == 5.0);
    }

    #[test]
    fn what_a_master_is_told_passes_through_untouched() {
        let line = ["anywire", "master", "--port", "1", "--help"];
        let Command::Master { settings } = Cli::try_parse_from(line).unwrap().command else { panic!() };
        assert_eq!(settings, ["--port", "1", "--help"]);
    }

    #[test]
    fn a_time_out_must_be_a_time() {
        for bad in ["0", "-1", "nan", "inf", "soon"] {
            assert!(Cli::try_parse_from(["anywire", "join", "X", &format!("--timeout={bad}")]).is_err(), "{bad}");
        }
    }

    #[test]
    fn two_passwords_are_one_too_many() {
        let both = ["anywire", "host", "--password", "a", "--password-stdin"];
        assert!(Cli::try_parse_from(both).is_err());
    }
}
