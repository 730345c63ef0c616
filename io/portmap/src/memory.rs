//! What was asked of routers, kept over a crash.
//!
//! A text file, one mapping a line, replaced as a whole before a router is asked and after it has taken something back.
//! Beside it stands a lock that the operating system releases with the process, however that ends: entries behind a free
//! lock are nobody's. A second process on the same machine takes the next of 8 files.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use crate::words::{Method, Protocol};

/// Processes of one machine that remember at the same time.
const SLOTS: usize = 8;
/// Entries that are remembered; the oldest go.
pub(crate) const MOST: usize = 32;
const FIRST_LINE: &str = "anywire-portmap 1";
const MOST_BYTES: u64 = 16 * 1024;

/// One mapping as a router was asked for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) method: Method,
    pub(crate) protocol: Protocol,
    /// The router.
    pub(crate) gateway: Ipv4Addr,
    /// This machine, as the router knows it.
    pub(crate) client: Ipv4Addr,
    pub(crate) internal: u16,
    pub(crate) external: u16,
    /// PCP's proof that a mapping is ours, good for nothing else; zeros elsewhere.
    pub(crate) nonce: [u32; 3],
    /// Unix seconds at which it is gone by itself; 0 for never.
    pub(crate) until: u64,
}

impl Entry {
    fn line(&self) -> String {
        let method = match self.method {
            Method::Upnp => "upnp",
            Method::NatPmp => "nat-pmp",
            Method::Pcp => "pcp",
        };
        let protocol = match self.protocol {
            Protocol::Udp => "udp",
            Protocol::Tcp => "tcp",
        };
        let [a, b, c] = self.nonce;
        format!(
            "{method} {protocol} {} {} {} {} {a} {b} {c} {}\n",
            self.gateway, self.client, self.internal, self.external, self.until
        )
    }

    fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let method = match words.next()? {
            "upnp" => Method::Upnp,
            "nat-pmp" => Method::NatPmp,
            "pcp" => Method::Pcp,
            _ => return None,
        };
        let protocol = match words.next()? {
            "udp" => Protocol::Udp,
            "tcp" => Protocol::Tcp,
            _ => return None,
        };
        let entry = Self {
            method,
            protocol,
            gateway: words.next()?.parse().ok()?,
            client: words.next()?.parse().ok()?,
            internal: words.next()?.parse().ok().filter(|port| *port != 0)?,
            external: words.next()?.parse().ok().filter(|port| *port != 0)?,
            nonce: [words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?],
            until: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(entry)
    }
}

fn parse(text: &str) -> Vec<Entry> {
    let mut lines = text.lines();
    if lines.next() != Some(FIRST_LINE) {
        return Vec::new();
    }
    lines.filter_map(Entry::read).take(MOST).collect()
}

/// This process's own file.
#[derive(Debug)]
pub(crate) struct Memory {
    path: PathBuf,
    written: Vec<Entry>,
    _lock: File,
}

impl Memory {
    /// Takes the first free file and everything that dead processes left in any of them.
    pub(crate) fn open(base: &Path) -> io::Result<(Self, Vec<Entry>)> {
        if let Some(folder) = base.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut own: Option<Self> = None;
        let mut left = Vec::new();
        let mut emptied = Vec::new();
        for slot in 0..SLOTS {
            let path = if slot == 0 { base.to_owned() } else { beside(base, &slot.to_string()) };
            if own.is_some() && !path.exists() {
                continue;
            }
            let lock = File::options().create(true).truncate(false).write(true).open(beside(&path, "lock"))?;
            match lock.try_lock() {
                Ok(()) => {}
                Err(fs::TryLockError::WouldBlock) => continue,
                Err(fs::TryLockError::Error(error)) => return Err(error),
            }
            let found = read(&path);
            left.extend(found.iter().copied());
            if own.is_none() {
                own = Some(Self { path, written: found, _lock: lock });
            } else {
                emptied.push((path, lock));
            }
        }
        let mut own = own.ok_or_else(|| io::Error::other("every file is another process's"))?;
        left.truncate(MOST);
        own.keep(&left)?;
        for (path, _lock) in emptied {
            let _ = fs::remove_file(path);
        }
        Ok((own, left))
    }

    /// Writes what stands at routers now, if that is another thing than before.
    pub(crate) fn keep(&mut self, entries: &[Entry]) -> io::Result<()> {
        if self.written == entries {
            return Ok(());
        }
        if entries.is_empty() {
            match fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        } else {
            let new = beside(&self.path, "new");
            let mut file = File::create(&new)?;
            let mut text = format!("{FIRST_LINE}\n");
            entries.iter().for_each(|entry| text.push_str(&entry.line()));
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &self.path)?;
        }
        self.written = entries.to_vec();
        Ok(())
    }
}

fn read(path: &Path) -> Vec<Entry> {
    let mut text = String::new();
    match File::open(path).and_then(|file| file.take(MOST_BYTES).read_to_string(&mut text)) {
        Ok(_) => parse(&text),
        Err(_) => Vec::new(),
    }
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(end);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("anywire-portmap-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            Self(folder)
        }

        fn file(&self) -> PathBuf {
            self.0.join("deeper/ports")
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn entry(port: u16) -> Entry {
        Entry {
            method: Method::Pcp,
            protocol: Protocol::Tcp,
            gateway: Ipv4Addr::new(192, 168, 1, 1),
            client: Ipv4Addr::new(192, 168, 1, 2),
            internal: port,
            external: port + 1,
            nonce: [1, 2, u32::MAX],
            until: 1_790_000_000,
        }
    }

    #[test]
    fn what_a_dead_process_left_is_taken_over() {
        let folder = Folder::new("dead");
        let (mut memory, left) = Memory::open(&folder.file()).unwrap();
        assert_eq!(left, []);
        memory.keep(&[entry(7777), entry(7778)]).unwrap();
        drop(memory);
        let (mut memory, left) = Memory::open(&folder.file()).unwrap();
        assert_eq!(left, [entry(7777), entry(7778)]);
        memory.keep(&[]).unwrap();
        assert!(!folder.file().exists());
    }

    #[test]
    fn what_a_living_process_holds_is_left_alone() {
        let folder = Folder::new("alive");
        let (mut first, _) = Memory::open(&folder.file()).unwrap();
        first.keep(&[entry(1)]).unwrap();
        let (mut second, left) = Memory::open(&folder.file()).unwrap();
        assert_eq!(left, []);
        second.keep(&[entry(2)]).unwrap();
        drop((first, second));
        let (_third, left) = Memory::open(&folder.file()).unwrap();
        assert_eq!(left, [entry(1), entry(2)], "both are dead, and both files are read");
        let (_fourth, left) = Memory::open(&folder.file()).unwrap();
        assert_eq!(left, [], "they belong to the third now");
    }

    #[test]
    fn a_broken_file_is_read_as_far_as_it_makes_sense() {
        let good = entry(7).line();
        assert_eq!(parse(&format!("{FIRST_LINE}\n{good}nonsense\n{good}")), [entry(7), entry(7)]);
        assert_eq!(parse(&format!("another 1\n{good}")), []);
        let good = good.trim_end();
        for end in 0..good.len() - 10 {
            assert_eq!(Entry::read(good.get(..end).unwrap()), None, "{end}");
        }
        assert_eq!(Entry::read(&format!("{good} more")), None);
        assert_eq!(parse(&format!("{FIRST_LINE}\n{}", format!("{good}\n").repeat(100))).len(), MOST);
    }
}
