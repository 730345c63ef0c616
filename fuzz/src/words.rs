//! Lobby messages as both sides send them, with fields out of the script.
//!
//! Bytes alone would spend their time on braces. What an answer must repeat (the facts' name, revisions, tokens) is
//! picked up from what the machine under test sent.

use codec::{Map, Value, to_json};

use crate::Script;

/// Words of the machine's own messages that an honest peer repeats.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    of: String,
    revision: u64,
    token: String,
    nonce: String,
    you: String,
}

impl Memory {
    /// Looks at a message that the machine sent, and returns it parsed.
    ///
    /// # Panics
    /// When it is not a message.
    pub fn learn(&mut self, json: &[u8]) -> Map<String, Value> {
        let map = codec::object(json).expect("a message is an object");
        assert!(map.get("t").is_some_and(Value::is_string), "a message without a kind");
        let word = |key: &str| map.get(key).and_then(Value::as_str).map(str::to_owned);
        if let Some(of) = word("of") {
            self.of = of;
        }
        if let Some(to) = map.get("to").and_then(Value::as_u64) {
            self.revision = to;
        }
        if let Some(token) = word("aw_resume") {
            self.token = token;
        }
        if let Some(nonce) = word("transport_lobby") {
            self.nonce = nonce;
        }
        if let Some(you) = word("you") {
            self.you = you;
        }
        map
    }

    /// A message for a host.
    pub fn to_host(&self, script: &mut Script<'_>) -> Vec<u8> {
        let kind = script.below(14);
        let json = match kind {
            0 | 1 => self.join(script),
            2 if script.flag() => guess(script),
            2 => r#"{"t": "ping"}"#.to_owned(),
            3 => r#"{"t": "leave"}"#.to_owned(),
            4 => format!(r#"{{"t": "chat", "text": {}}}"#, quoted(&script.text())),
            5 if script.flag() => format!(r#"{{"t": "company", "id": {}}}"#, number(script)),
            5 => format!(r#"{{"t": "company", "player": {}, "id": {}}}"#, name(script), number(script)),
            6 => format!(r#"{{"t": "mode", "mode": {}}}"#, quoted(["coop", "companies", "x"][script.below(3)])),
            7 => format!(r#"{{"t": "stage", "text": {}}}"#, quoted(&script.text())),
            8 => format!(r#"{{"t": "links", "direct": [{}, {}, {}]}}"#, name(script), name(script), name(script)),
            9 => format!(r#"{{"t": "log", "lines": [{}, {}]}}"#, quoted(&script.text()), name(script)),
            10 => format!(r#"{{"t": "mesh_hi", "name": {}}}"#, name(script)),
            11 => r#"{"t": "start"}"#.to_owned(),
            12 => format!(r#"{{"t": "aw_have", "of": {}, "rev": {}}}"#, quoted(&self.of), self.revision(script)),
            _ => {
                let (a, b) = (number(script), number(script));
                let rev = self.revision(script);
                format!(
                    r#"{{"t": "aw_have", "of": {}, "rev": {rev}, "got": [[{a}, {b}], [{b}, {a}]]}}"#,
                    quoted(&self.of)
                )
            }
        };
        json.into_bytes()
    }

    fn join(&self, script: &mut Script<'_>) -> String {
        let bits = script.byte();
        let version = if bits & 3 == 3 { script.text() } else { "0.7.1.4".to_owned() };
        let mut json = format!(r#"{{"t": "join", "version": {}, "name": {}"#, quoted(&version), name(script));
        json += &format!(r#", "mesh": {}, "recovery": 1"#, bits & 4 != 0);
        if bits & 8 != 0 {
            json += r#", "profile": "ABVLCO4A""#;
        }
        if bits & 16 != 0 {
            json += r#", "aw": ["roster", "resume", "again", "guess"]"#;
        }
        if bits & 32 != 0 {
            json += &format!(r#", "aw_resume": {}"#, quoted(&self.token));
        }
        if bits & 64 != 0 {
            json += &format!(r#", "aw_of": {}, "aw_rev": {}"#, quoted(&self.of), self.revision(script));
        }
        json + "}"
    }

    fn revision(&self, script: &mut Script<'_>) -> u64 {
        match script.byte() {
            0 => self.revision,
            1 => u64::MAX,
            n => self.revision.saturating_sub(u64::from(n - 2)),
        }
    }

    /// A message for a joiner.
    pub fn to_joiner(&self, script: &mut Script<'_>) -> Vec<u8> {
        let json = match script.below(12) {
            0 | 1 => {
                let (you, host, bits) = (name(script), name(script), script.byte());
                let version = if bits & 7 == 7 { script.text() } else { "0.7.1.4".to_owned() };
                let relay = bits & 8 != 0;
                let aw = if bits & 16 != 0 {
                    r#", "aw": ["roster", "resume", "again", "guess"], "aw_resume": "0123456789abcdef0123456789abcdef""#
                } else {
                    ""
                };
                format!(
                    r#"{{"t": "welcome", "version": {}, "transport_lobby": "{}", "you": {you}, "host": {host}, "recovery": 0, "lobby": "x", "relay": {relay}, "mods": null, "mods_unknown": true{aw}}}"#,
                    quoted(&version),
                    nonce(script)
                )
            }
            2 | 3 => roster(script),
            4 | 5 => page(script),
            6 => {
                let (from, text, ts, cid) = (name(script), script.text(), number(script), number(script));
                format!(r#"{{"t": "chat", "from": {from}, "text": {}, "ts": {ts}, "cid": {cid}}}"#, quoted(&text))
            }
            7 if script.flag() => guess(script),
            7 => format!(r#"{{"t": "start", "save": {}, "switch": {}}}"#, script.flag(), script.flag()),
            8 => {
                let state = ["waiting", "connected", "failed", "x"][script.below(4)];
                format!(r#"{{"t": "status", "state": "{state}", "detail": {}}}"#, quoted(&script.text()))
            }
            9 => format!(r#"{{"t": "reject", "reason": {}}}"#, quoted(&script.text())),
            10 => r#"{"t": "bye"}"#.to_owned(),
            _ => r#"{"t": "aw_again"}"#.to_owned(),
        };
        json.into_bytes()
    }
}

fn roster(script: &mut Script<'_>) -> String {
    let names: Vec<String> = (0..script.below(6)).map(|_| name(script)).collect();
    let map = |value: &dyn Fn(usize) -> String| {
        let pairs: Vec<String> = names.iter().enumerate().map(|(n, name)| format!("{name}: {}", value(n))).collect();
        pairs.join(", ")
    };
    let (bits, id, text) = (script.byte(), number(script), quoted(&script.text()));
    let links = map(&|_| format!("[{}]", names.join(", ")));
    format!(
        r#"{{"t": "roster", "version": "0.7.1.4", "transport_lobby": "{}", "players": [{}], "recovery": 0, "host": {}, "lobby": {text}, "relay": {}, "mods": null, "mods_unknown": true, "stored_age": {id}, "stored_max": {id}, "letters": {{{}}}, "started": {}, "start_save": {}, "profiles": {{{}}}, "links": {{{links}}}, "companies": {{{}}}, "stages": {{{}}}, "mode": "{}"}}"#,
        nonce(script),
        names.join(", "),
        name(script),
        bits & 1 != 0,
        map(&|n| format!("\"{}\"", char::from(b'a' + u8::try_from(n % 26).unwrap_or_default()))),
        bits & 2 != 0,
        bits & 4 != 0,
        map(&|_| "\"ABVLCO4A\"".to_owned()),
        map(&|_| id.to_string()),
        map(&|_| text.clone()),
        if bits & 8 != 0 { "coop" } else { "companies" },
    )
}

fn page(script: &mut Script<'_>) -> String {
    let (from, to, now, you, bits) = (script.byte(), script.byte(), script.byte(), script.byte(), script.byte());
    let facts: Vec<String> = (0..script.below(6)).map(|_| fact(script)).collect();
    let of = if bits & 4 == 0 { "0011223344556677" } else { "8899aabbccddeeff" };
    format!(
        r#"{{"t": "aw_roster", "version": "0.7.1.4", "of": "{of}", "from": {from}, "to": {to}, "now": {now}, "you": {you}, "started": {}, "start_save": {}, "facts": [{}]}}"#,
        bits & 1 != 0,
        bits & 2 != 0,
        facts.join(", ")
    )
}

fn fact(script: &mut Script<'_>) -> String {
    let (rev, slot) = (script.byte(), script.byte());
    match script.below(7) {
        0 => format!(
            r#"[{rev}, "g", {{"name": {}, "relay": {}, "mode": "coop", "host": {slot}, "world": "{}", "stored_age": -1, "stored_max": -1}}]"#,
            name(script),
            script.flag(),
            nonce(script)
        ),
        1 => format!(r#"[{rev}, "p", {slot}]"#),
        2 => format!(r#"[{rev}, "p", {slot}, {}, "b", {}]"#, name(script), number(script)),
        3 => format!(r#"[{rev}, "s", {slot}, {}]"#, quoted(&script.text())),
        4 => format!(r#"[{rev}, "c", {slot}, "ABVLCO4A"]"#),
        5 => format!(r#"[{rev}, "l", {slot}, "{}"]"#, codec::hex(script.short())),
        _ => format!(r#"[{rev}, "zz", {slot}]"#),
    }
}

/// An agreement on a guess of ports, or nearly one.
fn guess(script: &mut Script<'_>) -> String {
    let id = ["0000000000000001", "0000000000000002", "+000000000000001", ""][script.below(4)];
    let at = ["203.0.113.5:40000", "10.0.0.1:53", "203.0.113.5:0", "[::1]:9", "x"][script.below(5)];
    let ports = ["kept", "counted", "random", "x"][script.below(4)];
    let no = if script.flag() {
        format!(r#", "no": {}"#, quoted(["busy", "off", "someday"][script.below(3)]))
    } else {
        String::new()
    };
    format!(r#"{{"t": "aw_guess", "id": "{id}", "at": "{at}", "ports": "{ports}"{no}}}"#)
}

/// One of a few world nonces.
fn nonce(script: &mut Script<'_>) -> String {
    ["00000000000000000000000000000000", "11111111111111111111111111111111", "", "x"][script.below(4)].to_owned()
}

/// A player's name as it stands in JSON.
pub fn name(script: &mut Script<'_>) -> String {
    quoted(&plain_name(script))
}

/// A player's name: a few that meet each other again, and anything.
pub fn plain_name(script: &mut Script<'_>) -> String {
    const NAMES: [&str; 10] = ["Al", "Bob", "al", "Al#2", "Hosty", "", " x ", "\u{e9}\u{1F682}", "a\nb", "relay"];
    match script.byte() {
        255 => script.text(),
        254 => "\u{1F682}".repeat(80),
        n => NAMES[usize::from(n) % NAMES.len()].to_owned(),
    }
}

fn number(script: &mut Script<'_>) -> i64 {
    match script.byte() {
        255 => i64::MAX,
        254 => i64::MIN,
        253 => -1,
        252 => i64::from(u32::MAX) + 1,
        n => i64::from(n),
    }
}

fn quoted(text: &str) -> String {
    String::from_utf8_lossy(&to_json(&text)).into_owned()
}
