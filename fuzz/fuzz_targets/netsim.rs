//! The netsim file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use netem::Impairment;

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    let (got, bad) = Impairment::read(&text);
    assert!((0.0..=0.99).contains(&got.loss), "loss {}", got.loss);
    assert!(got.delay.as_secs_f64() <= 60.0 && got.jitter.as_secs_f64() <= 60.0);
    assert!(got.rate != Some(0) && bad.len() <= 16);
    let lines = text.lines().count();
    for line in &bad {
        assert!((1..=lines).contains(&line.line) && line.text.chars().count() <= 40 && !line.why.is_empty());
    }
    let strict: Result<Impairment, _> = text.parse();
    match bad.into_iter().next() {
        None => assert_eq!(strict, Ok(got)),
        Some(first) => assert_eq!(strict, Err(first)),
    }
    assert!(!got.to_string().is_empty());
    // What was read can be written so that it reads the same.
    let mut again = format!("loss={}\ndelay={}\njitter={}\n", got.loss, secs(got.delay), secs(got.jitter));
    got.rate.iter().for_each(|rate| again.push_str(&format!("rate={rate}\n")));
    got.seed.iter().for_each(|seed| again.push_str(&format!("seed={seed}\n")));
    assert_eq!(again.parse(), Ok(got));
});

fn secs(time: std::time::Duration) -> String {
    format!("{}.{:09}", time.as_secs(), time.subsec_nanos())
}
