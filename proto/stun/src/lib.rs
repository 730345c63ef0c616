//! STUN binding: request, answer, NAT class
