//! Many peers in virtual time, vectors, hostile input.

pub mod nat;
pub mod sim;
pub mod vectors;
