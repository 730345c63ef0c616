//! `anywire lan host`, `join`, `echo`, `ping` and `send`.

use std::io::{self, BufRead};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use nethernet::frame::Channel;
use nethernet_io::{Node, NodeEvent, SendError, Session};

use super::{Failed, LOOK, advert, connect, failed, log, open, stop};
use crate::args::{LanHostArgs, LanPeerArgs, LanPingArgs, LanSendArgs};
use crate::run::WRONG;
use crate::text::{clean, fit};
use crate::tools::say;

/// Columns of a packet that is shown.
const SHOWN: usize = 100;
/// A packet that was to come back and did not within this time is lost.
const PATIENCE: Duration = Duration::from_secs(2);
/// Lines typed ahead.
const TYPED_MAX: usize = 64;

/// What a host does with a packet.
type OnPacket = dyn Fn(&Session, Channel, Bytes) + Sync;

pub(super) fn echo(args: &LanHostArgs) -> Result<(), Failed> {
    serve(args, false, &|session, channel, packet| match session.send(channel, packet) {
        // The end is told by the receiving side.
        Ok(()) | Err(SendError::Closed(_)) => {}
        Err(error) => say(&format!("{}: cannot send it back: {error}", session.peer())),
    })
}

pub(super) fn host(args: &LanHostArgs) -> Result<(), Failed> {
    serve(args, true, &|session, channel, packet| say(&format!("{}: {}", session.peer(), shown(channel, &packet))))
}

fn serve(args: &LanHostArgs, typing: bool, on_packet: &OnPacket) -> Result<(), Failed> {
    let mut stop = stop()?;
    let log = log(&args.lan);
    let node = open(&args.lan, false)?;
    let players = Arc::new(AtomicI32::new(0));
    let listener = node.listen(advert(args, &players)?);
    if let Some(why) = listener.unheard() {
        log.line(&format!("anywire: {why}"));
    }
    say(&log.mask(&reachable(&node)));
    let typed = if typing { typed() } else { sync_channel(0).1 };
    let sessions: Mutex<Vec<Arc<Session>>> = Mutex::default();
    std::thread::scope(|scope| {
        let mut reading = typing;
        while stop.reason(Instant::now()).is_none() {
            if let Some(session) = listener.accept(LOOK) {
                say(&format!("{} is connected", session.peer()));
                let session = Arc::new(session);
                sessions.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&session));
                let (players, sessions) = (&players, &sessions);
                scope.spawn(move || {
                    players.fetch_add(1, Ordering::Relaxed);
                    receive(&session, on_packet);
                    players.fetch_sub(1, Ordering::Relaxed);
                    let mut all = sessions.lock().unwrap_or_else(PoisonError::into_inner);
                    all.retain(|other| other.id() != session.id());
                });
            }
            while let Some(NodeEvent::Log(line)) = node.event(Duration::ZERO) {
                log.line(&line);
            }
            reading = reading && {
                let all = sessions.lock().unwrap_or_else(PoisonError::into_inner).clone();
                pass_on(&typed, |line| all.iter().for_each(|session| tell(session, line)))
            };
        }
        // Threads end with their sessions.
        for session in sessions.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            session.begin_close();
        }
    });
    Ok(())
}

/// Where others connect to. Pain 21: behind containers, the addresses say what is wrong.
fn reachable(node: &Node) -> String {
    let addresses: Vec<String> = node.addresses().iter().map(ToString::to_string).collect();
    format!("host {} at {}", node.id(), addresses.join(", "))
}

fn receive(session: &Session, on_packet: &OnPacket) {
    let end = loop {
        match session.recv() {
            Ok(Some((channel, packet))) => on_packet(session, channel, packet),
            Ok(None) => break "has left".to_owned(),
            Err(end) => break format!("is gone: {end}"),
        }
    };
    say(&format!("{} {end}", session.peer()));
}

pub(super) fn join(args: &LanPeerArgs) -> Result<(), Failed> {
    let mut stop = stop()?;
    let node = open(&args.lan, false)?;
    let session = connect(&node, args, &mut stop)?;
    say(&format!("connected to {}", session.peer()));
    let typed = typed();
    let mut reading = true;
    while stop.reason(Instant::now()).is_none() {
        match session.recv_timeout(LOOK) {
            Ok(Some((channel, packet))) => say(&shown(channel, &packet)),
            Ok(None) => {}
            Err(end) => {
                say(&format!("the session is over: {end}"));
                return Ok(());
            }
        }
        reading = reading && pass_on(&typed, |line| tell(&session, line));
    }
    session.close();
    Ok(())
}

/// Lines of standard input, read on a thread of their own: a read cannot be given up.
fn typed() -> Receiver<String> {
    let (sender, receiver) = sync_channel(TYPED_MAX);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// False when there will be no more lines.
fn pass_on(typed: &Receiver<String>, mut tell: impl FnMut(&str)) -> bool {
    loop {
        match typed.try_recv() {
            Ok(line) => tell(&line),
            Err(TryRecvError::Empty) => return true,
            Err(TryRecvError::Disconnected) => return false,
        }
    }
}

fn tell(session: &Session, line: &str) {
    // An empty packet is an error at programs in the field.
    if line.is_empty() {
        return;
    }
    if let Err(error) = session.send(Channel::Reliable, Bytes::copy_from_slice(line.as_bytes())) {
        say(&format!("{}: not sent: {error}", session.peer()));
    }
}

fn shown(channel: Channel, packet: &[u8]) -> String {
    let mark = if channel == Channel::Unreliable { " (unreliable)" } else { "" };
    match std::str::from_utf8(packet) {
        Ok(text) if packet.len() <= SHOWN => format!("{}{mark}", clean(text)),
        _ => format!("{} bytes{mark}: {}", packet.len(), fit(&clean(&String::from_utf8_lossy(packet)), 40)),
    }
}

pub(super) fn ping(args: &LanPingArgs) -> Result<(), Failed> {
    let mut stop = stop()?;
    let node = open(&args.peer.lan, false)?;
    let began = Instant::now();
    let session = connect(&node, &args.peer, &mut stop)?;
    say(&format!("connected to {} after {:.1} ms", session.peer(), millis(began.elapsed())));
    let channel = if args.unreliable { Channel::Unreliable } else { Channel::Reliable };
    let mut trips = Vec::new();
    for number in 0..args.count {
        if stop.reason(Instant::now()).is_some() {
            break;
        }
        let mut packet = number.to_le_bytes().to_vec();
        packet.resize(args.size.max(packet.len()), 0);
        let packet = Bytes::from(packet);
        let sent = Instant::now();
        session.send(channel, packet.clone()).map_err(failed)?;
        match came_back(&session, &packet)? {
            true => {
                trips.push(sent.elapsed());
                say(&format!("{} bytes came back after {:.2} ms", packet.len(), millis(sent.elapsed())));
            }
            false => say(&format!("{} bytes did not come back", packet.len())),
        }
    }
    session.close();
    say(&summary(&mut trips, args.count));
    Ok(())
}

/// Waits for this packet; older ones that come late are passed over.
fn came_back(session: &Session, packet: &Bytes) -> Result<bool, Failed> {
    let until = Instant::now() + PATIENCE;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match session.recv_timeout(left).map_err(failed)? {
            Some((_, back)) if back == *packet => return Ok(true),
            Some(_) => {}
            None => return Ok(false),
        }
    }
}

fn summary(trips: &mut [Duration], sent: u32) -> String {
    trips.sort_unstable();
    let at = |share: usize| trips.get((trips.len().saturating_sub(1)) * share / 100).copied().unwrap_or_default();
    if trips.is_empty() {
        return format!("{sent} sent, none came back; `anywire lan echo` at the other side sends them back");
    }
    let (least, median, most) = (millis(at(0)), millis(at(50)), millis(at(100)));
    format!("{sent} sent, {} back; least {least:.2}, median {median:.2}, most {most:.2} ms", trips.len())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

pub(super) fn send(args: &LanSendArgs) -> Result<(), Failed> {
    let mut stop = stop()?;
    if args.packet == 0 {
        return Err(("a packet needs at least one byte".to_owned(), WRONG));
    }
    let file = std::fs::read(&args.file).map_err(|error| failed(format!("{}: {error}", args.file.display())))?;
    let node = open(&args.peer.lan, false)?;
    let session = connect(&node, &args.peer, &mut stop)?;
    let (mut rest, size) = (Bytes::from(file), args.packet);
    let (total, began) = (rest.len(), Instant::now());
    while !rest.is_empty() {
        if stop.reason(Instant::now()).is_some() {
            return Err(("told to stop".to_owned(), crate::run::STOPPED));
        }
        let packet = rest.split_to(size.min(rest.len()));
        session.send(Channel::Reliable, packet).map_err(failed)?;
    }
    // In order: everything that was sent arrives before the end.
    session.close();
    let took = began.elapsed();
    say(&rate(total, took));
    Ok(())
}

fn rate(total: usize, took: Duration) -> String {
    // Exact up to 2^53 bytes.
    #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
    let megabytes = total as f64 / 1e6;
    let seconds = took.as_secs_f64().max(1e-6);
    format!("{total} bytes in {seconds:.2} s, {:.1} MB/s", megabytes / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_names_the_losses_and_what_to_do_when_all_are_lost() {
        let mut trips = [3, 1, 2].map(Duration::from_millis);
        assert_eq!(summary(&mut trips, 4), "4 sent, 3 back; least 1.00, median 2.00, most 3.00 ms");
        assert!(summary(&mut [], 2).contains("none came back"));
    }

    #[test]
    fn packets_are_shown_as_one_line() {
        assert_eq!(shown(Channel::Reliable, b"hi"), "hi");
        assert_eq!(shown(Channel::Unreliable, b"hi"), "hi (unreliable)");
        let long = shown(Channel::Reliable, &[b'x'; 5_000]);
        assert!(long.starts_with("5000 bytes: xxx") && long.len() < 80, "{long}");
    }

    #[test]
    fn a_rate_is_in_millions_of_bytes() {
        assert_eq!(rate(10_000_000, Duration::from_millis(500)), "10000000 bytes in 0.50 s, 20.0 MB/s");
    }
}
