//! Groups `knock` and `relay`.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use codec::{Value, object, to_json};
use joincode::{Code, Profile, knock_targets};
use np1::{Role, read_relay_bind, relay_bind, relay_bound};
use rendezvous::relay::{End, RelayAt, Via};
use rendezvous::words::{Grant, Knock, Tag};
use rendezvous::{Call, Limits, Local, Relay, Step};
use seal::{OVERHEAD, Opener, Sealer, SessionKey};
use seam::Dice;

use super::case::{Case, Wrong, hex, parsed, same, same_bytes};

const JOINER: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 50));

pub(super) fn knock(case: &mut Case) -> Result<(), Wrong> {
    if case.inputs.has("post_knock") {
        return posted(case);
    }
    let secret = case.inputs.array("secret")?;
    let key = SessionKey::derive(&secret, &case.inputs.text("password")?).rendezvous();
    if case.inputs.has("blob") {
        let blob = case.inputs.must("blob", |v| data_encoding::BASE64.decode(v.as_str()?.as_bytes()).ok())?;
        return case.plain_outcome(heard(&key, &blob)).map(|_| ());
    }
    let code = case.inputs.text("profile_code")?;
    let tag = seal::knock_tag(&secret);
    same("tag", &tag, &case.expect.text("tag")?)?;
    // A sealer draws its salt itself, so the vector's frame is opened instead, and ours by the same opener.
    let sealed = case.expect.bytes("sealed")?;
    let mut frame = sealed.clone();
    let mut opener = Opener::new(&key);
    let opened = opener.open(Instant::now(), &mut frame).map_err(|error| Wrong(format!("{error:?}")))?;
    same("salt", &opened.salt, &case.inputs.array("salt")?)?;
    same("counter", &opened.counter, &case.inputs.number("counter")?)?;
    same_bytes("plaintext", opened.plain, code.as_bytes())?;
    let mut own = vec![0; code.len() + OVERHEAD];
    Sealer::new(&key, Dice::new([7; 32])).seal(&[code.as_bytes()], &mut own);
    let profile = heard(&key, &own).map_err(Wrong)?;
    same("own frame", &heard(&key, &sealed), &Ok(profile.clone()))?;

    let word = Knock {
        tag: Tag::new(&tag).ok_or_else(|| Wrong("no tag".to_owned()))?,
        blob: data_encoding::BASE64.encode(&sealed),
        relay: case.inputs.bool("relay")?,
        nonce: case.inputs.maybe("nonce", |v| v.as_str().map(str::to_owned))?,
        shared: false,
    };
    same_bytes("body", &word.write(), &to_json(&case.expect.value("body")?))?;
    same("body as read by a master", &Knock::read(&word.write(), true), &Ok(word))?;
    let targets: Vec<String> = knock_targets(&profile).iter().map(ToString::to_string).collect();
    same("host_targets", &targets, &case.expect.texts("host_targets")?)?;
    same("host_steam", &profile.steam, &case.expect.maybe("host_steam", parsed)?)
}

/// What a host makes of a blob.
fn heard(key: &SessionKey, blob: &[u8]) -> Result<Profile, String> {
    let mut frame = blob.to_vec();
    let opened = Opener::new(key).open(Instant::now(), &mut frame).map_err(|error| error.to_string())?;
    let text = std::str::from_utf8(opened.plain).map_err(|error| error.to_string())?;
    match joincode::parse(text) {
        Ok(Code::Plain(profile)) => Ok(profile),
        Ok(_) => Err("no profile".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// What a master answers.
fn posted(case: &mut Case) -> Result<(), Wrong> {
    let body = to_json(&case.inputs.value("post_knock")?);
    let now = Instant::now();
    let relay = case.inputs.bool("relay_enabled")?.then(at);
    let mut master = Local::new(Limits::default(), relay, None, [1; 32], now);
    let call = Call { method: "POST", path: "/knock", query: "", body: Some(&body), html: false };
    let Step::Answer(answer) = master.handle(now, Duration::ZERO, JOINER, &call) else {
        return Err(Wrong("no answer".to_owned()));
    };
    same("status", &answer.status, &case.expect.number("status")?)?;
    let ok = object(answer.json_body()).ok().and_then(|map| map.get("ok").and_then(Value::as_bool));
    let taken = if ok == Some(true) { Ok(()) } else { Err(answer.status) };
    case.plain_outcome(taken).map(|_| ())
}

fn at() -> RelayAt {
    RelayAt { ip: Ipv4Addr::new(192, 0, 2, 1).into(), ports: (29600..=29699).collect(), shared: None }
}

pub(super) fn relay(case: &mut Case) -> Result<(), Wrong> {
    if case.inputs.has("relay") {
        let grant = Grant::read(Some(&case.inputs.value("relay")?));
        return case.plain_outcome(grant.ok_or("no allocation")).map(|_| ());
    }
    if case.inputs.has("datagrams") {
        return forwarded(case);
    }
    let id = case.inputs.array("id")?;
    let role = case.inputs.must("role", |v| match v.as_str()? {
        "J" => Some(Role::Joiner),
        "H" => Some(Role::Host),
        _ => None,
    })?;
    let datagram = relay_bind(&id, role);
    same_bytes("datagram", &datagram, &case.expect.bytes("datagram")?)?;
    same("datagram as read", &read_relay_bind(&datagram), &Ok((id, role)))?;
    same_bytes("reply", &relay_bound(&id), &case.expect.bytes("reply")?)
}

/// Datagrams through one port. The id of a session of ours follows from its knock, so it stands in for the vector's.
fn forwarded(case: &mut Case) -> Result<(), Wrong> {
    let theirs: [u8; 16] = case.inputs.array("id")?;
    let now = Instant::now();
    let mut relay = Relay::new(at(), Limits::default(), [1; 32], now);
    let tag = Tag::new(&"0".repeat(24)).ok_or_else(|| Wrong("no tag".to_owned()))?;
    let granted = relay.grant(now, JOINER, (tag, "01234567".to_owned()), true, false);
    let grant = granted.ok().and_then(|(grants, _)| grants.relay).ok_or_else(|| Wrong("no port".to_owned()))?;
    let ours = |bytes: Vec<u8>| match bytes.get(4..20) {
        Some(id) if id == theirs => {
            [bytes.get(..4).unwrap_or_default(), &grant.id, bytes.get(20..).unwrap_or_default()].concat()
        }
        _ => bytes,
    };
    let datagrams = case.inputs.must("datagrams", |v| v.as_array().cloned())?;
    let sent = case.expect.must("sent", |v| v.as_array().cloned())?;
    same("number of answers", &sent.len(), &datagrams.len())?;
    for (number, (datagram, want)) in datagrams.iter().zip(&sent).enumerate() {
        let read = |value: &Value, end: &str| {
            let address = value.get(end).and_then(parsed).map(End::Udp);
            let bytes = value.get("data").and_then(hex).map(ours);
            address.zip(bytes).ok_or_else(|| Wrong(format!("datagram {number} is not understood")))
        };
        let (from, data) = read(datagram, "from")?;
        let got = relay.receive(now, Via::Port(grant.at.port()), from, &data).map(|sent| (sent.to, sent.bytes()));
        let want = if want.is_null() { None } else { Some(read(want, "to")?) };
        same(&format!("sent for datagram {number}"), &got, &want)?;
    }
    Ok(())
}
