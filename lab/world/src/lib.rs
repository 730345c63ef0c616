//! Many peers in virtual time, vectors, hostile input.

pub mod nat;
pub mod seam;
pub mod sim;
pub mod vectors;
