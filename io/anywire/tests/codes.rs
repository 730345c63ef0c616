//! Codes at the front door.

use anywire::{JoinOptions, LobbyTransport, Transport};

#[test]
fn a_code_that_does_not_read_is_refused_at_once_with_the_place() {
    let wire = LobbyTransport { stun: Vec::new(), ..LobbyTransport::default() };
    let options = JoinOptions { name: "x".into(), address: "ABC1DEF".into(), ..JoinOptions::default() };
    let error = wire.join(&options).err().map(|error| error.to_string());
    assert!(error.as_ref().is_some_and(|error| error.contains('4')), "1 is no character of a code: {error:?}");
}
