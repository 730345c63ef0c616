//! The local network: messages inside discovery packets (NetherNet, section 7.4).

use std::time::Instant;

use super::{Channel, Incoming, Undelivered};
use crate::NetworkId;
use crate::discovery::Discovery;

impl Channel for Discovery {
    fn send(&mut self, now: Instant, from: &NetworkId, to: &NetworkId, text: &str) -> Result<(), Undelivered> {
        let (Some(from), Some(recipient)) = (from.p2p(), to.p2p()) else {
            return Err(Undelivered::NoWay(to.clone()));
        };
        self.signal(now, from, recipient, text).map_err(|error| Undelivered::Failed(error.to_string()))
    }

    fn poll(&mut self) -> Option<Incoming> {
        self.poll_signal()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SessionError;
    use crate::discovery::Config;

    #[test]
    fn only_numbers_are_reached_over_the_local_network() {
        let now = Instant::now();
        let mut lan = Discovery::new(Config::default(), [1; 32], now);
        lan.open(now, 1).unwrap();
        let refused = lan.send(now, &1.into(), &NetworkId::Realms(7), "CONNECTERROR 1 16").unwrap_err();
        assert_eq!(refused.error(), SessionError::NoSignalingChannel);
        let refused = lan.send(now, &1.into(), &2.into(), "CONNECTERROR 1 16").unwrap_err();
        assert_eq!(refused, Undelivered::Failed("no network interface is up".to_owned()));
    }
}
