//! Every system call that Rust's library does not wrap. All unsafe code of this crate stands here.

// Namespaces, tunnel devices, mounts and signal masks have no safe interface in the standard library.
#![allow(unsafe_code)]

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

pub(crate) use libc::{SIGINT, SIGKILL, SIGTERM};

fn check(n: libc::c_int) -> io::Result<libc::c_int> {
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n) }
}

/// Whether this process is root.
pub(crate) fn is_root() -> bool {
    // SAFETY: geteuid takes nothing.
    unsafe { libc::geteuid() == 0 }
}

/// Moves the calling thread into a namespace.
pub(crate) fn enter(ns: &File) -> io::Result<()> {
    // SAFETY: setns takes no pointers.
    check(unsafe { libc::setns(ns.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}

/// Moves the calling thread into a new network namespace that nobody else will see.
pub(crate) fn enter_new() -> io::Result<()> {
    // SAFETY: unshare takes no pointers.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) }).map(drop)
}

/// Makes a tunnel device in the calling thread's namespace. It lives as long as the descriptor.
pub(crate) fn tunnel(name: &str, ethernet: bool) -> io::Result<OwnedFd> {
    let device = File::options().read(true).write(true).open("/dev/net/tun")?;
    // SAFETY: the descriptor is open; fcntl takes no pointers here.
    check(unsafe { libc::fcntl(device.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) })?;
    // SAFETY: ifreq is plain data, for which zeros are a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(15)) {
        *to = from as libc::c_char;
    }
    let kind = if ethernet { libc::IFF_TAP } else { libc::IFF_TUN };
    request.ifr_ifru.ifru_flags = (kind | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq.
    check(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, &mut request) })?;
    Ok(OwnedFd::from(device))
}

/// One read; for a tunnel device, one packet.
pub(crate) fn read(fd: RawFd, buf: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is valid for its length.
    let n = unsafe { libc::read(fd, buf.as_mut_ptr().cast(), buf.len()) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// One write; for a tunnel device, one packet.
pub(crate) fn write(fd: RawFd, buf: &[u8]) -> io::Result<usize> {
    // SAFETY: the buffer is valid for its length.
    let n = unsafe { libc::write(fd, buf.as_ptr().cast(), buf.len()) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Descriptors that are waited on together.
pub(crate) struct Waiter(Vec<libc::pollfd>);

impl Waiter {
    /// Waits for these to become readable.
    pub(crate) fn new(fds: impl IntoIterator<Item = RawFd>) -> Self {
        Waiter(fds.into_iter().map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect())
    }

    /// Waits; without a limit, until one is ready. False after the limit or a signal.
    pub(crate) fn wait(&mut self, limit: Option<Duration>) -> io::Result<bool> {
        let time = limit
            .map(|l| libc::timespec { tv_sec: l.as_secs() as libc::time_t, tv_nsec: l.subsec_nanos() as libc::c_long });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let list = &mut self.0;
        // SAFETY: the array and the time outlive the call.
        match check(unsafe { libc::ppoll(list.as_mut_ptr(), list.len() as libc::nfds_t, time, std::ptr::null()) }) {
            Ok(n) => Ok(n > 0),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Whether the descriptor of this place has something to read, or is closed.
    pub(crate) fn ready(&self, at: usize) -> bool {
        self.0.get(at).is_some_and(|fd| fd.revents != 0)
    }

    /// Whether it has something to read, whatever else is wrong with it.
    pub(crate) fn readable(&self, at: usize) -> bool {
        self.0.get(at).is_some_and(|fd| fd.revents & libc::POLLIN != 0)
    }
}

/// Which descriptors can be read, or are closed; None after an error. Without a limit it waits for one.
pub(crate) fn wait(fds: &[RawFd], limit: Option<Duration>) -> Option<Vec<bool>> {
    let mut waiter = Waiter::new(fds.iter().copied());
    loop {
        if waiter.wait(limit).ok()? || limit.is_some() {
            return Some((0..fds.len()).map(|at| waiter.ready(at)).collect());
        }
    }
}

/// Sends a signal; false when there is no such process.
pub(crate) fn signal(pid: i32, signal: i32) -> bool {
    // SAFETY: kill takes no pointers.
    unsafe { libc::kill(pid, signal) == 0 }
}

/// A closed pipe behind us ends this process quietly.
pub(crate) fn end_on_closed_pipe() {
    // SAFETY: sets a default handler.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

/// The signals that end a program, held back from this process.
#[derive(Clone, Copy)]
pub(crate) struct Signals(libc::sigset_t);

impl Signals {
    /// Blocks them for the calling thread and those it starts.
    pub(crate) fn block() -> io::Result<Self> {
        // SAFETY: a set is plain data; each call gets one that is valid.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for s in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                libc::sigaddset(&mut set, s);
            }
            match libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) {
                0 => Ok(Signals(set)),
                e => Err(io::Error::from_raw_os_error(e)),
            }
        }
    }

    /// Waits until one comes.
    pub(crate) fn wait(&self) {
        let mut got = 0;
        // SAFETY: both pointers are valid.
        while unsafe { libc::sigwait(&self.0, &mut got) } != 0 {}
    }
}

/// Lets go of the caller's standard input and output.
pub(crate) fn detach_output() {
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        // SAFETY: all descriptors are open; 0 and 1 belong to the whole process, which asks for this.
        unsafe {
            libc::dup2(null.as_raw_fd(), 0);
            libc::dup2(null.as_raw_fd(), 1);
        }
    }
}

/// The command will run in a session of its own, free of our terminal.
pub(crate) fn own_session(command: &mut Command) {
    // SAFETY: setsid takes nothing and may be called after a fork.
    unsafe {
        command.pre_exec(|| check(libc::setsid()).map(drop));
    }
}

/// The command will run in a namespace, with these files as `/etc/hosts` and `/etc/resolv.conf`.
pub(crate) fn run_inside(command: &mut Command, ns: File, hosts: &OsStr, resolv: &OsStr) -> io::Result<()> {
    let hosts = CString::new(hosts.as_bytes())?;
    let resolv = CString::new(resolv.as_bytes())?;
    // SAFETY: only system calls, on values made before the fork.
    unsafe {
        command.pre_exec(move || {
            // Whoever started us in the background had these ignored, and that is inherited.
            for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
                libc::signal(signal, libc::SIG_DFL);
            }
            enter(&ns)?;
            check(libc::unshare(libc::CLONE_NEWNS))?;
            let none = std::ptr::null();
            check(libc::mount(none, c"/".as_ptr(), none, libc::MS_SLAVE | libc::MS_REC, none.cast()))?;
            // What follows is comfort: without it names do not resolve, or /sys shows the devices of the outside.
            for (from, to) in [(&hosts, c"/etc/hosts"), (&resolv, c"/etc/resolv.conf")] {
                libc::mount(from.as_ptr(), to.as_ptr(), none, libc::MS_BIND, none.cast());
            }
            if libc::umount2(c"/sys".as_ptr(), libc::MNT_DETACH) == 0 {
                let sysfs = c"sysfs".as_ptr();
                libc::mount(sysfs, c"/sys".as_ptr(), sysfs, 0, none.cast());
            }
            Ok(())
        });
    }
    Ok(())
}
