//! The machine under the measurement, and what this process takes of it.

use std::time::Duration;

/// The machine's load averages over 1, 5 and 15 minutes; zeros where the system does not say.
#[must_use]
pub fn load() -> [f64; 3] {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut fields = text.split_whitespace().map(|field| field.parse().unwrap_or_default());
    [(); 3].map(|()| fields.next().unwrap_or_default())
}

/// Processor time this process has used so far, in user and kernel together; 0 where the system does not say.
#[must_use]
pub fn cpu_seconds() -> f64 {
    cpu_time().as_secs_f64()
}

/// The same as a duration.
#[cfg(unix)]
pub(crate) fn cpu_time() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec.try_into().unwrap_or_default(), spent.tv_nsec.try_into().unwrap_or_default())
}

#[cfg(not(unix))]
pub(crate) fn cpu_time() -> Duration {
    Duration::ZERO
}

/// Memory this process holds in RAM now, in bytes; 0 where the system does not say.
#[must_use]
pub fn memory() -> u64 {
    status("VmRSS:")
}

/// The most it has held.
#[must_use]
pub fn peak_memory() -> u64 {
    status("VmHWM:")
}

fn status(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default() * 1024
}

/// Processor name, number of processors and load, as the line above a table.
#[must_use]
pub fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info
        .lines()
        .find_map(|line| line.strip_prefix("model name").and_then(|rest| rest.split_once(':')))
        .map_or(std::env::consts::ARCH, |(_, name)| name.trim());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let [one, five, fifteen] = load();
    format!("{name}, {cores} processors, load {one:.2} {five:.2} {fifteen:.2}")
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn processor_time_only_grows_and_memory_is_held() {
        let before = cpu_seconds();
        let work: u64 = (0..3_000_000u64).map(black_box).sum();
        assert!(cpu_seconds() >= before && work > 0);
        assert!(!cfg!(target_os = "linux") || (memory() > 1 << 16 && peak_memory() >= memory() / 2));
    }
}
