//! Joiner-to-joiner links, envelopes, routing of game frames
