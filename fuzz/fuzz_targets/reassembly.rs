//! Long messages from several addresses at once, whole, torn, repeated and hostile.

#![no_main]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anywire_fuzz::{Script, member};
use libfuzzer_sys::fuzz_target;
use np1::{Bounds, Fragment, Reassembly};
use seam::{Path, Refused};

/// Everything pushed for one message since it was last whole: a message that comes out is made of these.
type Pushed = BTreeMap<(Path, u32), Vec<(u32, u32, Vec<u8>)>>;

fuzz_target!(|input: &[u8]| {
    let mut script = Script::new(input);
    let bounds = Bounds {
        open_per_address: 1 + script.below(4),
        bytes_per_address: 2_048,
        bytes_total: 5_000,
        lifetime: Duration::from_secs(15),
    };
    let mut now = Instant::now();
    let mut table = Reassembly::new(bounds);
    let mut pushed = Pushed::new();
    while let Some(kind) = script.next_move() {
        match kind % 8 {
            0 => now += script.step(),
            1 => {
                table.handle_timeout(now);
                let due = table.poll_timeout();
                assert!(due.is_none_or(|(at, _)| at > now), "a message outlives its time");
            }
            2 => {
                let path = member(script.below(5));
                table.forget(path);
                pushed.retain(|(owner, _), _| *owner != path);
            }
            _ => push(&mut table, now, &mut pushed, &mut script),
        }
        assert!(table.held() <= bounds.bytes_total, "{} bytes held", table.held());
        assert_eq!(table.held() == 0, table.poll_timeout().is_none());
    }
    now += bounds.lifetime;
    table.handle_timeout(now);
    assert_eq!(table.held(), 0, "something stays for ever");
});

fn push(table: &mut Reassembly, now: Instant, pushed: &mut Pushed, script: &mut Script<'_>) {
    let path = member(script.below(5));
    let id = u32::from(script.byte() % 8);
    let count = match script.byte() {
        255 => script.u32(),
        n => u32::from(n % 6),
    };
    let index = u32::from(script.byte() % 8);
    let length = usize::from(script.u16()) % 3_000;
    let data = vec![script.byte(); length];
    let piece = Fragment { id, index, count, data: &data };
    let out = table.push(now, path, &piece);
    if index >= count || count > np1::FRAGMENTS_MAX {
        assert_eq!(out, Err(Refused::Malformed));
        return;
    }
    let all = pushed.entry((path, id)).or_default();
    all.push((count, index, data));
    let Ok(Some(whole)) = out else { return };
    // The pieces may be of any push, but there is one for each place, they are of one count, and the last is this one.
    assert!(covers(all, count, 0, &whole), "a message of pieces nobody sent");
    pushed.remove(&(path, id));
}

/// Whether `whole` is one piece of each place from `index` on.
fn covers(all: &[(u32, u32, Vec<u8>)], count: u32, index: u32, whole: &[u8]) -> bool {
    if index == count {
        return whole.is_empty();
    }
    let here = all.iter().filter(|(c, i, _)| (*c, *i) == (count, index));
    here.filter_map(|(_, _, data)| whole.strip_prefix(data.as_slice()))
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .any(|rest| covers(all, count, index + 1, rest))
}
