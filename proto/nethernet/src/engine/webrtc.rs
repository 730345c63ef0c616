//! [`Engine`] over `is` (ICE), `dimpl` (DTLS) and an [`Sctp`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dimpl::{Dtls, Output};
use is::{IceAgent, IceAgentEvent, IceConnectionState, IceCreds, Protocol};

use super::dcep::{Dcep, ppid};
use super::sctp::{Sctp, SctpConfig, SctpError, SctpEvent};
use super::sdp::CANDIDATES_MAX;
use super::{
    Candidate, Certificate, ChannelId, DtlsRole, Ended, Engine, EngineError, EngineEvent, Fingerprint, Reliability,
    Remote, RtcSctp,
};
use crate::CandidateKind;

/// Pace of connectivity checks. The 50 ms of RFC 8445, section 14.2, are for many streams; one data stream has few.
const CHECK_PACE: Duration = Duration::from_millis(2);
/// While no path works, every pair is tried again at this interval: both sides give up their pairs in an outage, and
/// then neither would begin.
const RETRY: Duration = Duration::from_secs(2);
/// How long an answerer holds back its own checks while the offerer's have not come. libdatachannel looks for the answer's
/// fingerprint before it has stored it, and gives up, where ICE connects at the moment it gets the answer; it cannot
/// where the first check is its own.
const HOLD: Duration = Duration::from_millis(100);
/// Checks held back. More pairs than that are checked later.
const HELD_MAX: usize = 128;
/// Addresses of the other side that checks may come from.
const SOURCES_MAX: usize = 64;
/// Channels of a connection; more are ignored.
const CHANNELS_MAX: usize = 16;
/// Largest SCTP packet: 1,280 bytes of IPv6 less IP, UDP, TURN and DTLS headers.
const SCTP_MTU: usize = 1191;
/// Largest handshake datagram.
const DTLS_MTU: usize = 1200;
/// Room for any datagram of the other two layers.
const SCRATCH: usize = 2048;

/// What all connections of an endpoint share.
#[derive(Clone)]
pub struct Settings {
    certificate: Certificate,
    dtls: Arc<dimpl::Config>,
    receive_window: u32,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl Settings {
    /// Settings with a certificate and an SCTP receive window in bytes, which also bounds what waits unread.
    ///
    /// # Errors
    /// [`EngineError::Certificate`] when the cryptography cannot be set up.
    pub fn new(certificate: Certificate, receive_window: u32) -> Result<Self, EngineError> {
        let dtls = dimpl::Config::builder()
            .mtu(DTLS_MTU)
            // ICE has shown already that the other side is where it says.
            .use_server_cookie(false)
            .flight_start_rto(Duration::from_millis(150))
            .flight_retries(8)
            .max_queue_tx(64)
            .max_queue_rx(64)
            .build()
            .map_err(|_| EngineError::Certificate)?;
        Ok(Self { certificate, dtls: Arc::new(dtls), receive_window })
    }

    /// The certificate.
    #[must_use]
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }
}

#[derive(Debug)]
struct Channel {
    label: Arc<str>,
    open: bool,
    /// Told as readable and not yet read empty.
    told: bool,
    /// What was taken out already: the message that is told as readable and, of an association that has ended, all that
    /// it had received. At most a receive window.
    late: VecDeque<(u32, Bytes)>,
}

impl Channel {
    fn new(label: Arc<str>) -> Self {
        Self { label, open: false, told: false, late: VecDeque::new() }
    }
}

/// Whether an SCTP packet begins with ABORT, SHUTDOWN, SHUTDOWN ACK or SHUTDOWN COMPLETE (RFC 9260, section 3.2).
fn ends_association(packet: &[u8]) -> bool {
    matches!(packet.get(12), Some(6 | 7 | 8 | 14))
}

/// Whether a datagram is a Binding request (RFC 8489, section 5).
fn is_check(datagram: &[u8]) -> bool {
    datagram.starts_with(&[0, 1])
}

/// Takes out what was received in full: an association that ends forgets what nobody has read.
fn rescue(sctp: &mut impl Sctp, channels: &mut BTreeMap<u16, Channel>) {
    for (stream, channel) in channels.iter_mut().filter(|(_, channel)| channel.open) {
        while let Some(message) = sctp.recv(*stream) {
            channel.late.push_back(message);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Up,
    /// Waiting until everything is acknowledged.
    Closing,
    Over,
}

/// ICE, DTLS and SCTP of one connection.
pub struct WebRtc<S: Sctp = RtcSctp> {
    settings: Settings,
    now: Instant,
    offerer: bool,
    credentials: IceCreds,
    ice: IceAgent,
    ice_at: Option<Instant>,
    /// The other side's addresses that have passed a check.
    sources: BTreeSet<SocketAddr>,
    remotes: usize,
    /// Own base and remote address that data takes.
    path: Option<(SocketAddr, SocketAddr)>,
    nominated: bool,
    interrupted: bool,
    retry_at: Option<Instant>,
    hold: Option<Instant>,
    held: VecDeque<(SocketAddr, SocketAddr, Vec<u8>)>,
    remote: Option<(Vec<Fingerprint>, DtlsRole, usize)>,
    dtls: Option<Dtls>,
    dtls_at: Option<Instant>,
    verified: bool,
    secure: bool,
    sctp: Option<S>,
    sctp_up: bool,
    /// Streams with messages from before the association was up.
    early: BTreeSet<u16>,
    wanted: Vec<(&'static str, Reliability)>,
    channels: BTreeMap<u16, Channel>,
    stash: VecDeque<(SocketAddr, SocketAddr, Vec<u8>)>,
    events: VecDeque<EngineEvent>,
    /// Something may wait to be sent.
    dirty: bool,
    heard: Option<Instant>,
    life: Life,
    scratch: Box<[u8]>,
}

impl<S: Sctp> std::fmt::Debug for WebRtc<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebRtc").field("life", &self.life).field("secure", &self.secure).finish_non_exhaustive()
    }
}

impl<S: Sctp> WebRtc<S> {
    /// A connection with credentials from its owner's dice. The offerer controls ICE, and begins SCTP.
    #[must_use]
    pub fn new(settings: Settings, ufrag: String, pwd: String, tie_breaker: u64, offerer: bool, now: Instant) -> Self {
        let credentials = IceCreds { ufrag, pass: pwd };
        let mut ice = IceAgent::new(credentials.clone());
        ice.set_timing_advance(CHECK_PACE);
        ice.set_control_tie_breaker(tie_breaker);
        ice.set_controlling(offerer);
        ice.handle_timeout(now);
        Self {
            settings,
            now,
            offerer,
            credentials,
            ice,
            ice_at: None,
            sources: BTreeSet::new(),
            remotes: 0,
            path: None,
            nominated: false,
            interrupted: false,
            retry_at: None,
            hold: None,
            held: VecDeque::new(),
            remote: None,
            dtls: None,
            dtls_at: None,
            verified: false,
            secure: false,
            sctp: None,
            sctp_up: false,
            early: BTreeSet::new(),
            wanted: Vec::new(),
            channels: BTreeMap::new(),
            stash: VecDeque::new(),
            events: VecDeque::new(),
            dirty: false,
            heard: None,
            life: Life::Up,
            scratch: vec![0; SCRATCH].into(),
        }
    }

    fn end(&mut self, why: Ended) {
        if self.life != Life::Over {
            self.life = Life::Over;
            self.events.push_back(EngineEvent::Closed(why));
        }
    }

    fn stun(&mut self, now: Instant, from: SocketAddr, to: SocketAddr, datagram: &[u8]) -> bool {
        if !self.sources.contains(&from) && self.sources.len() >= SOURCES_MAX {
            return false;
        }
        let Ok(message) = is::stun::StunMessage::parse(datagram) else { return false };
        let packet = is::stun::StunPacket { proto: Protocol::Udp, source: from, destination: to, message };
        if !self.ice.handle_packet(now, packet) {
            return false;
        }
        self.sources.insert(from);
        self.heard = Some(now);
        if is_check(datagram) {
            self.release();
        }
        self.tick_ice(now);
        true
    }

    /// The offerer has begun, or does not: what was held back is sent.
    fn release(&mut self) {
        if self.hold.take().is_some() {
            self.stash.append(&mut self.held);
            self.dirty = true;
        }
    }

    fn tick_ice(&mut self, now: Instant) {
        self.ice.handle_timeout(now);
        while let Some(event) = self.ice.poll_event() {
            match event {
                IceAgentEvent::NominatedSend { source, destination, .. } => {
                    self.path = Some((source, destination));
                    self.nominated = true;
                    self.events.push_back(EngineEvent::Path { from: source, to: destination });
                    self.begin_dtls(now);
                }
                IceAgentEvent::IceConnectionStateChange(IceConnectionState::Disconnected) => {
                    self.retry_at = Some(now + RETRY);
                    if self.nominated && !self.interrupted {
                        self.interrupted = true;
                        self.events.push_back(EngineEvent::Interrupted);
                    }
                }
                IceAgentEvent::IceConnectionStateChange(state) if state.is_connected() => {
                    self.retry_at = None;
                    if std::mem::take(&mut self.interrupted) {
                        self.events.push_back(EngineEvent::Resumed);
                    }
                }
                _ => {}
            }
        }
        self.ice_at = self.ice.poll_timeout();
        self.dirty = true;
    }

    /// The DTLS client begins when a path is known; the server waits with its half ready.
    fn begin_dtls(&mut self, now: Instant) {
        let Some((_, role, _)) = &self.remote else { return };
        if self.dtls.is_some() || self.life == Life::Over {
            return;
        }
        let certificate = (*self.settings.certificate.inner).clone();
        let mut dtls = Dtls::new_auto(Arc::clone(&self.settings.dtls), certificate, now);
        if *role == DtlsRole::Client {
            dtls.set_active(true);
        }
        self.dtls = Some(dtls);
        self.tick_dtls(now);
    }

    fn tick_dtls(&mut self, now: Instant) {
        if let Some(dtls) = &mut self.dtls
            && dtls.handle_timeout(now).is_err()
        {
            self.end(Ended::Failed("the DTLS handshake got no answer"));
        }
        self.pump_dtls(now, None);
    }

    fn record(&mut self, now: Instant, from: SocketAddr, to: SocketAddr, datagram: &[u8]) -> bool {
        if !self.sources.contains(&from) || self.remote.is_none() {
            return false;
        }
        self.begin_dtls(now);
        if self.path.is_none() {
            self.path = Some((to, from));
        }
        let Some(dtls) = &mut self.dtls else { return false };
        // Until the version is known, only the handshake may speak: what an earlier connection of this address left in
        // the network would end it.
        if dtls.protocol_version().is_none() && datagram.first() != Some(&22) {
            return true;
        }
        if now > self.now {
            self.now = now;
        }
        if dtls.handle_timeout(now).is_err() || dtls.handle_packet(datagram).is_err() {
            self.end(Ended::Failed(if self.secure { "DTLS failed" } else { "the DTLS handshake failed" }));
            return true;
        }
        self.pump_dtls(now, None);
        true
    }

    /// Takes everything out of DTLS. Datagrams go to `out` while it takes them, else they wait.
    #[allow(clippy::type_complexity)]
    fn pump_dtls(&mut self, now: Instant, mut out: Option<&mut dyn FnMut(SocketAddr, SocketAddr, &[u8]) -> bool>) {
        self.dirty = true;
        loop {
            let Some(dtls) = &mut self.dtls else { return };
            match dtls.poll_output(&mut self.scratch) {
                Output::Packet(packet) => {
                    let Some((from, to)) = self.path else { continue };
                    let taken = self.stash.is_empty() && out.as_mut().is_some_and(|out| out(from, to, packet));
                    if !taken {
                        self.stash.push_back((from, to, packet.to_vec()));
                    }
                }
                Output::BufferTooSmall { needed } => {
                    if needed > usize::from(u16::MAX) {
                        return self.end(Ended::Failed("a DTLS record has an impossible size"));
                    }
                    self.scratch = vec![0; needed].into();
                }
                Output::PeerCert(der) => {
                    let print = Fingerprint::of(der);
                    self.verified = self.remote.as_ref().is_some_and(|(prints, ..)| prints.contains(&print));
                    if !self.verified {
                        return self.end(Ended::Certificate);
                    }
                }
                Output::Connected => self.secured(now),
                Output::ApplicationData(packet) => {
                    self.heard = Some(now);
                    if let Some(sctp) = &mut self.sctp {
                        if ends_association(packet) {
                            rescue(sctp, &mut self.channels);
                        }
                        sctp.input(now, packet);
                    }
                }
                Output::CloseNotify => {
                    // What SCTP got before belongs to the application still.
                    self.pump_sctp(now);
                    return self.end(Ended::Remote);
                }
                Output::Timeout(at) => {
                    self.dtls_at = Some(at);
                    break;
                }
                _ => {}
            }
        }
        self.pump_sctp(now);
    }

    fn secured(&mut self, now: Instant) {
        let Some((_, _, limit)) = &self.remote else { return };
        if !self.verified {
            return self.end(Ended::Certificate);
        }
        self.secure = true;
        self.events.push_back(EngineEvent::Secure);
        self.sctp = Some(S::new(
            SctpConfig {
                initiate: self.offerer,
                mtu: SCTP_MTU,
                receive_window: self.settings.receive_window,
                message_limit: *limit,
            },
            now,
        ));
    }

    fn pump_sctp(&mut self, now: Instant) {
        while let Some(event) = self.sctp.as_mut().and_then(Sctp::poll_event) {
            match event {
                SctpEvent::Connected => {
                    self.sctp_up = true;
                    self.announce(now);
                    for stream in std::mem::take(&mut self.early) {
                        self.readable(now, stream);
                    }
                }
                // Data may overtake the end of the handshake; nothing is answered before that.
                SctpEvent::Readable(stream) if !self.sctp_up => {
                    if self.early.len() < CHANNELS_MAX {
                        self.early.insert(stream);
                    }
                }
                SctpEvent::Readable(stream) => self.readable(now, stream),
                SctpEvent::Released(stream) => {
                    if self.channels.contains_key(&stream) {
                        self.events.push_back(EngineEvent::Writable(ChannelId(stream)));
                    }
                }
                SctpEvent::Reset(stream) => {
                    if self.channels.remove(&stream).is_some() {
                        self.events.push_back(EngineEvent::ChannelClosed(ChannelId(stream)));
                    }
                }
                SctpEvent::Closed(None) => self.end(Ended::Remote),
                SctpEvent::Closed(Some(why)) => self.end(Ended::Failed(why)),
            }
        }
        if self.life == Life::Closing && self.flushed() {
            self.finish(now);
        }
    }

    /// Opens the channels that were asked for. The DTLS client uses even numbers (RFC 8832, section 6).
    fn announce(&mut self, now: Instant) {
        let Some((_, role, _)) = &self.remote else { return };
        let mut stream = u16::from(*role == DtlsRole::Server);
        for (label, reliability) in std::mem::take(&mut self.wanted) {
            let Some(sctp) = &mut self.sctp else { return };
            sctp.configure(stream, reliability);
            let open = Dcep::Open { label: label.to_owned(), reliability }.write();
            if sctp.send(now, stream, ppid::DCEP, open.into()).is_ok() {
                self.channels.insert(stream, Channel::new(label.into()));
            }
            stream += 2;
        }
        self.dirty = true;
    }

    /// DCEP is read here. Of an open channel one message is taken out, so that what is told as readable is.
    fn readable(&mut self, now: Instant, stream: u16) {
        match (self.channels.get_mut(&stream), &mut self.sctp) {
            (Some(channel), Some(sctp)) if channel.open => {
                if !channel.told
                    && let Some(message) = sctp.recv(stream)
                {
                    channel.late.push_back(message);
                    channel.told = true;
                    self.events.push_back(EngineEvent::Readable(ChannelId(stream)));
                }
            }
            _ => self.handshake(now, stream),
        }
    }

    /// Messages of a channel that is not open: its OPEN or its ACK.
    fn handshake(&mut self, now: Instant, stream: u16) {
        let Some(sctp) = &mut self.sctp else { return };
        let Some((ppid, message)) = sctp.recv(stream) else { return };
        let told = if ppid == ppid::DCEP { Dcep::parse(&message) } else { None };
        match told {
            Some(Dcep::Open { label, reliability }) if self.channels.len() < CHANNELS_MAX => {
                sctp.configure(stream, reliability);
                let _ = sctp.send(now, stream, ppid::DCEP, Dcep::Ack.write().into());
                self.channels.entry(stream).or_insert(Channel::new(label.into()));
                self.opened(stream);
            }
            Some(Dcep::Ack) if self.channels.contains_key(&stream) => self.opened(stream),
            _ => return,
        }
        self.dirty = true;
        // More may have come behind it; whoever reads finds out.
        self.readable(now, stream);
    }

    fn opened(&mut self, stream: u16) {
        if let Some(channel) = self.channels.get_mut(&stream)
            && !channel.open
        {
            channel.open = true;
            let label = Arc::clone(&channel.label);
            self.events.push_back(EngineEvent::Opened { channel: ChannelId(stream), label });
        }
    }

    fn flushed(&self) -> bool {
        let Some(sctp) = &self.sctp else { return true };
        !self.sctp_up || self.channels.keys().all(|stream| sctp.buffered(*stream) == 0)
    }

    /// SCTP, then DTLS; ICE has no farewell.
    fn finish(&mut self, now: Instant) {
        // Over first: saying farewell pumps both layers, which would find everything flushed once more.
        self.end(Ended::Flushed);
        self.farewell(now);
    }

    fn farewell(&mut self, now: Instant) {
        if let Some(sctp) = &mut self.sctp {
            sctp.abort(now);
        }
        while let Some(packet) = self.sctp.as_mut().and_then(|sctp| sctp.poll_packet(now)) {
            if self.dtls.as_mut().is_none_or(|dtls| dtls.send_application_data(&packet).is_err()) {
                break;
            }
        }
        self.sctp = None;
        if let Some(dtls) = &mut self.dtls {
            let _ = dtls.close();
        }
        self.pump_dtls(now, None);
    }
}

impl<S: Sctp> Engine for WebRtc<S> {
    fn credentials(&self) -> (&str, &str) {
        (&self.credentials.ufrag, &self.credentials.pass)
    }

    fn add_local(&mut self, now: Instant, base: SocketAddr, relayed: bool) -> Result<(), EngineError> {
        let made = if relayed { is::Candidate::relayed(base, base, "udp") } else { is::Candidate::host(base, "udp") };
        let candidate = made.map_err(|_| EngineError::Address)?;
        self.ice.add_local_candidate(candidate);
        self.tick_ice(now);
        Ok(())
    }

    fn add_remote(&mut self, now: Instant, candidate: &Candidate) {
        if self.remotes >= CANDIDATES_MAX {
            return;
        }
        self.remotes += 1;
        let kind = match candidate.kind {
            CandidateKind::Host => is::CandidateKind::Host,
            CandidateKind::ServerReflexive => is::CandidateKind::ServerReflexive,
            CandidateKind::PeerReflexive => is::CandidateKind::PeerReflexive,
            CandidateKind::Relay => is::CandidateKind::Relayed,
        };
        let (foundation, ufrag) = (candidate.foundation.clone(), candidate.ufrag.clone());
        self.ice.add_remote_candidate(is::Candidate::from_parts(
            foundation,
            1,
            Protocol::Udp,
            candidate.priority,
            candidate.addr,
            kind,
            candidate.related,
            None,
            ufrag,
        ));
        self.tick_ice(now);
    }

    fn start(&mut self, now: Instant, remote: Remote) -> Result<(), EngineError> {
        if self.remote.is_some() {
            return Err(EngineError::Started);
        }
        if remote.ice_lite {
            self.ice.set_controlling(true);
        }
        self.ice.set_remote_credentials(IceCreds { ufrag: remote.ufrag, pass: remote.pwd });
        self.remote = Some((remote.fingerprints, remote.role, remote.message_limit));
        // Who is ICE-lite never checks (RFC 8445, section 2.5).
        if !self.offerer && !remote.ice_lite && self.sources.is_empty() {
            self.hold = Some(now + HOLD);
        }
        self.tick_ice(now);
        Ok(())
    }

    fn input(&mut self, now: Instant, from: SocketAddr, to: SocketAddr, datagram: &[u8]) -> bool {
        self.now = self.now.max(now);
        if self.life == Life::Over {
            return false;
        }
        match datagram.first() {
            Some(0..=3) => self.stun(now, from, to, datagram),
            Some(20..=63) => self.record(now, from, to, datagram),
            _ => false,
        }
    }

    fn timeout(&mut self, now: Instant) {
        self.now = self.now.max(now);
        if self.life == Life::Over {
            return;
        }
        if self.hold.is_some_and(|at| at <= now) {
            self.release();
        }
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = Some(now + RETRY);
            self.ice.recreate_candidate_pairs();
            self.tick_ice(now);
        } else if self.ice_at.is_some_and(|at| at <= now) {
            self.tick_ice(now);
        }
        if self.dtls_at.is_some_and(|at| at <= now) {
            self.tick_dtls(now);
        }
        if let Some(sctp) = &mut self.sctp
            && sctp.poll_timeout().is_some_and(|at| at <= now)
        {
            sctp.timeout(now);
            self.dirty = true;
        }
        self.pump_sctp(now);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut impl FnMut(SocketAddr, SocketAddr, &[u8]) -> bool) -> bool {
        self.now = self.now.max(now);
        if !self.dirty {
            return false;
        }
        let mut any = false;
        while let Some((from, to, bytes)) = self.stash.front() {
            if !out(*from, *to, bytes) {
                return any;
            }
            self.stash.pop_front();
            any = true;
        }
        while let Some(transmit) = self.ice.poll_transmit() {
            let bytes: &[u8] = &transmit.contents;
            if self.hold.is_some() && is_check(bytes) {
                if self.held.len() < HELD_MAX {
                    self.held.push_back((transmit.source, transmit.destination, bytes.to_vec()));
                }
                continue;
            }
            if !out(transmit.source, transmit.destination, bytes) {
                self.stash.push_back((transmit.source, transmit.destination, bytes.to_vec()));
                return any;
            }
            any = true;
        }
        self.ice_at = self.ice.poll_timeout();
        while self.secure && self.path.is_some() {
            let Some(packet) = self.sctp.as_mut().and_then(|sctp| sctp.poll_packet(now)) else { break };
            let sent = self.dtls.as_mut().is_some_and(|dtls| dtls.send_application_data(&packet).is_ok());
            if !sent {
                self.end(Ended::Failed("DTLS failed"));
                break;
            }
            any = true;
            self.pump_dtls(now, Some(out));
            if !self.stash.is_empty() {
                return any;
            }
        }
        self.dirty = false;
        any
    }

    fn poll_event(&mut self) -> Option<EngineEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        if self.dirty {
            return Some((self.now, "datagrams wait"));
        }
        if !self.events.is_empty() {
            return Some((self.now, "events wait"));
        }
        if self.life == Life::Over {
            return None;
        }
        [
            self.ice_at.map(|at| (at, "connectivity checks")),
            self.retry_at.map(|at| (at, "pairs are tried again")),
            self.hold.map(|at| (at, "checks are held back")),
            self.dtls_at.map(|at| (at, "DTLS")),
            self.sctp.as_ref().and_then(Sctp::poll_timeout).map(|at| (at, "SCTP")),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn open(&mut self, label: &'static str, reliability: Reliability) {
        self.wanted.push((label, reliability));
    }

    fn send(&mut self, now: Instant, channel: ChannelId, message: Bytes) -> Result<(), EngineError> {
        self.now = self.now.max(now);
        let limit = self.remote.as_ref().map_or(0, |(_, _, limit)| *limit);
        let size = message.len();
        let open = self.life == Life::Up && self.channels.contains_key(&channel.0);
        let Some(sctp) = self.sctp.as_mut().filter(|_| open) else { return Err(EngineError::NotOpen) };
        // SCTP has no empty messages (RFC 8831, section 6.6).
        let (ppid, message) =
            if message.is_empty() { (ppid::BINARY_EMPTY, Bytes::from_static(&[0])) } else { (ppid::BINARY, message) };
        sctp.send(now, channel.0, ppid, message).map_err(|why| match why {
            SctpError::TooLarge => EngineError::TooLarge { size, limit },
            SctpError::Closed => EngineError::NotOpen,
        })?;
        self.dirty = true;
        Ok(())
    }

    fn recv(&mut self, now: Instant, channel: ChannelId) -> Option<Bytes> {
        self.now = self.now.max(now);
        loop {
            let late = self.channels.get_mut(&channel.0).and_then(|channel| channel.late.pop_front());
            let next = late.or_else(|| self.sctp.as_mut().and_then(|sctp| sctp.recv(channel.0)));
            let Some((ppid, message)) = next else {
                if let Some(channel) = self.channels.get_mut(&channel.0) {
                    channel.told = false;
                }
                return None;
            };
            self.dirty = true;
            match ppid {
                ppid::BINARY | ppid::STRING => return Some(message),
                ppid::BINARY_EMPTY | ppid::STRING_EMPTY => return Some(Bytes::new()),
                _ => {}
            }
        }
    }

    fn buffered(&self, channel: ChannelId) -> usize {
        self.sctp.as_ref().map_or(0, |sctp| sctp.buffered(channel.0))
    }

    fn waits_for(&self) -> &'static str {
        match (&self.dtls, self.secure, self.sctp_up) {
            _ if self.path.is_none() => "no network path works",
            (None, ..) => "the path works, and DTLS has not begun",
            (_, false, _) => "the path works, and the DTLS handshake does not end",
            (_, _, false) => "DTLS is up, and SCTP does not connect",
            _ => "SCTP is up, and the channels are not open",
        }
    }

    fn heard(&self) -> Option<Instant> {
        self.heard
    }

    fn close(&mut self, now: Instant) {
        self.now = self.now.max(now);
        if self.life == Life::Up {
            self.life = Life::Closing;
            self.pump_sctp(now);
        }
    }

    fn abort(&mut self, now: Instant) {
        self.now = self.now.max(now);
        if self.life != Life::Over {
            self.farewell(now);
            self.end(Ended::Flushed);
        }
    }
}

#[cfg(test)]
mod tests;
