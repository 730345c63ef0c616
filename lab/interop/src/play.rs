//! One program in one role, from the first dial to the last.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use natlab::Lab;
use nethernet::frame::Channel;
use nethernet_io::{Advert, Http, Listener, Node, NodeEvent, Options, OwnKey, Session};
use sha2::{Digest, Sha256};

use crate::kit::{Kit, Program};

/// Two machines at one switch.
const LAB: &str = "home lan kind=port-restricted hosts=ours,theirs";
/// Guards against hanging only: the slowest engine takes a while for the largest packet.
const LONG: Duration = Duration::from_secs(120);
/// An unreliable packet that is not back by then is sent again.
const AGAIN: Duration = Duration::from_millis(500);
const TRIES: usize = 20;

const OUR_ID: u64 = 0x0123_4567_89ab_cdef;
const THEIR_ID: u64 = 9_876_543_210_987_654_321;
const PORT: u16 = 7_552;
const OUR_WORLD: &str = "a world of ours";
const THEIR_WORLD: &str = "a world of another program";

/// Packets of a run before an issue closes.
pub const ALL_SIZES: &[usize] = &[1, 1_000, 262_143, 262_144, 1_000_000, 10_000_000];
/// Packets of every test run.
pub const SHORT_SIZES: &[usize] = &[1, 1_000, 262_143, 262_144, 1_000_000];
/// Packets of every session but the first.
const SMALL: &[usize] = &[1, 1_000];
/// Packets over the channel that may lose them.
const LOSSY: &[usize] = &[1, 1_000];

/// Who dials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The other program is dialled.
    Listens,
    /// The other program dials.
    Dials,
}

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// Sessions, one after the other.
    pub times: usize,
    /// Sizes of packets in the first of them.
    pub sizes: &'a [usize],
}

/// What was measured on the way.
#[derive(Debug, Default)]
pub struct Figures {
    /// From the dial to both channels open, each; empty where the other side dialled.
    pub dials: Vec<Duration>,
    /// Size of a reliable packet, and how long it took there and back.
    pub trips: Vec<(usize, Duration)>,
}

/// Plays one program in one role.
///
/// # Errors
/// The first thing that went wrong, with what both sides said.
pub fn play(kit: &Kit, program: Program, role: Role, plan: Plan<'_>) -> Result<Figures, String> {
    let lab = Lab::up(LAB)?;
    let node = lab.inside("ours", || Node::open(options(program)))?.map_err(|error| error.to_string())?;
    let mut figures = Figures::default();
    let played = match role {
        Role::Listens => they_listen(&lab, kit, program, &node, plan, &mut figures),
        Role::Dials => they_dial(&lab, kit, program, &node, plan, &mut figures),
    };
    played.map(|()| figures).map_err(|why| format!("{why}{}", told(&node)))
}

fn options(program: Program) -> Options {
    let mut options = Options { id: Some(OUR_ID), ..Options::default() };
    if !program.whole() {
        let key = OwnKey::generate().ok().map(Into::into);
        options.http = Some(Http { listen: Some((Ipv4Addr::UNSPECIFIED, PORT).into()), key, ..Http::default() });
    }
    options
}

/// What our side has to say about a failure.
fn told(node: &Node) -> String {
    let events = std::iter::from_fn(|| node.event(Duration::ZERO));
    events
        .filter(|event| !matches!(event, NodeEvent::Host(_)))
        .fold(String::new(), |text, event| format!("{text}\n--- ours: {event:?}"))
}

fn they_listen(
    lab: &Lab,
    kit: &Kit,
    program: Program,
    node: &Node,
    plan: Plan<'_>,
    figures: &mut Figures,
) -> Result<(), String> {
    let name = if program.whole() { THEIR_ID.to_string() } else { PORT.to_string() };
    let mut theirs = lab.spawn("theirs", kit.command(program, &["listen", &name]))?;
    theirs.wait_for("listening", LONG)?;
    if program.whole() {
        node.discover(true);
        let host = node.next_host(LONG).ok_or("their host was not found")?;
        if (host.id, &*host.data()) != (THEIR_ID, THEIR_WORLD.as_bytes()) {
            return Err(format!("found {host:?}"));
        }
    }
    let address = format!("http://{}:{PORT}", lab.ip("theirs")?);
    for number in 0..plan.times {
        let began = Instant::now();
        let dialled = if program.whole() { node.connect(THEIR_ID) } else { node.connect_http(&address) };
        let session = match dialled {
            Ok(session) => session,
            // What they say makes the failure readable.
            Err(error) => return Err(format!("dial {number}: {error}{}{}", theirs.output(), theirs.errors())),
        };
        figures.dials.push(began.elapsed());
        theirs.wait_for("open", LONG)?;
        whole_session(session, &mut theirs, number, plan, figures)?;
    }
    Ok(())
}

fn they_dial(
    lab: &Lab,
    kit: &Kit,
    program: Program,
    node: &Node,
    plan: Plan<'_>,
    figures: &mut Figures,
) -> Result<(), String> {
    let listener: Listener<'_> = node.listen(Advert::fixed(OUR_WORLD.into()));
    let name = match program.whole() {
        true => OUR_ID.to_string(),
        false => format!("http://{}:{PORT}/v1/join/{THEIR_ID}", lab.ip("ours")?),
    };
    let mut theirs = lab.spawn("theirs", kit.command(program, &["dial", &name, &plan.times.to_string()]))?;
    for number in 0..plan.times {
        if program.whole() {
            theirs.wait_for(&format!("pong {OUR_ID} {OUR_WORLD}"), LONG)?;
        }
        theirs.wait_for("open", LONG)?;
        let session = listener.accept(LONG).ok_or_else(|| format!("dial {number}: they say open, we do not"))?;
        whole_session(session, &mut theirs, number, plan, figures)?;
    }
    let status = theirs.wait(LONG)?;
    if status.success() { Ok(()) } else { Err(format!("they ended with {status}: {}", theirs.errors())) }
}

/// Packets both ways, then an end: ours and theirs in turn.
fn whole_session(
    session: Session,
    theirs: &mut natlab::Program,
    number: usize,
    plan: Plan<'_>,
    figures: &mut Figures,
) -> Result<(), String> {
    let first = number == 0;
    let talked = talk(&session, if first { plan.sizes } else { SMALL }, figures);
    talked.map_err(|why| format!("session {number}: {why}\n{}{}", theirs.output(), theirs.errors()))?;
    if number.is_multiple_of(2) {
        session.close();
        theirs.wait_for("closed", LONG).map_err(|why| format!("session {number}, we have closed: {why}"))?;
        return Ok(());
    }
    send(&session, Channel::Reliable, "bye".into())?;
    theirs.wait_for("closed bye", LONG)?;
    match session.recv_timeout(LONG) {
        Err(_) => Ok(()),
        Ok(other) => Err(format!("session {number}: they have closed, and here came {other:?}")),
    }
}

fn send(session: &Session, channel: Channel, packet: Bytes) -> Result<(), String> {
    session.send(channel, packet).map_err(|error| error.to_string())
}

fn talk(session: &Session, sizes: &[usize], figures: &mut Figures) -> Result<(), String> {
    for size in sizes {
        let packet = packet(*size);
        let began = Instant::now();
        send(session, Channel::Reliable, packet.clone())?;
        let digest = || -> String { Sha256::digest(&packet).iter().map(|byte| format!("{byte:02x}")).collect() };
        match session.recv_timeout(LONG).map_err(|end| format!("{size} bytes: {end}"))? {
            Some((Channel::Reliable, back)) if back == packet => {}
            // Too large for their own sending half: they tell what arrived.
            Some((Channel::Reliable, back)) if *back == *format!("got {size} {}", digest()).as_bytes() => {}
            Some((channel, back)) => return Err(format!("{size} bytes: {} came back, {channel:?}", back.len())),
            None => return Err(format!("{size} bytes did not come back")),
        }
        figures.trips.push((*size, began.elapsed()));
    }
    LOSSY.iter().try_for_each(|size| lossy(session, &packet(*size)))
}

fn lossy(session: &Session, packet: &Bytes) -> Result<(), String> {
    for _ in 0..TRIES {
        send(session, Channel::Unreliable, packet.clone())?;
        match session.recv_timeout(AGAIN).map_err(|end| format!("unreliable: {end}"))? {
            Some((Channel::Unreliable, back)) if back == *packet => return Ok(()),
            // An earlier one that was slow.
            Some((Channel::Unreliable, _)) | None => {}
            Some(_) => return Err("an unreliable packet came back over the reliable channel".to_owned()),
        }
    }
    Err(format!("{} bytes over the unreliable channel never came back", packet.len()))
}

/// Bytes that do not repeat at any boundary of fragments.
fn packet(size: usize) -> Bytes {
    let mut state: u32 = 0x9e37_79b9;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[0]
    };
    (0..size).map(|_| next()).collect()
}
