//! Picks ports that are free and stay free while the server that is to have them is down.
//!
//! Not by binding port 0: that answers with a port of the ephemeral range, which the kernel hands to outgoing
//! connections. While PostgreSQL restarts, a client that keeps reconnecting could be given that very port as its own
//! and connect to itself, and PostgreSQL could never bind it again.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;

use rand::RngExt;

/// Below the ephemeral ranges of Linux (32768) and macOS (49152), above most registered services.
const RANGE: Range<u16> = 15_432..32_000;

/// A port of 127.0.0.1 that nobody listens on just now, and that no outgoing connection is given. Another server may still take it
/// first: try another then.
pub fn free_port() -> u16 {
    let mut rng = rand::rng();
    let mut port = rng.random_range(RANGE);
    // A machine with no free port among thousands fails when the port is bound, with a message of its own.
    for _ in 0..100 {
        if is_free(port) {
            break;
        }
        port = rng.random_range(RANGE);
    }
    port
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_not_free() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(!is_free(listener.local_addr().unwrap().port()));
    }

    #[test]
    fn free_ports_lie_outside_the_ephemeral_range() {
        assert!((0..50).all(|_| RANGE.contains(&free_port())));
    }
}
