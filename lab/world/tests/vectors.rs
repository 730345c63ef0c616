//! Every vector in the tree against our rooms, and the runner against vectors that are wrong.

use std::path::{Path, PathBuf};

use anywire_world::vectors::{Report, run};

const NETHERNET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../vectors/nethernet");
const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../vectors/netpunch");

#[test]
fn our_rooms_agree_with_every_vector_of_a_built_room() {
    let report = run(Path::new(VECTORS));
    assert_eq!(report.failed, Vec::<String>::new());
    assert_eq!(report.skipped, ["dh: not built yet (11 vectors)"]);
    assert_eq!(report.passed, 215 - 11);
    assert_eq!(report.to_string(), "204 passed, 0 failed, 1 skipped");
}

#[test]
fn nethernet_agrees_with_every_case_of_every_table() {
    let report = run(Path::new(NETHERNET));
    assert_eq!(report.failed, Vec::<String>::new());
    assert_eq!(report.to_string(), "244 passed, 0 failed");
}

#[test]
fn the_files_of_one_group_can_be_run_alone() {
    let report = run(&Path::new(VECTORS).join("stun"));
    assert_eq!(report.to_string(), "3 passed, 0 failed");
}

/// One vector in a folder of its own.
fn run_one(test: &str, group: &str, text: &str) -> Report {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = std::fs::remove_dir_all(&dir);
    let written =
        std::fs::create_dir_all(dir.join(group)).and_then(|()| std::fs::write(dir.join(group).join("one.json"), text));
    assert!(written.is_ok(), "{written:?}");
    run(&dir)
}

#[test]
fn a_vector_our_rooms_do_not_agree_with_fails() {
    let report = run_one(
        "disagree",
        "rule",
        r#"{"name": "rule/x", "inputs": {"text": "peer 203.0.113.47"}, "expect": {"text": "peer 203.0.113.47"}}"#,
    );
    assert_eq!(report.failed, [r#"rule/one: text: got "peer 203.0.113.x", want "peer 203.0.113.47""#]);
    assert_eq!(report.to_string(), "0 passed, 1 failed");
}

#[test]
fn a_field_nobody_reads_fails_the_vector() {
    for (part, text) in [
        ("inputs.more", r#"{"inputs": {"text": "x", "more": 1}, "expect": {"text": "x"}}"#),
        ("expect.more", r#"{"inputs": {"text": "x"}, "expect": {"text": "x", "more": 1}}"#),
        ("more", r#"{"inputs": {"text": "x"}, "expect": {"text": "x"}, "more": 1}"#),
    ] {
        let report = run_one("unread", "rule", text);
        assert_eq!(report.failed, [format!("rule/one: `{part}` is not understood")]);
    }
}

#[test]
fn what_is_to_be_refused_and_is_taken_fails() {
    let text = r#"{"inputs": {"code": "ABVLCO4A", "password": null}, "expect": {"error": "malformed"}}"#;
    assert_eq!(run_one("taken", "code", text).failed, ["code/one: taken, though it is to be refused"]);
}

#[test]
fn a_refusal_for_another_reason_fails() {
    let text = r#"{"inputs": {"code": "ABV1CO4A", "password": null}, "expect": {"error": "wrong-password"}}"#;
    let report = run_one("reason", "code", text);
    assert_eq!(
        report.failed,
        [r#"code/one: refused as IllegalCharacter { position: 4, character: '1' }, want "wrong-password""#]
    );
}

#[test]
fn unknown_groups_broken_files_and_empty_folders_fail() {
    let known = r#"{"inputs": {}, "expect": {}}"#;
    assert_eq!(run_one("group", "tea", known).failed, ["tea/one: nobody knows this group"]);
    assert_eq!(run_one("broken", "code", "{").failed, ["code/one: not JSON"]);
    assert_eq!(run_one("bare", "rule", known).failed, ["rule/one: nobody knows this rule"]);
    let nowhere = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nowhere");
    assert_eq!(run(&nowhere).failed.len(), 1);
    let empty = Path::new(env!("CARGO_TARGET_TMPDIR")).join("empty");
    assert!(std::fs::create_dir_all(&empty).is_ok());
    assert_eq!(run(&empty).failed.len(), 1);
}
