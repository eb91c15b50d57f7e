//! Whether what nodes say of where they are can be so. Pure.
//!
//! An address of the machine itself is found where PostgreSQL is on the same machine. It is right as long as all nodes are there, and
//! leads elsewhere as soon as one is not: to the dialler's own machine.

use switchboard_core::types::{Endpoint, Host, NodeId};

/// What is wrong with the addresses, in words for the operator. `peers`: those with a mesh.
pub(crate) fn doubts<'a>(
    own: &Endpoint,
    peers: impl Iterator<Item = (&'a NodeId, &'a Endpoint)>,
) -> Vec<String> {
    let (near, far): (Vec<_>, Vec<_>) = peers.partition(|(_, endpoint)| is_loopback(endpoint));
    if !is_loopback(own) {
        let say = |(peer, endpoint)| {
            format!(
                "{peer} says that it is at {endpoint}, which leads to this machine: set its CLUSTER_ENDPOINT"
            )
        };
        return near.into_iter().map(say).collect();
    }
    let names: Vec<_> = far.into_iter().map(|(peer, _)| peer.to_string()).collect();
    if names.is_empty() {
        return Vec::new();
    }
    let names = names.join(", ");
    vec![format!(
        "this node says that it is at {own}, where {names} cannot find it: set its CLUSTER_ENDPOINT"
    )]
}

fn is_loopback(endpoint: &Endpoint) -> bool {
    match endpoint.host() {
        Host::Ip(ip) => ip.to_canonical().is_loopback(),
        Host::Name(name) => name == "localhost" || name.ends_with(".localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(own: &str, peers: &[(&str, &str)]) -> Vec<String> {
        let peers: Vec<(NodeId, Endpoint)> =
            peers.iter().map(|(peer, endpoint)| (peer.parse().unwrap(), endpoint.parse().unwrap())).collect();
        doubts(&own.parse().unwrap(), peers.iter().map(|(peer, endpoint)| (peer, endpoint)))
    }

    #[test]
    fn b100_an_address_of_the_machine_itself_is_doubted_once_somebody_is_elsewhere() {
        for own in ["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "localhost:1"] {
            assert!(said(own, &[("b", "127.0.0.1:2"), ("c", "[::1]:3")]).is_empty(), "all on one machine");
            let doubts = said(own, &[("b", "127.0.0.1:2"), ("c", "10.0.0.3:3"), ("d", "db.example:4")]);
            assert!(doubts.len() == 1 && doubts[0].contains(own) && doubts[0].contains("c, d"), "{doubts:?}");
            let doubts = said("10.0.0.1:1", &[("b", own), ("c", "10.0.0.3:3")]);
            assert!(
                doubts.len() == 1 && doubts[0].starts_with("b says") && doubts[0].contains(own),
                "{doubts:?}"
            );
        }
        assert!(said("10.0.0.1:1", &[("b", "10.0.0.2:2"), ("c", "c.example:3")]).is_empty());
    }
}
