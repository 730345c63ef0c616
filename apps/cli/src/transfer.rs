//! A transfer in words, the same for files, lines and panel.

use session::{Moved, Progress, Transport};

/// What is said of a transfer on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    /// How the byte stream stands.
    pub(crate) tcp: String,
    /// One line.
    pub(crate) detail: String,
    /// What a player can do about it; often nothing.
    pub(crate) hint: String,
}

/// Says how far a transfer is. `port` is the TCP port of this host, where it is one.
pub(crate) fn words(progress: &Progress, send: bool, port: Option<u16>) -> Words {
    let failed = progress.gave_up_tcp && progress.transport == Transport::Udp;
    let tcp = match progress.transport {
        Transport::Tcp => "connected",
        Transport::Quic => "not needed: QUIC carries it",
        _ if failed => "no connection: UDP carries it",
        _ => "not connected yet: UDP carries it",
    };
    let hint = match port {
        _ if !failed => String::new(),
        Some(port) if send => format!("to make it faster, forward TCP port {port} to this computer"),
        _ => "to make it faster, the host can forward its lobby port for TCP".to_owned(),
    };
    Words { tcp: tcp.to_owned(), detail: line(progress), hint }
}

/// `12.3 of 45.6 MB (27 %), 3.4 MB/s, 10 s left, TCP`.
pub(crate) fn line(progress: &Progress) -> String {
    let mut line = format!("{} of {} MB ({} %)", mb(progress.bytes_done), mb(progress.bytes_total), progress.percent());
    if progress.verifying {
        line.push_str(", checking what arrived");
        return line;
    }
    if progress.bytes_per_second > 0 {
        line.push_str(&format!(", {} MB/s", mb(progress.bytes_per_second)));
    }
    if let Some(seconds) = progress.seconds_left() {
        line.push_str(&format!(", {} left", time(seconds)));
    }
    let way = if progress.transport == Transport::Quic { "QUIC".to_owned() } else { progress.transport.to_string() };
    line.push_str(&format!(", {way}"));
    line
}

/// What became of a transfer; nothing for mere progress.
pub(crate) fn news(moved: &Moved) -> Option<String> {
    Some(match moved {
        Moved::Streaming => "a stream carries it".to_owned(),
        Moved::Chunks => "the stream broke, datagrams carry the rest".to_owned(),
        Moved::Again => "what arrived was damaged, it begins again".to_owned(),
        Moved::Done => "all of it has arrived and is right".to_owned(),
        Moved::Failed(why) => format!("it failed: {why}"),
        Moved::Dropped => "the player left".to_owned(),
        _ => return None,
    })
}

fn mb(bytes: u64) -> String {
    let tenths = bytes.saturating_add(50_000) / 100_000;
    format!("{}.{}", tenths / 10, tenths % 10)
}

fn time(seconds: u64) -> String {
    if seconds < 100 { format!("{seconds} s") } else { format!("{} min", seconds.div_ceil(60)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(transport: Transport) -> Progress {
        Progress {
            bytes_done: 12_340_000,
            bytes_total: 45_600_000,
            bytes_per_second: 3_400_000,
            transport,
            verifying: false,
            gave_up_tcp: false,
        }
    }

    #[test]
    fn a_line_says_how_much_how_fast_how_long_and_by_what() {
        assert_eq!(line(&progress(Transport::Tcp)), "12.3 of 45.6 MB (27 %), 3.4 MB/s, 9 s left, TCP");
        assert_eq!(line(&progress(Transport::Quic)), "12.3 of 45.6 MB (27 %), 3.4 MB/s, 9 s left, QUIC");
        let slow = Progress { bytes_per_second: 10_000, ..progress(Transport::Udp) };
        assert_eq!(line(&slow), "12.3 of 45.6 MB (27 %), 0.0 MB/s, 56 min left, UDP");
        let last = Progress { verifying: true, ..progress(Transport::Udp) };
        assert_eq!(line(&last), "12.3 of 45.6 MB (27 %), checking what arrived");
    }

    #[test]
    fn a_port_is_named_only_when_a_stream_failed_and_only_at_the_host() {
        let failed = Progress { gave_up_tcp: true, ..progress(Transport::Udp) };
        assert!(words(&failed, true, Some(29_471)).hint.contains("TCP port 29471"));
        assert!(!words(&failed, false, None).hint.is_empty());
        for fine in [progress(Transport::Udp), Progress { gave_up_tcp: true, ..progress(Transport::Quic) }] {
            assert_eq!(words(&fine, true, Some(29_471)).hint, "");
        }
    }
}
