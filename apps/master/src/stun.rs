//! Answers STUN binding requests, in both forms, and from its other places when asked to (RFC 5780).
//!
//! Up to four sockets: each of one or two addresses with each of two ports. An answer goes to whoever asked and to nobody
//! else, from whichever socket the request names, and is at most 3.4 times as long as the request (68 bytes to 20; on
//! IPv6 116). One table of rates serves all four, so that a forged sender gets no more by asking them in turn.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use seam::{Dice, RateTable};
use stun::{Answer, Change, Request};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use crate::settings::{Port, Settings};
use crate::{StartError, lock, seed, udp};

/// Answers of one slot at once, and then one more in this time.
const BURST: u32 = 20;
const EVERY: Duration = Duration::from_millis(100);
const SLOTS: usize = 16_384;

/// A place's number has this bit for the other port, and this one for the other address.
const PORT: usize = 1;
const ADDRESS: usize = 2;

/// One socket, and where players reach it as far as that is known.
struct Place {
    socket: UdpSocket,
    at: SocketAddr,
    public: Option<SocketAddr>,
}

/// The server's sockets.
pub(crate) struct Places {
    places: [Option<Place>; 4],
}

impl Places {
    /// Opens what the settings ask for; nothing where STUN is off. Without its other port a master still answers: it
    /// only cannot tell how routers filter.
    pub(crate) fn open(settings: &Settings) -> Result<Option<Self>, StartError> {
        let Port::At(port) = settings.stun_port else { return Ok(None) };
        let main = match settings.stun_other_address {
            None => settings.relay_bind,
            // A socket of all addresses leaves none of their ports for another one.
            Some(_) if !settings.relay_bind.is_unspecified() => settings.relay_bind,
            Some(other) => {
                settings.relay_ip.filter(|ip| *ip != other && ip.is_ipv4() == other.is_ipv4()).ok_or_else(|| {
                    StartError::Settings(
                        "stun-other-address wants relay-ip or relay-bind to be another one of this machine's addresses"
                            .into(),
                    )
                })?
            }
        };
        let mut places = [None, None, None, None];
        let mut ports = [Port::At(port), settings.stun_other_port];
        for (number, place) in places.iter_mut().enumerate() {
            let ip = if number & ADDRESS == 0 { Some(main) } else { settings.stun_other_address };
            let (Some(ip), Some(Port::At(port))) = (ip, ports.get(number & PORT).copied()) else { continue };
            let socket = match udp("STUN", ip, port) {
                Ok(socket) => socket,
                Err(error) if number == 0 => return Err(error),
                Err(error) => {
                    eprintln!("STUN does not tell how routers behave: {error}");
                    continue;
                }
            };
            let at = socket.local_addr().map_err(crate::system)?;
            if let Some(port) = ports.get_mut(number & PORT) {
                *port = Port::At(at.port());
            }
            let known = if number & ADDRESS == 0 { settings.relay_ip } else { Some(ip) };
            let known = known.or(Some(ip)).filter(|ip: &IpAddr| !ip.is_unspecified());
            *place = Some(Place { socket, at, public: known.map(|ip| SocketAddr::new(ip, at.port())) });
        }
        Ok(Some(Self { places }))
    }

    /// Where the first socket is bound.
    pub(crate) fn main(&self) -> Option<SocketAddr> {
        self.places.first()?.as_ref().map(|place| place.at)
    }

    fn get(&self, number: usize) -> Option<&Place> {
        self.places.get(number)?.as_ref()
    }

    /// The answer to a request that came to a place from `seen`, and from which place it goes.
    fn answer(&self, number: usize, request: &Request, seen: SocketAddr) -> (usize, Vec<u8>) {
        let Change { ip, port } = request.change;
        let wanted = number ^ if ip { ADDRESS } else { 0 } ^ if port { PORT } else { 0 };
        let Some(place) = self.get(wanted) else { return (number, Answer::refusal(request)) };
        let other = self.get(number ^ (ADDRESS | PORT)).or_else(|| self.get(number ^ PORT));
        let told = |place: &Place| place.public.filter(|public| public.is_ipv4() == seen.is_ipv4());
        let answer = Answer::of(request, seen).with_places(told(place), other.and_then(told));
        (wanted, answer.encode())
    }
}

/// Serves at every place.
pub(crate) fn spawn(places: Places, services: &mut JoinSet<()>) -> Result<(), StartError> {
    let start = Instant::now();
    let rates = RateTable::new(SLOTS, BURST, EVERY, Dice::new(seed()?).u64());
    let shared = Arc::new((places, Mutex::new(rates)));
    for number in 0..4 {
        let shared = Arc::clone(&shared);
        services.spawn(async move {
            let (places, rates) = &*shared;
            let Some(place) = places.get(number) else { return };
            let mut buffer = [0; 1500];
            loop {
                // An error here is an earlier answer that could not be delivered.
                let Ok((len, from)) = place.socket.recv_from(&mut buffer).await else { continue };
                let Ok(request) = Request::parse(buffer.get(..len).unwrap_or_default()) else { continue };
                let seen = SocketAddr::new(from.ip().to_canonical(), from.port());
                if lock(rates).allow(start, Instant::now(), seen) {
                    let (by, answer) = places.answer(number, &request, seen);
                    if let Some(by) = places.get(by) {
                        let _ = by.socket.send_to(&answer, from).await;
                    }
                }
            }
        });
    }
    Ok(())
}
