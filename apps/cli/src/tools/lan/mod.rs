//! `anywire lan`: NetherNet in the local network, as a player's and a programmer's tool.

mod list;
mod talk;

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use nethernet::server_data::ServerData;
use nethernet_io::{Advert, Node, Options, Session};

use crate::args::{LanArgs, LanCommand, LanHostArgs, LanPeerArgs};
use crate::log::Log;
use crate::run::{FAILED, FINE, WRONG};
use crate::stop::Stop;

/// How often a loop looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(100);

/// Why a command ended early, and the exit code.
type Failed = (String, u8);

/// Runs one of them; the answer is the exit code.
pub(crate) fn run(command: &LanCommand) -> u8 {
    let (lan, done): (&LanArgs, Result<(), Failed>) = match command {
        LanCommand::List(args) => (&args.lan, list::run(args)),
        LanCommand::Host(args) => (&args.lan, talk::host(args)),
        LanCommand::Echo(args) => (&args.lan, talk::echo(args)),
        LanCommand::Join(args) => (&args.lan, talk::join(args)),
        LanCommand::Ping(args) => (&args.peer.lan, talk::ping(args)),
        LanCommand::Send(args) => (&args.peer.lan, talk::send(args)),
    };
    match done {
        Ok(()) => FINE,
        Err((why, code)) => {
            log(lan).line(&format!("anywire: {why}"));
            code
        }
    }
}

fn log(args: &LanArgs) -> Log {
    if args.show_addresses { Log::new(true) } else { Log::from_env() }
}

fn failed(why: impl ToString) -> Failed {
    (why.to_string(), FAILED)
}

fn stop() -> Result<Stop, Failed> {
    Stop::new(None).map_err(|error| failed(format!("cannot catch signals: {error}")))
}

fn open(args: &LanArgs, trace: bool) -> Result<Node, Failed> {
    let mut options = Options {
        id: args.id,
        only: args.only.clone(),
        watch: args.at.clone(),
        session_port: args.session_port,
        announce: args.announce.clone(),
        ..Options::default()
    };
    options.discovery.port = args.port;
    options.discovery.app_id = args.app_id;
    options.discovery.trace = trace;
    Node::open(options).map_err(failed)
}

/// The advertisement with the number of players of the moment.
fn advert(args: &LanHostArgs, players: &Arc<AtomicI32>) -> Result<Advert, Failed> {
    let data = ServerData {
        version: args.advert,
        server_name: args.name.clone(),
        level_name: args.world.clone(),
        max_player_count: args.players,
        accepts_online_auth: true,
        accepts_self_signed_auth: true,
        ..ServerData::default()
    };
    let bytes = data.encode().map_err(|error| (error.to_string(), WRONG))?;
    nethernet::packet::response_text(&bytes).map_err(|error| (error.to_string(), WRONG))?;
    let players = Arc::clone(players);
    Ok(Advert::new(move || {
        let now = ServerData { player_count: players.load(Ordering::Relaxed), ..data.clone() };
        // Only a number changed, whose bytes are as many.
        now.encode().unwrap_or_default()
    }))
}

/// Connects to the host that was named, or to the first that is found.
fn connect(node: &Node, args: &LanPeerArgs, stop: &mut Stop) -> Result<Session, Failed> {
    node.discover(true);
    let until = Instant::now() + Duration::from_secs(args.seconds);
    let id = loop {
        if let Some(id) = args.host {
            break id;
        }
        if let Some(found) = node.next_host(LOOK) {
            break found.id;
        }
        let now = Instant::now();
        if let Some(why) = stop.reason(now) {
            return Err((why.to_owned(), crate::run::STOPPED));
        }
        if now >= until {
            return Err(failed(
                "no host in this network answers; `anywire lan list --raw` shows what arrives, and --at ADDRESS asks an \
                 address where broadcasts do not go",
            ));
        }
    };
    node.connect(id).map_err(failed)
}
