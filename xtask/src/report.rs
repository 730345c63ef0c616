//! Steps, their counts, and the closing line `N passed, N failed`.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// What passed, what failed and what was skipped so far.
#[derive(Default)]
pub(crate) struct Report {
    passed: u64,
    failed: u64,
    skipped: u64,
    failures: Vec<String>,
}

impl Report {
    /// Counts one check.
    pub(crate) fn check(&mut self, name: &str, result: Result<(), String>) {
        match result {
            Ok(()) => self.passed += 1,
            Err(why) => {
                eprintln!("FAILED {name}: {why}");
                self.failed += 1;
                self.failures.push(name.to_owned());
            }
        }
    }

    /// Says what cannot be run here, and why.
    pub(crate) fn skip(&mut self, name: &str, why: &str) {
        println!("SKIPPED {name}: {why}");
        self.skipped += 1;
    }

    /// Runs a command that counts as one check.
    pub(crate) fn step(&mut self, name: &str, mut command: Command) {
        println!("== {name}");
        let begun = Instant::now();
        let result = match command.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("{command:?} ended with {status}")),
            Err(error) => Err(format!("cannot start {command:?}: {error}")),
        };
        println!("   {name}: {:.0} s", begun.elapsed().as_secs_f32());
        self.check(name, result);
    }

    /// Runs a command that counts its own checks: cargo's `test result:` lines, or a closing `N passed, N failed`.
    pub(crate) fn counted(&mut self, name: &str, mut command: Command) {
        println!("== {name}");
        let begun = Instant::now();
        let mut child = match command.stdout(Stdio::piped()).spawn() {
            Ok(child) => child,
            Err(error) => return self.check(name, Err(format!("cannot start {command:?}: {error}"))),
        };
        let (mut passed, mut failed) = (0, 0);
        if let Some(stdout) = child.stdout.take() {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                println!("{line}");
                let counts = line.strip_prefix("test result:").unwrap_or(&line);
                if let (Some(p), Some(f)) = (number_before(counts, "passed"), number_before(counts, "failed")) {
                    passed += p;
                    failed += f;
                }
                if let (true, Some(s)) = (line.contains("passed"), number_before(counts, "skipped")) {
                    self.skipped += s;
                }
            }
        }
        let status = child.wait();
        println!("   {name}: {:.0} s", begun.elapsed().as_secs_f32());
        self.passed += passed;
        self.failed += failed;
        if failed > 0 {
            self.failures.push(format!("{name}: {failed}"));
        }
        match status {
            Ok(status) if status.success() && passed > 0 => {}
            Ok(_) if failed > 0 => {}
            Ok(status) => self.check(name, Err(format!("{passed} passed, ended with {status}"))),
            Err(error) => self.check(name, Err(error.to_string())),
        }
    }

    /// Prints the closing line.
    pub(crate) fn finish(self) -> ExitCode {
        for failure in &self.failures {
            println!("failed: {failure}");
        }
        match self.skipped {
            0 => println!("{} passed, {} failed", self.passed, self.failed),
            n => println!("{} passed, {} failed, {n} skipped", self.passed, self.failed),
        }
        if self.failed == 0 && self.passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn number_before(line: &str, word: &str) -> Option<u64> {
    let words: Vec<&str> = line.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).collect();
    words.windows(2).find(|pair| pair.last() == Some(&word)).and_then(|pair| pair.first()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_closing_line_are_read() {
        let cargo = "test result: ok. 12 passed; 3 failed; 0 ignored; 0 measured";
        assert_eq!((number_before(cargo, "passed"), number_before(cargo, "failed")), (Some(12), Some(3)));
        assert_eq!(number_before("7 passed, 0 failed, 2 skipped", "skipped"), Some(2));
        assert_eq!(number_before("nothing here", "passed"), None);
    }
}
