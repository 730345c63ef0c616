//! What a code holds in clear (netpunch wire, sections 2.2 and 2.3).

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

use codec::{Reader, Writer};

use crate::{CodeError, LOCKED, base32};

/// A code older than this many seconds is worth a warning: the addresses of a player's host are hardly true any more.
/// It is never refused, and a dedicated relay's code is old by design.
pub const STALE_AFTER: i64 = 600;

const OPEN: u8 = 0x01;
const SYMMETRIC: u8 = 0x02;
const CGNAT: u8 = 0x04;
const LAN: u8 = 0x08;
const PUBLIC: u8 = 0x10;
const IPV6: u8 = 0x20;
const DERIVED: u8 = 0x40;
const SECRET: u8 = 0x80;

/// First two bytes of every 6to4 address (RFC 3056).
const SIX_TO_FOUR: [u8; 2] = [0x20, 0x02];

/// What a peer found out about its router. For diagnosis: nothing is decided by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NatFlags {
    /// The router agreed to map the port.
    pub open: bool,
    /// The router maps each destination anew.
    pub symmetric: bool,
    /// Another router of the provider stands in between.
    pub cgnat: bool,
}

/// How one peer can be reached, as it stands in a code. A host's holds the session secret, a joiner's never does.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// When it was made, in Unix seconds.
    pub timestamp: u32,
    /// The router.
    pub flags: NatFlags,
    /// Address on the local network. Port 0 is legal and common: an old joiner does not know its port yet.
    pub lan: Option<SocketAddrV4>,
    /// Address on the internet.
    pub public: Option<SocketAddrV4>,
    /// Address on the IPv6 internet. Flow and scope do not travel.
    pub v6: Option<SocketAddrV6>,
    /// Addresses on virtual networks. The wire knows their order, not their places: a lone second one comes back as
    /// the first.
    pub vpn: [Option<SocketAddrV4>; 2],
    /// The session secret.
    pub secret: Option<[u8; 12]>,
    /// SteamID64; 0 is none.
    pub steam: Option<u64>,
}

/// Whether an IPv6 address that follows from the public IPv4 address may be shortened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    Short,
    Full,
}

impl Profile {
    /// The profile as a plain code.
    ///
    /// A first byte of `0xFF` would read as a locked code. Where every flag applies, the IPv6 address is written in
    /// full instead of shortened: the same facts, another first byte (pain 27).
    #[must_use]
    pub fn encode(&self) -> String {
        base32::encode(&self.to_bytes())
    }

    /// The bytes behind the letters of [`encode`](Self::encode), at most 67.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let (mut flags, mut fields) = self.parts(Packing::Short);
        if flags == LOCKED {
            (flags, fields) = self.parts(Packing::Full);
        }
        let mut w = Writer::with_capacity(5 + fields.len());
        w.u8(flags).u32(self.timestamp).bytes(&fields);
        w.into_vec()
    }

    /// Reads the bytes behind the letters of a plain code.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, CodeError> {
        let mut r = Reader::new(bytes);
        let flags = r.u8("flags")?;
        let timestamp = r.u32("time")?;
        Self::from_parts(flags, timestamp, &mut r)
    }

    /// Reads the fields that `flags` announces, then the tail.
    pub(crate) fn from_parts(flags: u8, timestamp: u32, r: &mut Reader<'_>) -> Result<Self, CodeError> {
        let nat = NatFlags { open: flags & OPEN != 0, symmetric: flags & SYMMETRIC != 0, cgnat: flags & CGNAT != 0 };
        let mut out = Self { timestamp, flags: nat, ..Self::default() };
        if flags & LAN != 0 {
            out.lan = Some(v4(r, "LAN address")?);
        }
        if flags & PUBLIC != 0 {
            out.public = Some(v4(r, "public address")?);
        }
        if flags & IPV6 != 0 {
            let derived_from =
                if flags & DERIVED == 0 { None } else { Some(*out.public.ok_or(CodeError::NoPublicForIpv6)?.ip()) };
            out.v6 = Some(v6(r, derived_from)?);
        }
        if flags & SECRET != 0 {
            out.secret = Some(r.array("secret")?);
        }
        out.tail(r.rest())?;
        Ok(out)
    }

    /// What follows the secret. No flags are left to announce it, so its length alone says what it is; lengths
    /// without a meaning are passed over.
    fn tail(&mut self, tail: &[u8]) -> Result<(), CodeError> {
        let mut r = Reader::new(tail);
        let has_steam = matches!(tail.len(), 8 | 14 | 20);
        let vpns = match tail.len() - if has_steam { 8 } else { 0 } {
            6 => 1,
            12 => 2,
            _ => 0,
        };
        for slot in self.vpn.iter_mut().take(vpns) {
            *slot = Some(v4(&mut r, "VPN address")?);
        }
        if has_steam {
            self.steam = Some(r.u64("Steam ID")?).filter(|id| *id != 0);
        }
        Ok(())
    }

    /// Flag byte and the fields from offset 5 on.
    pub(crate) fn parts(&self, packing: Packing) -> (u8, Vec<u8>) {
        let mut flags = 0;
        for (set, bit) in [(self.flags.open, OPEN), (self.flags.symmetric, SYMMETRIC), (self.flags.cgnat, CGNAT)] {
            flags |= if set { bit } else { 0 };
        }
        let mut w = Writer::with_capacity(62);
        if let Some(lan) = self.lan {
            flags |= LAN;
            put_v4(&mut w, lan);
        }
        if let Some(public) = self.public {
            flags |= PUBLIC;
            put_v4(&mut w, public);
        }
        if let Some(address) = self.v6 {
            flags |= IPV6;
            w.u16(address.port());
            let octets = address.ip().octets();
            match self.public.and_then(|public| derived_part(&octets, *public.ip())) {
                Some(part) if packing == Packing::Short => {
                    flags |= DERIVED;
                    w.bytes(part);
                }
                _ => {
                    w.bytes(&octets);
                }
            }
        }
        if let Some(secret) = &self.secret {
            flags |= SECRET;
            w.bytes(secret);
        }
        for address in self.vpn.into_iter().flatten() {
            put_v4(&mut w, address);
        }
        if let Some(id) = self.steam.filter(|id| *id != 0) {
            w.u64(id);
        }
        (flags, w.into_vec())
    }

    /// Age in seconds at `wall` (Unix seconds). Clocks differ between machines, so it may be negative.
    #[must_use]
    pub fn age(&self, wall: u64) -> i64 {
        age(self.timestamp, wall)
    }

    /// Whether the profile is older than [`STALE_AFTER`] at `wall`.
    #[must_use]
    pub fn is_stale(&self, wall: u64) -> bool {
        is_stale(self.timestamp, wall)
    }
}

/// Age in seconds, at `wall`, of a code made at `timestamp` (both in Unix seconds). It may be negative.
#[must_use]
pub fn age(timestamp: u32, wall: u64) -> i64 {
    i64::try_from(wall).unwrap_or(i64::MAX).saturating_sub(i64::from(timestamp))
}

/// Whether a code made at `timestamp` is older than [`STALE_AFTER`] at `wall`: worth a warning, never a refusal.
#[must_use]
pub fn is_stale(timestamp: u32, wall: u64) -> bool {
    age(timestamp, wall) > STALE_AFTER
}

impl fmt::Debug for Profile {
    /// Host parts of addresses and the secret are left out: a profile may end up in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let v4 = |a: Option<SocketAddrV4>| {
            a.map(|a| {
                let [x, y, z, _] = a.ip().octets();
                format!("{x}.{y}.{z}.x:{}", a.port())
            })
        };
        let v6 = self.v6.map(|a| {
            let [x, y, z, ..] = a.ip().segments();
            format!("[{x:x}:{y:x}:{z:x}:x]:{}", a.port())
        });
        f.debug_struct("Profile")
            .field("timestamp", &self.timestamp)
            .field("flags", &self.flags)
            .field("lan", &v4(self.lan))
            .field("public", &v4(self.public))
            .field("v6", &v6)
            .field("vpn", &self.vpn.map(v4))
            .field("secret", &self.secret.map(|_| ".."))
            .field("steam", &self.steam.map(|_| ".."))
            .finish()
    }
}

fn v4(r: &mut Reader<'_>, what: &'static str) -> Result<SocketAddrV4, CodeError> {
    let ip: [u8; 4] = r.array(what)?;
    Ok(SocketAddrV4::new(Ipv4Addr::from(ip), r.u16(what)?))
}

fn put_v4(w: &mut Writer, address: SocketAddrV4) {
    w.bytes(&address.ip().octets()).u16(address.port());
}

/// An IPv6 address, port first. `derived_from` fills in the first six bytes of a 6to4 address.
fn v6(r: &mut Reader<'_>, derived_from: Option<Ipv4Addr>) -> Result<SocketAddrV6, CodeError> {
    const WHAT: &str = "IPv6 address";
    let port = r.u16(WHAT)?;
    let mut octets = [0; 16];
    match derived_from {
        None => octets = r.array(WHAT)?,
        Some(public) => {
            let sent: [u8; 10] = r.array(WHAT)?;
            let whole = SIX_TO_FOUR.into_iter().chain(public.octets()).chain(sent);
            octets.iter_mut().zip(whole).for_each(|(to, from)| *to = from);
        }
    }
    Ok(SocketAddrV6::new(Ipv6Addr::from(octets), port, 0, 0))
}

/// The ten bytes of a 6to4 address that its public IPv4 address does not give.
fn derived_part(octets: &[u8; 16], public: Ipv4Addr) -> Option<&[u8]> {
    octets.strip_prefix(&SIX_TO_FOUR)?.strip_prefix(&public.octets())
}
