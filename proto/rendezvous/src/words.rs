//! The master's words: JSON bodies of netpunch wire, section 16, and what we add to them (docs/wire/extensions.md).

use std::net::{IpAddr, SocketAddr};

use codec::{Map, Value, object, to_json};
use serde::Serialize;
use serde_json::Number;
use thiserror::Error;

/// Most characters of a row's id.
pub const ID_MAX: usize = 64;
/// Most characters of a row's name.
pub const NAME_MAX: usize = 40;
/// Most characters of a row's code.
pub const CODE_MAX: usize = 400;
/// Most characters of a row's version.
pub const VERSION_MAX: usize = 20;
/// Most characters of a note's blob.
pub const BLOB_MAX: usize = 1024;
/// Most capability words that are read of one message.
pub const WORDS_MAX: usize = 16;
/// The word of an asker that speaks on the shared relay port.
pub const SHARED: &str = "shared";

/// Why a body is refused with 400. The text is the answer's `error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BadWord {
    /// Not one JSON object, or none.
    #[error("bad body")]
    Body,
    /// `id` is missing, empty or no text.
    #[error("id required")]
    Id,
    /// `code` is missing, empty or no text.
    #[error("code required")]
    Code,
    /// `s` is not 24 lower-case hexadecimal digits.
    #[error("bad tag")]
    Tag,
    /// `blob` is missing, over 1024 characters or not padded standard base64.
    #[error("bad blob")]
    Blob,
    /// `j` is not 8 to 16 lower-case hexadecimal digits.
    #[error("bad nonce")]
    Nonce,
    /// `port` is missing or below 1024.
    #[error("bad port")]
    Port,
    /// `token` is not 8 to 32 bytes in lower-case hexadecimal.
    #[error("bad token")]
    Token,
    /// `proto` is neither `udp` nor `tcp`.
    #[error("bad proto")]
    Proto,
}

/// What kind of game a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum GameType {
    /// A server that only forwards.
    Relay,
    /// A game without a player at its machine.
    Dedicated,
    /// A player's own game.
    #[default]
    Host,
}

impl GameType {
    /// The word on the wire.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Relay => "relay",
            Self::Dedicated => "dedicated",
            Self::Host => "host",
        }
    }

    /// The label that old panels show.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Relay | Self::Dedicated => "dedicated server",
            Self::Host => "player hosted",
        }
    }

    fn of(map: &Map<String, Value>) -> Self {
        match text(map, "type").unwrap_or_default() {
            "relay" => Self::Relay,
            "dedicated" => Self::Dedicated,
            "host" => Self::Host,
            _ if text(map, "game") == Some("dedicated relay") => Self::Relay,
            _ => Self::Host,
        }
    }
}

/// `POST /announce`: one row, its lengths cut and its numbers clamped.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Announce {
    /// The announcer's secret name for the row.
    pub id: String,
    /// The row as others see it.
    pub game: Game,
}

/// The public part of a row.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Game {
    /// Shown name.
    pub name: String,
    /// How to join.
    pub code: String,
    /// Players in it.
    pub players: u32,
    /// Most players.
    pub max: u32,
    /// Its kind.
    pub kind: GameType,
    /// Version of the program that announces.
    pub version: String,
    /// Whether joining takes a password.
    pub locked: bool,
}

impl Announce {
    /// Reads a body.
    ///
    /// # Errors
    /// [`BadWord`] for no object, no id or no code.
    pub fn read(body: &[u8]) -> Result<Self, BadWord> {
        let map = object(body).map_err(|_| BadWord::Body)?;
        let id = id_of(&map)?;
        let code = text(&map, "code").map(str::trim).filter(|code| !code.is_empty()).ok_or(BadWord::Code)?;
        let name = cut(text(&map, "name").unwrap_or_default().trim(), NAME_MAX);
        let game = Game {
            name: if name.is_empty() { "unnamed".to_owned() } else { name },
            code: cut(code, CODE_MAX),
            players: clamped(&map, "players", 0),
            max: clamped(&map, "max", 8),
            kind: GameType::of(&map),
            version: cut(text(&map, "version").unwrap_or_default(), VERSION_MAX),
            locked: truthy(map.get("locked")),
        };
        Ok(Self { id, game })
    }

    /// The body.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Body<'a> {
            id: &'a str,
            name: &'a str,
            code: &'a str,
            players: u32,
            max: u32,
            r#type: &'a str,
            version: &'a str,
            locked: bool,
        }
        let Self { id, game } = self;
        to_json(&Body {
            id,
            name: &game.name,
            code: &game.code,
            players: game.players,
            max: game.max,
            r#type: game.kind.word(),
            version: &game.version,
            locked: game.locked,
        })
    }
}

/// Reads the body of `POST /leave`: the row's id.
///
/// # Errors
/// [`BadWord`] for no object or no id.
pub fn read_leave(body: &[u8]) -> Result<String, BadWord> {
    id_of(&object(body).map_err(|_| BadWord::Body)?)
}

/// The body of `POST /leave`.
#[must_use]
pub fn write_leave(id: &str) -> Vec<u8> {
    to_json(&serde_json::json!({ "id": id }))
}

/// One row of the list with its age in seconds since the last announce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The game.
    pub game: Game,
    /// Seconds since its last announce.
    pub age: u64,
}

/// The answer of `GET /list`.
#[must_use]
pub fn write_list(rows: &[Row], now: u64, ttl: u64) -> Vec<u8> {
    #[derive(Serialize)]
    struct One<'a> {
        name: &'a str,
        code: &'a str,
        players: u32,
        max: u32,
        game: &'a str,
        r#type: &'a str,
        version: &'a str,
        locked: bool,
        age: u64,
    }
    #[derive(Serialize)]
    struct All<'a> {
        servers: Vec<One<'a>>,
        now: u64,
        ttl: u64,
    }
    let servers = rows
        .iter()
        .map(|Row { game, age }| One {
            name: &game.name,
            code: &game.code,
            players: game.players,
            max: game.max,
            game: game.kind.label(),
            r#type: game.kind.word(),
            version: &game.version,
            locked: game.locked,
            age: *age,
        })
        .collect();
    to_json(&All { servers, now, ttl })
}

/// Reads a list; rows without a code are passed over. At most 10,000 rows are taken.
///
/// # Errors
/// [`BadWord::Body`] for anything but a list.
pub fn read_list(body: &[u8]) -> Result<Vec<Row>, BadWord> {
    let map = object(body).map_err(|_| BadWord::Body)?;
    let servers = map.get("servers").and_then(Value::as_array).ok_or(BadWord::Body)?;
    let row = |value: &Value| {
        let map = value.as_object()?;
        let code = text(map, "code").filter(|code| !code.is_empty() && code.chars().count() <= CODE_MAX)?;
        let game = Game {
            name: cut(text(map, "name").unwrap_or_default(), NAME_MAX),
            code: code.to_owned(),
            players: clamped(map, "players", 0),
            max: clamped(map, "max", 8),
            kind: GameType::of(map),
            version: cut(text(map, "version").unwrap_or_default(), VERSION_MAX),
            locked: truthy(map.get("locked")),
        };
        Some(Row { game, age: number(map.get("age")) })
    };
    Ok(servers.iter().take(10_000).filter_map(row).collect())
}

/// A relay port, or a session on the shared relay port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    /// Where to bind.
    pub at: SocketAddr,
    /// What binding names.
    pub id: [u8; 16],
}

impl Grant {
    /// Reads `{ip, port, id}`; anything that is not wholly right is none.
    #[must_use]
    pub fn read(value: Option<&Value>) -> Option<Self> {
        let map = value?.as_object()?;
        let ip: IpAddr = text(map, "ip")?.parse().ok()?;
        let port = map.get("port")?.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)?;
        let id = codec::unhex(text(map, "id")?)?.try_into().ok()?;
        Some(Self { at: SocketAddr::new(ip, port), id })
    }

    fn value(&self) -> Value {
        serde_json::json!({ "ip": self.at.ip().to_string(), "port": self.at.port(), "id": codec::hex(&self.id) })
    }
}

/// The relay fields of a note and of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Grants {
    /// One of the ports for old peers.
    pub relay: Option<Grant>,
    /// A session on the shared port, which old peers pass over.
    pub shared: Option<Grant>,
}

impl Grants {
    /// Reads the fields `relay` and `shared` of an object.
    #[must_use]
    pub fn read(map: &Map<String, Value>) -> Self {
        Self { relay: Grant::read(map.get("relay")), shared: Grant::read(map.get(SHARED)) }
    }

    fn add_to(&self, map: &mut Map<String, Value>) {
        for (key, grant) in [("relay", &self.relay), (SHARED, &self.shared)] {
            if let Some(grant) = grant {
                map.insert(key.to_owned(), grant.value());
            }
        }
    }
}

/// A lobby's tag: 24 lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag(String);

impl Tag {
    /// A tag from its text.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        (text.len() == 24 && is_lower_hex(text)).then(|| Self(text.to_owned()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// `POST /knock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knock {
    /// Whom it is for.
    pub tag: Tag,
    /// The sealed note in base64.
    pub blob: String,
    /// Whether one of the ports for old peers is asked for.
    pub relay: bool,
    /// Names this joiner's attempt: the same pair of tag and nonce gets the same relay.
    pub nonce: Option<String>,
    /// Whether the asker speaks on the shared relay port.
    pub shared: bool,
}

impl Knock {
    /// Reads a body. `with_relay` is false at a master without a relay, which ignores the relay's fields.
    ///
    /// # Errors
    /// [`BadWord`] for no object, a bad tag, blob or nonce.
    pub fn read(body: &[u8], with_relay: bool) -> Result<Self, BadWord> {
        let map = object(body).map_err(|_| BadWord::Body)?;
        let tag = text(&map, "s").and_then(Tag::new).ok_or(BadWord::Tag)?;
        let blob = text(&map, "blob").filter(|blob| is_blob(blob)).ok_or(BadWord::Blob)?.to_owned();
        let relay = with_relay && truthy(map.get("relay"));
        let shared = with_relay && has_word(&map, SHARED);
        let nonce = match map.get("j") {
            Some(_) if !(relay || shared) => None,
            Some(value) => Some(value.as_str().filter(|j| is_nonce(j)).ok_or(BadWord::Nonce)?.to_owned()),
            None if relay => return Err(BadWord::Nonce),
            None => None,
        };
        Ok(Self { tag, blob, relay, shared: shared && nonce.is_some(), nonce })
    }

    /// The body, in the field order of old peers.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut map = Map::new();
        map.insert("s".to_owned(), self.tag.0.as_str().into());
        map.insert("blob".to_owned(), self.blob.as_str().into());
        if self.relay {
            map.insert("relay".to_owned(), 1.into());
        }
        if let Some(nonce) = &self.nonce {
            map.insert("j".to_owned(), nonce.as_str().into());
        }
        if self.shared {
            map.insert("aw".to_owned(), vec![SHARED].into());
        }
        to_json(&map)
    }
}

/// A note as a host reads it.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// When it was posted: Unix seconds at the master. No two of a tag are alike.
    pub t: f64,
    /// The sealed note in base64.
    pub blob: String,
    /// Where its joiner can be met.
    pub grants: Grants,
}

impl Note {
    /// The note as an object.
    #[must_use]
    pub fn value(&self) -> Value {
        let mut map = Map::new();
        map.insert("t".to_owned(), float(self.t));
        map.insert("blob".to_owned(), self.blob.as_str().into());
        self.grants.add_to(&mut map);
        map.into()
    }

    /// Reads one note.
    #[must_use]
    pub fn read(value: &Value) -> Option<Self> {
        let map = value.as_object()?;
        let t = map.get("t")?.as_f64()?;
        let blob = text(map, "blob").filter(|blob| is_blob(blob))?.to_owned();
        Some(Self { t, blob, grants: Grants::read(map) })
    }
}

/// The answer of `GET /knock`. `held` says that this master holds polls open.
#[must_use]
pub fn write_notes(notes: &[Note], now: f64, held: bool) -> Vec<u8> {
    let mut map = Map::new();
    map.insert("knocks".to_owned(), notes.iter().map(Note::value).collect());
    map.insert("now".to_owned(), float(now));
    if held {
        map.insert("aw".to_owned(), vec!["wait"].into());
    }
    to_json(&map)
}

/// What a poll brought.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Notes {
    /// New notes, at most 64.
    pub notes: Vec<Note>,
    /// Whether the master holds polls open.
    pub held: bool,
}

impl Notes {
    /// Reads an answer; notes that are not wholly right are passed over.
    ///
    /// # Errors
    /// [`BadWord::Body`] for anything else.
    pub fn read(body: &[u8]) -> Result<Self, BadWord> {
        let map = object(body).map_err(|_| BadWord::Body)?;
        let notes = map.get("knocks").and_then(Value::as_array).ok_or(BadWord::Body)?;
        Ok(Self { notes: notes.iter().take(64).filter_map(Note::read).collect(), held: has_word(&map, "wait") })
    }
}

/// The answer of `POST /knock`.
#[must_use]
pub fn write_knocked(ttl: u64, grants: &Grants) -> Vec<u8> {
    let mut map = Map::new();
    map.insert("ok".to_owned(), true.into());
    map.insert("ttl".to_owned(), ttl.into());
    grants.add_to(&mut map);
    to_json(&map)
}

/// `{"ok": true, "ttl": 30}` or without the time.
#[must_use]
pub fn write_ok(ttl: Option<u64>) -> Vec<u8> {
    let mut map = Map::new();
    map.insert("ok".to_owned(), true.into());
    if let Some(ttl) = ttl {
        map.insert("ttl".to_owned(), ttl.into());
    }
    to_json(&map)
}

/// A refusal's body.
#[must_use]
pub fn write_error(error: &str) -> Vec<u8> {
    to_json(&serde_json::json!({ "ok": false, "error": error }))
}

/// The `error` of a refusal's body; empty when there is none.
#[must_use]
pub fn read_error(body: &[u8]) -> String {
    object(body).ok().and_then(|map| text(&map, "error").map(|error| cut(error, 100))).unwrap_or_default()
}

/// How a probe travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbeProtocol {
    /// One datagram.
    Udp,
    /// One connection.
    Tcp,
}

/// `POST /probe`: one token to a port of the caller's own address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeAsk {
    /// How.
    pub protocol: ProbeProtocol,
    /// 1024 or above.
    pub port: u16,
    /// 8 to 32 bytes.
    pub token: Vec<u8>,
}

impl ProbeAsk {
    /// Reads a body.
    ///
    /// # Errors
    /// [`BadWord`] for a missing or wrong field.
    pub fn read(body: &[u8]) -> Result<Self, BadWord> {
        let map = object(body).map_err(|_| BadWord::Body)?;
        let protocol = match text(&map, "proto") {
            Some("udp") => ProbeProtocol::Udp,
            Some("tcp") => ProbeProtocol::Tcp,
            _ => return Err(BadWord::Proto),
        };
        let port = map.get("port").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
        let port = port.filter(|port| *port >= 1024).ok_or(BadWord::Port)?;
        let token = text(&map, "token").and_then(codec::unhex).filter(|token| (8..=32).contains(&token.len()));
        Ok(Self { protocol, port, token: token.ok_or(BadWord::Token)? })
    }

    /// The body.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let proto = match self.protocol {
            ProbeProtocol::Udp => "udp",
            ProbeProtocol::Tcp => "tcp",
        };
        to_json(&serde_json::json!({ "proto": proto, "port": self.port, "token": codec::hex(&self.token) }))
    }
}

/// Whether a text is a nonce: 8 to 16 lower-case hexadecimal digits.
#[must_use]
pub fn is_nonce(text: &str) -> bool {
    (8..=16).contains(&text.len()) && is_lower_hex(text)
}

/// Whether an object's `aw` names `word`.
#[must_use]
pub fn has_word(map: &Map<String, Value>, word: &str) -> bool {
    let words = map.get("aw").and_then(Value::as_array);
    words.is_some_and(|words| words.iter().take(WORDS_MAX).any(|value| value.as_str() == Some(word)))
}

/// Standard base64 with padding, 1 to 1024 characters.
fn is_blob(text: &str) -> bool {
    (1..=BLOB_MAX).contains(&text.len()) && data_encoding::BASE64.decode(text.as_bytes()).is_ok()
}

fn is_lower_hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn id_of(map: &Map<String, Value>) -> Result<String, BadWord> {
    text(map, "id").map(|id| cut(id.trim(), ID_MAX)).filter(|id| !id.is_empty()).ok_or(BadWord::Id)
}

fn text<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    map.get(key)?.as_str()
}

/// The first `max` characters, without control characters.
fn cut(text: &str, max: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(max).collect()
}

fn clamped(map: &Map<String, Value>, key: &str, default: u32) -> u32 {
    match map.get(key) {
        Some(Value::Number(n)) => clamp(n),
        Some(Value::String(text)) => text.trim().parse::<i64>().map_or(default, |n| clamp(&n.into())),
        _ => default,
    }
}

fn clamp(n: &Number) -> u32 {
    let whole = n.as_i64().or_else(|| n.as_u64().map(|_| i64::MAX));
    #[allow(clippy::cast_possible_truncation, reason = "a float beyond the range saturates, and is clamped then")]
    let whole = whole.unwrap_or_else(|| n.as_f64().unwrap_or_default() as i64);
    u32::try_from(whole.clamp(0, 10_000)).unwrap_or(0)
}

fn number(value: Option<&Value>) -> u64 {
    let value = value.and_then(Value::as_f64).unwrap_or_default().clamp(0.0, 1e9);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped on the line above")]
    let whole = value as u64;
    whole
}

/// What Python takes for true.
fn truthy(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => false,
        Some(Value::Bool(yes)) => *yes,
        Some(Value::Number(n)) => n.as_f64() != Some(0.0),
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(list)) => !list.is_empty(),
        Some(Value::Object(map)) => !map.is_empty(),
    }
}

fn float(value: f64) -> Value {
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}
