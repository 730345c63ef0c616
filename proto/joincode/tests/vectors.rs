//! Every code vector, both ways.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers stand outside of test functions"
)]

use anywire_joincode::{Code, CodeError, NatFlags, Profile, ROUNDS, age, dial_order, is_stale, parse, read, stretch};
use codec::hex;
use serde_json::{Value, json};

fn vectors(group: &str, prefix: &str) -> Vec<Value> {
    let dir = format!("{}/../../lab/vectors/netpunch/{group}", env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let wanted = paths.iter().filter(|p| p.file_name().unwrap().to_str().unwrap().starts_with(prefix));
    wanted.map(|p| serde_json::from_str(&std::fs::read_to_string(p).unwrap()).unwrap()).collect()
}

fn address<T: std::str::FromStr>(value: &Value) -> Option<T> {
    value.as_str().map(|text| text.parse().ok().unwrap())
}

fn profile(inputs: &Value) -> Profile {
    let (c, f) = (&inputs["candidates"], &inputs["flags"]);
    let flag = |name: &str| f[name].as_bool().unwrap_or_default();
    Profile {
        timestamp: inputs["timestamp"].as_u64().unwrap_or_default().try_into().unwrap(),
        flags: NatFlags { open: flag("open"), symmetric: flag("symmetric"), cgnat: flag("cgnat") },
        lan: address(&c["lan_v4"]),
        public: address(&c["public_v4"]),
        v6: address(&c["v6"]),
        vpn: [address(&c["vpn_v4"]), address(&c["vpn2_v4"])],
        secret: inputs["secret"].as_str().map(|s| codec::unhex(s).unwrap().try_into().unwrap()),
        steam: address(&c["steam"]),
    }
}

fn described(profile: &Profile, locked: bool) -> Value {
    let text = |a: Option<String>| a.map_or(Value::Null, Value::String);
    json!({
        "locked": locked,
        "ts": profile.timestamp,
        "secret": text(profile.secret.map(|s| hex(&s))),
        "flags": {
            "open": profile.flags.open,
            "symmetric": profile.flags.symmetric,
            "cgnat": profile.flags.cgnat,
            "v6": profile.v6.is_some(),
        },
        "candidates": {
            "lan_v4": text(profile.lan.map(|a| a.to_string())),
            "public_v4": text(profile.public.map(|a| a.to_string())),
            "v6": text(profile.v6.map(|a| a.to_string())),
            "vpn_v4": text(profile.vpn[0].map(|a| a.to_string())),
            "vpn2_v4": text(profile.vpn[1].map(|a| a.to_string())),
            "steam": text(profile.steam.map(|id| id.to_string())),
        },
    })
}

fn opened(code: &str, password: Option<&str>) -> Result<(Profile, bool), CodeError> {
    match parse(code)? {
        Code::Plain(profile) => Ok((profile, false)),
        Code::Locked(locked) => locked.open_with(password.unwrap_or_default()).map(|p| (p, true)),
        Code::Steam(_) => panic!("a Steam ID among the codes"),
    }
}

#[test]
fn profiles_are_written_and_read_as_old_peers_do() {
    let mut seen = 0;
    for v in vectors("code", "") {
        let (inputs, expect, name) = (&v["inputs"], &v["expect"], &v["name"]);
        let Some(code) = expect["code"].as_str() else { continue };
        let password = inputs["password"].as_str();
        let written = match password {
            None => profile(inputs).encode(),
            Some(password) => {
                let profile = profile(inputs);
                profile.lock(&stretch(password, profile.timestamp))
            }
        };
        assert_eq!(written, code, "{name}");
        assert_eq!(expect["code_len"], code.len(), "{name}");
        let (profile, locked) = opened(code, password).unwrap();
        assert_eq!(described(&profile, locked), expect["decoded"], "{name}");
        if let (false, Some(blob)) = (locked, expect["blob"].as_str()) {
            assert_eq!(hex(&profile.to_bytes()), blob, "{name}");
        }
        seen += 1;
    }
    assert_eq!(seen, 20);
}

#[test]
fn codes_that_old_peers_take_are_taken() {
    let mut seen = 0;
    for v in vectors("code", "") {
        let (Some(code), Some(_)) = (v["inputs"]["code"].as_str(), v["expect"].get("decoded")) else { continue };
        let (profile, locked) = opened(code, v["inputs"]["password"].as_str()).unwrap();
        assert_eq!(described(&profile, locked), v["expect"]["decoded"], "{}", v["name"]);
        assert_eq!(read(code), parse(code), "{}: repairing a good code changes nothing", v["name"]);
        seen += 1;
    }
    assert_eq!(seen, 12);
}

#[test]
fn codes_that_old_peers_refuse_are_refused_for_the_same_reason() {
    let mut seen = 0;
    for v in vectors("code", "") {
        let Some(want) = v["expect"]["error"].as_str() else { continue };
        let code = v["inputs"]["code"].as_str().unwrap();
        let error = opened(code, v["inputs"]["password"].as_str()).unwrap_err();
        let kind = match error {
            CodeError::WrongPassword => "wrong-password",
            CodeError::NeedsPassword => "password-needed",
            _ => "malformed",
        };
        assert_eq!(kind, want, "{}: {error}", v["name"]);
        seen += 1;
    }
    assert_eq!(seen, 13);
}

#[test]
fn a_password_is_stretched_as_old_peers_do() {
    let v = &vectors("code", "lock-kdf")[0];
    let (inputs, expect) = (&v["inputs"], &v["expect"]);
    assert_eq!(inputs["iterations"], ROUNDS);
    let timestamp = u32::try_from(inputs["timestamp"].as_u64().unwrap()).unwrap();
    let key = stretch(inputs["password"].as_str().unwrap(), timestamp);
    assert_eq!(hex(key.as_bytes()), expect["key"].as_str().unwrap());
}

#[test]
fn a_code_is_stale_after_ten_minutes_and_never_before() {
    let all = vectors("code", "stale-");
    assert_eq!(all.len(), 4);
    for v in all {
        let timestamp = u32::try_from(v["inputs"]["timestamp"].as_u64().unwrap()).unwrap();
        let now = v["inputs"]["now"].as_u64().unwrap();
        assert_eq!(v["expect"]["age"], age(timestamp, now));
        assert_eq!(v["expect"]["stale"], is_stale(timestamp, now));
    }
}

#[test]
fn steam_ids_are_recognised_in_every_form() {
    let all = vectors("steamcode", "");
    assert_eq!(all.len(), 9);
    for v in all {
        let code = v["inputs"]["code"].as_str().unwrap();
        match v["expect"]["steam"].as_str() {
            Some(id) => {
                assert_eq!(parse(code), Ok(Code::Steam(id.parse().unwrap())), "{}", v["name"]);
                assert_eq!(read(code), parse(code), "{}", v["name"]);
            }
            None => assert_eq!(parse(code), Err(CodeError::NotASteamId), "{}", v["name"]),
        }
    }
}

#[test]
fn candidates_are_dialled_in_the_order_of_old_peers() {
    let all = vectors("rule", "dial-");
    assert_eq!(all.len(), 2);
    for v in all {
        let mine = address(&v["inputs"]["my_public_v4"]);
        let order: Vec<String> = dial_order(&profile(&v["inputs"]), mine).iter().map(ToString::to_string).collect();
        assert_eq!(json!(order), v["expect"]["targets"], "{}", v["name"]);
    }
}
