//! Paths that lose packets, and paths that remember who has spoken and forget it.

use std::time::Duration;

use switchboard_testkit::{LONG, eventually};
use tokio::time::sleep;

use super::conversation::Conversation;
use super::network::{Family, Network, apart};
use super::router::Router;
use super::{Ear, links_made, meshed, over, say};

/// The losses are of single packets, in both directions, of events and of signs of life alike.
#[test]
fn b086_a_path_that_loses_two_of_a_hundred_packets_loses_no_event_and_no_link() {
    apart(async || {
        let network = Network::new(3, Family::V4, 1500).await;
        let nodes = network.start_all().await;
        meshed(&nodes[0], network.names()).await;
        network.rules(&["numgen random mod 100 < 2 counter drop".to_owned()]);
        let everybody: Vec<_> = nodes.iter().collect();
        let talk = Conversation::start(&everybody, 3, Duration::from_millis(10), 4096).await;
        talk.goes_on(500).await;
        let transcript = talk.end().await;
        for listener in 0..3 {
            (0..3).for_each(|speaker| transcript.is_whole(listener, speaker));
        }
        // And with nothing but signs of life.
        sleep(Duration::from_secs(10)).await;
        assert!(!network.has_rule("counter packets 0 "), "nothing was lost");
        for (name, node) in network.names().iter().zip(&nodes) {
            for peer in network.names().iter().filter(|peer| *peer != name) {
                assert_eq!(links_made(node, peer), 1, "{name} to {peer}\n{}", node.process.output());
            }
        }
    });
}

/// `b` is behind a router that hides its address, as most do, and forgets who has spoken after less time than any would.
#[test]
fn b086_an_idle_link_outlasts_the_memory_of_routers_and_comes_back_when_one_forgets() {
    apart(async || {
        let network = Network::new(2, Family::V4, 1500).await;
        let router = Router::new(&network, "b", 2);
        let a = network.start("a").await;
        let b = router.start().await;
        meshed(&a, network.names()).await;
        sleep(Duration::from_secs(10)).await;
        assert_eq!((links_made(&a, "b"), links_made(&b, "a")), (1, 1), "it did not last");
        let mut ears = [Ear::on(&a, "room:1").await, Ear::on(&b, "room:1").await];
        let mut said = 0;
        for _ in 0..2 {
            for node in [&a, &b, &a, &b] {
                said += 1;
                say(node, said).await;
                for ear in &mut ears {
                    assert_eq!(ear.hears().await, said);
                }
            }
            let made = links_made(&b, "a");
            router.forget();
            eventually(LONG, "there is a new link", async || {
                links_made(&b, "a") > made && links_made(&a, "b") > made
            })
            .await;
            meshed(&a, network.names()).await;
        }
        let before = over(&a, "a", "b").await;
        say(&a, "end").await;
        for ear in &mut ears {
            assert_eq!(ear.hears().await, "end");
        }
        eventually(LONG, "it went over the link", async || over(&a, "a", "b").await > before).await;
    });
}
