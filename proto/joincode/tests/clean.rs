//! What a person pastes and what is made of it.

use anywire_joincode::{Code, CodeError, clean, parse, read};

const GOOD: &str = "TFVLCO4AYCUACFDTD7DDGZCNOMPQAAICAMCAKBQHBAEQUCY";
const STEAM: &str = "https://steamcommunity.com/profiles/76561198012345678";

#[test]
fn what_a_chat_adds_to_a_code_is_taken_away() {
    let lower = GOOD.to_lowercase();
    let (head, tail) = GOOD.split_at(20);
    for pasted in [
        format!("  {GOOD}\r\n"),
        lower.clone(),
        format!("{head}\n  {tail}"),
        format!("{head}\u{A0}{tail}"),
        format!("{head}\u{200B}\u{AD}{tail}\u{FEFF}"),
        format!("\"{GOOD}\""),
        format!("'{lower}'."),
        format!("\u{201C}{GOOD}\u{201D},"),
        format!("\u{AB} {GOOD} \u{BB}"),
        format!("`{GOOD}`"),
        format!("```\n{GOOD}\n```"),
        format!("**{GOOD}**;"),
        format!("<{GOOD}>"),
        format!("({GOOD})."),
        format!("[{GOOD}]!"),
        format!("CODE={GOOD}"),
        format!("code: {GOOD}."),
        format!("Code : \"{lower}\""),
        format!("> CODE = `{GOOD}`"),
        format!("\"CODE={GOOD}\""),
    ] {
        assert_eq!(clean(&pasted), GOOD, "{pasted:?}");
        assert_eq!(read(&pasted), parse(GOOD), "{pasted:?}");
    }
}

#[test]
fn a_steam_profile_stays_usable() {
    for pasted in [
        STEAM.to_owned(),
        format!("<{STEAM}/>."),
        format!("code: {STEAM}"),
        format!("{STEAM}/?l=english"),
        format!("{STEAM}/games#top"),
        "www.steamcommunity.com/profiles/76561198012345678/".to_owned(),
        "HTTP://SteamCommunity.com/Profiles/7656119801\n2345678".to_owned(),
    ] {
        assert_eq!(clean(&pasted), STEAM, "{pasted:?}");
        assert_eq!(read(&pasted), Ok(Code::Steam(76_561_198_012_345_678)), "{pasted:?}");
    }
    assert_eq!(clean("\"7656119 8012345678\","), "76561198012345678");
}

#[test]
fn what_is_wrong_beyond_its_journey_stays_wrong() {
    for pasted in ["ABVL-CO4A", "ABVLCO4\u{FF21}", "here is my code: ABVLCO4A", "ABVLCO4A ABVLCO4A?x"] {
        assert!(matches!(read(pasted), Err(CodeError::IllegalCharacter { .. })), "{pasted:?}");
    }
}

#[test]
fn a_label_alone_is_an_empty_code_and_a_word_alone_no_label() {
    assert_eq!(read("CODE="), Err(CodeError::Empty));
    assert_eq!(clean("codeword"), "CODEWORD");
}

#[test]
fn repairing_twice_changes_nothing_more() {
    let torn = ["co de = abvl co4a", "code: co\nde: abvlco4a", "steamcommunity.com/profiles/7656119:/x"];
    for pasted in torn.into_iter().chain([GOOD, STEAM, "> Code: `abvl co4a`.\n", "\u{201C}(a b)\u{201D}!?"]) {
        let once = clean(pasted);
        assert_eq!(clean(&once), once);
    }
}

#[test]
fn the_command_that_a_code_was_shown_in_is_left_out() {
    for pasted in
        ["anywire join ABVLCO4A", " Anywire  join\nabvlco4a ", "netpunch join 'ABVLCO4A'", "`anywire join ABVLCO4A`"]
    {
        assert_eq!(clean(pasted), "ABVLCO4A", "{pasted}");
    }
    assert_eq!(clean("anywire join"), "");
}
