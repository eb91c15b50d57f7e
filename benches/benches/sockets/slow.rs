//! What one subscriber that never reads costs the others: how long their deliveries take without it, and with it.

use std::time::Duration;

use super::client::Client;
use super::fanout::{Audience, CHANNEL};
use super::node::Server;
use super::speech::Speech;

/// Only the reader that does not read is in it, and whoever fills its connection.
const HEAVY: &str = "heavy";

/// More than the system keeps for a connection to a reader with a small window. (`tcp_wmem` allows 4 MiB.)
const PLENTY: usize = 8 * 1024 * 1024;

/// Bytes of an event that fills a connection.
const BULK: usize = 60 * 1024;

/// Deliveries to `size` subscribers at `rate` events/s, first without a reader that does not read, then with one. `length` must be
/// longer than the node waits for a client that takes nothing: the end of that is part of it.
pub(crate) fn measure(server: &Server, size: usize, rate: u32, length: Duration) -> [Vec<Duration>; 2] {
    let mut audience = Audience::gather(Speech::Phoenix, server, size);
    let without = audience.pace(rate, length);
    let reader = stuck(server);
    let with = audience.pace(rate, length);
    assert!(reader.ends(), "the connection to whoever does not read was not closed, so it was not full");
    [without, with]
}

/// A subscriber that takes nothing any more.
fn stuck(server: &Server) -> Client {
    let path = Speech::Phoenix.path(&server.token);
    let mut reader = Client::open(server.address, &path, Some(4096));
    reader.join(Speech::Phoenix, CHANNEL);
    reader.join(Speech::Phoenix, HEAVY);
    let mut filler = Client::open(server.address, &path, None);
    filler.join(Speech::Phoenix, HEAVY);
    let event = Speech::Phoenix.publish(HEAVY, &format!(r#"{{"bulk":"{}"}}"#, "x".repeat(BULK)));
    for _ in 0..PLENTY / BULK {
        filler.say(&event);
    }
    // It is answered after all of them.
    filler.join(Speech::Phoenix, "elsewhere");
    reader
}
