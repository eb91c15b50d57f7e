//! Where peers are: addresses of one family alone, and names that have several.

use std::io::Write as _;

use switchboard_testkit::{LONG, eventually};
use tokio::process::Command;

use super::network::{Family, Network, apart};
use super::{Ear, linked, meshed, over, say};
use crate::node::{Node, wrapped};

#[test]
fn b090_nodes_that_have_nothing_but_ipv6_between_them_are_meshed() {
    apart(async || {
        let network = Network::new(3, Family::V6, 1500).await;
        let nodes = network.start_all().await;
        meshed(&nodes[0], network.names()).await;
        let mut ears = Vec::new();
        for node in &nodes {
            ears.push(Ear::on(node, "room:1").await);
        }
        for (n, node) in nodes.iter().enumerate() {
            say(node, n).await;
            for ear in &mut ears {
                assert_eq!(ear.hears().await, n);
            }
        }
    });
}

/// `c` dials `e` by name. Of the addresses of the name the system puts the one first that has more bits in common with that of `c`.
#[test]
fn b090_a_name_whose_first_address_does_not_answer_is_reached_at_the_next() {
    apart(async || {
        let network = Network::new(5, Family::V4, 1500).await;
        let (silent, there) = (network.address("b"), network.address("e"));
        network.cut(&[("c", "b")]);
        let hosts = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("hosts");
        let mut file = std::fs::File::create(&hosts).unwrap();
        write!(file, "127.0.0.1 localhost\n{there} many.test\n{silent} many.test\n").unwrap();
        let knowing = |command: &Command| {
            let mut shell = Command::new("unshare");
            let bound = r#"mount --bind "$0" /etc/hosts && exec "$@""#;
            shell.args(["--mount", "sh", "-c", bound]).arg(&hosts);
            network.inside("c", &wrapped(shell, command))
        };
        let mut resolve = Command::new("getent");
        resolve.args(["ahostsv4", "many.test"]);
        let resolved = knowing(&resolve).output().await.unwrap();
        let resolved = String::from_utf8(resolved.stdout).unwrap();
        assert!(
            resolved.starts_with(&format!("{silent} ")) && resolved.contains(&there.to_string()),
            "{resolved}"
        );

        let mut named = network.command("e");
        named.env("CLUSTER_ENDPOINT", "many.test:4100");
        let e = network.run("e", &named).await;
        let mut dialler = network.command("c");
        // Nobody is there, so that `e` cannot be the one who dials.
        dialler.env("CLUSTER_ENDPOINT", format!("{}:4100", network.address("d")));
        let c = Node::start("c", knowing(&dialler)).await;
        linked(&c, "c", &["e"]).await;
        linked(&c, "e", &["c"]).await;
        // By the address family of its socket, which is both.
        c.process.says(&format!("address=[::ffff:{there}]:4100")).await;
        let mut ear = Ear::on(&e, "room:1").await;
        say(&c, "by name").await;
        assert_eq!(ear.hears().await, "by name");
        eventually(LONG, "it went over the link", async || over(&c, "c", "e").await > 0).await;
    });
}
