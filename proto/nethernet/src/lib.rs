//! NetherNet without sockets: codecs, LAN discovery, signalling, and WebRTC sessions.

pub mod engine;
pub mod session;
