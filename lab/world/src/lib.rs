//! Many peers in virtual time, vectors, hostile input.

pub mod sim;
pub mod vectors;
