//! The composer of a netpunch peer
