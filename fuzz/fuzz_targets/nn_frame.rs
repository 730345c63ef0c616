//! NetherNet fragments: what a peer sends, and what we send under what a peer announces.

#![no_main]

use anywire_fuzz::Script;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use nethernet::frame::{Channel, FRAGMENTS_MAX, Framing, Reassembly, unreliable};

fuzz_target!(|input: &[u8]| {
    let mut script = Script::new(input);
    let max = usize::from(script.u16());
    let mut reassembly = Reassembly::new(max);
    let mut held = 0;
    for _ in 0..256 {
        let message = Bytes::copy_from_slice(script.short());
        held += message.len();
        match reassembly.push(message.clone()) {
            Ok(Some(packet)) => {
                assert!(packet.len() <= max.min(held), "a packet out of nothing");
                held = 0;
            }
            Ok(None) => {}
            Err(_) => held = 0,
        }
        assert!(reassembly.held() <= max.min(held), "holds more than it was given");
        assert_eq!(unreliable(message.clone()).map(|packet| packet.len() + 1).unwrap_or(0), message.len());
    }
    sent(&mut Script::new(input));
});

fn sent(script: &mut Script<'_>) {
    let announced = script.flag().then(|| u64::from(script.byte()));
    let Ok(framing) = Framing::announced(announced) else {
        assert_eq!(announced, Some(1));
        return;
    };
    let packet = Bytes::copy_from_slice(script.bytes());
    for channel in [Channel::Reliable, Channel::Unreliable] {
        let admitted = framing.admit(channel, packet.len());
        let mut reassembly = Reassembly::default();
        let mut back = None;
        let mut count = 0;
        for (header, part) in framing.fragments(channel, packet.clone()) {
            count += 1;
            assert!(part.len() <= framing.payload());
            assert!(announced.is_none_or(|most| most == 0 || u64::try_from(part.len()).unwrap_or(0) < most));
            back = reassembly.push([&[header][..], &part].concat().into()).unwrap_or_default();
        }
        assert!(count <= FRAGMENTS_MAX);
        match admitted {
            Ok(want) => assert_eq!((count, back.as_ref()), (want, Some(&packet))),
            Err(_) => assert!(packet.is_empty() || count == 0, "sent what is refused"),
        }
    }
}
