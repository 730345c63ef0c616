//! One network thread that runs a session
