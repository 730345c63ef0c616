//! What the two machines are made with.

use std::collections::BTreeMap;

/// Most players of a lobby, the host included (netpunch wire, section 6.3).
pub(crate) const PLAYERS_MAX: u16 = 200;

/// What a host is made with.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Release string; a joiner's must be the same, letter for letter.
    pub version: String,
    /// The host's own name. Not used by a relay.
    pub name: String,
    /// The lobby's name, possibly empty.
    pub lobby_name: String,
    /// A dedicated relay: it is not a player, and its oldest joiner leads.
    pub relay_only: bool,
    /// Begin in company mode instead of co-op.
    pub companies: bool,
    /// Most players, the host included: 1 to 200, larger values count as 200.
    pub max_players: u16,
    /// Letters handed out in earlier runs of a relay, by name; empty for anybody else.
    pub letters: BTreeMap<String, String>,
    /// Companies held in earlier runs of a relay, by name; empty for anybody else.
    pub chips: BTreeMap<String, u32>,
    /// Offer the words of our own ends (`aw`). Off makes this host indistinguishable from an old one.
    pub extensions: bool,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            version: String::new(),
            name: String::new(),
            lobby_name: String::new(),
            relay_only: false,
            companies: false,
            max_players: PLAYERS_MAX,
            letters: BTreeMap::new(),
            chips: BTreeMap::new(),
            extensions: true,
        }
    }
}

/// What a joiner is made with.
#[derive(Clone, Debug)]
pub struct JoinConfig {
    /// Release string; the host's must be the same, letter for letter.
    pub version: String,
    /// The name asked for.
    pub name: String,
    /// Whether this player links with other joiners directly.
    pub mesh: bool,
    /// The own join code for other joiners to dial, when it is known already (see [`Joiner::set_profile`]).
    ///
    /// [`Joiner::set_profile`]: crate::Joiner::set_profile
    pub profile: Option<String>,
    /// A password was given although the code is not locked: a refusal then says so.
    pub stray_password: bool,
    /// Offer the words of our own ends (`aw`). Off makes this joiner indistinguishable from an old one.
    pub extensions: bool,
}

impl Default for JoinConfig {
    fn default() -> Self {
        Self {
            version: String::new(),
            name: String::new(),
            mesh: true,
            profile: None,
            stray_password: false,
            extensions: true,
        }
    }
}
