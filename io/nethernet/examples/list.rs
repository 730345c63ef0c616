//! Prints every host of the local network as it is found.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::time::Duration;

use nethernet_io::{Node, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::open(Options::default())?;
    node.discover(true);
    while let Some(host) = node.next_host(Duration::from_secs(10)) {
        let data = host.data();
        match nethernet::server_data::ServerData::parse(&data) {
            Ok(data) => println!("{} at {}: {} ({})", host.id, host.address, data.server_name, data.level_name),
            Err(error) => println!("{} at {}: {error}", host.id, host.address),
        }
    }
    Ok(())
}
