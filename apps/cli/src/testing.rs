//! What tests of several modules share.

use std::path::{Path, PathBuf};

use lobby::Roster;

/// A folder of its own for one test, removed afterwards.
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("anywire-test-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A lobby called Tuesday with these players; the first is its host.
pub(crate) fn roster(you: &str, names: &[&str]) -> Roster {
    let mut roster = Roster {
        you: you.to_owned(),
        host: names.first().copied().unwrap_or_default().to_owned(),
        lobby: "Tuesday".to_owned(),
        stored_age: -1,
        stored_max: -1,
        ..Roster::default()
    };
    for (n, name) in names.iter().enumerate() {
        let letter = char::from(b'a' + u8::try_from(n % 26).unwrap()).to_string();
        let player = lobby::Player { letter, company: 1, ..lobby::Player::default() };
        roster.players.insert((*name).to_owned(), player);
    }
    roster
}
