//! The messages of the lobby, one struct each, fields in the order in which they are written
//! (netpunch wire, sections 6.1 and 6.2; `docs/wire/extensions.md` for those that begin with `aw`).
//!
//! Reading is typed: a field of the wrong type, or a field that must be there and is not, refuses the whole message.

use std::collections::BTreeMap;

use codec::{Map, Value};
use seam::Refused;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Largest message a host reads. A report of 200 links with the longest names there are takes 160 KiB.
pub(crate) const TO_HOST_MAX: usize = 256 * 1024;
/// Largest message a joiner reads: a roster of 200 players with the longest names, their links left out.
pub(crate) const TO_JOINER_MAX: usize = 2 * 1024 * 1024;
/// Words of `aw` that are looked at.
const WORDS_MAX: usize = 32;
/// Names of a `links` report that are kept.
pub(crate) const LINKS_MAX: usize = 200;

/// A joiner asks to be let in, or to be called something else.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", rename = "join")]
pub(crate) struct Join {
    /// A string; anything else is no version of ours, but not malformed.
    #[serde(default)]
    pub(crate) version: Value,
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) mesh: bool,
    #[serde(default)]
    pub(crate) recovery: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) batches: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) terrain_stream: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) profile: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) aw: Vec<String>,
    /// The token of an earlier welcome: 32 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) aw_resume: Option<String>,
    /// The roster facts this joiner holds already, and up to which revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) aw_of: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) aw_rev: Option<u64>,
}

macro_rules! bare {
    ($($(#[$doc:meta])* $name:ident = $t:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "t", rename = $t)]
        pub(crate) struct $name {}
    )*};
}

bare! {
    /// A joiner is alive.
    Ping = "ping";
    /// A joiner goes.
    Leave = "leave";
    /// A relay's leader starts everybody.
    LeaderStart = "start";
    /// The host goes.
    Bye = "bye";
    /// The host does not know the sender of an authentic frame: join again.
    Again = "aw_again";
}

/// A joiner says something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", rename = "chat")]
pub(crate) struct Say {
    pub(crate) text: String,
}

/// A joiner chooses a company.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", rename = "company")]
pub(crate) struct Company {
    /// Absent: the sender itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) player: Option<String>,
    pub(crate) id: i64,
}

/// A relay's leader chooses the mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", rename = "mode")]
pub(crate) struct ChooseMode {
    pub(crate) mode: String,
}

/// What a joiner is doing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", rename = "stage")]
pub(crate) struct Stage {
    pub(crate) text: String,
}

/// Whom a joiner reaches directly, the host aside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", rename = "links")]
pub(crate) struct Links {
    pub(crate) direct: Vec<String>,
}

/// Lines of a joiner's log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", rename = "log")]
pub(crate) struct Log {
    pub(crate) lines: Vec<String>,
}

/// Which revisions of the roster facts a joiner holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", rename = "aw_have")]
pub(crate) struct Have {
    pub(crate) of: String,
    /// Everything up to here.
    pub(crate) rev: u64,
    /// And these ranges beyond, first excluded, last included; at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) got: Vec<(u64, u64)>,
}

/// The host lets a joiner in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", rename = "welcome")]
pub(crate) struct Welcome {
    #[serde(default)]
    pub(crate) version: Value,
    #[serde(default)]
    pub(crate) transport_lobby: String,
    pub(crate) you: String,
    #[serde(default)]
    pub(crate) host: String,
    #[serde(default)]
    pub(crate) recovery: i64,
    #[serde(default)]
    pub(crate) lobby: String,
    #[serde(default)]
    pub(crate) relay: bool,
    #[serde(default)]
    pub(crate) mods: Value,
    #[serde(default)]
    pub(crate) mods_unknown: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) aw: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) aw_resume: Option<String>,
}

/// The whole lobby, for old peers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", rename = "roster")]
pub(crate) struct OldRoster {
    #[serde(default)]
    pub(crate) version: Value,
    #[serde(default)]
    pub(crate) transport_lobby: String,
    pub(crate) players: Vec<String>,
    #[serde(default)]
    pub(crate) recovery: i64,
    #[serde(default)]
    pub(crate) host: String,
    #[serde(default)]
    pub(crate) lobby: String,
    #[serde(default)]
    pub(crate) relay: bool,
    #[serde(default)]
    pub(crate) mods: Value,
    #[serde(default)]
    pub(crate) mods_unknown: bool,
    #[serde(default = "minus_one")]
    pub(crate) stored_age: i64,
    #[serde(default = "minus_one")]
    pub(crate) stored_max: i64,
    #[serde(default)]
    pub(crate) letters: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) started: bool,
    #[serde(default)]
    pub(crate) start_save: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) profiles: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) links: Option<BTreeMap<String, Vec<String>>>,
    #[serde(default)]
    pub(crate) companies: BTreeMap<String, i64>,
    #[serde(default)]
    pub(crate) stages: BTreeMap<String, String>,
    #[serde(default = "coop")]
    pub(crate) mode: String,
}

fn minus_one() -> i64 {
    -1
}

fn coop() -> String {
    "coop".to_owned()
}

/// The host passes on what somebody said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", rename = "chat")]
pub(crate) struct Chat {
    pub(crate) from: String,
    pub(crate) text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ts: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cid: Option<i64>,
}

/// The host starts a joiner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", rename = "start")]
pub(crate) struct Start {
    #[serde(default)]
    pub(crate) save: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) switch: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// The host tells a person something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", rename = "status")]
pub(crate) struct Status {
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) detail: String,
}

/// The host does not want the joiner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", rename = "reject")]
pub(crate) struct Reject {
    #[serde(default)]
    pub(crate) reason: String,
}

/// A page of roster facts: all whose newest revision is after `from` and not after `to`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", rename = "aw_roster")]
pub(crate) struct Page {
    #[serde(default)]
    pub(crate) version: Value,
    /// Which set of facts: 16 hexadecimal digits, drawn when the host starts.
    pub(crate) of: String,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// The newest revision there is.
    pub(crate) now: u64,
    /// The receiver's own slot.
    pub(crate) you: u8,
    pub(crate) started: bool,
    pub(crate) start_save: bool,
    /// `[revision, kind, ...]` each; see [`crate::facts::Fact`].
    pub(crate) facts: Vec<Value>,
}

/// What a host reads.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ToHost {
    Join(Box<Join>),
    Ping,
    Leave,
    Say(Say),
    Company(Company),
    Mode(ChooseMode),
    Stage(Stage),
    Links(Links),
    Log(Log),
    MeshHi,
    Start,
    Have(Have),
}

impl ToHost {
    /// Reads one message.
    pub(crate) fn parse(json: &[u8]) -> Result<Self, Refused> {
        let (kind, map) = open(json, TO_HOST_MAX)?;
        Ok(match kind.as_str() {
            "join" => Self::Join(Box::new(typed(map)?)),
            "ping" => Self::Ping,
            "leave" => Self::Leave,
            "chat" => Self::Say(typed(map)?),
            "company" => Self::Company(typed(map)?),
            "mode" => Self::Mode(typed(map)?),
            "stage" => Self::Stage(typed(map)?),
            "links" => Self::Links(typed(map)?),
            "log" => Self::Log(typed(map)?),
            "mesh_hi" => Self::MeshHi,
            "start" => Self::Start,
            "aw_have" => Self::Have(typed(map)?),
            _ => return Err(Refused::Unexpected),
        })
    }
}

/// What a joiner reads.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ToJoiner {
    Welcome(Box<Welcome>),
    Roster(Box<OldRoster>),
    Page(Box<Page>),
    Chat(Chat),
    Start(Start),
    Status(Status),
    Reject(Reject),
    Bye,
    Again,
}

impl ToJoiner {
    /// Reads one message.
    pub(crate) fn parse(json: &[u8]) -> Result<Self, Refused> {
        let (kind, map) = open(json, TO_JOINER_MAX)?;
        Ok(match kind.as_str() {
            "welcome" => Self::Welcome(Box::new(typed(map)?)),
            "roster" => Self::Roster(Box::new(typed(map)?)),
            "aw_roster" => Self::Page(Box::new(typed(map)?)),
            "chat" => Self::Chat(typed(map)?),
            "start" => Self::Start(typed(map)?),
            "status" => Self::Status(typed(map)?),
            "reject" => Self::Reject(typed(map)?),
            "bye" => Self::Bye,
            "aw_again" => Self::Again,
            _ => return Err(Refused::Unexpected),
        })
    }
}

/// An object and its kind. Of a repeated key the last one counts, as for an old peer.
fn open(json: &[u8], most: usize) -> Result<(String, Map<String, Value>), Refused> {
    if json.len() > most {
        return Err(Refused::OverLimit);
    }
    let map = codec::object(json).map_err(|_| Refused::Malformed)?;
    match map.get("t") {
        Some(Value::String(kind)) => Ok((kind.clone(), map)),
        _ => Err(Refused::Malformed),
    }
}

fn typed<T: DeserializeOwned>(map: Map<String, Value>) -> Result<T, Refused> {
    serde_json::from_value(Value::Object(map)).map_err(|_| Refused::Malformed)
}

/// What the other end can do beyond the old protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Words {
    pub(crate) roster: bool,
    pub(crate) resume: bool,
    pub(crate) again: bool,
    /// Of the composer: this room carries the word for it.
    pub(crate) guess: bool,
    /// Of the composer as well: files by QUIC.
    pub(crate) quic: bool,
}

impl Words {
    /// The words this room knows, as they are offered.
    pub(crate) fn offer(extensions: bool) -> Vec<String> {
        if extensions { ["roster", "resume", "again", "guess", "quic"].map(str::to_owned).to_vec() } else { Vec::new() }
    }

    /// The known words among those offered by the other end.
    pub(crate) fn read(offered: &[String], extensions: bool) -> Self {
        let has = |word: &str| extensions && offered.iter().take(WORDS_MAX).any(|offer| offer == word);
        Self {
            roster: has("roster"),
            resume: has("resume"),
            again: has("again"),
            guess: has("guess"),
            quic: has("quic"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::to_json;
    use proptest::prelude::*;
    use serde_json::json;

    fn vector(path: &str) -> Value {
        let path = format!("{}/../../lab/vectors/netpunch/{path}.json", env!("CARGO_MANIFEST_DIR"));
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    fn payload(name: &str) -> Vec<u8> {
        codec::unhex(vector(name)["expect"]["payload"].as_str().unwrap()).unwrap()
    }

    fn join() -> Join {
        Join {
            version: "0.7.1.4".into(),
            name: "bob".into(),
            mesh: true,
            batches: Some(1),
            terrain_stream: Some(1),
            ..Join::default()
        }
    }

    #[test]
    fn join_is_written_byte_for_byte_as_in_the_vector() {
        let bytes = to_json(&join());
        assert_eq!(bytes, payload("json/join"));
        assert_eq!(ToHost::parse(&bytes), Ok(ToHost::Join(Box::new(join()))));
    }

    #[test]
    fn welcome_is_written_byte_for_byte_as_in_the_vector() {
        let welcome = Welcome {
            version: "0.7.1.4".into(),
            transport_lobby: "0".repeat(32),
            you: "bob#2".into(),
            host: "alice".into(),
            mods: json!([["*2012345678", 1]]),
            ..Welcome::default()
        };
        let bytes = to_json(&welcome);
        assert_eq!(bytes, payload("json/welcome"));
        assert_eq!(ToJoiner::parse(&bytes), Ok(ToJoiner::Welcome(Box::new(welcome))));
    }

    #[test]
    fn chat_is_written_byte_for_byte_as_in_the_vector() {
        let say = Say { text: "gr\u{fc}\u{df} \u{1F682} \"q\" \\ /".into() };
        assert_eq!(to_json(&say), payload("json/chat-unicode"));
        assert_eq!(ToHost::parse(&to_json(&say)), Ok(ToHost::Say(say)));
    }

    #[test]
    fn versions_as_in_the_vectors_are_not_the_same() {
        for name in ["rule/version-6eef66", "rule/version-acaf1a"] {
            let vector = vector(name);
            let message = json!({"t": "join", "version": vector["inputs"]["theirs"], "name": "x"});
            let Ok(ToHost::Join(join)) = ToHost::parse(&to_json(&message)) else { panic!("{name}") };
            let same = join.version.as_str() == vector["inputs"]["mine"].as_str();
            assert_eq!(same, vector["expect"]["accept"].as_bool().unwrap(), "{name}");
        }
    }

    #[test]
    fn every_truncation_of_every_message_is_refused() {
        let messages: Vec<Vec<u8>> = vec![
            to_json(&join()),
            to_json(&Say { text: "x".into() }),
            to_json(&Company { player: None, id: 3 }),
            to_json(&Links { direct: vec!["ada".into()] }),
            to_json(&Have { of: "00".into(), rev: 7, got: vec![(8, 9)] }),
            to_json(&Welcome { you: "bob".into(), ..Welcome::default() }),
            to_json(&Chat { from: "ada".into(), text: "x".into(), ts: Some(1), cid: Some(1) }),
            to_json(&Start { save: true, switch: true }),
            to_json(&Reject { reason: "x".into() }),
            to_json(&Again {}),
        ];
        for whole in messages {
            for length in 0..whole.len() {
                assert_eq!(ToHost::parse(&whole[..length]), Err(Refused::Malformed));
                assert_eq!(ToJoiner::parse(&whole[..length]), Err(Refused::Malformed));
            }
        }
    }

    #[test]
    fn words_that_are_not_known_are_passed_over() {
        let offered = ["someday", "roster", "again"].map(str::to_owned);
        assert_eq!(Words::read(&offered, true), Words { roster: true, again: true, ..Words::default() });
        assert_eq!(Words::read(&offered, false), Words::default());
        let mut many = vec![String::new(); WORDS_MAX];
        many.push("roster".into());
        assert_eq!(Words::read(&many, true), Words::default());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            name in "\\PC{0,40}",
            profile in proptest::option::of("[A-Z2-7]{1,60}"),
            aw in proptest::collection::vec("[a-z]{1,8}", 0..4),
            rev in any::<u64>(),
            got in proptest::collection::vec(any::<(u64, u64)>(), 0..4),
            text in any::<String>(),
            ts in proptest::option::of(any::<u64>()),
            cid in proptest::option::of(any::<i64>()),
        ) {
            let join = Join { name: name.clone(), profile, aw, aw_rev: Some(rev), ..join() };
            prop_assert_eq!(ToHost::parse(&to_json(&join)), Ok(ToHost::Join(Box::new(join))));
            let have = Have { of: name.clone(), rev, got };
            prop_assert_eq!(ToHost::parse(&to_json(&have)), Ok(ToHost::Have(have)));
            let chat = Chat { from: name, text, ts, cid };
            prop_assert_eq!(ToJoiner::parse(&to_json(&chat)), Ok(ToJoiner::Chat(chat)));
        }

        #[test]
        fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(ToHost::parse(&bytes).is_err());
            prop_assert!(ToJoiner::parse(&bytes).is_err());
        }
    }
}
