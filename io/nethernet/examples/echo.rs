//! A host that sends everything back.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::time::Duration;

use nethernet::server_data::ServerData;
use nethernet_io::{Advert, Node, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::open(Options::default())?;
    let data = ServerData { server_name: "echo".to_owned(), level_name: "nowhere".to_owned(), ..ServerData::default() };
    let listener = node.listen(Advert::fixed(data.encode()?));
    println!("id {} at {:?}", node.id(), node.addresses());
    if let Some(why) = listener.unheard() {
        println!("{why}");
    }
    std::thread::scope(|scope| {
        loop {
            let Some(session) = listener.accept(Duration::from_secs(3_600)) else { continue };
            scope.spawn(move || {
                while let Ok(Some((channel, packet))) = session.recv() {
                    if session.send(channel, packet).is_err() {
                        return;
                    }
                }
            });
        }
    })
}
