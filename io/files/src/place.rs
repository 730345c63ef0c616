//! Reading and writing at a place, and what goes wrong.

use std::fs::File;
use std::io::{self, ErrorKind};

use parcel::Fault;

#[cfg(unix)]
pub(crate) fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, at)
}

#[cfg(unix)]
pub(crate) fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

#[cfg(windows)]
pub(crate) fn read_at(file: &File, mut bytes: &mut [u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let read = std::os::windows::fs::FileExt::seek_read(file, bytes, at)?;
        let Some(rest) = bytes.get_mut(read..).filter(|_| read > 0) else {
            return Err(ErrorKind::UnexpectedEof.into());
        };
        bytes = rest;
        at += u64::try_from(read).unwrap_or_default();
    }
    Ok(())
}

#[cfg(windows)]
pub(crate) fn write_at(file: &File, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let wrote = std::os::windows::fs::FileExt::seek_write(file, bytes, at)?;
        let Some(rest) = bytes.get(wrote..).filter(|_| wrote > 0) else { return Err(ErrorKind::WriteZero.into()) };
        bytes = rest;
        at += u64::try_from(wrote).unwrap_or_default();
    }
    Ok(())
}

/// What went wrong, in the words of a transfer.
pub(crate) fn fault(error: &io::Error) -> Fault {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => Fault::Full,
        ErrorKind::NotFound | ErrorKind::NotADirectory => Fault::Gone,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Fault::Denied,
        ErrorKind::UnexpectedEof => Fault::Changed,
        _ => Fault::Other(error.to_string()),
    }
}

/// The parts of a stretch of the whole stream: which file, where in it, how much.
pub(crate) fn split(sizes: &[u64], at: u64, len: usize) -> Vec<(usize, u64, usize)> {
    let mut parts = Vec::new();
    let (mut begin, mut at, mut left) = (0u64, at, u64::try_from(len).unwrap_or(u64::MAX));
    for (index, size) in sizes.iter().enumerate() {
        let end = begin.saturating_add(*size);
        if at < end && left > 0 {
            let take = left.min(end - at);
            parts.push((index, at - begin, usize::try_from(take).unwrap_or(usize::MAX)));
            at += take;
            left -= take;
        }
        begin = end;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_is_cut_where_files_end() {
        let sizes = [10, 0, 5, 100];
        assert_eq!(split(&sizes, 0, 10), [(0, 0, 10)]);
        assert_eq!(split(&sizes, 8, 10), [(0, 8, 2), (2, 0, 5), (3, 0, 3)]);
        assert_eq!(split(&sizes, 114, 100), [(3, 99, 1)]);
        assert_eq!(split(&sizes, 115, 1), []);
    }
}
