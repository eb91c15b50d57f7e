//! UDP does not pass between two nodes, in both directions or in one, or between any, and passes again.

use std::time::Duration;

use switchboard_testkit::{LONG, eventually};
use tokio::time::Instant;

use super::conversation::Conversation;
use super::network::{Family, Network, apart};
use super::{fallback, linked, meshed, one_link_per_pair, over, stats};
use crate::node::{HEARTBEAT, Node, SLACK};

/// How long an end that hears nothing takes to give the link up.
const SUSPECTED: Duration = Duration::from_secs(2);
/// Longest pause between dials, with a dial.
const DIALLED: Duration = Duration::from_secs(7);

#[test]
fn b097_udp_that_is_blocked_both_ways_is_gone_around_and_used_again() {
    go_around(&[("a", "b"), ("b", "a")], SUSPECTED);
}

/// Whoever is still heard is told of the silence by silence alone, so that one end notices after the other.
#[test]
fn b097_udp_that_is_blocked_towards_the_greater_name_is_gone_around_and_used_again() {
    go_around(&[("a", "b")], SUSPECTED * 2);
}

#[test]
fn b097_udp_that_is_blocked_towards_the_lesser_name_is_gone_around_and_used_again() {
    go_around(&[("b", "a")], SUSPECTED * 2);
}

/// All dial each other at the same time, again and again.
#[test]
fn b097_links_that_are_all_lost_at_once_come_back_one_per_pair() {
    apart(async || {
        let network = Network::new(5, Family::V4, 1500).await;
        let nodes = network.start_all().await;
        meshed(&nodes[0], network.names()).await;
        let everybody: Vec<_> = nodes.iter().collect();
        let talk = Conversation::start(&everybody, 5, Duration::from_millis(50), 0).await;
        let mut whole = Vec::new();
        for _ in 0..10 {
            let begin: Vec<_> = (0..5).map(|speaker| talk.said(speaker)).collect();
            talk.goes_on(20).await;
            let end: Vec<_> = (0..5).map(|speaker| talk.said(speaker)).collect();
            whole.push((begin, end));
            network.rules(&["drop".to_owned()]);
            for name in network.names() {
                linked(&nodes[0], name, &[]).await;
            }
            network.heal();
            let heal = Instant::now();
            meshed(&nodes[0], network.names()).await;
            let took = heal.elapsed();
            assert!(took < DIALLED + HEARTBEAT + SLACK, "linked again after {took:?}");
            one_link_per_pair(network.names(), &nodes).await;
        }
        let transcript = talk.end().await;
        transcript.is_in_order();
        for (begin, end) in whole {
            for speaker in 0..5 {
                let span = begin[speaker]..end[speaker].saturating_sub(2);
                for listener in 0..5 {
                    let missed = transcript.missed(listener, speaker, span.clone());
                    assert!(missed.is_empty(), "{listener} missed from {speaker} of {span:?}: {missed:?}");
                }
            }
        }
    });
}

fn go_around(blocked: &[(&str, &str)], noticed: Duration) {
    const A: usize = 0;
    const B: usize = 1;
    const C: usize = 2;
    apart(async || {
        let network = Network::new(3, Family::V4, 1500).await;
        let nodes = network.start_all().await;
        let [a, b, c] = &nodes[..] else { unreachable!() };
        meshed(c, network.names()).await;
        let talk = Conversation::start(&[a, b, c], 2, Duration::from_millis(10), 0).await;
        talk.goes_on(50).await;

        let before = [talk.said(A), talk.said(B)];
        network.cut(blocked);
        let cut = Instant::now();
        linked(c, "a", &["c"]).await;
        linked(c, "b", &["c"]).await;
        let took = cut.elapsed();
        assert!(took < noticed + HEARTBEAT + SLACK, "noticed after {took:?}");
        linked(c, "c", &["a", "b"]).await;
        let around = [talk.said(A), talk.said(B)];
        let sent = fallback(c, "a").await;
        warns(a, Some("b is not reached by mesh")).await;
        warns(b, Some("a is not reached by mesh")).await;
        warns(c, None).await;
        talk.goes_on(100).await;
        assert!(fallback(c, "a").await >= sent + 50);
        assert_eq!(stats(c, "a").await["mesh"]["unreached"], 1);
        assert_eq!(stats(c, "c").await["mesh"]["unreached"], 0);

        let healing = [talk.said(A), talk.said(B)];
        network.heal();
        let heal = Instant::now();
        meshed(c, network.names()).await;
        let took = heal.elapsed();
        assert!(took < DIALLED + HEARTBEAT + SLACK, "linked again after {took:?}");
        let healed = [talk.said(A), talk.said(B)];
        warns(a, None).await;
        warns(b, None).await;
        talk.goes_on(100).await;
        let (sent, by_mesh) = (fallback(c, "a").await, over(c, "a", "b").await);
        talk.goes_on(100).await;
        eventually(LONG, "the mesh is used", async || over(c, "a", "b").await >= by_mesh + 100).await;
        assert_eq!(fallback(c, "a").await, sent, "the mesh is whole, and not used");
        let transcript = talk.end().await;
        transcript.is_in_order();
        for (speaker, listener) in [(A, B), (B, A)] {
            // What was on its way when the path was cut may be lost.
            let said = transcript.said(speaker);
            let lost = transcript.missed(listener, speaker, 0..said);
            let (first, last) = (before[speaker].saturating_sub(5), around[speaker]);
            let moved = healing[speaker]..healed[speaker];
            assert!(
                lost.iter().all(|number| (first..last).contains(number) || moved.contains(number)),
                "cut {before:?}, around {around:?}, healed {healing:?} to {healed:?}: lost {lost:?}"
            );
            // Overtaken, or on a connection that one of higher rank has replaced.
            let overtaken = lost.iter().filter(|number| moved.contains(number)).count();
            assert!(overtaken <= 5, "{lost:?}");
        }
        for speaker in [A, B] {
            for listener in [speaker, C] {
                transcript.is_whole(listener, speaker);
            }
        }
    });
}

/// Waits until the node's health says that of its mesh, or nothing.
async fn warns(node: &Node, text: Option<&str>) {
    eventually(LONG, &format!("{} warns: {text:?}", node.url), async || {
        let Some((200, health)) = node.health().await else { return false };
        let warnings = health["warnings"].as_array().into_iter().flatten();
        let mut of_mesh =
            warnings.filter_map(|warning| warning.as_str()).filter(|warning| warning.contains("mesh"));
        match text {
            Some(text) => of_mesh.any(|warning| warning.contains(text)),
            None => of_mesh.next().is_none(),
        }
    })
    .await;
}
