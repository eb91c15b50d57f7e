//! Events that are larger than what the path takes in one packet.

use std::ops::RangeInclusive;
use std::time::Duration;

use switchboard_testkit::{LONG, eventually};
use tokio::time::Instant;

use super::conversation::Conversation;
use super::network::{Family, Network, apart};
use super::{Ear, linked, meshed, over, say, stats};
use crate::node::{HEARTBEAT, Node, SLACK};

/// How long nothing may arrive before a link is given up that is not silent, until that is looked at.
const GIVEN_UP: Duration = Duration::from_secs(4);
/// The largest payload of an ephemeral event.
const LARGEST: usize = 64 * 1024;

#[test]
fn b093_events_of_every_size_cross_links_of_1280_bytes() {
    for (family, headers) in [(Family::V4, 28), (Family::V6, 48)] {
        apart(async || {
            let network = Network::new(2, family, 1280).await;
            let nodes = network.start_all().await;
            meshed(&nodes[0], network.names()).await;
            let mut ears = [Ear::on(&nodes[0], "room:1").await, Ear::on(&nodes[1], "room:1").await];
            let sizes = [2, 1000, 1200, 1232, 1252, 1280, 1400, 1500, 4096, 16_384, LARGEST - 1, LARGEST];
            for (n, size) in sizes.into_iter().enumerate() {
                let text = "x".repeat(size - 2);
                say(&nodes[n % 2], text.clone()).await;
                for ear in &mut ears {
                    assert_eq!(ear.hears().await, text);
                }
            }
            let sent = format!("{} events went over the link", sizes.len() / 2);
            eventually(LONG, &sent, async || over(&nodes[0], "a", "b").await >= sizes.len() as u64 / 2).await;
            let mtu = mtu(&nodes[0], "a", "b").await;
            assert!((1200..=1280 - headers).contains(&mtu), "{mtu}");
        });
    }
}

/// As when a tunnel comes into the path: what is too large vanishes without a word.
#[test]
fn b093_large_events_arrive_when_the_path_takes_less_than_before() {
    apart(async || path_shrinks(1500, 1400..=1472, 1280).await);
}

#[test]
fn b093_large_frames_are_made_use_of_while_the_path_takes_them() {
    apart(async || path_shrinks(9000, 6500..=6550, 1500).await);
}

/// Packets of `taken` bytes pass at first, which makes for those of ours that are in `found`, and from some moment on only those of `taken_now`.
async fn path_shrinks(taken: u16, found: RangeInclusive<u64>, taken_now: u64) {
    let network = Network::new(2, Family::V4, taken).await;
    let nodes = network.start_all().await;
    meshed(&nodes[0], network.names()).await;
    let both = async |found: &RangeInclusive<u64>| {
        let sizes = [mtu(&nodes[0], "a", "b").await, mtu(&nodes[0], "b", "a").await];
        sizes.iter().all(|mtu| found.contains(mtu))
    };
    eventually(LONG, "both have found what the path takes", async || both(&found).await).await;
    let talk = Conversation::start(&[&nodes[0], &nodes[1]], 2, Duration::from_millis(50), LARGEST / 4).await;
    talk.goes_on(20).await;
    network.rules(&[format!("meta length > {taken_now} drop")]);
    let found = 1200..=taken_now - 28;
    eventually(LONG, "both have found what the path takes now", async || both(&found).await).await;
    talk.goes_on(50).await;
    let transcript = talk.end().await;
    for (listener, speaker) in [(0, 1), (1, 0)] {
        transcript.is_whole(listener, speaker);
        let slowest = transcript.slowest(listener, speaker);
        assert!(slowest < Duration::from_secs(2) + SLACK, "{slowest:?}");
    }
}

/// Less than QUIC can do with: signs of life pass, events do not.
#[test]
fn b093_a_path_that_swallows_large_packets_one_way_is_gone_around_and_used_again() {
    apart(async || {
        let network = Network::new(2, Family::V4, 1500).await;
        let nodes = network.start_all().await;
        let [a, b] = &nodes[..] else { unreachable!() };
        meshed(a, network.names()).await;
        let talk = Conversation::start(&[a, b], 2, Duration::from_millis(20), 4096).await;
        talk.goes_on(50).await;
        let before = [talk.said(0), talk.said(1)];
        network.rules(&[format!("{} meta length > 1200 drop", network.between("a", "b"))]);
        let swallowed = Instant::now();
        linked(a, "a", &[]).await;
        linked(a, "b", &[]).await;
        let took = swallowed.elapsed();
        assert!(took < GIVEN_UP + HEARTBEAT + SLACK, "given up after {took:?}");
        let around = [talk.said(0), talk.said(1)];
        talk.goes_on(100).await;
        let healing = [talk.said(0), talk.said(1)];
        network.heal();
        meshed(a, network.names()).await;
        let healed = [talk.said(0), talk.said(1)];
        talk.goes_on(100).await;
        let transcript = talk.end().await;
        transcript.is_in_order();
        for (listener, speaker) in [(0, 1), (1, 0)] {
            let spans = [
                0..before[speaker].saturating_sub(5),
                around[speaker]..healing[speaker],
                healed[speaker]..transcript.said(speaker),
            ];
            for span in spans {
                assert_eq!(
                    transcript.missed(listener, speaker, span.clone()),
                    Vec::<usize>::new(),
                    "{span:?}"
                );
            }
        }
    });
}

/// What the link from `name` to `peer` takes in one packet; 0 if there is no link.
async fn mtu(asked: &Node, name: &str, peer: &str) -> u64 {
    stats(asked, name).await["mesh"]["peers"][peer]["mtu"].as_u64().unwrap_or_default()
}
