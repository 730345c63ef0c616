//! Groups `key`, `seal` and `sign`.

use std::collections::BTreeMap;
use std::time::Instant;

use codec::Value;
use hmac::{Hmac, KeyInit, Mac};
use np1::Kind;
use seal::{OVERHEAD, Opener, Sealer, SessionKey};
use seam::{Dice, Refused};
use sha2::{Digest, Sha256};

use super::case::{Case, Wrong, hex, hex_array, same, same_bytes};

pub(super) fn key(case: &mut Case) -> Result<(), Wrong> {
    let secret = case.inputs.array("secret")?;
    let session = SessionKey::derive(&secret, &case.inputs.text("password")?);
    same_bytes("session_key", session.as_bytes(), &case.expect.array::<32>("session_key")?)?;
    let rendezvous = session.rendezvous();
    same_bytes("rendezvous_key", rendezvous.as_bytes(), &case.expect.array::<32>("rendezvous_key")?)?;
    same("knock_tag", &seal::knock_tag(&secret), &case.expect.text("knock_tag")?)?;
    works_with(&session, &case.expect.array("enc_key")?, &case.expect.array("mac_key")?)?;
    works_with(&rendezvous, &case.expect.array("rendezvous_enc_key")?, &case.expect.array("rendezvous_mac_key")?)
}

/// The two working keys of a session key are nobody's business, so they are proved by what they do: a frame made here
/// with the vector's opens there.
fn works_with(key: &SessionKey, encryption: &[u8; 32], authentication: &[u8; 32]) -> Result<(), Wrong> {
    let head = [0xC0, 0xFF, 0xEE, 0x01, 0, 0, 0, 7];
    let plain = *b"eight and twenty bytes of it";
    let stream = Sha256::new().chain_update(encryption).chain_update(head).chain_update([0; 4]).finalize();
    let mut frame = head.to_vec();
    frame.extend(plain.iter().zip(stream).map(|(a, b)| a ^ b));
    let mut mac = Hmac::<Sha256>::new_from_slice(authentication).map_err(|error| Wrong(error.to_string()))?;
    mac.update(&frame);
    frame.extend(mac.finalize().into_bytes().into_iter().take(16));
    match Opener::new(key).open(Instant::now(), &mut frame) {
        Ok(opened) => same_bytes("frame under the vector's keys", opened.plain, &plain),
        Err(error) => Err(Wrong(format!("enc_key or mac_key: {error:?}"))),
    }
}

pub(super) fn seal(case: &mut Case) -> Result<(), Wrong> {
    let key = session_key(case)?;
    if case.inputs.has("frames") {
        return replay(case, &key);
    }
    if case.inputs.has("as") {
        let frame = case.inputs.bytes("sealed")?;
        let signed = case.inputs.must("as", |v| match v.as_str()? {
            "E" => Some(false),
            "S" => Some(true),
            _ => None,
        })?;
        let got = take(&mut Opener::new(&key), signed, &frame);
        return match case.plain_outcome(got)? {
            None => Ok(()),
            Some((_, _, plain)) => same_bytes("plain", &plain, &case.expect.bytes("plain")?),
        };
    }
    frame(case, &key, "sealed", false)
}

pub(super) fn sign(case: &mut Case) -> Result<(), Wrong> {
    let key = session_key(case)?;
    frame(case, &key, "signed", true)
}

fn session_key(case: &mut Case) -> Result<SessionKey, Wrong> {
    if case.inputs.has("session_key") {
        return Ok(SessionKey::from_bytes(case.inputs.array("session_key")?));
    }
    let secret = case.inputs.array("secret")?;
    Ok(SessionKey::derive(&secret, &case.inputs.text("password")?))
}

type Taken = ([u8; 4], u32, Vec<u8>);

fn take(opener: &mut Opener, signed: bool, frame: &[u8]) -> Result<Taken, Refused> {
    let mut frame = frame.to_vec();
    let now = Instant::now();
    let opened = if signed { opener.verify_signed(now, &mut frame)? } else { opener.open(now, &mut frame)? };
    Ok((opened.salt, opened.counter, opened.plain.to_vec()))
}

/// A frame with a given salt and counter. A sealer draws its salt itself and lets nobody choose it, so the frame is
/// opened instead: with salt, counter and plaintext right, a deterministic cipher leaves no other bytes it could be.
/// That our sealer is the opener's counterpart is checked with the same plaintext.
fn frame(case: &mut Case, key: &SessionKey, field: &str, signed: bool) -> Result<(), Wrong> {
    let want: Taken = (case.inputs.array("salt")?, case.inputs.number("counter")?, case.inputs.bytes("plain")?);
    let frame = case.expect.bytes(field)?;
    same("opened", &take(&mut Opener::new(key), signed, &frame), &Ok(want.clone()))?;

    let (_, _, plain) = &want;
    let mut sealer = Sealer::new(key, Dice::new([7; 32]));
    let mut own = vec![0; plain.len() + OVERHEAD];
    let len = if signed { sealer.sign(&[plain], &mut own) } else { sealer.seal(&[plain], &mut own) };
    same("length", &len, &frame.len())?;
    let taken = take(&mut Opener::new(key), signed, &own).map(|(_, _, plain)| plain);
    same("own frame", &taken.as_ref(), &Ok(plain))?;

    let kind = if signed { Kind::Signed } else { Kind::Sealed };
    same_bytes("packet", &np1::packet(kind, &frame), &case.expect.bytes("packet")?)
}

/// One receiver, frames in order. What it refuses, it refuses for its counter. Releases with a narrower window refuse
/// frames that ours still holds: there the verdict is theirs only on what their window holds too.
fn replay(case: &mut Case, key: &SessionKey) -> Result<(), Wrong> {
    let frames = case.inputs.must("frames", |v| v.as_array().cloned())?;
    let window: u32 = case.inputs.number("window")?;
    let accepted =
        case.expect.must("accepted", |v| v.as_array()?.iter().map(Value::as_bool).collect::<Option<Vec<_>>>())?;
    same("number of answers", &accepted.len(), &frames.len())?;
    if window > seal::WINDOW {
        return Err(Wrong(format!("a window of {window} is wider than ours")));
    }
    let mut opener = Opener::new(key);
    let mut highest: BTreeMap<[u8; 4], u32> = BTreeMap::new();
    for ((frame, want), number) in frames.iter().zip(accepted).zip(1..) {
        let wrong = |what: &str| Wrong(format!("frame {number}: {what}"));
        let read = |name: &str| frame.get(name).ok_or_else(|| wrong(name));
        let sealed = hex(read("sealed")?).ok_or_else(|| wrong("no hexadecimal"))?;
        let salt: [u8; 4] = hex_array(read("salt")?).ok_or_else(|| wrong("salt"))?;
        let counter = read("counter")?.as_u64().and_then(|n| u32::try_from(n).ok()).ok_or_else(|| wrong("counter"))?;
        let head = [&salt[..], &counter.to_be_bytes()].concat();
        same_bytes("salt and counter", sealed.get(..head.len()).unwrap_or_default(), &head)?;

        let high = highest.get(&salt).copied();
        let got = take(&mut opener, false, &sealed).map(|_| ());
        match got {
            Ok(()) if !want && high.is_some_and(|high| high.saturating_sub(counter) >= window) => {}
            Ok(()) | Err(Refused::Replayed | Refused::TooOld) if got.is_ok() == want => {}
            _ => return Err(wrong(&format!("got {got:?}, want accepted {want}"))),
        }
        if got.is_ok() {
            highest.insert(salt, high.unwrap_or(0).max(counter));
        }
    }
    Ok(())
}
