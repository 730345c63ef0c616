//! NP1 packets, payload kinds, fragments: codecs and reassembly
