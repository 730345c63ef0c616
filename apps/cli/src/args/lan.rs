//! `anywire lan`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What `anywire lan` is told.
#[derive(Debug, Subcommand)]
pub(crate) enum LanCommand {
    /// Show the hosts of the local network as they are found.
    List(LanListArgs),
    /// Host: show what others send, and send them the lines you type.
    Host(LanHostArgs),
    /// Connect to a host: show what it sends, and send it the lines you type.
    Join(LanPeerArgs),
    /// Host, and send everything back. `ping` measures against it.
    Echo(LanHostArgs),
    /// Measure round trips to a host that sends everything back.
    Ping(LanPingArgs),
    /// Send a file to a host.
    Send(LanSendArgs),
}

/// What all of them have in common.
#[derive(Args, Clone, Debug)]
pub(crate) struct LanArgs {
    /// UDP port of the broadcasts; the same for everybody.
    #[arg(long, value_name = "PORT", default_value_t = nethernet::discovery::PORT)]
    pub(crate) port: u16,

    /// Application id, decimal or 0x and hexadecimal; only programs with the same one hear each other.
    #[arg(long, value_name = "ID", default_value = "0xdeadbeef", value_parser = app_id)]
    pub(crate) app_id: u64,

    /// Ask this address as well, for networks that carry no broadcasts (may be given several times).
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub(crate) at: Vec<SocketAddr>,

    /// Use this own address only (may be given several times) [default: all of them].
    #[arg(long, value_name = "IP")]
    pub(crate) only: Vec<IpAddr>,

    /// Own id [default: drawn anew each time].
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) id: Option<u64>,

    /// UDP port of connections; 0 takes any free one.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) session_port: u16,

    /// Tell others this address instead of the own ones, for containers and forwarded ports (may be given several
    /// times).
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub(crate) announce: Vec<SocketAddr>,

    /// Show whole addresses. They tell where you live: do not post them.
    #[arg(long)]
    pub(crate) show_addresses: bool,
}

/// What `anywire lan list` is told.
#[derive(Args, Clone, Debug)]
pub(crate) struct LanListArgs {
    #[command(flatten)]
    pub(crate) lan: LanArgs,

    /// Show every datagram that arrives, and on which interface.
    #[arg(long)]
    pub(crate) raw: bool,

    /// Seconds to look; 0 looks until it is stopped.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    pub(crate) seconds: u64,
}

/// What `anywire lan host` and `anywire lan echo` are told.
#[derive(Args, Clone, Debug)]
pub(crate) struct LanHostArgs {
    #[command(flatten)]
    pub(crate) lan: LanArgs,

    /// Name that others see.
    #[arg(long, default_value = "anywire")]
    pub(crate) name: String,

    /// World that others see.
    #[arg(long, default_value = "test")]
    pub(crate) world: String,

    /// Most players that others see.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) players: i32,

    /// Version of the advertisement: 6 for the game as it is now, 4 for older programs.
    #[arg(long, value_name = "VERSION", default_value_t = 6, value_parser = clap::value_parser!(u8).range(4..=6))]
    pub(crate) advert: u8,
}

/// What `anywire lan join` is told.
#[derive(Args, Clone, Debug)]
pub(crate) struct LanPeerArgs {
    #[command(flatten)]
    pub(crate) lan: LanArgs,

    /// The host's id [default: the first host that is found].
    #[arg(value_name = "HOST")]
    pub(crate) host: Option<u64>,

    /// Seconds to look for a host.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub(crate) seconds: u64,
}

/// What `anywire lan ping` is told.
#[derive(Args, Clone, Debug)]
pub(crate) struct LanPingArgs {
    #[command(flatten)]
    pub(crate) peer: LanPeerArgs,

    /// Packets to send.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) count: u32,

    /// Bytes of each.
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    pub(crate) size: usize,

    /// Over the channel that may lose packets.
    #[arg(long)]
    pub(crate) unreliable: bool,
}

/// What `anywire lan send` is told.
#[derive(Args, Clone, Debug)]
pub(crate) struct LanSendArgs {
    /// The file.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    #[command(flatten)]
    pub(crate) peer: LanPeerArgs,

    /// Bytes of a packet.
    #[arg(long, value_name = "BYTES", default_value_t = 262_143)]
    pub(crate) packet: usize,
}

fn app_id(text: &str) -> Result<u64, String> {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let read = hex.map_or_else(|| text.parse(), |hex| u64::from_str_radix(hex, 16));
    read.map_err(|_| "an application id is a number of at most 64 bits".to_owned())
}

/// An address with or without a port; 0 stands for none.
fn address(text: &str) -> Result<SocketAddr, String> {
    let bare = || text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 0));
    text.parse().or_else(|_| bare()).map_err(|_| "an IP address is wanted, with or without a port".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_id_is_read_in_both_bases() {
        assert_eq!(app_id("0xdeadbeef"), Ok(3_735_928_559));
        assert_eq!(app_id("7"), Ok(7));
        assert!(app_id("0x1ffffffffffffffff").is_err() && app_id("x").is_err());
    }

    #[test]
    fn an_address_may_lack_its_port() {
        assert_eq!(address("192.0.2.7"), Ok(([192, 0, 2, 7], 0).into()));
        assert_eq!(address("[2001:db8::1]:5"), Ok("[2001:db8::1]:5".parse().unwrap()));
        assert!(address("example.net").is_err());
    }
}
