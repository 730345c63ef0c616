//! What the two ends of a link say to each other on the control channel, and the mark in front of every other packet
//! (`docs/wire/lanes.md`, "Control").
//!
//! The same words serve every wire: they need a reliable channel and nothing else. An unknown kind is passed over; bytes
//! after the fields of a known one are for later versions.

use codec::{Reader, Short, Writer};
use seam::PeerId;

/// Version said in [`Control::Hello`].
pub const VERSION: u8 = 1;
/// Most bytes of a name; longer ones are cut when written.
pub const NAME_MAX: usize = 64;
/// Most bytes of a text for a person.
pub const TEXT_MAX: usize = 512;
/// Most players in one [`Control::Welcome`].
pub const PLAYERS_MAX: usize = 4_096;
/// Most bytes a [`Mark`] puts in front of a packet.
pub const MARK_MAX: usize = 5;

/// A player as the host tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Player {
    /// Its id.
    pub id: PeerId,
    /// It understands marks, so packets of other joiners reach it.
    pub speaks: bool,
    /// Its name is unique and others may have a link of their own to it.
    pub linked: bool,
    /// Its name.
    pub name: String,
}

/// Why a host does not take a player.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The id is another player's: ask again with another one.
    Taken,
    /// Nobody is taken at the moment.
    Closed,
    /// The player was banned.
    Banned,
    /// There are as many players as there may be.
    Full,
    /// Anything else; the text says it.
    Other,
}

/// One control message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Joiner to host, first: who wants in.
    Hello {
        /// [`VERSION`].
        version: u8,
        /// The id it would like; `None` takes any.
        wanted: Option<PeerId>,
        /// What the host may recognise it by; zeros say nothing.
        identity: [u8; 16],
        /// Its name.
        name: String,
    },
    /// Host to joiner: it is in.
    Welcome {
        /// Its id.
        you: PeerId,
        /// Everybody else, the host first.
        players: Vec<Player>,
    },
    /// Host to joiner: it is not.
    Refused(Why, String),
    /// Host to joiners: somebody arrived.
    Joined(Player),
    /// Host to joiners: somebody is gone.
    Left(PeerId),
    /// Host to joiner: it is removed.
    Kicked(u32, String),
    /// The sender leaves.
    Bye,
    /// Host to joiners: its round trips to the others in milliseconds; unreliable.
    Trips(Vec<(PeerId, u16)>),
}

/// What stands in front of a packet on any channel but control, between two ends that exchanged hello and welcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// For the receiver alone.
    Direct,
    /// Joiner to host: for this player.
    To(PeerId),
    /// Joiner to host: for the host and everybody else.
    ToAll,
    /// Joiner to host: for everybody else but this player, who may be the host.
    ToAllBut(PeerId),
    /// Host to joiner: from this player.
    From(PeerId),
}

impl Mark {
    /// Appends the mark.
    pub fn write(self, out: &mut Vec<u8>) {
        let (kind, id) = match self {
            Self::Direct => (0, None),
            Self::To(id) => (1, Some(id)),
            Self::ToAll => (2, None),
            Self::ToAllBut(id) => (3, Some(id)),
            Self::From(id) => (4, Some(id)),
        };
        out.push(kind);
        if let Some(id) = id {
            out.extend_from_slice(&id.get().to_be_bytes());
        }
    }

    /// Reads a mark and says how many bytes it has; `None` when there is none.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<(Self, usize)> {
        let mut left = Reader::new(bytes);
        let kind = left.u8("mark").ok()?;
        let mark = match kind {
            0 => Self::Direct,
            1 => Self::To(id(&mut left)?),
            2 => Self::ToAll,
            3 => Self::ToAllBut(id(&mut left)?),
            4 => Self::From(id(&mut left)?),
            _ => return None,
        };
        Some((mark, bytes.len() - left.remaining()))
    }
}

impl Control {
    /// The message's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::new();
        match self {
            Self::Hello { version, wanted, identity, name } => {
                out.u8(1).u8(*version).u32(wanted.map_or(0, PeerId::get)).bytes(identity);
                text(&mut out, name, NAME_MAX);
            }
            Self::Welcome { you, players } => {
                let players = players.get(..PLAYERS_MAX).unwrap_or(players);
                out.u8(2).u32(you.get()).u16(u16::try_from(players.len()).unwrap_or(0));
                for player in players {
                    write_player(&mut out, player);
                }
            }
            Self::Refused(why, said) => {
                let why = match why {
                    Why::Other => 0,
                    Why::Taken => 1,
                    Why::Closed => 2,
                    Why::Banned => 3,
                    Why::Full => 4,
                };
                out.u8(3).u8(why);
                text(&mut out, said, TEXT_MAX);
            }
            Self::Joined(player) => {
                out.u8(4);
                write_player(&mut out, player);
            }
            Self::Left(id) => {
                out.u8(5).u32(id.get());
            }
            Self::Kicked(code, said) => {
                out.u8(6).u32(*code);
                text(&mut out, said, TEXT_MAX);
            }
            Self::Bye => {
                out.u8(7);
            }
            Self::Trips(trips) => {
                let trips = trips.get(..PLAYERS_MAX).unwrap_or(trips);
                out.u8(8).u16(u16::try_from(trips.len()).unwrap_or(0));
                for (id, trip) in trips {
                    out.u32(id.get()).u16(*trip);
                }
            }
        }
        out.into_vec()
    }

    /// Reads a message; `Ok(None)` for a kind of a later version.
    ///
    /// # Errors
    /// [`ControlError`] for a message that is cut short or holds a value that is none.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, ControlError> {
        let mut left = Reader::new(bytes);
        Ok(Some(match left.u8("kind")? {
            1 => {
                let version = left.u8("version")?;
                let wanted = left.u32("wanted")?;
                let wanted = if wanted == 0 { None } else { Some(PeerId::new(wanted).ok_or(ControlError::Id)?) };
                Self::Hello {
                    version,
                    wanted,
                    identity: left.array("identity")?,
                    name: read_text(&mut left, NAME_MAX)?,
                }
            }
            2 => {
                let you = read_id(&mut left)?;
                let count = left.u16("players")?;
                let players = (0..count).map(|_| read_player(&mut left)).collect::<Result<_, _>>()?;
                Self::Welcome { you, players }
            }
            3 => {
                let why = match left.u8("why")? {
                    1 => Why::Taken,
                    2 => Why::Closed,
                    3 => Why::Banned,
                    4 => Why::Full,
                    _ => Why::Other,
                };
                Self::Refused(why, read_text(&mut left, TEXT_MAX)?)
            }
            4 => Self::Joined(read_player(&mut left)?),
            5 => Self::Left(read_id(&mut left)?),
            6 => {
                let code = left.u32("code")?;
                Self::Kicked(code, read_text(&mut left, TEXT_MAX)?)
            }
            7 => Self::Bye,
            8 => {
                let count = left.u16("trips")?;
                let trip = |left: &mut Reader<'_>| Ok::<_, ControlError>((read_id(left)?, left.u16("trip")?));
                Self::Trips((0..count).map(|_| trip(&mut left)).collect::<Result<_, _>>()?)
            }
            _ => return Ok(None),
        }))
    }
}

/// A control message that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// Cut short.
    #[error(transparent)]
    Short(#[from] Short),
    /// An id of 0 or over 31 bits.
    #[error("a player's id is 1 to 2147483647")]
    Id,
    /// A text that is too long or no UTF-8.
    #[error("a text is too long or no UTF-8")]
    Text,
}

fn id(left: &mut Reader<'_>) -> Option<PeerId> {
    left.u32("id").ok().and_then(PeerId::new)
}

fn read_id(left: &mut Reader<'_>) -> Result<PeerId, ControlError> {
    PeerId::new(left.u32("id")?).ok_or(ControlError::Id)
}

fn write_player(out: &mut Writer, player: &Player) {
    out.u32(player.id.get()).u8(u8::from(player.speaks) | u8::from(player.linked) << 1);
    text(out, &player.name, NAME_MAX);
}

fn read_player(left: &mut Reader<'_>) -> Result<Player, ControlError> {
    let id = read_id(left)?;
    let flags = left.u8("flags")?;
    let name = read_text(left, NAME_MAX)?;
    Ok(Player { id, speaks: flags & 1 != 0, linked: flags & 2 != 0, name })
}

/// Length as u16, then UTF-8, cut at a character's border when it is too long.
fn text(out: &mut Writer, said: &str, max: usize) {
    let mut end = said.len().min(max);
    while !said.is_char_boundary(end) {
        end -= 1;
    }
    let said = said.get(..end).unwrap_or_default();
    out.u16(u16::try_from(said.len()).unwrap_or(0)).bytes(said.as_bytes());
}

fn read_text(left: &mut Reader<'_>, max: usize) -> Result<String, ControlError> {
    let len = usize::from(left.u16("text length")?);
    let bytes = left.take(len, "text")?;
    if len > max {
        return Err(ControlError::Text);
    }
    let said = std::str::from_utf8(bytes).map_err(|_| ControlError::Text)?;
    Ok(said.to_owned())
}
