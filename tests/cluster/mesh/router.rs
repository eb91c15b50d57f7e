//! A router between a node and the switch. It hides the node's address behind its own, as most do, so that the node can dial and cannot be
//! dialled; and it knows who has spoken only for a while.

use std::fs::File;
use std::process::Command as StdCommand;

use super::network::{Network, feed, inside, ip, namespace, path};
use crate::node::Node;

/// The node's address; the router's is the one before.
const HIDDEN: &str = "192.168.0.2";

pub(super) struct Router<'a> {
    network: &'a Network,
    name: &'a str,
    /// Where the node is.
    behind: File,
}

impl<'a> Router<'a> {
    /// Takes the place of `name`. It forgets whoever has been silent for `memory` seconds.
    pub(super) fn new(network: &'a Network, name: &'a str, memory: u32) -> Self {
        let router = Self { network, name, behind: namespace() };
        router.ip(&format!(
            "link add inside type veth peer name eth0 netns {}\naddr add 192.168.0.1/24 dev inside\n\
             link set inside up gso_max_segs 1\n",
            path(&router.behind)
        ));
        ip(
            Some(&router.behind),
            &format!(
                "link set lo up\naddr add {HIDDEN}/24 dev eth0\nlink set eth0 up gso_max_segs 1\n\
                 route add default via 192.168.0.1\n"
            ),
        );
        // For the test alone: no other node has a way to it.
        ip(None, &format!("route add 192.168.0.0/24 via {}\n", network.address(name)));
        let settings = format!(
            "echo 1 >/proc/sys/net/ipv4/ip_forward && cd /proc/sys/net/netfilter && echo {memory} >nf_conntrack_udp_timeout && \
             echo {memory} >nf_conntrack_udp_timeout_stream"
        );
        feed(&mut router.inside("sh"), &settings);
        // What it forgets and learns again gets another port.
        let table = "table ip hide {\nchain out {\ntype nat hook postrouting priority 100\n\
                     oifname eth0 meta l4proto udp masquerade fully-random\n}\n}\n";
        feed(router.inside("nft").args(["-f", "-"]), table);
        router
    }

    /// Starts the node behind it, and waits until it serves HTTP.
    pub(super) async fn start(&self) -> Node {
        let mut command = self.network.command(self.name);
        command.env("HTTP_ADDR", format!("{HIDDEN}:0"));
        Node::start(self.name, inside(&self.behind, &command)).await
    }

    /// Forgets who has spoken, as when it is restarted.
    pub(super) fn forget(&self) {
        self.ip("link set eth0 down\nlink set eth0 up\n");
    }

    fn ip(&self, commands: &str) {
        ip(Some(self.network.host(self.name)), commands);
    }

    fn inside(&self, program: &str) -> StdCommand {
        let mut inside = StdCommand::new("nsenter");
        inside.arg(format!("--net={}", path(self.network.host(self.name)))).arg(program);
        inside
    }
}
