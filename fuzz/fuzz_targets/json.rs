//! JSON in and out: what is read, written and read again is the same, in the byte form of old peers.

#![no_main]

use codec::{Map, Value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    let quoted = codec::to_json(&text);
    assert!(quoted.is_ascii(), "old peers write ASCII");
    let wrapped = [b"{\"k\": ", quoted.as_slice(), b"}"].concat();
    let back = codec::object(&wrapped).expect("a text in an object");
    assert_eq!(back.get("k").and_then(Value::as_str), Some(&*text));
    assert_eq!(codec::to_json(&back), wrapped, "every object has one form");
    if let Ok(map) = codec::object(input) {
        let written = codec::to_json(&map);
        assert!(written.is_ascii() && written.starts_with(b"{") && written.ends_with(b"}"));
        let again = codec::object(&written).expect("what is written is read");
        assert!(same(&Value::Object(again.clone()), &Value::Object(map.clone())), "{again:?}\n{map:?}");
        keys(&again, &map);
    }
});

/// Equal, fractions up to their last digit: nobody's messages hold any.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) if x.is_f64() && y.is_f64() => {
            let (x, y) = (x.as_f64().unwrap_or(0.0), y.as_f64().unwrap_or(0.0));
            (x - y).abs() <= x.abs() * 1e-14 || x == y
        }
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same(x, y)),
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().all(|(key, x)| y.get(key).is_some_and(|y| same(x, y)))
        }
        _ => a == b,
    }
}

/// The order of keys is kept.
fn keys(a: &Map<String, Value>, b: &Map<String, Value>) {
    assert!(a.keys().eq(b.keys()), "keys changed places");
}
