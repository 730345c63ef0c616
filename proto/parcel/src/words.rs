//! The messages of a transfer, one struct each, fields in the order in which they are written (netpunch wire, sections
//! 9.1, 9.2, 9.6 and 9.7). Reading is typed: a field of the wrong type refuses the whole message.

use codec::{Map, Value};
use seam::Refused;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Misfit;

/// Missing chunks named in one [`Feedback`].
pub const NACKS_MAX: usize = 128;
/// Addresses named in one offer or acknowledgement.
pub const ADDRESSES_MAX: usize = 6;
/// Files of one transfer: a save and two sidecars, or one archive.
pub const FILES_MAX: usize = 8;
/// The largest chunk there is.
const CHUNK_MAX: u32 = 32_768;
/// Mods one save needs at most; the largest list seen in the field names some 600.
const MODS_MAX: usize = 4096;

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// A saved world and its sidecars.
    #[serde(rename = "save")]
    Save,
    /// An archive of a mod.
    #[serde(rename = "mods")]
    Mods,
    /// Terrain, while the game loads.
    #[serde(rename = "terr")]
    Terrain,
}

/// The names a save and its sidecars travel under, in the order of the stream.
pub const SAVE_NAMES: [&str; 3] = ["incoming_save.sav", "incoming_save.sav.lua", "incoming_save.jpg"];

/// One file of an offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedFile {
    /// What it is called at the receiver.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
}

/// Where and with what a stream is greeted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpOffer {
    /// The port the sender listens at; absent where it only dials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// 32 hexadecimal digits that a greeting repeats.
    #[serde(default)]
    pub token: String,
    /// Addresses to dial instead of the one the offer came from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addrs: Vec<String>,
}

/// `fbegin`: what is coming.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", rename = "fbegin")]
pub struct Offer {
    /// Names the transfer.
    pub sid: u32,
    /// Bytes of all files, which follow each other without gaps.
    pub total_bytes: u64,
    /// Bytes of a chunk.
    pub chunk: u32,
    /// Chunks.
    pub total_chunks: u32,
    /// The files in their order.
    pub files: Vec<OfferedFile>,
    /// SHA-256 of the whole stream in hexadecimal.
    pub sha256: String,
    /// What it is.
    #[serde(default = "save")]
    pub kind: Kind,
    /// Mods the save needs, `[id, version]`.
    #[serde(default)]
    pub mods: Option<Vec<(String, i64)>>,
    /// The list of mods could not be read, which is not an empty one (pain 81).
    #[serde(default)]
    pub mods_unknown: bool,
    /// Round `k` of `n`, of mods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<(u32, u32)>,
    /// A stream is possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpOffer>,
    /// The same by a better way, between our own ends (`docs/wire/extensions.md`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aw_quic: Option<AwQuic>,
}

/// What an end of ours adds to an offer or its acknowledgement, where both speak the word `quic`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwQuic {
    /// SHA-256 of this end's certificate, in hexadecimal: the sealed channel vouches for it.
    pub key: String,
    /// BLAKE3 root of the whole stream, in hexadecimal; in offers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
}

const fn save() -> Kind {
    Kind::Save
}

impl Offer {
    /// Whether the numbers agree and nothing is named that must not be written, before anything is allocated (pain 72).
    ///
    /// # Errors
    /// [`Misfit`] says what does not fit.
    pub fn check(&self, most_bytes: u64) -> Result<(), Misfit> {
        if self.files.is_empty()
            || self.files.len() > FILES_MAX
            || self.mods.as_ref().is_some_and(|mods| mods.len() > MODS_MAX)
        {
            return Err(Misfit::Count);
        }
        if self.total_bytes > most_bytes {
            return Err(Misfit::TooLarge { bytes: self.total_bytes, most: most_bytes });
        }
        let sum = self.files.iter().try_fold(0u64, |sum, file| sum.checked_add(file.size));
        if self.chunk == 0 || self.chunk > CHUNK_MAX {
            return Err(Misfit::Sizes);
        }
        let chunks = self.total_bytes.div_ceil(u64::from(self.chunk));
        if sum != Some(self.total_bytes) || chunks != u64::from(self.total_chunks) {
            return Err(Misfit::Sizes);
        }
        let hashes = self.files.iter().map(|file| &file.sha256).chain([&self.sha256]);
        if hashes.into_iter().any(|hash| digest(hash).is_none()) {
            return Err(Misfit::Hash);
        }
        let mut seen = Vec::new();
        for file in &self.files {
            if !self.expects(&file.name) || seen.contains(&&file.name) {
                return Err(Misfit::Name);
            }
            seen.push(&file.name);
        }
        Ok(())
    }

    fn expects(&self, name: &str) -> bool {
        match self.kind {
            Kind::Save => SAVE_NAMES.contains(&name),
            Kind::Terrain => name == "incoming_save.terr" && self.files.len() == 1,
            Kind::Mods => {
                let inner = name.strip_prefix("incoming_mod_").and_then(|name| name.strip_suffix(".zip"));
                let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '*' | '.' | '-');
                inner.is_some_and(|inner| !inner.is_empty() && inner.len() <= 140 && inner.chars().all(good))
            }
        }
    }

    /// Bytes of chunk `index` as its place in the stream says: the last one is shorter.
    #[must_use]
    pub fn chunk_len(&self, index: u32) -> usize {
        let at = u64::from(index) * u64::from(self.chunk);
        let left = self.total_bytes.saturating_sub(at).min(u64::from(self.chunk));
        usize::try_from(left).unwrap_or_default()
    }

    /// Whole chunks in the first `bytes` of the stream.
    #[must_use]
    pub fn chunks_in(&self, bytes: u64) -> u32 {
        if bytes >= self.total_bytes {
            return self.total_chunks;
        }
        u32::try_from(bytes / u64::from(self.chunk.max(1))).unwrap_or(u32::MAX)
    }
}

/// A SHA-256 or BLAKE3 digest from its 64 hexadecimal digits, lower case.
#[must_use]
pub fn digest(text: &str) -> Option<[u8; 32]> {
    codec::unhex(text)?.try_into().ok()
}

/// `fbegin_ack`: the offer is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "t", rename = "fbegin_ack")]
pub struct OfferAck {
    /// Which transfer.
    pub sid: u32,
    /// Mods it lacks, `<id>_<version>`.
    #[serde(default)]
    pub need: Vec<String>,
    /// Its player is being asked.
    #[serde(default)]
    pub ask: bool,
    /// A port at which the receiver listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_port: Option<u16>,
    /// Its addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tcp_addrs: Vec<String>,
    /// It dials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_pull: Option<bool>,
    /// As in an offer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aw_quic: Option<AwQuic>,
}

/// `fack`: how far a receiver is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "t", rename = "fack")]
pub struct Feedback {
    /// Which transfer.
    pub sid: u32,
    /// Chunks held without a gap.
    pub base: u32,
    /// Chunks missing from there on.
    #[serde(default)]
    pub nack: Vec<u32>,
    /// All are there and their hashes are being taken.
    #[serde(default)]
    pub verifying: bool,
    /// How far that is, while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<i64>,
}

/// `fdone`: a receiver is through, or gives up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "t", rename = "fdone")]
pub struct Done {
    /// Which transfer.
    pub sid: u32,
    /// Everything arrived and verified.
    #[serde(default)]
    pub ok: bool,
    /// It will not try again.
    #[serde(default, rename = "final", skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
}

/// `tcp_gave_up`: the sender is not reached by a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "t", rename = "tcp_gave_up")]
pub struct GaveUp {
    /// Which transfer.
    pub sid: u32,
}

/// `bulk_pipe`: meet at the master's pipe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "t", rename = "bulk_pipe")]
pub struct Pipe {
    /// Which transfer.
    pub sid: u32,
    /// 32 hexadecimal digits that name the pair.
    pub pair: String,
    /// The pipe's address.
    pub ip: String,
    /// Its port.
    pub port: u16,
}

/// Any message of a transfer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Word {
    /// `fbegin`.
    Offer(Box<Offer>),
    /// `fbegin_ack`.
    Ack(OfferAck),
    /// `fack`.
    Feedback(Feedback),
    /// `fdone`.
    Done(Done),
    /// `tcp_gave_up`.
    GaveUp(GaveUp),
    /// `bulk_pipe`.
    Pipe(Pipe),
}

impl Word {
    /// Whether a lobby message of kind `t` is one of a transfer.
    #[must_use]
    pub fn is_kind(t: &str) -> bool {
        matches!(t, "fbegin" | "fbegin_ack" | "fack" | "fdone" | "tcp_gave_up" | "bulk_pipe")
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`Refused::NotOurs`] for another kind, [`Refused::Malformed`] for a field of another type or one that is missing.
    pub fn parse(json: &[u8]) -> Result<Self, Refused> {
        Self::from_map(codec::object(json).map_err(|_| Refused::Malformed)?)
    }

    /// [`Word::parse`] of a message that was taken apart already.
    ///
    /// # Errors
    /// As [`Word::parse`].
    pub fn from_map(map: Map<String, Value>) -> Result<Self, Refused> {
        let kind = map.get("t").and_then(Value::as_str).unwrap_or_default().to_owned();
        match kind.as_str() {
            "fbegin" => read(map).map(|offer| Self::Offer(Box::new(offer))),
            "fbegin_ack" => read(map).map(Self::Ack),
            "fack" => read(map).map(Self::Feedback),
            "fdone" => read(map).map(Self::Done),
            "tcp_gave_up" => read(map).map(Self::GaveUp),
            "bulk_pipe" => read(map).map(Self::Pipe),
            _ => Err(Refused::NotOurs),
        }
    }

    /// The bytes an old peer would write.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        match self {
            Self::Offer(word) => codec::to_json(word),
            Self::Ack(word) => codec::to_json(word),
            Self::Feedback(word) => codec::to_json(word),
            Self::Done(word) => codec::to_json(word),
            Self::GaveUp(word) => codec::to_json(word),
            Self::Pipe(word) => codec::to_json(word),
        }
    }

    /// The transfer it is about.
    #[must_use]
    pub fn sid(&self) -> u32 {
        match self {
            Self::Offer(word) => word.sid,
            Self::Ack(word) => word.sid,
            Self::Feedback(word) => word.sid,
            Self::Done(word) => word.sid,
            Self::GaveUp(word) => word.sid,
            Self::Pipe(word) => word.sid,
        }
    }
}

fn read<T: DeserializeOwned>(map: Map<String, Value>) -> Result<T, Refused> {
    serde_json::from_value(Value::Object(map)).map_err(|_| Refused::Malformed)
}
