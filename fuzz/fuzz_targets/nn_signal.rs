//! NetherNet signalling texts and ids.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nethernet::{Body, NetworkId, Signal};

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else {
        assert!(Signal::parse_bytes(input).is_err(), "a signal that is no text");
        return;
    };
    let id = NetworkId::parse(text);
    assert_eq!(NetworkId::parse(&id.to_string()), id);
    if let Ok(id) = NetworkId::from_text(text) {
        assert_ne!(id, NetworkId::Unset);
        assert_eq!(id.to_string().parse::<NetworkId>(), Ok(id));
    }
    let Ok(signal) = Signal::parse(text) else { return };
    assert_eq!(Signal::parse_bytes(input), Ok(signal));
    let written = signal.to_string();
    assert_eq!(Signal::parse(&written), Ok(signal));
    if !matches!(signal.body, Body::ConnectError(_)) {
        assert!(written.ends_with(&signal.data()), "data changed");
    }
});
