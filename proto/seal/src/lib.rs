//! Session keys, sealed and signed frames, replay windows
