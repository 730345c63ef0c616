//! Seeded impairment of a link and NAT boxes in virtual time
