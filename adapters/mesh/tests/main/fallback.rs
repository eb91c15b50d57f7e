//! What a link cannot carry goes by the fallback, once, and traffic comes back to the link in order.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use switchboard_core::ports::{EphemeralBus, EphemeralError, EphemeralStream};
use switchboard_core::presence::{Presence, PresenceConfig};
use switchboard_core::types::{Channel, EventName, Payload, PresenceKey};
use tokio::time::{Instant, sleep};

use crate::cluster::{Cluster, Member, channel, next, nothing, socket, until};
use crate::wire::{Way, Wire};

/// Two nodes, and what lies between them.
async fn pair(cluster: &Cluster) -> (Member, Member, [Wire; 2]) {
    let (one, other) = (socket(Ipv4Addr::LOCALHOST.into()), socket(Ipv4Addr::LOCALHOST.into()));
    let wires = [Wire::to(one.local_addr().unwrap()).await, Wire::to(other.local_addr().unwrap()).await];
    let a = cluster.member("a", one, wires[0].endpoint()).await;
    let b = cluster.member("b", other, wires[1].endpoint()).await;
    linked(&a, &b).await;
    (a, b, wires)
}

async fn linked(a: &Member, b: &Member) {
    a.has_links(&["b"]).await;
    b.has_links(&["a"]).await;
}

async fn unlinked(a: &Member, b: &Member) {
    a.has_links(&[]).await;
    b.has_links(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b093_b097_a_silent_path_is_left_within_two_seconds_and_taken_again_when_it_heals() {
    let cluster = Cluster::new();
    let (a, b, wires) = pair(&cluster).await;
    let mut events = b.subscribe("room:1").await;
    for round in 0..3 {
        wires.iter().for_each(Wire::cut);
        let cut = Instant::now();
        unlinked(&a, &b).await;
        assert!(cut.elapsed() < Duration::from_secs(2), "suspected after {:?}", cut.elapsed());
        let before = a.count("fallback_sent_total");
        for n in 0..50 {
            a.say("room:1", n).await;
            assert_eq!(next(&mut events).await, n.to_string());
        }
        assert_eq!(a.count("fallback_sent_total") - before, 50);
        wires.iter().for_each(Wire::heal);
        let healed = Instant::now();
        linked(&a, &b).await;
        assert!(healed.elapsed() < Duration::from_secs(7), "linked after {:?}", healed.elapsed());
        a.say("room:1", round).await;
        assert_eq!(next(&mut events).await, round.to_string());
        nothing(&mut events);
    }
    assert_eq!(a.count("late_total") + b.count("late_total"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_behind_a_lost_link_is_marked_within_two_seconds_and_stays_present() {
    let cluster = Cluster::new();
    let (a, b, wires) = pair(&cluster).await;
    let [here, there] = [&a, &b].map(|member| {
        Presence::spawn(member.bus.clone(), &member.node, PresenceConfig::default(), &member.stats)
    });
    let (room, alice, meta) =
        (channel("room:1"), PresenceKey::parse("alice").unwrap(), Payload::parse("{}").unwrap());
    let _tracked = there.track(&room, &alice, &meta).unwrap();
    until("alice is seen", || here.list(&room).contains_key(&alice)).await;
    assert!(here.list_suspect(&room).is_empty());
    wires.iter().for_each(Wire::cut);
    let cut = Instant::now();
    until("alice is marked", || here.list_suspect(&room).contains_key(&alice)).await;
    assert!(cut.elapsed() < Duration::from_secs(2), "marked after {:?}", cut.elapsed());
    assert!(here.list(&room).contains_key(&alice) && there.list_suspect(&room).is_empty());
    assert_eq!(a.gauge("presence_suspect_entries"), 1);
    wires.iter().for_each(Wire::heal);
    until("the mark is taken back", || here.list_suspect(&room).is_empty()).await;
    assert!(here.list(&room).contains_key(&alice));
}

#[tokio::test(flavor = "multi_thread")]
async fn b093_a_path_that_swallows_large_packets_one_way_is_left_and_taken_again_when_it_heals() {
    let cluster = Cluster::new();
    let (a, b, wires) = pair(&cluster).await;
    let swallow = |swallow| {
        wires[0].swallow_large(Way::Back, swallow);
        wires[1].swallow_large(Way::There, swallow);
    };
    let (mut there, mut here) = (b.subscribe("room:1").await, a.subscribe("room:2").await);
    swallow(true);
    for n in 0..20 {
        a.say("room:1", n).await;
        assert_eq!(next(&mut there).await, n.to_string());
        b.say("room:2", n).await;
        assert_eq!(next(&mut here).await, n.to_string());
        sleep(Duration::from_millis(200)).await;
    }
    assert_eq!((a.linked(), b.linked()), (vec!["b".to_owned()], vec!["a".to_owned()]), "small ones pass");
    let large = |n| format!("\"{n}{}\"", "x".repeat(4096));
    let mut said = 0;
    let gone = Instant::now();
    while !a.linked().is_empty() {
        a.say("room:1", large(said)).await;
        said += 1;
        assert!(gone.elapsed() < Duration::from_secs(5), "not noticed");
        sleep(Duration::from_millis(50)).await;
    }
    unlinked(&a, &b).await;
    let sent = a.count("fallback_sent_total");
    for n in said..said + 50 {
        a.say("room:1", large(n)).await;
        assert_eq!(next(&mut there).await, large(n));
    }
    assert_eq!(a.count("fallback_sent_total"), sent + 50);
    swallow(false);
    linked(&a, &b).await;
    a.say("room:1", large(said + 50)).await;
    assert_eq!(next(&mut there).await, large(said + 50));
    nothing(&mut there);
}

/// Whatever way they take, what arrives is in order, and nothing comes twice.
#[tokio::test(flavor = "multi_thread")]
async fn order_holds_while_the_path_comes_and_goes() {
    let cluster = Cluster::new();
    let (a, b, wires) = pair(&cluster).await;
    let mut events = b.subscribe("room:1").await;
    let publish = async {
        let mut said = 0_u64;
        for cut in [false, true, false, true, false] {
            wires.iter().for_each(if cut { Wire::cut } else { Wire::heal });
            let until = Instant::now() + Duration::from_millis(if cut { 2500 } else { 1500 });
            while Instant::now() < until {
                said += 1;
                a.say("room:1", said).await;
                sleep(Duration::from_millis(2)).await;
            }
        }
        linked(&a, &b).await;
        a.say("room:1", "\"end\"").await;
        said
    };
    let receive = async {
        let mut heard = Vec::new();
        loop {
            let payload = next(&mut events).await;
            let Ok(number) = payload.parse::<u64>() else { return heard };
            heard.push(number);
        }
    };
    let (said, heard) = tokio::join!(publish, receive);
    assert!(heard.is_sorted_by(|before, after| before < after), "out of order, or twice");
    // What was on its way when the path was cut.
    let bound = said / 2;
    assert!(heard.len() as u64 > bound, "{} of {said} arrived", heard.len());
    assert!(a.count("fallback_sent_total") > 0 && a.fact("b", "sent_total").as_u64().unwrap() > 0);
}

/// A bus that is slow, as PostgreSQL may be.
struct Slow {
    bus: Arc<dyn EphemeralBus>,
    held: Mutex<Option<Vec<(Channel, EventName, Payload)>>>,
}

impl Slow {
    async fn release(&self) {
        let held = self.held.lock().take().unwrap();
        for (channel, event, payload) in held {
            self.bus.publish(&channel, &event, &payload).await.unwrap();
        }
    }
}

#[async_trait]
impl EphemeralBus for Slow {
    async fn publish(
        &self,
        channel: &Channel,
        event: &EventName,
        payload: &Payload,
    ) -> Result<(), EphemeralError> {
        if let Some(held) = &mut *self.held.lock() {
            held.push((channel.clone(), event.clone(), payload.clone()));
            return Ok(());
        }
        self.bus.publish(channel, event, payload).await
    }

    async fn subscribe(&self, channel: &Channel) -> Result<EphemeralStream, EphemeralError> {
        self.bus.subscribe(channel).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_envelope_that_later_events_have_overtaken_is_not_delivered() {
    let cluster = Cluster::new();
    let slow = Arc::new(Slow { bus: cluster.memory.ephemeral(), held: Mutex::new(Some(Vec::new())) });
    let (one, other) = (socket(Ipv4Addr::LOCALHOST.into()), socket(Ipv4Addr::LOCALHOST.into()));
    let wires = [Wire::to(one.local_addr().unwrap()).await, Wire::to(other.local_addr().unwrap()).await];
    wires.iter().for_each(Wire::cut);
    let facts = one.facts();
    let a = cluster.with_fallback("a", one, wires[0].endpoint(), facts, slow.clone()).await;
    let b = cluster.member("b", other, wires[1].endpoint()).await;
    let mut events = b.subscribe("room:1").await;
    a.routed(1).await;
    until("a sees b", || a.node.membership().borrow().size() == 2).await;
    a.routed(1).await;
    a.say("room:1", 1).await;
    wires.iter().for_each(Wire::heal);
    linked(&a, &b).await;
    a.say("room:1", 2).await;
    assert_eq!(next(&mut events).await, "2");
    slow.release().await;
    until("it is counted", || b.count("late_total") == 1).await;
    nothing(&mut events);
    // And when it is needed again, it counts again.
    wires.iter().for_each(Wire::cut);
    unlinked(&a, &b).await;
    a.say("room:1", 3).await;
    assert_eq!(next(&mut events).await, "3");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_change_to_the_mesh_loses_and_repeats_nothing() {
    let cluster = Cluster::new();
    let old = cluster.plain("n0").await;
    let mut heard_by_old = old.subscribe("room:1").await;
    let (a, b) = (cluster.start("a").await, cluster.start("b").await);
    for member in [&a, &b] {
        until("all are seen", || member.node.membership().borrow().size() == 3).await;
        member.routed(2).await;
    }
    let mut heard_by_b = b.subscribe("room:1").await;
    for (speaker, text) in [(&old, "1"), (&a, "2"), (&b, "3")] {
        speaker.say("room:1", text).await;
        assert_eq!(next(&mut heard_by_old).await, text);
        assert_eq!(next(&mut heard_by_b).await, text);
    }
    assert!(a.degraded().unwrap().contains("n0 has no mesh"));
    drop(heard_by_old);
    old.leave().await;
    linked(&a, &b).await;
    for member in [&a, &b] {
        until("it is seen to be gone", || member.node.membership().borrow().size() == 2).await;
        member.routed(1).await;
    }
    until("the warning ends", || a.degraded().is_none()).await;
    let new = cluster.start("n0").await;
    new.has_links(&["a", "b"]).await;
    let mut heard_by_new = new.subscribe("room:1").await;
    let before = a.count("fallback_sent_total");
    a.say("room:1", 4).await;
    assert_eq!(next(&mut heard_by_b).await, "4");
    assert_eq!(next(&mut heard_by_new).await, "4");
    nothing(&mut heard_by_b);
    nothing(&mut heard_by_new);
    assert_eq!(a.count("fallback_sent_total"), before, "the mesh is whole, and not used");
}
