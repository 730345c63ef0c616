//! Groups `code` and `steamcode`.

use joincode::{Code, CodeError, Locked, NatFlags, Profile};

use super::case::{Case, Fields, Wrong, parsed, same, same_bytes};

const WORDS: [&str; 2] = ["password-needed", "wrong-password"];

pub(super) fn code(case: &mut Case) -> Result<(), Wrong> {
    if case.inputs.has("iterations") {
        return stretch(case);
    }
    if case.inputs.has("now") {
        return stale(case);
    }
    if case.inputs.has("code") {
        let text = case.inputs.text("code")?;
        let password = case.inputs.maybe("password", |v| v.as_str().map(str::to_owned))?.unwrap_or_default();
        let word = |error: &CodeError| match error {
            CodeError::NeedsPassword => Some("password-needed"),
            CodeError::WrongPassword => Some("wrong-password"),
            _ => None,
        };
        return match case.outcome(opened(&text, &password), word, &WORDS)? {
            Some(got) => decoded(case, &got),
            None => Ok(()),
        };
    }
    written(case)
}

pub(super) fn steamcode(case: &mut Case) -> Result<(), Wrong> {
    let text = case.inputs.text("code")?;
    match case.plain_outcome(joincode::parse(&text))? {
        None => Ok(()),
        Some(Code::Steam(id)) => {
            same("after the repair", &joincode::read(&text), &Ok(Code::Steam(id)))?;
            same("steam_only", &true, &case.expect.bool("steam_only")?)?;
            same("steam", &id.to_string(), &case.expect.text("steam")?)
        }
        Some(code) => Err(Wrong(format!("another kind of code: {code:?}"))),
    }
}

/// A profile in the words of the vectors.
pub(super) fn candidates(fields: &mut Fields, out: &mut Profile) -> Result<(), Wrong> {
    out.lan = fields.maybe("lan_v4", parsed)?;
    out.public = fields.maybe("public_v4", parsed)?;
    out.v6 = fields.maybe("v6", parsed)?;
    out.vpn = [fields.maybe("vpn_v4", parsed)?, fields.maybe("vpn2_v4", parsed)?];
    out.steam = fields.maybe("steam", parsed)?;
    fields.all_read()
}

fn flags(fields: &mut Fields) -> Result<NatFlags, Wrong> {
    Ok(NatFlags { open: fields.bool("open")?, symmetric: fields.bool("symmetric")?, cgnat: fields.bool("cgnat")? })
}

fn opened(text: &str, password: &str) -> Result<(Profile, bool), CodeError> {
    match joincode::parse(text)? {
        Code::Plain(profile) => Ok((profile, false)),
        Code::Locked(locked) => locked.open_with(password).map(|profile| (profile, true)),
        Code::Steam(steam) => Ok((Profile { steam: Some(steam), ..Profile::default() }, false)),
    }
}

/// A profile and the code an old peer makes of it.
fn written(case: &mut Case) -> Result<(), Wrong> {
    let mut profile = Profile { timestamp: case.inputs.number("timestamp")?, ..Profile::default() };
    candidates(&mut case.inputs.object("candidates")?, &mut profile)?;
    let mut nat = case.inputs.object("flags")?;
    profile.flags = flags(&mut nat)?;
    nat.all_read()?;
    profile.secret = case.inputs.maybe("secret", super::case::hex_array)?;
    let password = case.inputs.maybe("password", |v| v.as_str().map(str::to_owned))?.unwrap_or_default();

    let key = (!password.is_empty()).then(|| joincode::stretch(&password, profile.timestamp));
    let text = key.as_ref().map_or_else(|| profile.encode(), |key| profile.lock(key));
    same("code", &text, &case.expect.text("code")?)?;
    same("code_len", &text.len(), &case.expect.number("code_len")?)?;
    // The letters carry these bytes, which is how a locked code's can be told too.
    let blob = case.expect.bytes("blob")?;
    same("blob", &Code::from_bytes(&blob), &joincode::parse(&text))?;
    if key.is_none() {
        same_bytes("blob", &profile.to_bytes(), &blob)?;
    }

    let got = match (joincode::parse(&text), &key) {
        (Ok(Code::Plain(profile)), None) => (profile, false),
        (Ok(Code::Locked(locked)), Some(key)) => {
            let opened = Locked::open(&locked, key);
            (opened.map_err(|error| Wrong(error.to_string()))?, true)
        }
        (other, _) => return Err(Wrong(format!("read back as {other:?}"))),
    };
    decoded(case, &got)
}

fn decoded(case: &mut Case, (got, locked): &(Profile, bool)) -> Result<(), Wrong> {
    let mut want = case.expect.object("decoded")?;
    same("locked", locked, &want.bool("locked")?)?;
    let mut profile = Profile { timestamp: want.number("ts")?, ..Profile::default() };
    profile.secret = want.maybe("secret", super::case::hex_array)?;
    let mut nat = want.object("flags")?;
    profile.flags = flags(&mut nat)?;
    same("flags.v6", &got.v6.is_some(), &nat.bool("v6")?)?;
    nat.all_read()?;
    candidates(&mut want.object("candidates")?, &mut profile)?;
    want.all_read()?;
    if *got == profile {
        return Ok(());
    }
    Err(Wrong(format!("decoded: got {:?}, want {:?}", Code::Plain(got.clone()), profile)))
}

/// The password's key, and the stream that follows from it. Nobody hands out a stream, so it is taken from a code whose
/// body is known.
fn stretch(case: &mut Case) -> Result<(), Wrong> {
    let timestamp = case.inputs.number("timestamp")?;
    let password = case.inputs.text("password")?;
    same("iterations", &joincode::ROUNDS, &case.inputs.number("iterations")?)?;
    let salt = [&b"tpf2mp-code|"[..], &u32::to_be_bytes(timestamp)].concat();
    same_bytes("salt", &salt, &case.inputs.bytes("salt")?)?;
    let key = joincode::stretch(&password, timestamp);
    same_bytes("key", key.as_bytes(), &case.expect.array::<32>("key")?)?;

    // 45 known bytes outside of the time: enough for the first 40 of the stream.
    let profile = Profile {
        timestamp,
        lan: Some(zero_v4()),
        public: Some(zero_v4()),
        vpn: [Some(zero_v4()), Some(zero_v4())],
        secret: Some([0; 12]),
        steam: Some(u64::MAX),
        ..Profile::default()
    };
    let plain = profile.to_bytes();
    let text = profile.lock(&key);
    let hidden = base32(&text)?;
    let body = [plain.get(..1).unwrap_or_default(), plain.get(5..).unwrap_or_default()].concat();
    let cipher = hidden.get(5..).unwrap_or_default();
    let stream: Vec<u8> = body.iter().zip(cipher).map(|(a, b)| a ^ b).take(40).collect();
    same_bytes("stream_first_40", &stream, &case.expect.bytes("stream_first_40")?)
}

fn zero_v4() -> std::net::SocketAddrV4 {
    std::net::SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, 0)
}

fn base32(text: &str) -> Result<Vec<u8>, Wrong> {
    data_encoding::BASE32_NOPAD.decode(text.as_bytes()).map_err(|error| Wrong(error.to_string()))
}

fn stale(case: &mut Case) -> Result<(), Wrong> {
    let timestamp = case.inputs.number("timestamp")?;
    let now = case.inputs.number("now")?;
    let age = case.expect.must("age", codec::Value::as_i64)?;
    same("age", &joincode::age(timestamp, now), &age)?;
    same("stale", &joincode::is_stale(timestamp, now), &case.expect.bool("stale")?)
}
