//! How far a transfer is, for people.

use std::fmt;

/// What carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Transport {
    /// A byte stream.
    Tcp,
    /// Chunks in datagrams.
    Udp,
    /// Chunks through Steam.
    Steam,
    /// QUIC on the path the players talk on; shown as UDP, which it is.
    Quic,
}

impl fmt::Display for Transport {
    /// The word of netpunch wire, section 19.1.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp | Self::Quic => "UDP",
            Self::Steam => "Steam",
        })
    }
}

/// How far a receiver is, as it has confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes it holds without a gap.
    pub bytes_done: u64,
    /// Bytes in all.
    pub bytes_total: u64,
    /// Over the last three seconds.
    pub bytes_per_second: u64,
    /// What carries it now.
    pub transport: Transport,
    /// All bytes are there and are being verified.
    pub verifying: bool,
    /// The receiver could not connect for a stream.
    pub gave_up_tcp: bool,
}

impl Progress {
    /// Percent, 0 to 100.
    #[must_use]
    pub fn percent(&self) -> u8 {
        let percent = u128::from(self.bytes_done) * 100 / u128::from(self.bytes_total.max(1));
        if self.bytes_total == 0 { 100 } else { u8::try_from(percent.min(100)).unwrap_or(100) }
    }

    /// Seconds left at this pace; `None` while there is none.
    #[must_use]
    pub fn seconds_left(&self) -> Option<u64> {
        self.bytes_total.saturating_sub(self.bytes_done).checked_div(self.bytes_per_second)
    }
}
