//! `anywire lan list`.

use std::time::{Duration, Instant};

use nethernet::discovery::Heard as What;
use nethernet::server_data::ServerData;
use nethernet_io::{Found, Heard, NodeEvent};

use super::{Failed, LOOK, failed, log, open, stop};
use crate::args::LanListArgs;
use crate::text::{clean, fit};
use crate::tools::say;

/// Columns of a message that is shown.
const SHOWN: usize = 100;

pub(super) fn run(args: &LanListArgs) -> Result<(), Failed> {
    let log = log(&args.lan);
    let mut stop = stop()?;
    let node = open(&args.lan, args.raw)?;
    node.discover(true);
    let until = (args.seconds > 0).then(|| Instant::now() + Duration::from_secs(args.seconds));
    let mut found = 0;
    loop {
        let now = Instant::now();
        if stop.reason(now).is_some() || until.is_some_and(|until| now >= until) {
            break;
        }
        match node.event(LOOK) {
            Some(NodeEvent::Host(host)) => {
                found += 1;
                say(&log.mask(&line(&host)));
            }
            Some(NodeEvent::Lost(id)) => say(&format!("{id}  is gone")),
            Some(NodeEvent::Heard(heard)) => say(&log.mask(&raw(&heard))),
            Some(NodeEvent::Log(text)) => log.line(&text),
            _ => {}
        }
    }
    if found == 0 && !args.raw {
        return Err(failed(
            "no host in this network answers; --raw shows what arrives, and --at ADDRESS asks an address where broadcasts \
             do not go",
        ));
    }
    Ok(())
}

fn line(host: &Found) -> String {
    let told = match ServerData::parse(&host.data()) {
        Ok(data) => format!(
            "{} ({}), {} of {} players, version {}",
            fit(&data.server_name, 40),
            fit(&data.level_name, 40),
            data.player_count,
            data.max_player_count,
            data.version
        ),
        Err(error) => format!("an advertisement that cannot be read ({error}): {}", shown(&host.data())),
    };
    format!("{}  {}  {told}", host.id, host.address)
}

fn raw(heard: &Heard) -> String {
    let from = heard.sender.map_or_else(|| "?".to_owned(), |id| id.to_string());
    let interface = heard.interface.as_deref().unwrap_or("?");
    let what = match &heard.what {
        What::Request => "Request".to_owned(),
        What::Response(wire) => format!("Response, {} bytes: {}", wire.len(), shown(wire)),
        What::Message { recipient, data } => {
            format!("Message to {recipient}, {} bytes: {}", data.len(), shown(data))
        }
        What::Refused(why) => format!("not taken: {why}"),
        _ => "something new".to_owned(),
    };
    format!("{interface}  {}  {} bytes from {from}: {what}", heard.address, heard.size)
}

/// Somebody else's bytes as one line.
fn shown(bytes: &[u8]) -> String {
    fit(&clean(&String::from_utf8_lossy(bytes)), SHOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(wire: &'static [u8]) -> Found {
        Found { id: 7, address: "192.0.2.4:5000".parse().unwrap(), interface: None, wire: wire.into() }
    }

    #[test]
    fn a_host_is_one_line_and_one_that_cannot_be_read_is_shown_as_it_is() {
        let four = b"040673657276657205776f726c6404010000000800000000010408";
        assert_eq!(line(&found(four)), "7  192.0.2.4:5000  server (world), 1 of 8 players, version 4");
        let strange = line(&found(b"MCPE;\x1b[31mred;1"));
        assert!(strange.contains("version 77") && strange.contains("MCPE;") && !strange.contains('\x1b'), "{strange}");
    }

    #[test]
    fn a_datagram_names_its_interface_and_what_it_was() {
        let heard = Heard {
            address: "192.0.2.4:5000".parse().unwrap(),
            interface: Some("eth0".into()),
            size: 64,
            sender: Some(7),
            what: What::Refused(seam::Refused::NotAllowed),
        };
        assert_eq!(raw(&heard), "eth0  192.0.2.4:5000  64 bytes from 7: not taken: not allowed");
    }
}
