//! One of three does not keep up, or does nothing at all. The others go on as if it were not there.

use std::time::Duration;

use switchboard_testkit::{LONG, eventually};
use tokio::time::{Instant, sleep};

use super::conversation::Conversation;
use super::network::{Family, Network, apart};
use super::{fallback, linked, links_made, meshed, stats};
use crate::node::{HEARTBEAT, Node, SLACK};

#[test]
fn b101_a_node_that_is_frozen_for_twenty_seconds_slows_nobody_and_comes_back() {
    apart(async || {
        let network = Network::new(3, Family::V4, 1500).await;
        let start = async |name| {
            let mut command = network.command(name);
            // It may be frozen for a while without being taken for dead.
            command.env("CLUSTER_STALE_THRESHOLD", "1m");
            network.run(name, &command).await
        };
        let nodes = [start("a").await, start("b").await, start("c").await];
        let [a, b, c] = &nodes;
        meshed(a, network.names()).await;
        let talk = Conversation::start(&[a, c, b], 2, Duration::from_millis(20), 0).await;
        talk.goes_on(50).await;
        b.process.freeze();
        let frozen = Instant::now();
        linked(a, "a", &["c"]).await;
        linked(a, "c", &["a"]).await;
        sleep(Duration::from_secs(20).saturating_sub(frozen.elapsed())).await;
        b.process.thaw();
        let thawed = Instant::now();
        // What the registry shows of the one that was frozen may be old.
        linked(a, "a", &["b", "c"]).await;
        linked(a, "c", &["a", "b"]).await;
        linked(a, "b", &["a", "c"]).await;
        let took = thawed.elapsed();
        assert!(took < Duration::from_secs(5) + HEARTBEAT + SLACK, "linked again after {took:?}");
        let back = [talk.said(0), talk.said(1)];
        talk.goes_on(100).await;
        let transcript = talk.end().await;
        for speaker in [0, 1] {
            for listener in [0, 1] {
                transcript.is_whole(listener, speaker);
                let slowest = transcript.slowest(listener, speaker);
                assert!(slowest < SLACK, "{slowest:?}");
            }
            let said = transcript.said(speaker);
            assert_eq!(transcript.missed(2, speaker, back[speaker]..said), Vec::<usize>::new());
        }
    });
}

/// The path takes less than is sent, for half a minute, and keeps passing signs of life.
#[test]
fn b095_a_receiver_that_takes_too_little_costs_the_sender_little_and_others_nothing() {
    /// What waits and what is on its way, and what the allocator makes of that.
    const GROWTH: u64 = 40 * 1024 * 1024;
    apart(async || {
        let network = Network::new(3, Family::V4, 1500).await;
        let nodes = network.start_all().await;
        let [a, b, c] = &nodes[..] else { unreachable!() };
        meshed(a, network.names()).await;
        let talk = Conversation::start(&[a, b, c], 1, Duration::from_millis(5), 16 * 1024).await;
        talk.goes_on(300).await;
        let (before, by_notify) = (resident(a), fallback(a, "a").await);
        let (began, first) = (Instant::now(), talk.said(0));
        network.rules(&[format!("{} limit rate over 400 kbytes/second drop", network.between("a", "b"))]);
        while began.elapsed() < Duration::from_secs(30) {
            let grown = resident(a).saturating_sub(before);
            assert!(grown < GROWTH, "grown by {grown} bytes");
            sleep(Duration::from_millis(100)).await;
        }
        let said = (talk.said(0) - first) as u64 * 16 * 1024;
        assert!(said > GROWTH * 3 / 2, "{said} bytes would have fitted into what it may grow by");
        eventually(LONG, "drops are counted", async || {
            stats(c, "a").await["mesh"]["peers"]["b"]["dropped_total"].as_u64().unwrap() > 0
        })
        .await;
        network.heal();
        eventually(LONG, "nothing waits any more", async || {
            stats(c, "a").await["mesh"]["peers"]["b"]["queue_bytes"].as_u64().unwrap() < 1024 * 1024
        })
        .await;
        let caught_up = talk.said(0);
        talk.goes_on(300).await;
        assert_eq!((links_made(a, "b"), links_made(b, "a")), (1, 1), "it took another link");
        assert_eq!(fallback(a, "a").await, by_notify);
        let transcript = talk.end().await;
        transcript.is_whole(2, 0);
        let slowest = transcript.slowest(2, 0);
        assert!(slowest < SLACK, "{slowest:?}");
        let (all, heard) = (transcript.said(0), transcript.heard(1, 0));
        assert!(heard.len() < all && transcript.missed(1, 0, caught_up..all).is_empty());
    });
}

/// Bytes of memory that a node takes.
fn resident(node: &Node) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.process.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}
