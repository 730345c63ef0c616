//! Negotiation and transport of a session.
