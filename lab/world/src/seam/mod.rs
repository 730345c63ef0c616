//! The conformance kit of the seam: one suite of behaviours that every wire has to show.
//!
//! A wire brings a [`Stage`]: how to host and to join, how to make its network bad, how to kill its host. [`rows`] holds the
//! behaviours, and [`conformance!`](crate::conformance) makes one test of each. What a wire cannot show, its stage says by
//! name ([`Stage::gaps`]), and the row passes over just that.

mod relay;
pub mod rows;
mod table;

use anywire::{HostOptions, JoinOptions, Peer};
use netem::LinkConfig;

pub use relay::UdpRelay;
pub use table::{Player, Table};

/// What a wire does not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// Nobody can join.
    Alone,
    /// Its network cannot be made bad.
    BadLine,
    /// A host cannot be made to vanish.
    Death,
    /// The id to ask for cannot be chosen.
    ChosenId,
}

/// A session that is open.
pub struct Hosted {
    /// The host.
    pub peer: Box<dyn Peer>,
    /// What joiners are given.
    pub address: String,
    /// What holds the session's network; dropped last.
    pub network: Box<dyn Network>,
}

/// The network of one session.
pub trait Network {
    /// Every datagram vanishes from now on.
    fn cut(&self) {}
}

/// No network to speak of.
pub struct Plain;

impl Network for Plain {}

/// A wire on which the suite is played.
pub trait Stage {
    /// What it does not do.
    fn gaps(&self) -> &'static [Gap];

    /// Opens a session whose network, both ways, is as `line` says.
    fn host(&self, options: HostOptions, line: LinkConfig, seed: u8) -> Hosted;

    /// Joins it; `id` is the id to ask for, where the wire lets one choose.
    fn join(&self, address: &str, options: JoinOptions, id: Option<u32>) -> Box<dyn Peer>;

    /// Whether the wire has all of this.
    fn has(&self, gaps: &[Gap]) -> bool {
        gaps.iter().all(|gap| !self.gaps().contains(gap))
    }
}

/// One test of each row for a stage.
#[macro_export]
macro_rules! conformance {
    ($stage:expr) => {
        $crate::conformance!($stage;
            a_host_is_1_and_joiners_have_ids_of_their_own, an_id_that_is_taken_is_drawn_again,
            arrivals_and_leavings_are_told_to_everybody, reliable_packets_arrive_on_a_clean_line,
            reliable_packets_arrive_at_five_percent_loss, reliable_packets_arrive_at_twenty_percent_loss,
            unreliable_packets_come_once_and_ordered_ones_in_order, channels_keep_their_own_order,
            every_size_arrives_whole, every_target_is_reached_and_nobody_else, a_host_may_refuse,
            who_is_kicked_reads_why, who_is_banned_does_not_come_back, both_ends_may_close_at_once,
            a_host_that_dies_is_noticed, a_host_that_leaves_is_noticed, a_full_queue_says_so,
            one_poll_a_second_is_enough, a_thousand_polls_a_second_are_fine, a_caller_may_lend_its_thread,
            thirty_two_players_hear_each_other, the_link_is_measured, what_cannot_be_sent_is_refused_by_type);
    };
    ($stage:expr; $($row:ident),*) => {$(
        #[test]
        fn $row() {
            $crate::seam::rows::$row(&$stage);
        }
    )*};
}
