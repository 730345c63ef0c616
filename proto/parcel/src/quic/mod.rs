//! Files between our own ends: QUIC without its sockets, in packets `NP1:Q` on the path the players talk on.
//!
//! The receiver dials. Each end has a key of its own for each transfer, told to the other through the sealed channel, and
//! the handshake takes that key alone: the connection is bound to the session, and what it carries has forward secrecy.
//! Congestion control is in `steady.rs`; packets grow from 1,200 bytes to what the path takes.
//!
//! The receiver asks, block by block: first for the list of blocks, which the root in the sealed offer vouches for, then for
//! runs of blocks it lacks. A block that is not what the list says costs that block. A connection that is lost is dialled
//! again, and what is there is not asked for twice; what an earlier attempt left on the disk is looked through first.
//!
//! ```text
//! request   kind u8 (0 list, 1 blocks) | first u32be | count u32be
//! answer    the list, or the blocks one behind the other
//! ```
//!
//! [`Giver`] answers, [`Taker`] asks. Bounds: a giver holds 16 blocks and at most 16 requests; a taker has at most four
//! requests of 16 blocks out and 8 MiB on their way to the disk; the connection itself buffers 8 MiB to send and 16 MiB
//! received.

mod blocks;
mod giver;
mod identity;
mod steady;
mod taker;
mod tube;

pub use blocks::{BLOCK, BLOCK_MAX, BLOCKS_MAX, Block, BlockList};
pub use giver::Giver;
pub use identity::{Identity, SetupError};
pub use taker::{TakeEvent, Taker};

use codec::Reader;

/// What a taker asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// The list of blocks.
    List,
    /// These blocks.
    Blocks { first: u32, count: u32 },
}

/// Bytes of a request.
pub(crate) const WISH: usize = 9;

impl Wish {
    pub(crate) fn write(self) -> [u8; WISH] {
        let (kind, first, count) = match self {
            Self::List => (0, 0, 0),
            Self::Blocks { first, count } => (1, first, count),
        };
        let ([a, b, c, d], [e, f, g, h]) = (first.to_be_bytes(), count.to_be_bytes());
        [kind, a, b, c, d, e, f, g, h]
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let fields = (reader.u8("kind").ok()?, reader.u32("first").ok()?, reader.u32("count").ok()?);
        match fields {
            (0, 0, 0) if reader.is_empty() => Some(Self::List),
            (1, first, count) if reader.is_empty() && count > 0 => Some(Self::Blocks { first, count }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_of_another_length_or_kind_is_none() {
        let bytes = Wish::Blocks { first: 1, count: 2 }.write();
        assert!((0..bytes.len()).all(|cut| Wish::read(&bytes[..cut]).is_none()));
        assert_eq!(Wish::read(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(Wish::read(&[2, 0, 0, 0, 0, 0, 0, 0, 1]), None);
        assert_eq!(Wish::read(&[1, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(Wish::read(&Wish::List.write()), Some(Wish::List));
    }

    proptest! {
        #[test]
        fn a_request_is_read_back(first: u32, count in 1u32..) {
            let wish = Wish::Blocks { first, count };
            prop_assert_eq!(Wish::read(&wish.write()), Some(wish));
        }
    }
}
