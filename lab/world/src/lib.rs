//! Many peers in virtual time, vectors, hostile input
