//! Candidates, dialling and answering, STUN observation, keep-alive
