//! The pages that name tests: each `name` (file) has to be a test of that file, so that a page cannot rot.

use std::path::Path;

use crate::report::Report;
use crate::root;

const PAGES: &[&str] = &["docs/decisions.md"];
/// A page that names fewer than this was not read right.
const FEWEST: usize = 50;

/// Checks every page.
pub(crate) fn check(report: &mut Report) {
    for page in PAGES {
        let result = std::fs::read_to_string(root().join(page))
            .map_err(|error| error.to_string())
            .and_then(|text| unknown(&text, &root()));
        report.check(&format!("tests named in {page}"), result);
    }
}

fn unknown(page: &str, root: &Path) -> Result<(), String> {
    let named: Vec<(&str, &str)> = page.lines().flat_map(named).collect();
    let missing: Vec<String> = named
        .iter()
        .filter(|(test, file)| {
            let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
            !text.contains(&format!("fn {test}("))
        })
        .map(|(test, file)| format!("{test} is not in {file}"))
        .collect();
    if named.len() < FEWEST {
        return Err(format!("only {} tests are named", named.len()));
    }
    if missing.is_empty() { Ok(()) } else { Err(missing.join("\n  ")) }
}

/// The tests a line names, as "`name` (file.rs)".
fn named(line: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices("` (") {
        let (Some(before), Some(after)) = (line.get(..at), line.get(at + 3..)) else { continue };
        let name = before.rsplit('`').next().unwrap_or_default();
        let file = after.split(')').next().unwrap_or_default();
        if file.ends_with(".rs") && !name.is_empty() {
            found.push((name, file));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_other_parentheses_are_not() {
        let line = "| 7 | a `word` (not a file), `one_test` (a/b.rs), `other` (c.rs); `crate` (bench) |";
        assert_eq!(named(line), [("one_test", "a/b.rs"), ("other", "c.rs")]);
    }

    #[test]
    fn a_page_that_names_nothing_or_a_test_that_is_gone_fails() {
        assert_eq!(unknown("nothing", &root()), Err("only 0 tests are named".to_owned()));
        let page = "`no_such_test` (xtask/src/pages.rs)\n".repeat(FEWEST);
        assert!(unknown(&page, &root()).is_err_and(|why| why.starts_with("no_such_test is not in xtask/src/pages.rs")));
    }
}
