//! The file of commands: what a game wrote is understood or named, wherever the reader's looks cut it.

#![no_main]

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use anywire_fuzz::Script;
use ipc::inbox::{Asked, Inbox};
use libfuzzer_sys::fuzz_target;
use session::Command;

// The program is no library, and this reader of it needs nothing else of it.
#[allow(dead_code, reason = "the target needs a part")]
#[path = "../../apps/cli/src/ipc"]
mod ipc {
    pub(crate) mod files;
    pub(crate) mod inbox;
}

/// A folder of this process, in memory where there is one.
fn folder() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    base.join(format!("anywire-fuzz-{}", std::process::id()))
}

/// What is asked when `text` is appended in these pieces, with a look after each.
fn asked<'a>(folder: &Path, pieces: impl Iterator<Item = &'a [u8]>) -> Vec<Asked> {
    let mut inbox = Inbox::create(folder).expect("an empty file");
    let mut file = OpenOptions::new().append(true).open(folder.join("lobby_in.jsonl")).expect("the file");
    let mut all = inbox.poll();
    for piece in pieces {
        file.write_all(piece).expect("room");
        all.extend(inbox.poll());
    }
    all
}

fuzz_target!(|input: &[u8]| {
    let mut script = Script::new(input);
    let (size, text) = (1 + script.below(255), input.get(1..).unwrap_or_default());
    let folder = folder();
    std::fs::create_dir_all(&folder).expect("a folder");
    let once = asked(&folder, std::iter::once(text));
    assert_eq!(asked(&folder, text.chunks(size)), once, "the cuts matter");
    std::fs::remove_dir_all(&folder).expect("nobody else's");
    let lines = text.iter().filter(|byte| **byte == b'\n').count();
    assert!(once.len() <= lines, "half a line counts");
    for one in once {
        match one {
            Asked::Session(Command::Start { save, .. }) => assert!(!save),
            Asked::Session(Command::Frame(_) | Command::Kick { .. }) => panic!("a game cannot ask for that here"),
            Asked::NotYet(word) => assert!(word.chars().count() <= 40),
            Asked::Bad(why) => assert!(!why.is_empty()),
            _ => {}
        }
    }
});
