//! [`Sctp`] over the `rtc-sctp` crate.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rtc_sctp::{
    Association, AssociationError, AssociationHandle, ClientConfig, DatagramEvent, Endpoint, EndpointConfig, Event,
    Payload, PayloadProtocolIdentifier, ReliabilityType, ServerConfig, StreamEvent, TimerConfig, TransportConfig,
    max_payload_size_for_mtu,
};

use super::Reliability;
use super::sctp::{Sctp, SctpConfig, SctpError, SctpEvent};

/// The crate wants addresses; one association behind DTLS has none.
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 5000);
/// Streams announced. NetherNet uses two; a few more are what strangers may open before they are ignored.
const STREAMS: u16 = 1024;
/// How long the answerer waits for the offerer's INIT before it sends its own. Of the peers in the field, those of
/// libwebrtc and libdatachannel initiate on both sides, those of werift as offerers only.
const PATIENCE: Duration = Duration::from_millis(200);

/// An association of the `rtc-sctp` crate.
pub struct RtcSctp {
    endpoint: Endpoint,
    transport: TransportConfig,
    association: Option<(AssociationHandle, Association)>,
    initiate: bool,
    /// When to initiate after all.
    initiate_at: Option<Instant>,
    /// Bytes by stream. The crate counts them as well, but looking there borrows mutably.
    buffered: BTreeMap<u16, usize>,
    packets: VecDeque<Bytes>,
    events: VecDeque<SctpEvent>,
    over: bool,
}

impl std::fmt::Debug for RtcSctp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RtcSctp").field("packets", &self.packets.len()).field("over", &self.over).finish()
    }
}

impl RtcSctp {
    fn association(&mut self) -> Option<&mut Association> {
        self.association.as_mut().map(|(_, association)| association)
    }

    fn end(&mut self, why: Option<&'static str>) {
        if !self.over {
            self.over = true;
            self.events.push_back(SctpEvent::Closed(why));
        }
    }

    /// Turns the crate's events into ours.
    fn pump(&mut self) {
        let Some((handle, association)) = &mut self.association else { return };
        let handle = *handle;
        let mut ended = None;
        let mut resets = Vec::new();
        while let Some(event) = association.poll() {
            match event {
                Event::Connected => self.events.push_back(SctpEvent::Connected),
                Event::Stream(StreamEvent::Readable { id }) => self.events.push_back(SctpEvent::Readable(id)),
                Event::Stream(StreamEvent::Opened { id }) => {
                    let _ = association.accept_stream();
                    self.events.push_back(SctpEvent::Readable(id));
                }
                Event::Stream(StreamEvent::BufferedAmountReleased { id, n_bytes }) => {
                    if let Some(bytes) = self.buffered.get_mut(&id) {
                        *bytes = bytes.saturating_sub(n_bytes);
                    }
                    if self.events.back() != Some(&SctpEvent::Released(id)) {
                        self.events.push_back(SctpEvent::Released(id));
                    }
                }
                Event::AssociationLost { reason: AssociationError::Reset, id } => resets.push(id),
                Event::HandshakeFailed { .. } => ended = Some(Some("the SCTP handshake failed")),
                Event::AssociationLost { reason, .. } => {
                    ended.get_or_insert(match reason {
                        AssociationError::TransportError => Some("an SCTP packet broke the protocol"),
                        AssociationError::TimedOut => Some("SCTP got no acknowledgement"),
                        _ => None,
                    });
                }
                _ => {}
            }
        }
        // An association that ends resets its streams as well; that is one event, not three.
        if association.is_closed() && !association.is_handshaking() {
            ended.get_or_insert(None);
        } else {
            self.events.extend(resets.into_iter().map(SctpEvent::Reset));
        }
        while let Some(event) = association.poll_endpoint_event() {
            self.endpoint.handle_event(handle, event);
        }
        if let Some(why) = ended {
            self.end(why);
        }
    }
}

impl Sctp for RtcSctp {
    fn new(config: SctpConfig, now: Instant) -> Self {
        // Whether a silent peer is given up is the session's choice, not a count of retransmissions.
        let timers = TimerConfig { max_t3_rtx_retrans: usize::MAX, ..TimerConfig::default() };
        let transport = TransportConfig::default()
            .with_max_receive_buffer_size(config.receive_window)
            .with_max_message_size(u32::try_from(config.message_limit).unwrap_or(u32::MAX))
            .with_max_num_inbound_streams(STREAMS)
            .with_max_num_outbound_streams(STREAMS)
            .with_timer_config(timers);
        let mut shared = EndpointConfig::new();
        shared.max_payload_size(max_payload_size_for_mtu(u32::try_from(config.mtu).unwrap_or(1191)));
        // Either side may have to answer an INIT (see `PATIENCE`).
        let server = Some(Arc::new(ServerConfig::new(transport.clone())));
        let endpoint = Endpoint::new(NOWHERE, rtc_shared::TransportProtocol::UDP, Arc::new(shared), server);
        let mut sctp = Self {
            endpoint,
            transport,
            association: None,
            initiate: config.initiate,
            initiate_at: Some(if config.initiate { now } else { now + PATIENCE }),
            buffered: BTreeMap::new(),
            packets: VecDeque::new(),
            events: VecDeque::new(),
            over: false,
        };
        sctp.timeout(now);
        sctp
    }

    fn input(&mut self, now: Instant, packet: &[u8]) {
        match self.endpoint.handle(now, NOWHERE, None, Bytes::copy_from_slice(packet)) {
            Some((handle, DatagramEvent::NewAssociation(association))) => {
                // When both have sent an INIT (RFC 9260, section 5.2.1), that of the initiating side counts: the crate
                // does not join the two. A later INIT is a repetition, or noise.
                let handshaking = self.association.as_ref().is_none_or(|(_, own)| own.is_handshaking());
                let own = self.association.is_some();
                if !own || (!self.initiate && handshaking && self.initiate_at.is_none()) {
                    self.initiate_at = None;
                    self.association = Some((handle, association));
                }
            }
            Some((handle, DatagramEvent::AssociationEvent(event))) => {
                if let Some((own, association)) = &mut self.association
                    && *own == handle
                {
                    association.handle_event(event);
                }
            }
            _ => {}
        }
        self.pump();
    }

    fn timeout(&mut self, now: Instant) {
        if self.initiate_at.is_some_and(|at| at <= now) {
            self.initiate_at = None;
            if self.association.is_none() {
                let config = ClientConfig::new(self.transport.clone());
                self.association = self.endpoint.connect(now, config, NOWHERE).ok();
            }
        }
        if let Some(association) = self.association() {
            association.handle_timeout(now);
        }
        self.pump();
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let own = self.association.as_ref().and_then(|(_, association)| association.poll_timeout());
        [own, self.initiate_at].into_iter().flatten().min()
    }

    fn poll_packet(&mut self, now: Instant) -> Option<Bytes> {
        if self.packets.is_empty() {
            let message = self.association()?.poll_transmit(now)?;
            if let Payload::RawEncode(packets) = message.message {
                self.packets.extend(packets);
            }
            self.pump();
        }
        self.packets.pop_front()
    }

    fn poll_event(&mut self) -> Option<SctpEvent> {
        self.events.pop_front()
    }

    fn configure(&mut self, stream: u16, reliability: Reliability) {
        let Some(association) = self.association() else { return };
        let _ = association.open_stream(stream, PayloadProtocolIdentifier::Binary);
        if let Ok(mut stream) = association.stream(stream) {
            let (kind, value) = match reliability.retransmits {
                None => (ReliabilityType::Reliable, 0),
                Some(most) => (ReliabilityType::Rexmit, u32::from(most)),
            };
            let _ = stream.set_reliability_params(!reliability.ordered, kind, value);
        }
    }

    fn send(&mut self, now: Instant, id: u16, ppid: u32, message: Bytes) -> Result<(), SctpError> {
        let association = self.association().ok_or(SctpError::Closed)?;
        let mut stream = association.stream(id).map_err(|_| SctpError::Closed)?;
        let size = message.len();
        match stream.write_chunk_with_ppi(now, &message, PayloadProtocolIdentifier::from(ppid)) {
            Ok(_) => {
                *self.buffered.entry(id).or_default() += size;
                self.pump();
                Ok(())
            }
            Err(rtc_shared::error::Error::ErrOutboundPacketTooLarge) => Err(SctpError::TooLarge),
            Err(_) => Err(SctpError::Closed),
        }
    }

    fn recv(&mut self, stream: u16) -> Option<(u32, Bytes)> {
        let chunks = self.association()?.stream(stream).ok()?.read().ok()??;
        let ppid = chunks.ppi as u32;
        let bytes = chunks.to_payload(usize::MAX).ok()?.freeze();
        self.pump();
        Some((ppid, bytes))
    }

    fn buffered(&self, stream: u16) -> usize {
        self.buffered.get(&stream).copied().unwrap_or(0)
    }

    fn abort(&mut self, now: Instant) {
        if let Some((_, association)) = &mut self.association {
            let _ = association.abort();
            while let Some(message) = association.poll_transmit(now) {
                if let Payload::RawEncode(packets) = message.message {
                    self.packets.extend(packets);
                }
            }
        }
        self.over = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// INIT and INIT ACK of RFC 9260, section 3.2.
    const INIT: u8 = 1;
    const INIT_ACK: u8 = 2;

    /// As werift 0.24.4 sends it when it has made the offer.
    const WERIFT: &[u8] = b"\x13\x88\x13\x88\0\0\0\0\x26\x76\x86\x30\x01\0\0\x1e\x56\xde\xfd\x4f\0\x10\0\0\
        \xff\xff\xff\xff\xbd\x23\x9b\x96\xc0\0\0\x04\x80\x08\0\x06\xc0\x82\0\0";

    fn new(initiate: bool, now: Instant) -> RtcSctp {
        RtcSctp::new(SctpConfig { initiate, mtu: 1191, receive_window: 1 << 20, message_limit: 262_144 }, now)
    }

    fn kinds(sctp: &mut RtcSctp, now: Instant) -> Vec<u8> {
        std::iter::from_fn(|| sctp.poll_packet(now)).filter_map(|packet| packet.get(12).copied()).collect()
    }

    #[test]
    fn the_offerer_initiates_at_once_and_the_answerer_waits_for_it() {
        let now = Instant::now();
        assert_eq!(kinds(&mut new(true, now), now), [INIT]);
        let mut answerer = new(false, now);
        assert_eq!(kinds(&mut answerer, now), Vec::<u8>::new());
        answerer.input(now, WERIFT);
        assert_eq!(kinds(&mut answerer, now), [INIT_ACK]);
    }

    #[test]
    fn an_init_is_answered_although_the_answerer_has_lost_its_patience() {
        let now = Instant::now();
        let mut answerer = new(false, now);
        let later = answerer.poll_timeout().unwrap();
        answerer.timeout(later);
        assert_eq!(kinds(&mut answerer, later), [INIT]);
        // werift ignores that one and repeats its own.
        answerer.input(later, WERIFT);
        assert_eq!(kinds(&mut answerer, later), [INIT_ACK]);
    }
}
