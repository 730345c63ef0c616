//! Socket options that no safe crate sets.
//!
//! The batching crate is made for QUIC, which probes path sizes: it forbids IP fragmentation and asks for time stamps
//! and per-packet addresses. Frames of this house go up to 1,430 bytes over paths whose size nobody probes (tunnels of
//! 1,280 bytes among them), so fragmentation is allowed again, and the extras that nobody reads are switched off.
//! Every option here is a wish: a system that refuses one keeps working.

/// Applies the options to a socket that was just set up.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn tune(socket: &mio::net::UdpSocket) {
    set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT);
    set(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT);
    set(socket, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 0);
    set(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 0);
    set(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, 0);
    set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 0);
}

/// Applies the options to a socket that was just set up.
#[cfg(any(target_os = "macos", target_os = "ios", target_os = "freebsd"))]
pub(crate) fn tune(socket: &mio::net::UdpSocket) {
    set(socket, libc::IPPROTO_IP, libc::IP_DONTFRAG, 0);
}

/// Applies the options to a socket that was just set up.
#[cfg(windows)]
pub(crate) fn tune(socket: &mio::net::UdpSocket) {
    const IPPROTO_IP: libc::c_int = 0;
    const IP_DONTFRAGMENT: libc::c_int = 14;
    set(socket, IPPROTO_IP, IP_DONTFRAGMENT, 0);
}

/// Nothing to change on other systems.
#[cfg(not(any(
    target_os = "linux",
    target_os = "android",
    target_os = "macos",
    target_os = "ios",
    target_os = "freebsd",
    windows
)))]
pub(crate) fn tune(_: &mio::net::UdpSocket) {}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "macos", target_os = "ios", target_os = "freebsd"))]
#[expect(unsafe_code, reason = "setsockopt for options that socket2 does not name")]
fn set(socket: &mio::net::UdpSocket, level: libc::c_int, name: libc::c_int, value: libc::c_int) {
    use std::os::fd::AsRawFd;
    // SAFETY: the descriptor is open for as long as `socket` is borrowed, and pointer and length are those of `value`.
    let _refusal_is_fine = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), size_of_val(&value) as _)
    };
}

#[cfg(windows)]
#[expect(unsafe_code, reason = "setsockopt for options that socket2 does not name")]
fn set(socket: &mio::net::UdpSocket, level: libc::c_int, name: libc::c_int, value: libc::c_int) {
    use std::os::windows::io::AsRawSocket;
    // SAFETY: the socket is open for as long as `socket` is borrowed, and pointer and length are those of `value`.
    let _refusal_is_fine = unsafe {
        libc::setsockopt(socket.as_raw_socket() as _, level, name, (&raw const value).cast(), size_of_val(&value) as _)
    };
}
