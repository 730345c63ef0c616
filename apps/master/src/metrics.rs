//! `/metrics` in the text form of Prometheus.

use std::fmt::Write;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::app::App;
use crate::lock;

const BUCKETS: [(u64, &str); 8] = [
    (500, "0.0005"),
    (1_000, "0.001"),
    (5_000, "0.005"),
    (10_000, "0.01"),
    (50_000, "0.05"),
    (250_000, "0.25"),
    (1_000_000, "1"),
    (30_000_000, "30"),
];

/// What the shell counts.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    pub(crate) connections: AtomicI64,
    pub(crate) turned_away: AtomicU64,
    buckets: [AtomicU64; BUCKETS.len()],
    count: AtomicU64,
    micros: AtomicU64,
}

impl Gauges {
    /// A request was answered. Held polls count with the time they were held.
    pub(crate) fn took(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        for (bucket, (bound, _)) in self.buckets.iter().zip(BUCKETS) {
            if micros <= bound {
                bucket.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }
}

pub(crate) fn write(app: &App) -> String {
    let mut out = String::with_capacity(4096);
    let mut one = |name: &str, kind: &str, help: &str, values: &[(String, f64)]| {
        let _ = writeln!(out, "# HELP anywire_master_{name} {help}\n# TYPE anywire_master_{name} {kind}");
        for (labels, value) in values {
            let _ = writeln!(out, "anywire_master_{name}{labels} {value}");
        }
    };
    #[allow(clippy::cast_precision_loss, reason = "Prometheus counts in floats")]
    let float = |n: u64| n as f64;
    let size = |n: usize| float(u64::try_from(n).unwrap_or(u64::MAX));
    let bare = |value: f64| vec![(String::new(), value)];
    let counts = lock(&app.server).counts().clone();
    let counts =
        counts.iter().map(|((name, status), n)| (format!("{{endpoint=\"{name}\",status=\"{status}\"}}"), float(*n)));
    one("requests_total", "counter", "Answers by endpoint and status.", &counts.collect::<Vec<_>>());
    let open = app.gauges.connections.load(Ordering::Relaxed).max(0).unsigned_abs();
    one("connections", "gauge", "Open HTTP connections.", &bare(float(open)));
    let away = app.gauges.turned_away.load(Ordering::Relaxed);
    one("connections_refused_total", "counter", "Connections over the limit of an address.", &bare(float(away)));
    one("held_polls", "gauge", "Polls held open.", &bare(size(app.waiters.len())));
    if let Some((rows, tags)) = app.store.len() {
        one("rows", "gauge", "Rows in the list.", &bare(size(rows)));
        one("tags", "gauge", "Tags with notes.", &bare(size(tags)));
    }
    if let Some(relay) = &app.relay {
        let ((sessions, ports), stats) = {
            let table = lock(&relay.table);
            (table.len(), table.stats())
        };
        one("relay_sessions", "gauge", "Relay sessions.", &bare(size(sessions)));
        one("relay_ports", "gauge", "Relay ports for old peers in use.", &bare(size(ports)));
        one("relay_streams", "gauge", "Players without UDP.", &bare(size(relay.streams())));
        one("relay_datagrams_total", "counter", "Datagrams forwarded.", &bare(float(stats.forwarded)));
        one("relay_bytes_total", "counter", "Bytes forwarded.", &bare(float(stats.bytes)));
        let dropped = [("stranger", stats.strangers), ("unmet", stats.unmet), ("rate", stats.over_rate)];
        let dropped = dropped.map(|(why, n)| (format!("{{why=\"{why}\"}}"), float(n)));
        one("relay_dropped_total", "counter", "Datagrams not forwarded.", &dropped);
    }
    let (waiting, pairs) = app.pipes.len();
    one("pipe_waiting", "gauge", "Pipe connections without their other end.", &bare(size(waiting)));
    one("pipe_pairs", "gauge", "Joined pipe connections.", &bare(size(pairs)));
    one(
        "pipe_bytes_total",
        "counter",
        "Bytes carried by the pipe.",
        &bare(float(app.pipes.carried.load(Ordering::Relaxed))),
    );
    let _ = writeln!(
        out,
        "# HELP anywire_master_request_seconds Time to answer.\n# TYPE anywire_master_request_seconds histogram"
    );
    for (bucket, (_, bound)) in app.gauges.buckets.iter().zip(BUCKETS) {
        let _ =
            writeln!(out, "anywire_master_request_seconds_bucket{{le=\"{bound}\"}} {}", bucket.load(Ordering::Relaxed));
    }
    let count = app.gauges.count.load(Ordering::Relaxed);
    let sum = float(app.gauges.micros.load(Ordering::Relaxed)) / 1e6;
    let _ = writeln!(
        out,
        "anywire_master_request_seconds_bucket{{le=\"+Inf\"}} {count}\nanywire_master_request_seconds_sum {sum}\nanywire_master_request_seconds_count {count}"
    );
    out
}
