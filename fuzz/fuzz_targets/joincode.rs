//! Join codes: what a person may paste, and what is behind the letters.

#![no_main]

use joincode::{Code, CodeError, LockKey, Profile};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    let cleaned = joincode::clean(&text);
    assert_eq!(joincode::clean(&cleaned), cleaned, "cleaning twice changes more");
    let strict = joincode::parse(&text);
    if let Ok(code) = &strict {
        holds(code);
    }
    let read = joincode::read(&text);
    if let Err(error) = &read {
        within(error, &text);
    }
    // Short enough to be looked at, the repaired text says the same as the pasted one, positions aside.
    if text.chars().count() <= joincode::TEXT_MAX {
        assert_eq!(joincode::parse(&cleaned).ok(), read.clone().ok());
    }
    // The bytes behind the letters, without the letters in the way.
    if let Ok(code) = Code::from_bytes(input) {
        holds(&code);
    }
});

/// A code that was read is written so that it reads the same.
fn holds(code: &Code) {
    match code {
        Code::Plain(profile) => {
            let back = joincode::parse(&profile.encode());
            assert_eq!(back, Ok(Code::Plain(profile.clone())));
            assert!(profile.to_bytes().len() <= 67);
            relock(profile);
            let order = joincode::dial_order(profile, profile.public);
            assert!(order.iter().all(|address| address.port() != 0 || order.len() <= 4));
        }
        Code::Locked(locked) => {
            let key = LockKey::from_bytes([7; 32]);
            // Nobody's password: a tag that fits by chance is not to be expected.
            assert_eq!(locked.open(&key), Err(CodeError::WrongPassword));
        }
        Code::Steam(id) => {
            assert!(id.to_string().starts_with("76561"));
            assert_eq!(joincode::parse(&id.to_string()), Ok(code.clone()));
        }
    }
}

fn relock(profile: &Profile) {
    let key = LockKey::from_bytes([9; 32]);
    let Ok(Code::Locked(locked)) = joincode::parse(&profile.lock(&key)) else { panic!("a locked code reads as none") };
    assert_eq!(locked.timestamp(), profile.timestamp);
    assert_eq!(locked.open(&key).as_ref(), Ok(profile));
}

fn within(error: &CodeError, text: &str) {
    assert!(!error.to_string().is_empty());
    if let CodeError::IllegalCharacter { position, character } = error {
        let there = text.chars().nth(position - 1).map(|c| c.to_ascii_uppercase());
        assert_eq!(there, Some(character.to_ascii_uppercase()), "the error points elsewhere");
    }
}
