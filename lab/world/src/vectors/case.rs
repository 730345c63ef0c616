//! One vector, whose fields are counted as they are read.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use codec::{Map, Value};

/// Why a vector did not pass: our rooms disagree, or it is not understood.
#[derive(Debug)]
pub(super) struct Wrong(pub(super) String);

impl From<String> for Wrong {
    fn from(why: String) -> Self {
        Self(why)
    }
}

/// Words of vectors for a refusal whose reason they do not tell.
const PLAIN: [&str; 2] = ["malformed", "refused"];

/// A vector.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) inputs: Fields,
    pub(super) expect: Fields,
}

/// Named values. Each is marked when it is read.
#[derive(Debug)]
pub(super) struct Fields {
    part: &'static str,
    values: Map<String, Value>,
    read: BTreeSet<String>,
}

impl Case {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut map = codec::object(bytes).map_err(|error| error.to_string())?;
        let mut part = |part: &'static str| match map.remove(part) {
            Some(Value::Object(values)) => Ok(Fields { part, values, read: BTreeSet::new() }),
            _ => Err(format!("`{part}` is not an object")),
        };
        let (inputs, expect) = (part("inputs")?, part("expect")?);
        if let Some(key) = map.keys().find(|key| !matches!(key.as_str(), "name" | "note")) {
            return Err(format!("`{key}` is not understood"));
        }
        Ok(Self { inputs, expect })
    }

    /// Refuses a vector of which something was not looked at.
    pub(super) fn all_read(&self) -> Result<(), Wrong> {
        for fields in [&self.inputs, &self.expect] {
            if let Some(key) = fields.values.keys().find(|key| *key != "why" && !fields.read.contains(*key)) {
                return Err(Wrong(format!("`{}.{key}` is not understood", fields.part)));
            }
        }
        Ok(())
    }

    /// The outcome of something that the vector may want refused: `expect.error` or a false `expect.accept`. `words`
    /// are the reasons that have a word of their own, which `word` finds; [`PLAIN`] words stand for all others.
    pub(super) fn outcome<T, E: Debug>(
        &mut self,
        got: Result<T, E>,
        word: impl Fn(&E) -> Option<&'static str>,
        words: &[&str],
    ) -> Result<Option<T>, Wrong> {
        let error = self.expect.maybe("error", |v| v.as_str().map(str::to_owned))?;
        let accept = self.expect.maybe("accept", Value::as_bool)?;
        match (got, error) {
            (Ok(_), Some(_)) => Err(Wrong("taken, though it is to be refused".to_owned())),
            (Ok(_), None) if accept == Some(false) => Err(Wrong("taken, though it is to be refused".to_owned())),
            (Ok(value), None) => Ok(Some(value)),
            (Err(got), Some(want)) => {
                let said = word(&got);
                let agreed = if words.contains(&want.as_str()) { said == Some(&want) } else { said.is_none() };
                if agreed && (said.is_some() || PLAIN.contains(&want.as_str())) {
                    return Ok(None);
                }
                Err(Wrong(format!("refused as {got:?}, want {want:?}")))
            }
            (Err(_), None) if accept == Some(false) => Ok(None),
            (Err(got), None) => Err(Wrong(format!("refused: {got:?}"))),
        }
    }

    /// [`outcome`](Self::outcome) where no reason has a word of its own.
    pub(super) fn plain_outcome<T, E: Debug>(&mut self, got: Result<T, E>) -> Result<Option<T>, Wrong> {
        self.outcome(got, |_| None, &[])
    }
}

impl Fields {
    /// The fields of an object that is called `part` in messages.
    pub(super) fn of(part: &'static str, values: Map<String, Value>) -> Self {
        Self { part, values, read: BTreeSet::new() }
    }

    /// Whether a field is there and not null. It counts as read only when it is null.
    pub(super) fn has(&mut self, key: &str) -> bool {
        match self.values.get(key) {
            Some(Value::Null) => {
                self.read.insert(key.to_owned());
                false
            }
            Some(_) => true,
            None => false,
        }
    }

    /// A field that may be absent or null.
    pub(super) fn maybe<T>(&mut self, key: &str, read: impl FnOnce(&Value) -> Option<T>) -> Result<Option<T>, Wrong> {
        if !self.has(key) {
            return Ok(None);
        }
        self.read.insert(key.to_owned());
        let value = self.values.get(key).and_then(read);
        value.map(Some).ok_or_else(|| Wrong(format!("`{}.{key}` has an unknown form", self.part)))
    }

    /// A field that must be there.
    pub(super) fn must<T>(&mut self, key: &str, read: impl FnOnce(&Value) -> Option<T>) -> Result<T, Wrong> {
        self.maybe(key, read)?.ok_or_else(|| Wrong(format!("`{}.{key}` is missing", self.part)))
    }

    pub(super) fn value(&mut self, key: &str) -> Result<Value, Wrong> {
        self.must(key, |v| Some(v.clone()))
    }

    pub(super) fn text(&mut self, key: &str) -> Result<String, Wrong> {
        self.must(key, |v| v.as_str().map(str::to_owned))
    }

    pub(super) fn texts(&mut self, key: &str) -> Result<Vec<String>, Wrong> {
        self.must(key, |v| v.as_array()?.iter().map(|v| v.as_str().map(str::to_owned)).collect())
    }

    pub(super) fn bool(&mut self, key: &str) -> Result<bool, Wrong> {
        self.must(key, Value::as_bool)
    }

    pub(super) fn number<T: TryFrom<u64>>(&mut self, key: &str) -> Result<T, Wrong> {
        self.must(key, |v| T::try_from(v.as_u64()?).ok())
    }

    pub(super) fn bytes(&mut self, key: &str) -> Result<Vec<u8>, Wrong> {
        self.must(key, hex)
    }

    pub(super) fn array<const N: usize>(&mut self, key: &str) -> Result<[u8; N], Wrong> {
        self.must(key, hex_array)
    }

    /// A field holding an object of its own; all of its keys must be read through what is returned.
    pub(super) fn object(&mut self, key: &'static str) -> Result<Fields, Wrong> {
        let values = self.must(key, |v| v.as_object().cloned())?;
        Ok(Fields { part: key, values, read: BTreeSet::new() })
    }

    /// Refuses an object of which something was not looked at.
    pub(super) fn all_read(&self) -> Result<(), Wrong> {
        self.all_read_but(&[])
    }

    /// [`all_read`](Self::all_read), words for people apart.
    pub(super) fn all_read_but(&self, prose: &[&str]) -> Result<(), Wrong> {
        match self.values.keys().find(|key| !self.read.contains(*key) && !prose.contains(&key.as_str())) {
            Some(key) => Err(Wrong(format!("`{}.{key}` is not understood", self.part))),
            None => Ok(()),
        }
    }
}

pub(super) fn hex(value: &Value) -> Option<Vec<u8>> {
    codec::unhex(value.as_str()?)
}

pub(super) fn hex_array<const N: usize>(value: &Value) -> Option<[u8; N]> {
    hex(value)?.try_into().ok()
}

/// A value written as text.
pub(super) fn parsed<T: FromStr>(value: &Value) -> Option<T> {
    value.as_str()?.parse().ok()
}

/// An address written as `["127.0.0.1", 62100]`.
pub(super) fn pair(value: &Value) -> Option<SocketAddr> {
    match value.as_array()?.as_slice() {
        [ip, port] => Some(SocketAddr::new(parsed::<IpAddr>(ip)?, u16::try_from(port.as_u64()?).ok()?)),
        _ => None,
    }
}

/// Passes when both are the same.
pub(super) fn same<T: PartialEq + Debug + ?Sized>(what: &str, got: &T, want: &T) -> Result<(), Wrong> {
    if got == want {
        return Ok(());
    }
    Err(Wrong(format!("{what}: got {got:?}, want {want:?}")))
}

/// [`same`] for bytes, shown as hexadecimal.
pub(super) fn same_bytes(what: &str, got: &[u8], want: &[u8]) -> Result<(), Wrong> {
    same(what, codec::hex(got).as_str(), codec::hex(want).as_str())
}
