//! Files to other players.
