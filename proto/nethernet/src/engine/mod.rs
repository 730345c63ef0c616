//! The WebRTC engine behind one trait.
