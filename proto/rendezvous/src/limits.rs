//! Every bound of the master, with the values of netpunch wire, sections 16 and 23, as defaults.

use std::time::Duration;

/// How much of everything a master keeps and allows. All bounds hold per process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most rows in the list; one more is refused with 503 `full`, unless its network holds fewer rows than another's.
    pub rows: usize,
    /// Seconds a row lives after its last announce.
    pub row_ttl: u64,
    /// Most tags with notes; one more is refused with 503 `full`.
    pub tags: usize,
    /// Most notes of one tag; the oldest makes room.
    pub notes: usize,
    /// Seconds a note lives.
    pub note_ttl: u64,
    /// Knocks of one address in a minute; one more is refused with 429. An IPv6 address is its /64.
    pub knocks: u32,
    /// Knocks of one network (/24 or /56) in a minute.
    pub network_knocks: u32,
    /// Requests of any kind of one address in a minute; 0 leaves them unlimited.
    pub requests: u32,
    /// Probes of one address in a minute.
    pub probes: u32,
    /// Relay ports that one address may hold at once; one more is refused with 503 `relay full`.
    pub address_ports: usize,
    /// Relay sessions that one network may hold at once.
    pub network_sessions: usize,
    /// Relay sessions on the shared port at once.
    pub sessions: usize,
    /// How long a relay session lives without a datagram.
    pub relay_idle: Duration,
    /// How long a relay session lives at most.
    pub relay_life: Duration,
    /// A port nobody has bound for this long is given to the next who asks when none is free.
    pub relay_unbound: Duration,
    /// Bytes one relay session may forward in a second; what exceeds it is dropped.
    pub relay_rate: u64,
    /// Connections that wait at the pipe for their other end.
    pub pipe_waiting: usize,
    /// Pairs at the pipe.
    pub pipe_pairs: usize,
    /// Time for the greeting at the pipe.
    pub pipe_hello: Duration,
    /// How long the first end waits for the second.
    pub pipe_wait: Duration,
    /// A pair without a byte in either direction for this long is cut.
    pub pipe_idle: Duration,
    /// Bytes a pair may carry in one direction.
    pub pipe_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rows: 500,
            row_ttl: 30,
            tags: 2000,
            notes: 16,
            note_ttl: 60,
            knocks: 40,
            network_knocks: 400,
            requests: 0,
            probes: 10,
            address_ports: 16,
            network_sessions: 256,
            sessions: 4096,
            relay_idle: Duration::from_secs(90),
            relay_life: Duration::from_secs(12 * 3600),
            relay_unbound: Duration::from_secs(15),
            relay_rate: 4 << 20,
            pipe_waiting: 256,
            pipe_pairs: 64,
            pipe_hello: Duration::from_secs(10),
            pipe_wait: Duration::from_secs(60),
            pipe_idle: Duration::from_secs(120),
            pipe_bytes: 8 << 30,
        }
    }
}
