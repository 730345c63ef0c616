//! Groups `json` and `rule`. The lobby's rules are asked of a whole host, by the messages that bring them about.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use codec::{Value, to_json};
use joincode::Profile;
use lobby::{Host, HostConfig};
use seam::{Path, SocketId};

use super::case::{Case, Wrong, pair, parsed, same, same_bytes};

const RELEASE: &str = "1.2.3.4";

/// Letters of one and two characters; an old program goes round after them.
const SHORT_LETTERS: usize = 26 + 26 * 26;

/// Players that each of several hosts seats in turn: fewer than fit.
const PLAYERS: usize = 150;

pub(super) fn json(case: &mut Case) -> Result<(), Wrong> {
    let bytes = to_json(&case.inputs.value("message")?);
    same_bytes("payload", &bytes, &case.expect.bytes("payload")?)?;
    same("read back", &codec::object(&bytes).is_ok(), &true)
}

pub(super) fn rule(case: &mut Case) -> Result<(), Wrong> {
    if case.inputs.has("candidates") {
        let mut host = Profile::default();
        super::codes::candidates(&mut case.inputs.object("candidates")?, &mut host)?;
        let mine = case.inputs.maybe("my_public_v4", parsed)?;
        let order: Vec<String> = joincode::dial_order(&host, mine).iter().map(ToString::to_string).collect();
        return same("targets", &order, &case.expect.texts("targets")?);
    }
    if case.inputs.has("addr") {
        let tunnel = np1::is_tunnel(case.inputs.must("addr", pair)?);
        return same("is_tunnel", &tunnel, &case.expect.bool("is_tunnel")?);
    }
    if case.inputs.has("text") {
        return same("text", &seam::mask(&case.inputs.text("text")?), &case.expect.text("text")?);
    }
    if case.inputs.has("asked") {
        return name(case);
    }
    if case.inputs.has("indexes") {
        return letters(case);
    }
    if case.inputs.has("mine") {
        let mine = case.inputs.text("mine")?;
        // Null stands for a join without a version.
        let theirs = if case.inputs.has("theirs") { case.inputs.value("theirs")? } else { Value::Null };
        let mut lobby = Lobby::new(&mine, false, BTreeMap::new());
        let path = lobby.join(&theirs, "somebody");
        return same("accept", &lobby.host.is_member(path), &case.expect.bool("accept")?);
    }
    Err(Wrong("nobody knows this rule".to_owned()))
}

fn name(case: &mut Case) -> Result<(), Wrong> {
    let mut lobby = Lobby::new(RELEASE, true, BTreeMap::new());
    for taken in case.inputs.texts("taken")? {
        let path = lobby.join(&RELEASE.into(), &taken);
        same("taken", &lobby.host.name_of(path), &Some(taken.as_str()))?;
    }
    let path = lobby.join(&RELEASE.into(), &case.inputs.text("asked")?);
    let assigned = case.expect.text("assigned")?;
    same("assigned", &lobby.host.name_of(path), &Some(assigned.as_str()))
}

/// Letters in the order a lobby gives them. Past the two-letter ones an old program goes round, which the vector
/// shows, and ours goes on: there it is enough that ours is new.
fn letters(case: &mut Case) -> Result<(), Wrong> {
    let indexes = case.inputs.must("indexes", |v| {
        let number = |v: &Value| usize::try_from(v.as_u64()?).ok().filter(|index| *index < 2 * SHORT_LETTERS);
        v.as_array()?.iter().map(number).collect::<Option<Vec<_>>>()
    })?;
    let want = case.expect.texts("letters")?;
    same("number of letters", &want.len(), &indexes.len())?;
    let given = given_letters(indexes.iter().max().map_or(0, |most| most + 1));
    let round = |index: usize| if index < SHORT_LETTERS { index } else { 26 + (index - 26) % (26 * 26) };
    for (index, want) in indexes.into_iter().zip(want) {
        same("letter", &given.get(round(index)), &Some(&want))?;
        let own = given.get(index).ok_or_else(|| Wrong(format!("no letter {index}")))?;
        same("first use", &given.iter().position(|letter| letter == own), &Some(index))?;
    }
    Ok(())
}

/// The first letters of a relay that never closes, which remembers those of players gone.
fn given_letters(count: usize) -> Vec<String> {
    let mut given: Vec<String> = Vec::new();
    while given.len() < count {
        let kept = given.iter().map(|letter| (format!("gone-{letter}"), letter.clone())).collect();
        let mut lobby = Lobby::new(RELEASE, true, kept);
        let before = given.len();
        for seat in 0..PLAYERS {
            let name = format!("seat-{seat}");
            lobby.join(&RELEASE.into(), &name);
            given.extend(lobby.host.letters().get(&name).cloned());
        }
        if given.len() < before + PLAYERS {
            break;
        }
    }
    given
}

/// A host and whoever joins it.
struct Lobby {
    host: Host,
    now: Instant,
    joined: u16,
}

impl Lobby {
    fn new(version: &str, relay_only: bool, letters: BTreeMap<String, String>) -> Self {
        let config = HostConfig {
            version: version.to_owned(),
            name: "the host".to_owned(),
            relay_only,
            letters,
            ..HostConfig::default()
        };
        let now = Instant::now();
        Self { host: Host::new(Arc::new(config), [7; 32], now, 1_790_000_000), now, joined: 0 }
    }

    /// A join from an address of its own.
    fn join(&mut self, version: &Value, name: &str) -> Path {
        self.joined += 1;
        let path = Path::new(SocketId(0), SocketAddr::from((Ipv4Addr::LOCALHOST, self.joined)));
        let mut message = codec::Map::new();
        message.insert("t".to_owned(), "join".into());
        if !version.is_null() {
            message.insert("version".to_owned(), version.clone());
        }
        message.insert("name".to_owned(), name.into());
        message.insert("mesh".to_owned(), true.into());
        message.insert("recovery".to_owned(), 0.into());
        // A refused join shows in who is a member.
        let _ = self.host.handle_message(self.now, path, &to_json(&Value::Object(message)));
        while self.host.poll_message().is_some() {}
        while self.host.poll_event().is_some() {}
        path
    }
}
