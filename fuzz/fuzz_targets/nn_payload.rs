//! What hosts of NetherNet tell about themselves.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nethernet::packet::application_data;
use nethernet::server_data::ServerData;

fuzz_target!(|input: &[u8]| {
    for bytes in [input, &application_data(input)] {
        let Ok(data) = ServerData::parse(bytes) else { continue };
        let Ok(written) = data.encode() else { unreachable!("what was read cannot be written: {data:?}") };
        assert_eq!(ServerData::parse(&written), Ok(data));
    }
});
