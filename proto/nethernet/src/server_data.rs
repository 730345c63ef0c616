//! What a host tells about itself in a Response: `ServerData`, versions 4 to 7.
//!
//! NetherNet does not look into it (NetherNet, section 7.3), and a host whose data cannot be read is a host all the
//! same. Version 6 is what the game reads now; 4 is read by older programs. Version 7 was seen once and taken back: it
//! is read, and written by nobody who wants to be found.

use codec::{Reader, Short, Writer};
use thiserror::Error;

/// Most bytes of each text that is read or written.
pub const TEXT_MAX: usize = 512;

/// An advertisement. Fields that a version does not have keep their default when it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerData {
    /// 4, 5, 6 or 7.
    pub version: u8,
    /// The host's name.
    pub server_name: String,
    /// The world's name.
    pub level_name: String,
    /// Kind of game: 0 survival, 1 creative, 2 adventure.
    pub game_type: i32,
    /// Players in it.
    pub player_count: i32,
    /// Most players.
    pub max_player_count: i32,
    /// Made with the editor.
    pub editor_world: bool,
    /// One life only.
    pub hardcore: bool,
    /// Takes players whom the game's service vouches for (from version 5 on).
    pub accepts_online_auth: bool,
    /// Takes players who vouch for themselves (from version 5 on).
    pub accepts_self_signed_auth: bool,
    /// A text that the player's login must repeat (from version 6 on).
    pub nonce: String,
    /// The game's transport; 2 is NetherNet (not in version 7).
    pub transport_layer: i32,
    /// How the host is reached; 4 is LAN signalling.
    pub connection_type: i32,
    /// The game's protocol (version 7 only).
    pub protocol: i32,
    /// The game's version (version 7 only).
    pub game_version: String,
}

impl Default for ServerData {
    /// An empty host in the version that the game reads now.
    fn default() -> Self {
        Self {
            version: 6,
            server_name: String::new(),
            level_name: String::new(),
            game_type: 0,
            player_count: 0,
            max_player_count: 0,
            editor_world: false,
            hardcore: false,
            accepts_online_auth: false,
            accepts_self_signed_auth: false,
            nonce: String::new(),
            transport_layer: 2,
            connection_type: 4,
            protocol: 0,
            game_version: String::new(),
        }
    }
}

/// Why an advertisement cannot be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ServerDataError {
    /// Cut short.
    #[error(transparent)]
    Short(#[from] Short),
    /// None of those known.
    #[error("server data of version {0} is not known")]
    Version(u8),
    /// A text that is not UTF-8.
    #[error("{0} is not text")]
    NotText(&'static str),
    /// A text over its bound.
    #[error("{what} has {size} bytes; at most {max}")]
    TextTooLong {
        /// Which.
        what: &'static str,
        /// Its bytes.
        size: usize,
        /// The bound.
        max: usize,
    },
    /// A number that takes more than 32 bits, or that this version cannot hold.
    #[error("{0} is out of range")]
    Number(&'static str),
    /// Something follows.
    #[error("{0} bytes too many")]
    Trailing(usize),
}

impl ServerData {
    /// Reads an advertisement, all of it.
    ///
    /// # Errors
    /// [`ServerDataError`]; the host is there all the same.
    pub fn parse(bytes: &[u8]) -> Result<Self, ServerDataError> {
        let mut r = Reader::new(bytes);
        let version = r.u8("version")?;
        let mut data = Self { version, ..Self::default() };
        match version {
            4 => {
                data.server_name = short_text(&mut r, "server name")?;
                data.level_name = short_text(&mut r, "level name")?;
                data.game_type = unzigzag(u32::from(r.u8("game type")?));
                data.player_count = i32_le(&mut r, "player count")?;
                data.max_player_count = i32_le(&mut r, "max player count")?;
                data.editor_world = flag(&mut r, "editor world")?;
                data.hardcore = flag(&mut r, "hardcore")?;
                data.transport_layer = unzigzag(u32::from(r.u8("transport layer")?));
                data.connection_type = unzigzag(u32::from(r.u8("connection type")?));
            }
            5 | 6 => {
                data.server_name = text(&mut r, "server name")?;
                data.level_name = text(&mut r, "level name")?;
                data.game_type = varint(&mut r, "game type")?;
                data.player_count = i32_le(&mut r, "player count")?;
                data.max_player_count = i32_le(&mut r, "max player count")?;
                data.flags(&mut r)?;
                if version == 6 {
                    data.nonce = text(&mut r, "nonce")?;
                }
                data.transport_layer = varint(&mut r, "transport layer")?;
                data.connection_type = varint(&mut r, "connection type")?;
            }
            7 => {
                data.server_name = text(&mut r, "server name")?;
                data.protocol = varint(&mut r, "protocol")?;
                data.game_version = text(&mut r, "game version")?;
                data.level_name = text(&mut r, "level name")?;
                data.player_count = varint(&mut r, "player count")?;
                data.max_player_count = varint(&mut r, "max player count")?;
                data.game_type = varint(&mut r, "game type")?;
                data.flags(&mut r)?;
                data.nonce = text(&mut r, "nonce")?;
                data.connection_type = varint(&mut r, "connection type")?;
            }
            version => return Err(ServerDataError::Version(version)),
        }
        if r.is_empty() { Ok(data) } else { Err(ServerDataError::Trailing(r.remaining())) }
    }

    /// The advertisement's bytes in its version. Fields that the version does not have are left out.
    ///
    /// # Errors
    /// [`ServerDataError`]: an unknown version, or a field that it cannot hold.
    pub fn encode(&self) -> Result<Vec<u8>, ServerDataError> {
        let mut w = Writer::with_capacity(64);
        w.u8(self.version);
        match self.version {
            4 => {
                put_short_text(&mut w, "server name", &self.server_name)?;
                put_short_text(&mut w, "level name", &self.level_name)?;
                w.u8(small("game type", self.game_type)?);
                w.bytes(&self.player_count.to_le_bytes()).bytes(&self.max_player_count.to_le_bytes());
                w.u8(self.editor_world.into()).u8(self.hardcore.into());
                w.u8(small("transport layer", self.transport_layer)?);
                w.u8(small("connection type", self.connection_type)?);
            }
            5 | 6 => {
                put_text(&mut w, "server name", &self.server_name)?;
                put_text(&mut w, "level name", &self.level_name)?;
                put_varint(&mut w, zigzag(self.game_type));
                w.bytes(&self.player_count.to_le_bytes()).bytes(&self.max_player_count.to_le_bytes());
                self.put_flags(&mut w);
                if self.version == 6 {
                    put_text(&mut w, "nonce", &self.nonce)?;
                }
                put_varint(&mut w, zigzag(self.transport_layer));
                put_varint(&mut w, zigzag(self.connection_type));
            }
            7 => {
                put_text(&mut w, "server name", &self.server_name)?;
                put_varint(&mut w, zigzag(self.protocol));
                put_text(&mut w, "game version", &self.game_version)?;
                put_text(&mut w, "level name", &self.level_name)?;
                for number in [self.player_count, self.max_player_count, self.game_type] {
                    put_varint(&mut w, zigzag(number));
                }
                self.put_flags(&mut w);
                put_text(&mut w, "nonce", &self.nonce)?;
                put_varint(&mut w, zigzag(self.connection_type));
            }
            version => return Err(ServerDataError::Version(version)),
        }
        Ok(w.into_vec())
    }

    fn flags(&mut self, r: &mut Reader<'_>) -> Result<(), ServerDataError> {
        self.editor_world = flag(r, "editor world")?;
        self.hardcore = flag(r, "hardcore")?;
        self.accepts_online_auth = flag(r, "accepts online auth")?;
        self.accepts_self_signed_auth = flag(r, "accepts self-signed auth")?;
        Ok(())
    }

    fn put_flags(&self, w: &mut Writer) {
        for flag in [self.editor_world, self.hardcore, self.accepts_online_auth, self.accepts_self_signed_auth] {
            w.u8(flag.into());
        }
    }
}

fn flag(r: &mut Reader<'_>, what: &'static str) -> Result<bool, Short> {
    Ok(r.u8(what)? != 0)
}

fn i32_le(r: &mut Reader<'_>, what: &'static str) -> Result<i32, Short> {
    r.array(what).map(i32::from_le_bytes)
}

fn short_text(r: &mut Reader<'_>, what: &'static str) -> Result<String, ServerDataError> {
    let len = r.u8(what)?;
    utf8(r.take(usize::from(len), what)?, what)
}

fn text(r: &mut Reader<'_>, what: &'static str) -> Result<String, ServerDataError> {
    let size = usize::try_from(uvarint(r, what)?).unwrap_or(usize::MAX);
    if size > TEXT_MAX {
        return Err(ServerDataError::TextTooLong { what, size, max: TEXT_MAX });
    }
    utf8(r.take(size, what)?, what)
}

fn utf8(bytes: &[u8], what: &'static str) -> Result<String, ServerDataError> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| ServerDataError::NotText(what))
}

/// LEB128, at most five bytes and 32 bits.
fn uvarint(r: &mut Reader<'_>, what: &'static str) -> Result<u32, ServerDataError> {
    let mut value = 0_u64;
    for shift in [0, 7, 14, 21, 28] {
        let byte = r.u8(what)?;
        value |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return u32::try_from(value).map_err(|_| ServerDataError::Number(what));
        }
    }
    Err(ServerDataError::Number(what))
}

fn varint(r: &mut Reader<'_>, what: &'static str) -> Result<i32, ServerDataError> {
    uvarint(r, what).map(unzigzag)
}

fn unzigzag(value: u32) -> i32 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

fn zigzag(value: i32) -> u32 {
    ((value << 1) ^ (value >> 31)).cast_unsigned()
}

fn small(what: &'static str, value: i32) -> Result<u8, ServerDataError> {
    u8::try_from(zigzag(value)).map_err(|_| ServerDataError::Number(what))
}

fn put_varint(w: &mut Writer, mut value: u32) {
    loop {
        let low = u8::try_from(value & 0x7F).unwrap_or(0);
        value >>= 7;
        if value == 0 {
            w.u8(low);
            return;
        }
        w.u8(low | 0x80);
    }
}

fn put_text(w: &mut Writer, what: &'static str, text: &str) -> Result<(), ServerDataError> {
    let too_long = ServerDataError::TextTooLong { what, size: text.len(), max: TEXT_MAX };
    let size = u32::try_from(text.len()).map_err(|_| too_long)?;
    if text.len() > TEXT_MAX {
        return Err(too_long);
    }
    put_varint(w, size);
    w.bytes(text.as_bytes());
    Ok(())
}

fn put_short_text(w: &mut Writer, what: &'static str, text: &str) -> Result<(), ServerDataError> {
    let max = usize::from(u8::MAX);
    if text.len() > max {
        return Err(ServerDataError::TextTooLong { what, size: text.len(), max });
    }
    w.sized_u8(|w| {
        w.bytes(text.as_bytes());
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_version(version: u8, (a, b, c): (i32, i32, i32), names: (String, String, String), bits: u8) -> ServerData {
        let bit = |n: u8| bits >> n & 1 == 1;
        let mut data = ServerData {
            version,
            server_name: names.0,
            level_name: names.1,
            game_type: if version == 4 { a % 128 } else { a },
            player_count: b,
            max_player_count: c,
            editor_world: bit(0),
            hardcore: bit(1),
            ..ServerData::default()
        };
        if version >= 5 {
            (data.accepts_online_auth, data.accepts_self_signed_auth) = (bit(2), bit(3));
        }
        if version >= 6 {
            data.nonce = names.2;
        }
        if version == 7 {
            (data.protocol, data.game_version) = (a, "1.26".to_owned());
        }
        data
    }

    #[test]
    fn pain_29_the_nonce_reaches_the_application() {
        let data = ServerData { nonce: "00ff".to_owned(), ..ServerData::default() };
        assert_eq!(ServerData::parse(&data.encode().unwrap()).unwrap().nonce, "00ff");
    }

    #[test]
    fn every_truncation_and_anything_behind_is_refused() {
        for version in 4..=7 {
            let data = any_version(version, (300, 2, 3), ("a".into(), "b".into(), "c".into()), 5);
            let data = ServerData { game_type: 2, ..data };
            let mut bytes = data.encode().unwrap();
            for end in 0..bytes.len() {
                assert!(ServerData::parse(&bytes[..end]).is_err(), "version {version} cut to {end}");
            }
            bytes.push(0);
            assert_eq!(ServerData::parse(&bytes), Err(ServerDataError::Trailing(1)));
        }
    }

    #[test]
    fn hostile_lengths_are_refused_before_anything_is_reserved() {
        assert_eq!(ServerData::parse(b"\x06\xff\xff\xff\xff\xff\xff"), Err(ServerDataError::Number("server name")));
        let long = ServerDataError::TextTooLong { what: "server name", size: 0xFFFF_FFFF, max: TEXT_MAX };
        assert_eq!(ServerData::parse(b"\x06\xff\xff\xff\xff\x0f"), Err(long));
        assert!(matches!(ServerData::parse(b"\x04\xffa"), Err(ServerDataError::Short(_))));
        assert_eq!(ServerData::parse(b"\x04\x01\xff\x00"), Err(ServerDataError::NotText("server name")));
    }

    #[test]
    fn a_version_refuses_what_it_cannot_hold() {
        let four = ServerData { version: 4, ..ServerData::default() };
        let long = ServerData { server_name: "x".repeat(256), ..four.clone() };
        assert!(matches!(long.encode(), Err(ServerDataError::TextTooLong { max: 255, .. })));
        let far = ServerData { game_type: 128, ..four };
        assert_eq!(far.encode(), Err(ServerDataError::Number("game type")));
        let long = ServerData { nonce: "x".repeat(TEXT_MAX + 1), ..ServerData::default() };
        assert!(matches!(long.encode(), Err(ServerDataError::TextTooLong { max: TEXT_MAX, .. })));
        assert_eq!(ServerData { version: 8, ..ServerData::default() }.encode(), Err(ServerDataError::Version(8)));
    }

    proptest! {
        #[test]
        fn every_version_comes_back(
            version in 4_u8..=7,
            numbers: (i32, i32, i32),
            names in (".{0,60}", ".{0,60}", ".{0,60}"),
            bits: u8,
        ) {
            let data = any_version(version, numbers, names, bits);
            prop_assert_eq!(ServerData::parse(&data.encode().unwrap()), Ok(data));
        }

        #[test]
        fn no_bytes_are_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(data) = ServerData::parse(&bytes) {
                prop_assert_eq!(ServerData::parse(&data.encode().unwrap()), Ok(data));
            }
        }
    }
}
