//! The netsim file: a few `key=value` lines that make a machine's own sending worse.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

/// Most loss that can be asked for.
const LOSS_MAX: f64 = 0.99;
/// Longest delay or jitter that can be asked for, in seconds.
const SECONDS_MAX: f64 = 60.0;
/// Most bad lines remembered of one file.
const BAD_MAX: usize = 16;
/// Most characters of a bad line quoted.
const QUOTE_MAX: usize = 40;

/// What is done to everything a machine sends.
///
/// Keys: `loss` (share, capped at 0.99), `delay` and `jitter` (seconds, up to 60), and of our own `rate` (bits per
/// second) and `seed` (repeats a run). Blank lines and lines that begin with `#` say nothing.
///
/// ```
/// let bad: anywire_netem::Impairment = "loss=0.05\ndelay=0.100\njitter=0.020\n".parse().unwrap();
/// assert_eq!(bad.to_string(), "loss 5%, delay 100 ms +20 ms jitter");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Impairment {
    /// Share of datagrams dropped, 0 to 0.99.
    pub loss: f64,
    /// Time every datagram is held.
    pub delay: Duration,
    /// Up to this much more, drawn anew for every datagram, so that they overtake each other.
    pub jitter: Duration,
    /// Bits per second, when limited.
    pub rate: Option<u64>,
    /// Seed of the chance involved, when a run is to be repeated.
    pub seed: Option<u64>,
}

/// A line of a netsim file that cannot be used: what and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: '{text}': {why}")]
#[non_exhaustive]
pub struct BadLine {
    /// Counted from 1.
    pub line: usize,
    /// The line's beginning.
    pub text: String,
    /// What is wrong with it.
    pub why: &'static str,
}

impl Impairment {
    /// Reads a netsim file. A bad line is reported (the first 16 are) and changes nothing; the others count.
    #[must_use]
    pub fn read(text: &str) -> (Self, Vec<BadLine>) {
        let mut out = Self::default();
        let mut bad = Vec::new();
        for (index, line) in text.lines().enumerate() {
            if let Err(why) = out.line(line.trim())
                && bad.len() < BAD_MAX
            {
                bad.push(BadLine { line: index + 1, text: line.trim().chars().take(QUOTE_MAX).collect(), why });
            }
        }
        (out, bad)
    }

    /// Whether it does nothing at all.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.loss <= 0.0 && self.delay.is_zero() && self.jitter.is_zero() && self.rate.is_none()
    }

    fn line(&mut self, line: &str) -> Result<(), &'static str> {
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let (key, value) = line.split_once('=').ok_or("no '=' in it")?;
        let value = value.trim();
        match key.trim().to_ascii_lowercase().as_str() {
            "loss" => self.loss = number(value)?.min(LOSS_MAX),
            "delay" => self.delay = seconds(value)?,
            "jitter" => self.jitter = seconds(value)?,
            "rate" => match value.parse() {
                Ok(0) | Err(_) => return Err("a rate is a whole number of bits per second above 0"),
                Ok(rate) => self.rate = Some(rate),
            },
            "seed" => self.seed = Some(value.parse().map_err(|_| "a seed is a whole number")?),
            _ => return Err("the keys are loss, delay, jitter, rate and seed"),
        }
        Ok(())
    }
}

impl FromStr for Impairment {
    type Err = BadLine;

    /// Like [`Impairment::read`], but any bad line refuses the whole.
    fn from_str(text: &str) -> Result<Self, BadLine> {
        let (out, bad) = Self::read(text);
        bad.into_iter().next().map_or(Ok(out), Err)
    }
}

impl fmt::Display for Impairment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = (self.loss * 10_000.0).round() / 100.0;
        let millis = |time: Duration| (time.as_secs_f64() * 10_000.0).round() / 10.0;
        write!(f, "loss {percent}%, delay {} ms +{} ms jitter", millis(self.delay), millis(self.jitter))?;
        if let Some(rate) = self.rate {
            write!(f, ", rate {} kbit/s", rate.div_ceil(1000))?;
        }
        if let Some(seed) = self.seed {
            write!(f, ", seed {seed}")?;
        }
        Ok(())
    }
}

fn number(text: &str) -> Result<f64, &'static str> {
    let number: f64 = text.parse().map_err(|_| "not a number")?;
    if number.is_finite() && number >= 0.0 { Ok(number) } else { Err("a number from 0 up is wanted") }
}

fn seconds(text: &str) -> Result<Duration, &'static str> {
    let number = number(text)?;
    if number > SECONDS_MAX {
        return Err("seconds are wanted, 60 at most");
    }
    Duration::try_from_secs_f64(number).map_err(|_| "not a time in seconds")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_the_old_program_reads_the_same() {
        let (got, bad) = Impairment::read("loss=0.05\r\ndelay=0.100\r\njitter=0.020\r\n");
        assert_eq!(bad, []);
        assert_eq!((got.loss, got.delay.as_millis(), got.jitter.as_millis()), (0.05, 100, 20));
        assert_eq!((got.rate, got.seed), (None, None));
    }

    #[test]
    fn display_is_the_line_the_old_program_logs() {
        for (text, want) in [
            ("loss=0.05\ndelay=0.1\njitter=0.02", "loss 5%, delay 100 ms +20 ms jitter"),
            ("loss=0.025", "loss 2.5%, delay 0 ms +0 ms jitter"),
            ("rate=2000000\nseed=7", "loss 0%, delay 0 ms +0 ms jitter, rate 2000 kbit/s, seed 7"),
        ] {
            assert_eq!(text.parse::<Impairment>().unwrap().to_string(), want);
        }
    }

    #[test]
    fn loss_is_capped_so_that_something_always_arrives() {
        assert_eq!("loss=1".parse::<Impairment>().unwrap().loss, 0.99);
        assert_eq!("loss=250".parse::<Impairment>().unwrap().loss, 0.99);
    }

    #[test]
    fn a_bad_line_says_what_and_where_and_the_others_count() {
        let (got, bad) =
            Impairment::read("# a comment\n\nloss = 0.5\nloss: 0.9\ndelay=-1\njitter=NaN\nspeed=9\nrate=0");
        assert_eq!(got.loss, 0.5);
        let said: Vec<String> = bad.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "line 4: 'loss: 0.9': no '=' in it",
                "line 5: 'delay=-1': a number from 0 up is wanted",
                "line 6: 'jitter=NaN': a number from 0 up is wanted",
                "line 7: 'speed=9': the keys are loss, delay, jitter, rate and seed",
                "line 8: 'rate=0': a rate is a whole number of bits per second above 0",
            ]
        );
        assert_eq!("loss=0.5\ndelay=soon".parse::<Impairment>().unwrap_err().line, 2);
    }

    #[test]
    fn a_delay_in_milliseconds_by_mistake_is_reported_not_obeyed() {
        let (got, bad) = Impairment::read("delay=100");
        assert_eq!((got.delay, bad.len()), (Duration::ZERO, 1));
    }

    #[test]
    fn a_hostile_file_is_remembered_in_part() {
        let (_, bad) = Impairment::read(&"x".repeat(100).lines().cycle().take(500).collect::<Vec<_>>().join("\n"));
        assert_eq!((bad.len(), bad[0].text.len()), (BAD_MAX, QUOTE_MAX));
    }

    #[test]
    fn nothing_asked_for_is_nothing_done() {
        assert!("seed=4".parse::<Impairment>().unwrap().is_none());
        assert!(!"jitter=0.01".parse::<Impairment>().unwrap().is_none());
    }
}
