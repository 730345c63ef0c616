//! Two and three peers in one process, over real sockets, through nothing but the seam.

use std::time::{Duration, Instant};

use anywire::{
    Channel, Delivery, Event, HostOptions, JoinOptions, LobbyPeer, LobbyTransport, Peer, PeerId, PeerState, SendError,
    Target, Transport,
};

fn wire() -> LobbyTransport {
    LobbyTransport { stun: Vec::new(), ..LobbyTransport::default() }
}

fn host() -> (LobbyPeer, String) {
    // A port of its own for every test: they run side by side.
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut host = wire().host_lobby(&HostOptions { name: "ada".into(), port, ..HostOptions::default() }).unwrap();
    let code = host.wait_for_code(Duration::from_secs(10)).expect("nobody has to be asked for this code").to_owned();
    (host, code)
}

fn join(code: &str, name: &str) -> Box<dyn Peer> {
    let options = JoinOptions { name: name.into(), address: code.into(), ..JoinOptions::default() };
    wire().join(&options).unwrap()
}

/// Polls every peer until `done` or time is up.
fn until(peers: &mut [&mut dyn Peer], seen: &mut [Vec<Event>], mut done: impl FnMut(&[Vec<Event>]) -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end {
        for (peer, seen) in peers.iter_mut().zip(seen.iter_mut()) {
            while let Some(event) = peer.poll() {
                seen.push(event);
            }
        }
        if done(seen) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

fn packets(events: &[Event]) -> Vec<(u32, u8, Vec<u8>)> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::Packet { from, channel, data, .. } => Some((from.get(), channel.0, data.to_vec())),
            _ => None,
        })
        .collect()
}

#[test]
fn packets_reach_everybody_else_once_with_the_senders_id() {
    let (mut host, code) = host();
    let (mut bea, mut cy) = (join(&code, "bea"), join(&code, "cy"));
    let mut seen = [Vec::new(), Vec::new(), Vec::new()];
    let all_there = |seen: &[Vec<Event>]| {
        seen.iter().all(|events| events.iter().filter(|e| matches!(e, Event::Joined(_))).count() == 2)
    };
    let mut peers: [&mut dyn Peer; 3] = [&mut host, &mut *bea, &mut *cy];
    assert!(until(&mut peers, &mut seen, all_there), "{seen:?}");
    let ids: Vec<u32> = peers.iter().map(|peer| peer.id().get()).collect();
    assert_eq!((ids[0], ids[1] != ids[2], ids[1].max(ids[2])), (1, true, 3));
    for (index, peer) in peers.iter_mut().enumerate() {
        let text = format!("from {index}");
        peer.send(Target::All, Channel(7), Delivery::Unreliable, text.as_bytes()).unwrap();
    }
    let heard = |seen: &[Vec<Event>]| seen.iter().all(|events| packets(events).len() >= 2);
    assert!(until(&mut peers, &mut seen, heard), "{seen:?}");
    for (me, events) in seen.iter().enumerate() {
        let mut got = packets(events);
        got.sort();
        let mut want: Vec<_> =
            (0..3).filter(|i| *i != me).map(|i| (ids[i], 7, format!("from {i}").into_bytes())).collect();
        want.sort();
        assert_eq!(got, want);
    }
    peers[0].close();
    let closed = |seen: &[Vec<Event>]| seen.iter().all(|events| matches!(events.last(), Some(Event::Closed(_))));
    assert!(until(&mut peers, &mut seen, closed), "{seen:?}");
    assert!(peers.iter().all(|peer| peer.state() == PeerState::Closed));
}

#[test]
fn what_the_wire_does_not_carry_is_a_typed_refusal() {
    let (mut host, _) = host();
    assert_eq!(host.id(), PeerId::HOST);
    let send =
        |host: &mut LobbyPeer, target, delivery, len: usize| host.send(target, Channel(0), delivery, &vec![0; len]);
    assert_eq!(send(&mut host, Target::All, Delivery::Reliable, 1), Err(SendError::NotCarried));
    assert_eq!(send(&mut host, Target::One(PeerId::HOST), Delivery::Unreliable, 1), Err(SendError::NotCarried));
    assert_eq!(
        send(&mut host, Target::All, Delivery::Unreliable, 1201),
        Err(SendError::TooLarge { size: 1201, max: 1200 })
    );
    assert_eq!(send(&mut host, Target::All, Delivery::Unreliable, 1200), Ok(()));
    let missing = PeerId::new(9).unwrap();
    assert_eq!(host.kick(missing, 0, "bye"), Err(SendError::NoSuchPeer(missing)));
}

#[test]
fn a_kicked_player_reads_why() {
    let (mut host, code) = host();
    let mut bea = join(&code, "bea");
    let mut seen = [Vec::new(), Vec::new()];
    let joined = |seen: &[Vec<Event>]| seen[0].iter().any(|e| matches!(e, Event::Joined(_)));
    assert!(until(&mut [&mut host, &mut *bea], &mut seen, joined));
    let id = host.peers()[0];
    host.kick(id, 4, "no griefing").unwrap();
    let over = |seen: &[Vec<Event>]| matches!(seen[1].last(), Some(Event::Closed(_)));
    assert!(until(&mut [&mut host, &mut *bea], &mut seen, over), "{seen:?}");
    assert!(format!("{:?}", seen[1].last()).contains("no griefing"), "{:?}", seen[1].last());
}

#[test]
fn a_code_that_does_not_read_is_refused_at_once_with_the_place() {
    let options = JoinOptions { name: "x".into(), address: "ABC1DEF".into(), ..JoinOptions::default() };
    let error = wire().join(&options).err().expect("1 is no character of a code");
    assert!(error.to_string().contains('4'), "{error}");
}
