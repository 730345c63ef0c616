//! Whole transfers between real disks, over real sockets on loopback.

// Helpers of tests panic on their own mistakes.
#![allow(clippy::panic, clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anywire_files::{Worker, dial, greeting, listen};
use parcel::{ANSWER, Answer, Ask, Fault};
use seam::{StreamEnd, StreamId};

const WAIT: Duration = Duration::from_secs(60);

/// An empty folder of this test's own.
fn folder(test: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("files-{test}"));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    let mut dice = seam::Dice::new([seed; 32]);
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        out.extend_from_slice(&dice.u64().to_be_bytes());
    }
    out.truncate(len);
    out
}

fn worker(folder: &std::path::Path) -> (Worker, Receiver<Answer>) {
    let (tell, told) = channel();
    (Worker::new(folder, move |answer| drop(tell.send(answer))), told)
}

fn next(told: &Receiver<Answer>) -> Answer {
    loop {
        match told.recv_timeout(WAIT).unwrap() {
            Answer::Sent { .. } | Answer::Arrived { .. } | Answer::Hashing { .. } => {}
            answer => return answer,
        }
    }
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

/// Measured files, offered as a save and its sidecar.
struct Offered {
    sender: Worker,
    told: Receiver<Answer>,
    files: Vec<(String, u64)>,
    sha256: [u8; 32],
    list: std::sync::Arc<parcel::quic::BlockList>,
    hashes: Vec<[u8; 32]>,
    paths: Vec<PathBuf>,
}

fn offer(from: &std::path::Path, contents: &[Vec<u8>]) -> Offered {
    let paths: Vec<PathBuf> = (0..contents.len()).map(|n| from.join(format!("file {n}"))).collect();
    for (path, content) in paths.iter().zip(contents) {
        fs::write(path, content).unwrap();
    }
    let (sender, told) = worker(from);
    sender.ask(Ask::Measure { files: paths.clone() }).unwrap();
    let Answer::Measured { files, sha256, list } = next(&told) else { panic!() };
    let hashes = files.iter().map(|file| file.sha256).collect();
    let names = parcel::SAVE_NAMES.iter().zip(&files).map(|(name, file)| ((*name).to_owned(), file.size)).collect();
    Offered { sender, told, files: names, sha256, list, hashes, paths }
}

#[test]
fn a_stream_carries_files_from_disk_to_disk_and_they_get_their_names_when_they_are_right() {
    let (from, to) = (folder("stream-from"), folder("stream-to"));
    let contents = [bytes(9_000_001, 1), vec![], bytes(700, 2)];
    let offered = offer(&from, &contents);
    fs::write(to.join("incoming_save.sav"), b"the old world").unwrap();
    let (receiver, told) = worker(&to);
    receiver.ask(Ask::Create { files: offered.files.clone(), sha256: offered.sha256 }).unwrap();
    assert_eq!(next(&told), Answer::Created { upto: 0 });
    let (mut near, far) = pair();
    offered.sender.give(StreamId(1), far);
    offered.sender.ask(Ask::SendFile { stream: StreamId(1), first: ANSWER }).unwrap();
    let mut ok = [0; 3];
    near.read_exact(&mut ok).unwrap();
    assert_eq!(&ok, ANSWER);
    receiver.give(StreamId(2), near);
    receiver.ask(Ask::ReceiveFile { stream: StreamId(2) }).unwrap();
    let total = 9_000_701;
    assert_eq!(next(&told), Answer::StreamOver { stream: StreamId(2), upto: total, why: StreamEnd::Closed });
    assert_eq!(next(&offered.told), Answer::StreamOver { stream: StreamId(1), upto: total, why: StreamEnd::Closed });
    assert_eq!(fs::read(to.join("incoming_save.sav")).unwrap(), b"the old world");
    receiver.ask(Ask::Hash).unwrap();
    assert_eq!(next(&told), Answer::Hashed { files: offered.hashes, sha256: offered.sha256 });
    receiver.ask(Ask::Commit).unwrap();
    assert_eq!(next(&told), Answer::Committed);
    for (name, content) in parcel::SAVE_NAMES.iter().zip(&contents) {
        assert!(fs::read(to.join(name)).unwrap() == *content, "{name}");
    }
    assert_eq!(fs::read_dir(&to).unwrap().count(), 3);
}

#[test]
fn what_was_written_after_a_stream_is_hashed_from_the_disk() {
    let (from, to) = (folder("after-from"), folder("after-to"));
    let offered = offer(&from, &[bytes(300_000, 1)]);
    let (receiver, told) = worker(&to);
    receiver.ask(Ask::Create { files: offered.files.clone(), sha256: offered.sha256 }).unwrap();
    next(&told);
    let (mut near, far) = pair();
    receiver.give(StreamId(1), far);
    receiver.ask(Ask::ReceiveFile { stream: StreamId(1) }).unwrap();
    near.write_all(&bytes(300_000, 1)).unwrap();
    next(&told);
    receiver.ask(Ask::Write { at: 5, data: b"other".as_slice().into() }).unwrap();
    next(&told);
    receiver.ask(Ask::Hash).unwrap();
    let Answer::Hashed { sha256, .. } = next(&told) else { panic!() };
    assert_ne!(sha256, offered.sha256);
}

#[test]
fn a_stream_cut_short_says_how_far_it_came_and_a_later_attempt_goes_on_there() {
    let (from, to) = (folder("short-from"), folder("short-to"));
    let content = bytes(5_000_000, 1);
    let offered = offer(&from, std::slice::from_ref(&content));
    let create = || Ask::Create { files: offered.files.clone(), sha256: offered.sha256 };
    {
        let (receiver, told) = worker(&to);
        receiver.ask(create()).unwrap();
        next(&told);
        let (mut near, far) = pair();
        receiver.give(StreamId(1), far);
        receiver.ask(Ask::ReceiveFile { stream: StreamId(1) }).unwrap();
        near.write_all(&content[..2_000_000]).unwrap();
        drop(near);
        let over = next(&told);
        assert_eq!(over, Answer::StreamOver { stream: StreamId(1), upto: 2_000_000, why: StreamEnd::Broken });
        receiver.ask(Ask::Note { upto: 2_000_000 }).unwrap();
        // The next answer tells that the note is written.
        receiver.ask(Ask::Hash).unwrap();
        next(&told);
    }
    assert!(!to.join("incoming_save.sav").exists());
    let (receiver, told) = worker(&to);
    receiver.ask(create()).unwrap();
    assert_eq!(next(&told), Answer::Created { upto: 2_000_000 });
    receiver.ask(Ask::Look { list: offered.list.clone() }).unwrap();
    assert_eq!(next(&told), Answer::Found { blocks: (0..7).collect() });
    // Another stream of the same names begins at its own start.
    receiver.ask(Ask::Create { files: offered.files.clone(), sha256: [9; 32] }).unwrap();
    assert_eq!(next(&told), Answer::Created { upto: 0 });
}

#[test]
fn blocks_of_an_older_file_in_its_place_are_found_and_wrong_ones_are_not_kept() {
    let (from, to) = (folder("old-from"), folder("old-to"));
    let content = bytes(1_000_000, 1);
    let offered = offer(&from, std::slice::from_ref(&content));
    let mut old = content.clone();
    old[300_000] ^= 1;
    fs::write(to.join("incoming_save.sav"), &old).unwrap();
    let (receiver, told) = worker(&to);
    receiver.ask(Ask::Create { files: offered.files.clone(), sha256: offered.sha256 }).unwrap();
    next(&told);
    receiver.ask(Ask::Look { list: offered.list.clone() }).unwrap();
    assert_eq!(next(&told), Answer::Found { blocks: vec![0, 2, 3] });
    let block = offered.list.blocks()[1];
    let (from_at, to_at) = (block.at as usize, block.at as usize + block.len as usize);
    for (source, good) in [(&old, false), (&content, true)] {
        let data = source[from_at..to_at].to_vec().into();
        receiver.ask(Ask::Keep { index: 1, at: block.at, hash: block.hash, data }).unwrap();
        assert_eq!(next(&told), Answer::Kept { index: 1, good });
    }
    receiver.ask(Ask::Commit).unwrap();
    assert_eq!(next(&told), Answer::Committed);
    assert!(fs::read(to.join("incoming_save.sav")).unwrap() == content);
}

#[test]
fn a_file_that_changes_is_said_to_and_one_that_is_replaced_is_read_as_it_was() {
    let from = folder("change");
    let offered = offer(&from, &[bytes(100_000, 1), bytes(100_000, 2)]);
    fs::write(from.join("new"), bytes(100_000, 3)).unwrap();
    fs::rename(from.join("new"), &offered.paths[0]).unwrap();
    offered.sender.ask(Ask::Read { at: 0, len: 10 }).unwrap();
    assert_eq!(next(&offered.told), Answer::Data { at: 0, data: bytes(10, 1).into() });
    fs::OpenOptions::new().append(true).open(&offered.paths[1]).unwrap().write_all(b"more").unwrap();
    offered.sender.ask(Ask::Read { at: 0, len: 10 }).unwrap();
    assert_eq!(next(&offered.told), Answer::Failed(Fault::Changed));
}

#[test]
fn files_and_folders_that_are_gone_are_said_to_be() {
    let to = folder("gone");
    let (sender, told) = worker(&to);
    sender.ask(Ask::Measure { files: vec![to.join("nowhere")] }).unwrap();
    assert_eq!(next(&told), Answer::Failed(Fault::Gone));
    let (receiver, told) = worker(&to.join("nowhere"));
    receiver.ask(Ask::Create { files: vec![("incoming_save.sav".into(), 5)], sha256: [0; 32] }).unwrap();
    assert_eq!(next(&told), Answer::Failed(Fault::Gone));
    // It vanishes while files are received.
    let (receiver, told) = worker(&to);
    receiver.ask(Ask::Create { files: vec![("incoming_save.sav".into(), 5)], sha256: [0; 32] }).unwrap();
    next(&told);
    fs::remove_dir_all(&to).unwrap();
    receiver.ask(Ask::Commit).unwrap();
    assert_eq!(next(&told), Answer::Failed(Fault::Gone));
}

#[test]
fn a_name_that_leads_elsewhere_is_never_written() {
    let to = folder("names");
    for name in ["../out", "a/b", "", ".hidden", "c:x"] {
        let (receiver, told) = worker(&to);
        receiver.ask(Ask::Create { files: vec![(name.to_owned(), 5)], sha256: [0; 32] }).unwrap();
        assert_eq!(next(&told), Answer::Failed(Fault::Denied), "{name}");
    }
}

#[test]
fn what_is_discarded_leaves_nothing_behind() {
    let to = folder("discard");
    let (receiver, told) = worker(&to);
    receiver.ask(Ask::Create { files: vec![("incoming_save.sav".into(), 5)], sha256: [0; 32] }).unwrap();
    next(&told);
    receiver.ask(Ask::Note { upto: 0 }).unwrap();
    receiver.ask(Ask::Discard).unwrap();
    drop(receiver);
    assert_eq!(fs::read_dir(&to).unwrap().count(), 0);
}

#[test]
fn pain_92_a_greeting_is_read_and_not_a_byte_behind_it() {
    let (mut near, mut far) = pair();
    near.write_all(b"TPF2BULK1 recv 1 t").unwrap();
    std::thread::sleep(Duration::from_millis(20));
    near.write_all(b" bob\nNP1:").unwrap();
    assert_eq!(greeting(&mut far).unwrap(), b"TPF2BULK1 recv 1 t bob\n");
    let mut rest = [0; 4];
    far.read_exact(&mut rest).unwrap();
    assert_eq!(&rest, b"NP1:");
    let (mut near, mut far) = pair();
    near.write_all(&[b'x'; 1000]).unwrap();
    assert_eq!(greeting(&mut far), None);
}

#[test]
fn pain_90_a_port_is_listened_at_on_both_families_and_dialled_from() {
    let listeners = listen(0).unwrap();
    let port = listeners[0].local_addr().unwrap().port();
    assert!(listeners.iter().all(|listener| listener.local_addr().unwrap().port() == port));
    let near = dial(SocketAddr::from(([127, 0, 0, 1], port)), None, WAIT).unwrap();
    let (_, from) = listeners[0].accept().unwrap();
    assert_eq!(near.local_addr().unwrap(), from);
    let other = listen(0).unwrap();
    let own = other[0].local_addr().unwrap().port();
    let near = dial(SocketAddr::from(([127, 0, 0, 1], port)), Some(own), WAIT).unwrap();
    assert_eq!(near.local_addr().unwrap().port(), own);
    drop(listeners);
    let nobody = dial(SocketAddr::from(([127, 0, 0, 1], port)), None, WAIT);
    assert!(matches!(nobody, Err(StreamEnd::Refused)), "{nobody:?}");
}
