//! Every kind of router, every pair of kinds and every feature of the topology language, measured from the outside.

#![cfg(target_os = "linux")]

#[test]
fn every_kind_behaves_as_named() {
    if !natlab::ready("natlab's self-test") {
        return;
    }
    assert_eq!(natlab::selftest(true), Ok(true), "what failed stands in the report above");
}
