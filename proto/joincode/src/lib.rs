//! Join codes to and from text
