//! The tables of NetherNet: one file a subject, many cases in each.

use std::borrow::Cow;

use bytes::Bytes;
use codec::Value;
use nethernet::envelope::Key;
use nethernet::frame::{self, Channel, FrameError, Framing, Reassembly};
use nethernet::packet::{Packet, application_data};
use nethernet::server_data::ServerData;
use nethernet::{NetworkId, SessionError, Signal, correlation_id};
use sha2::{Digest, Sha256};

use super::Report;
use super::case::{Fields, Wrong, hex, same, same_bytes};

/// Words of a table that are for people.
const PROSE: [&str; 7] = ["note", "rule", "reason", "name", "pattern", "layout", "arithmetic"];

type Check = fn(&mut Fields) -> Result<(), Wrong>;

/// Checks one table.
pub(super) fn table(subject: &str, bytes: &[u8], report: &mut Report) {
    let map = match codec::object(bytes) {
        Ok(map) => map,
        Err(error) => return report.failed.push(format!("nethernet/{subject}: {error}")),
    };
    for (list, value) in &map {
        let label = format!("nethernet/{subject}.{list}");
        match (value, checker(subject, list)) {
            (Value::Array(cases), Some(check)) => {
                for (index, case) in cases.iter().enumerate() {
                    match one(case, check) {
                        Ok(()) => report.passed += 1,
                        Err(why) => report.failed.push(format!("{label}[{index}]: {why}")),
                    }
                }
            }
            (_, None) if PROSE.contains(&list.as_str()) => {}
            (value, None) if constant(list, value) => report.passed += 1,
            _ => report.failed.push(format!("{label}: is not understood")),
        }
    }
}

fn one(case: &Value, check: Check) -> Result<(), String> {
    let mut fields = case.as_object().map(|map| Fields::of("case", map.clone())).ok_or("not an object")?;
    let told = match check(&mut fields).and_then(|()| fields.all_read_but(&PROSE)) {
        Ok(()) => return Ok(()),
        Err(Wrong(why)) => why,
    };
    let name = case.get("name").and_then(Value::as_str).unwrap_or_default();
    Err(format!("{name} {told}"))
}

/// Single values at the head of a table.
fn constant(name: &str, value: &Value) -> bool {
    let want = match name {
        "fragment_size" => frame::FRAGMENT_MAX,
        "max_packet" => frame::PACKET_MAX,
        _ => return false,
    };
    value.as_u64().and_then(|n| usize::try_from(n).ok()) == Some(want)
}

fn checker(subject: &str, list: &str) -> Option<Check> {
    Some(match (subject, list) {
        ("captured_signaling", "captures") => captured,
        ("correlation_id", "cases") => correlation,
        ("discovery_packets", "accept") => packet,
        ("discovery_packets", "reject") => no_packet,
        ("envelopes", "cases") => envelope,
        ("envelopes_reject", "cases") => no_envelope,
        ("error_codes", "cases") => error_code,
        ("fragments", "send") => sent,
        ("fragments", "send_big") => plan,
        ("fragments", "negotiated_sizes") => negotiated,
        ("fragments", "receive_reliable") => received,
        ("fragments", "receive_unreliable") => received_unreliable,
        ("key_derivation", "cases") => key,
        ("network_id", "cases") => network_id,
        ("server_data", "accept") => server_data,
        ("server_data", "reject") => no_server_data,
        ("signaling", "accept") => signal,
        ("signaling", "ignore") => no_signal,
        ("signaling", "differences") => difference,
        _ => return None,
    })
}

fn failed<T>(why: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong(why.into()))
}

fn id(fields: &mut Fields, key: &str) -> Result<u64, Wrong> {
    fields.must(key, |v| v.as_str()?.parse().ok())
}

/// A text that a vector gives twice, once as bytes.
fn twice(fields: &mut Fields) -> Result<String, Wrong> {
    let text = fields.text("text")?;
    same_bytes("text", text.as_bytes(), &fields.bytes("text_hex")?)?;
    Ok(text)
}

fn captured(case: &mut Fields) -> Result<(), Wrong> {
    let _who = (case.text("implementation")?, case.text("role")?);
    let order = case.texts("order_sent")?;
    let messages = case.texts("messages")?;
    let mut words = Vec::new();
    for text in &messages {
        let signal = Signal::parse(text).map_err(|error| Wrong(error.to_string()))?;
        same("written again", &signal.to_string(), text)?;
        words.push(signal.body.identifier().to_owned());
    }
    same("identifiers", &words, &order)
}

fn correlation(case: &mut Fields) -> Result<(), Wrong> {
    let got = correlation_id(id(case, "network_id")?);
    same("correlation id", &got, &case.text("correlation_id")?)
}

fn packet(case: &mut Fields) -> Result<(), Wrong> {
    let bytes = case.bytes("plaintext")?;
    let got = Packet::parse(&bytes).map_err(|error| Wrong(error.to_string()))?;
    same("sender", &got.sender(), &id(case, "sender_id")?)?;
    let (kind, exact) = match got {
        // Cases with a note are read and not written so.
        Packet::Request { .. } => ("request", !case.has("note")),
        Packet::Response { data, .. } => {
            same_bytes("application data", data, &case.bytes("application_data")?)?;
            if let Some(want) = case.maybe("server_data", hex)? {
                same("meaning", &application_data(data), &Cow::from(want))?;
            }
            ("response", true)
        }
        Packet::Message { recipient, data, .. } => {
            same("recipient", &recipient, &id(case, "recipient_id")?)?;
            let whole = case.maybe("message_recovered", |v| v.as_str().map(str::to_owned))?;
            let exact = whole.is_none();
            let want = match whole {
                Some(whole) => {
                    let cut = case.text("message_by_length")?;
                    same("beginning", &whole.starts_with(&cut), &true)?;
                    whole
                }
                None => case.text("message")?,
            };
            same_bytes("message", data, want.as_bytes())?;
            ("message", exact)
        }
    };
    same("type", &kind.to_owned(), &case.text("type")?)?;
    if exact {
        let written = got.encode().map_err(|error| Wrong(error.to_string()))?;
        same_bytes("written", &written, &bytes)?;
    }
    match case.maybe("plaintext_legacy_exclusive_length", hex)? {
        Some(legacy) => same("with the other length", &Packet::parse(&legacy), &Ok(got)),
        None => Ok(()),
    }
}

fn no_packet(case: &mut Fields) -> Result<(), Wrong> {
    match Packet::parse(&case.bytes("plaintext")?) {
        Ok(packet) => failed(format!("taken as {packet:?}")),
        Err(_) => Ok(()),
    }
}

fn envelope(case: &mut Fields) -> Result<(), Wrong> {
    let key = Key::from_app_id(id(case, "app_id")?);
    let (plaintext, mut envelope) = (case.bytes("plaintext")?, case.bytes("envelope")?);
    same_bytes("sealed", &key.seal(&plaintext), &envelope)?;
    same("opened", &key.open(&mut envelope), &Ok(&plaintext[..]))
}

fn no_envelope(case: &mut Fields) -> Result<(), Wrong> {
    let key = Key::from_app_id(id(case, "app_id")?);
    match key.open(&mut case.bytes("envelope")?) {
        Ok(_) => failed("opened, though it is to be dropped"),
        Err(_) => Ok(()),
    }
}

fn error_code(case: &mut Fields) -> Result<(), Wrong> {
    let error = SessionError::from_code(case.number("code")?);
    // Tables write the names in another style and shorten one word.
    let plain = |name: &str| name.to_lowercase().replace('_', "").replace("configurationresult", "config");
    let want = case.text("name")?;
    let want = want.split(' ').next().unwrap_or_default();
    if want.starts_with('(') {
        return same("name", &error, &SessionError::Reserved36);
    }
    same("name", &plain(error.name()), &plain(want))
}

/// What vectors send: byte `i` is `i` modulo 251.
fn pattern(size: usize) -> Bytes {
    (0..=250).cycle().take(size).collect::<Vec<u8>>().into()
}

fn sent(case: &mut Fields) -> Result<(), Wrong> {
    let size: usize = case.number("size")?;
    let packet = pattern(size);
    let digest = |bytes: &[u8]| codec::hex(&Sha256::digest(bytes));
    same("pattern", &digest(&packet), &case.text("packet_sha256")?)?;
    let numbers = |v: &Value| v.as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>();
    let framing = Framing::default();
    let fragments: Vec<_> = framing.fragments(Channel::Reliable, packet.clone()).collect();
    same("count", &fragments.len(), &case.number("reliable_fragments")?)?;
    let headers: Vec<u64> = fragments.iter().map(|(header, _)| u64::from(*header)).collect();
    same("headers", &headers, &case.must("headers", numbers)?)?;
    let messages: Vec<Bytes> =
        fragments.iter().map(|(header, part)| Bytes::from([&[*header][..], part].concat())).collect();
    let lengths: Vec<u64> = messages.iter().map(|m| m.len().try_into().unwrap_or(u64::MAX)).collect();
    same("lengths", &lengths, &case.must("message_lengths", numbers)?)?;
    let digests: Vec<String> = messages.iter().map(|m| digest(m)).collect();
    same("digests", &digests, &case.texts("message_sha256")?)?;
    same("unreliable", &(size <= framing.packet_max(Channel::Unreliable)), &case.bool("unreliable_allowed")?)?;
    let unreliable = framing.fragments(Channel::Unreliable, packet.clone()).count();
    same("unreliable count", &unreliable, &case.number("unreliable_messages")?)?;
    same("reassembled", &reassembled(messages), &Ok(vec![packet]))
}

fn reassembled(messages: Vec<Bytes>) -> Result<Vec<Bytes>, FrameError> {
    let mut reassembly = Reassembly::default();
    let mut packets = Vec::new();
    for message in messages {
        packets.extend(reassembly.push(message)?);
    }
    Ok(packets)
}

fn plan(case: &mut Fields) -> Result<(), Wrong> {
    as_planned(case, Framing::default())
}

fn as_planned(case: &mut Fields, framing: Framing) -> Result<(), Wrong> {
    let size: usize = case.number("size")?;
    let admitted = framing.admit(Channel::Reliable, size);
    if case.maybe("rejected", Value::as_bool)? == Some(true) {
        if let Some(count) = case.maybe("fragments_if_sent", Value::as_u64)? {
            same("fragments if sent", &u64::try_from(size.div_ceil(framing.payload())).unwrap_or(0), &count)?;
        }
        let max = framing.packet_max(Channel::Reliable);
        return same("refused", &admitted, &Err(FrameError::TooLarge { size, max }));
    }
    same("count", &admitted, &Ok(case.number("reliable_fragments")?))?;
    let mut fragments = framing.fragments(Channel::Reliable, Bytes::from(vec![0; size]));
    let first = fragments.next();
    let last = fragments.last().or_else(|| first.clone());
    same("first", &first.map(|f| f.0), &Some(case.number("first_header")?))?;
    let want = (case.number("last_header")?, case.number("last_payload")?);
    same("last", &last.map(|(header, part)| (header, part.len())), &Some(want))
}

fn negotiated(case: &mut Fields) -> Result<(), Wrong> {
    let announced: u64 = case.number("remote_max_message_size")?;
    let framing = Framing::announced(Some(announced)).map_err(|error| Wrong(error.to_string()))?;
    same("payload", &framing.payload(), &case.number("payload_per_fragment")?)?;
    let mut plan = case.object("plan_1000000")?;
    let last: usize = plan.number("last_payload")?;
    let (size, count): (usize, usize) = (plan.number("size")?, plan.number("reliable_fragments")?);
    same("count", &framing.admit(Channel::Reliable, size), &Ok(count))?;
    let fragments: Vec<_> = framing.fragments(Channel::Reliable, Bytes::from(vec![0; size])).collect();
    same("first", &fragments.first().map(|f| f.0), &Some(plan.number("first_header")?))?;
    same("last", &fragments.last().map(|f| (f.0, f.1.len())), &Some((plan.number("last_header")?, last)))?;
    plan.all_read()
}

fn hex_list(v: &Value) -> Option<Vec<Bytes>> {
    v.as_array()?.iter().map(|v| hex(v).map(Bytes::from)).collect()
}

fn received(case: &mut Fields) -> Result<(), Wrong> {
    let got = reassembled(case.must("messages", hex_list)?);
    let want = case.must("packets", hex_list)?;
    if case.text("name")?.starts_with("countdown_gap") {
        return same("a gap", &got, &Err(FrameError::Gap { want: 4, got: 0 }));
    }
    same("packets", &got, &Ok(want))
}

fn received_unreliable(case: &mut Fields) -> Result<(), Wrong> {
    let messages = case.must("messages", hex_list)?;
    let got: Vec<Bytes> = messages.into_iter().filter_map(frame::unreliable).collect();
    same("packets", &got, &case.must("packets", hex_list)?)
}

fn key(case: &mut Fields) -> Result<(), Wrong> {
    let app_id = id(case, "app_id")?;
    same_bytes("bytes of the id", &app_id.to_le_bytes(), &case.bytes("le_bytes")?)?;
    same("in hexadecimal", &format!("{app_id:#x}"), &case.text("app_id_hex")?)?;
    same_bytes("key", Key::from_app_id(app_id).bytes(), &case.bytes("key")?)
}

fn network_id(case: &mut Fields) -> Result<(), Wrong> {
    let got = NetworkId::parse(&twice(case)?);
    let value = case.maybe("value", |v| v.as_str()?.parse().ok())?;
    let uuid = case.maybe("uuid", |v| v.as_str().map(str::to_owned))?;
    let form = case.text("form")?;
    let want = match (form.as_str(), value, &uuid) {
        ("p2p", Some(id), None) => NetworkId::P2p(id),
        ("realms", None, Some(uuid)) => NetworkId::parse(uuid),
        ("unset", None, None) => NetworkId::Unset,
        _ => return failed("a form that is not understood"),
    };
    same("id", &got, &want)?;
    same("text", &got.to_string(), &case.text("to_string")?)
}

fn signal(case: &mut Fields) -> Result<(), Wrong> {
    let text = twice(case)?;
    let got = Signal::parse(&text).map_err(|error| Wrong(error.to_string()))?;
    same("identifier", &got.body.identifier().to_owned(), &case.text("identifier")?)?;
    same("connection id", &got.connection.0, &id(case, "connection_id")?)?;
    same("data", &got.data(), &case.text("data")?)?;
    same("written", &got.to_string(), &text)
}

fn no_signal(case: &mut Fields) -> Result<(), Wrong> {
    match Signal::parse(&twice(case)?) {
        Ok(signal) => failed(format!("taken as {signal:?}")),
        Err(_) => Ok(()),
    }
}

/// Where the programs differ, the recommendation counts.
fn difference(case: &mut Fields) -> Result<(), Wrong> {
    for who in ["python", "rust", "go", "rust/go", "node", "others"] {
        let _told = case.maybe(who, |v| v.as_str().map(str::to_owned))?;
    }
    let text = case.text("text")?;
    let want = case.text("recommend")?.starts_with("accept");
    same("taken", &Signal::parse(&text).is_ok(), &want)
}

fn server_data(case: &mut Fields) -> Result<(), Wrong> {
    let mut want = case.object("fields")?;
    let plain = ServerData::default();
    let text = |v: &Value| v.as_str().map(str::to_owned);
    let number = |v: &Value| v.as_i64().and_then(|n| i32::try_from(n).ok());
    let want_data = ServerData {
        version: case.number("version")?,
        server_name: want.must("server_name", text)?,
        level_name: want.must("level_name", text)?,
        game_type: want.must("game_type", number)?,
        player_count: want.must("player_count", number)?,
        max_player_count: want.must("max_player_count", number)?,
        editor_world: want.bool("editor_world")?,
        hardcore: want.bool("hardcore")?,
        accepts_online_auth: want.maybe("accepts_online_auth", Value::as_bool)?.unwrap_or(false),
        accepts_self_signed_auth: want.maybe("accepts_self_signed_auth", Value::as_bool)?.unwrap_or(false),
        nonce: want.maybe("nonce", text)?.unwrap_or_default(),
        transport_layer: want.maybe("transport_layer", number)?.unwrap_or(plain.transport_layer),
        connection_type: want.must("connection_type", number)?,
        protocol: want.maybe("protocol", number)?.unwrap_or(0),
        game_version: want.maybe("version", text)?.unwrap_or_default(),
    };
    want.all_read()?;
    let bytes = case.bytes("bytes")?;
    same("read", &ServerData::parse(&bytes), &Ok(want_data.clone()))?;
    let written = want_data.encode().map_err(|error| Wrong(error.to_string()))?;
    same_bytes("written", &written, &bytes)?;
    // Longer ones than fit an answer are among them.
    same_bytes("on the wire", codec::hex(&bytes).as_bytes(), &case.bytes("wire_hex_text")?)
}

fn no_server_data(case: &mut Fields) -> Result<(), Wrong> {
    match ServerData::parse(&case.bytes("bytes")?) {
        Ok(data) => failed(format!("taken as {data:?}")),
        Err(_) => Ok(()),
    }
}
